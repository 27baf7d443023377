//go:build unix

package provision

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// failWithCode has CreateVolume fail with a code and make nothing.
func failWithCode(code string) faults.Rule {
	return faults.Rule{Method: "CreateVolume", Action: faults.Fail, Code: code}
}

// removeNode removes a node, and the driver from it.
func (env *environment) removeNode(name string) {
	env.T.Helper()
	env.Nodes().Delete(name)
	env.CSINodes().Delete(name)
}

// expectOneVolume checks that the driver has one volume.
func (env *environment) expectOneVolume() {
	env.T.Helper()
	if there := env.VolumesOnDisk(); len(there) != 1 {
		env.T.Errorf("there are %d volumes, want one: %v", len(there), there)
	}
}

// twoZones is a driver with two zones. The first zone has room only for small volumes.
func twoZones() (zone string, options mockdriver.Options) {
	name := "zones-" + rand.String(8) + ".csi-reclaimer.io"
	zone = name + "/zone"
	return zone, mockdriver.Options{Name: name, Args: []string{"--place=" + zone + "=a@1Mi", "--place=" + zone + "=b"}}
}

// zoneOf is the zone of a PV.
func zoneOf(pv *v1.PersistentVolume) string {
	return pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
}

// TestTopologyChangesWhileVolumeIsInFlight loses the answer to CreateVolume. The volume is in zone b, and zone b loses
// its last node. The sidecar repeats the same request. The claim gets that volume or, if the claim is deleted, the
// volume is deleted, too.
func TestTopologyChangesWhileVolumeIsInFlight(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	for name, deleted := range map[string]bool{"the claim gets its volume": false, "the claim is deleted": true} {
		t.Run("immediate binding: "+name, func(t *testing.T) {
			fixture.Begin(t, suite.Variant)
			zone, options := twoZones()
			env := newForRole(t, "owner", options)
			env.CreateNode(map[string]string{zone: "a"})
			leaves := env.CreateNode(map[string]string{zone: "b"})
			env.StartSidecar(fixture.FastRetries()...)
			claim := env.claimWithLostAnswer(env.CreateStorageClass(), withSize("2Mi"))
			env.removeNode(leaves)
			if deleted {
				env.MustDeleteClaim(claim)
				env.WaitClaim(claim, "gone", fixture.ClaimIsGone) // while the driver does not answer
			}
			env.Must(env.MockDriver.ClearFaults(env.Ctx))
			if deleted {
				env.waitSettled(claim)
				env.waitVolumeGone(claim)
				return
			}
			vol := env.WaitBound(claim)
			if zoneOf(vol.BoundPV) != "b" {
				t.Errorf("the PV is in zone %s", zoneOf(vol.BoundPV))
			}
			env.expectOneVolume()
			env.waitSettled(claim)
			env.MustDeleteClaim(claim)
			env.waitVolumeGone(claim)
		})
	}
	t.Run("late binding: another node is selected", func(t *testing.T) {
		t.Parallel()
		zone, options := twoZones()
		env := newForRole(t, "owner", options)
		first, second := env.CreateNode(map[string]string{zone: "a"}), env.CreateNode(map[string]string{zone: "b"})
		env.StartSidecar(append(fixture.FastRetries(), "--strict-topology")...)
		claim := env.claimWithLostAnswer(env.CreateStorageClass(fixture.WithWaitForFirstConsumer),
			fixture.WithSelectedNode(first))
		env.removeNode(first)
		env.WaitClaim(claim, "without a selected node", func(now *v1.PersistentVolumeClaim) bool {
			return now != nil && now.Annotations[objects.SelectedNode] == ""
		})
		env.Claims().Annotate(claim.Name, objects.SelectedNode, second)
		env.Must(env.MockDriver.ClearFaults(env.Ctx))
		env.WaitBound(claim)
		env.expectOneVolume()
		env.waitSettled(claim)
		env.MustDeleteClaim(claim)
		env.waitVolumeGone(claim)
	})
}

// TestClassChangesWhileVolumeIsInFlight has the driver refuse the class's new parameters with InvalidArgument. The
// refusal says nothing about the volume of the first request.
func TestClassChangesWhileVolumeIsInFlight(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	for _, restarts := range []bool{false, true} {
		name := map[bool]string{false: "while it runs", true: "over a restart"}[restarts]
		t.Run(name, func(t *testing.T) {
			if !restarts {
				suite.Deep(t, suite.Variant)
			}
			t.Parallel()
			env := newForRole(t, "owner", mockdriver.Options{Args: []string{"--parameters=tier"}})
			car := env.StartSidecar(fixture.FastRetries()...)
			class := env.CreateStorageClass(withParameter("tier", "gold"))
			claim := env.claimWithLostAnswer(class)
			if restarts {
				car.Kill()
			}
			env.StorageClasses().Delete(class)
			env.CreateClass(objects.Class{Name: class, Parameters: map[string]string{"teir": "gold"}})
			env.MustDeleteClaim(claim)
			env.Must(env.MockDriver.ClearFaults(env.Ctx))
			if restarts {
				env.Must(car.Restart())
			}
			env.WaitClaim(claim, "gone", fixture.ClaimIsGone)
			env.waitSettled(claim)
			env.waitVolumeGone(claim)
		})
	}
}

// TestAlreadyExistsOnFirstCallLeavesNoEntry expects no in-flight entry: the existing volume is not ours.
func TestAlreadyExistsOnFirstCallLeavesNoEntry(t *testing.T) {
	env := begin(t, fixture.AboutDriver)
	env.StartSidecar(fixture.FastRetries()...)
	env.SetFaults(failWithCode("AlreadyExists"))
	claim := env.CreateClaim(env.CreateStorageClass())
	env.WaitClaimEvent(claim, "ProvisioningFailed", "AlreadyExists")
	env.expectDeletable(claim)
	env.waitSettled(claim)
	env.ExpectNothingLeft(claim)
}

// TestUncertainCreateVolumeBlocksNoDeletion leaves open whether the volume exists. Neither the claim nor its namespace
// waits for the volume. When the driver recovers, the volume gets a PV and is reclaimed.
func TestUncertainCreateVolumeBlocksNoDeletion(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	lost := faults.Rule{Name: "lost", Method: "CreateVolume", Action: faults.Fail, AfterWork: true,
		Code: "DeadlineExceeded", First: 1, PerVolume: true}
	for name, rules := range map[string][]faults.Rule{
		"Internal": {failWithCode("Internal")}, "Unknown": {failWithCode("Unknown")},
		"ResourceExhausted after a timeout": {lost, failWithCode("ResourceExhausted")},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "Unknown" {
				suite.Deep(t, suite.Variant)
			}
			env := begin(t)
			env.StartSidecar(fixture.FastRetries()...)
			users, class := env.inOtherNamespace(), env.CreateStorageClass()
			env.SetFaults(rules...)
			deleted, inNamespace := env.CreateClaim(class), users.CreateClaim(class)
			for _, claim := range []*objects.Claim{deleted, inNamespace} {
				env.Eventually("it was asked twice", func() bool { return len(env.CreateCalls(claim)) > 1 })
			}
			env.MustDeleteClaim(deleted)
			users.DeleteNamespace()
			env.WaitClaim(deleted, "gone", fixture.ClaimIsGone)
			users.WaitNamespaceGone()
			if !env.IsInFlight(deleted) || !env.IsInFlight(inNamespace) {
				t.Error("the driver did not report whether the volume exists, and the entry is removed")
			}
			env.Must(env.MockDriver.ClearFaults(env.Ctx))
			for _, claim := range []*objects.Claim{deleted, inNamespace} {
				env.waitSettled(claim)
				env.waitVolumeGone(claim)
			}
		})
	}
}

// TestUninstallFinishesInFlightVolumes expects the uninstallation to finish the entries, or to name them.
func TestUninstallFinishesInFlightVolumes(t *testing.T) {
	fixture.Begin(t, fixture.AboutProgram)
	// left returns a claim with a volume in flight while no sidecar runs.
	left := func(env *environment) *objects.Claim {
		car := env.StartSidecar(fixture.FastRetries()...)
		claim := env.claimWithLostAnswer(env.CreateStorageClass())
		env.Must(car.Terminate())
		if !env.IsInFlight(claim) {
			env.T.Error("nothing is in flight")
		}
		return claim
	}
	quiet := "--in-flight-quiet-period=2s"
	t.Run("--release-finalizers finishes it", func(t *testing.T) {
		env := begin(t)
		claim := left(env)
		env.Must(env.MockDriver.ClearFaults(env.Ctx))
		output, err := env.ReleaseFinalizers(quiet)
		if err != nil || env.IsInFlight(claim) {
			t.Errorf("%v, in flight: %v, output %q", err, env.IsInFlight(claim), output)
		}
		vol := env.WaitBound(claim)
		if fixture.HasFinalizer(vol.BoundPV) {
			t.Error("the PV has the finalizer")
		}
		env.expectDeletable(claim)
	})
	t.Run("--provision=false finishes it", func(t *testing.T) {
		env := begin(t, suite.Variant)
		claim := left(env)
		env.Must(env.MockDriver.ClearFaults(env.Ctx))
		env.StartSidecar(append(fixture.FastRetries(), "--provision=false")...)
		env.WaitBound(claim)
		env.waitSettled(claim)
		env.expectOneVolume()
	})
	for _, role := range []string{"companion", "observer"} {
		t.Run("role "+role+" finishes it", func(t *testing.T) {
			env := begin(t, suite.Variant)
			claim := left(env)
			env.ClusterRoleBindings().Delete(env.Namespace)
			env.Must(rbac.GrantSidecar(env.Ctx, env.Client, env.Namespace, "csi-reclaimer", role))
			env.Must(env.MockDriver.ClearFaults(env.Ctx))
			env.StartSidecar(append(fixture.FastRetries(), "--role="+role)...)
			env.WaitBound(claim)
			env.waitSettled(claim)
			env.expectOneVolume()
		})
	}
	t.Run("kubectl reclaim names it", func(t *testing.T) {
		env := begin(t)
		claim := left(env)
		output, err := env.WaitExit(env.StartPlugin("release", "--driver="+env.Driver, "--yes"))
		if err == nil {
			t.Error("the release succeeds, and a volume is in flight")
		}
		env.ExpectOutput(output,
			"Volume "+fixture.PVName(claim)+", for claim "+env.Namespace+"/"+claim.Name+", has been in flight since",
			"is in flight, and nothing finishes it")
		env.ExpectOutput(env.RunPlugin("status", "--driver="+env.Driver), "1 (", fixture.PVName(claim))
		wayOut := "kubectl reclaim settle " + fixture.PVName(claim)
		env.ExpectOutput(env.RunPlugin("explain", "pvc/"+claim.Name), "In flight", fixture.PVName(claim), wayOut)
		env.expectDeletable(claim)
		env.ExpectOutput(env.RunPlugin("explain", "pvc/"+claim.Name),
			"does not exist, and volume "+fixture.PVName(claim)+" has been in flight", wayOut)
	})
}

// TestInFlightEntryIsSettled expects a running sidecar to drop a settled entry.
func TestInFlightEntryIsSettled(t *testing.T) {
	env := begin(t, fixture.AboutProgram)
	env.StartSidecar(fixture.FastRetries()...)
	env.SetFaults(failWithCode("Internal"))
	claim := env.CreateClaim(env.CreateStorageClass())
	env.Eventually("the volume is in flight",
		func() bool { return env.IsInFlight(claim) && len(env.CreateCalls(claim)) > 1 })
	env.expectDeletable(claim)
	entry := env.InFlightEntries()[fixture.PVName(claim)]
	env.ExpectOutput(env.RunPlugin("settle", fixture.PVName(claim), "--yes"), "drops 1 volume from its log")
	env.Eventually("the entry leaves the log", func() bool {
		lease, err := env.Client.CoordinationV1().Leases(entry.Lease.Namespace).Get(env.Ctx, entry.Lease.Name,
			metav1.GetOptions{})
		env.Must(err)
		return lease.Annotations[entry.Annotation] == ""
	})
	env.Must(env.MockDriver.ClearFaults(env.Ctx))
	env.WaitBound(env.CreateClaim(env.CreateStorageClass()))
	env.ExpectNothingLeft(claim)
}

// TestTwoOwnersWithoutElection starts a second process that provisions for a driver, as a Deployment with two replicas
// does. The one that started last serves alone, and the other one waits, ready and without controllers.
func TestTwoOwnersWithoutElection(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	env := newForRole(t, "owner", mockdriver.Options{})
	class := env.CreateStorageClass()
	first := env.StartSidecar(fixture.FastRetries()...)
	env.WaitBound(env.CreateClaim(class))
	second := env.StartSidecar(fixture.FastRetries()...)
	serve := func(by, waits *program.Program) {
		vol := env.WaitBound(env.CreateClaim(class)) // the first write of the log by both
		env.Must(waits.WaitLog(env.WithTimeout(), "Stopped for another process"))
		if log, err := waits.Log(); err != nil || !strings.Contains(log, "all with --leader-election") {
			t.Errorf("the log names no way out: %v", err)
		}
		env.MustDeleteClaim(vol.BoundClaim)
		env.Must(vol.WaitGone(env.WithTimeout()))
		created, deleted := len(env.CreateCalls(vol.BoundClaim)), len(env.DeleteCalls(vol.Handle))
		if created != 1 || deleted != 1 {
			t.Errorf("%d CreateVolume and %d DeleteVolume calls", created, deleted)
		}
		if _, err := waits.Get(env.WithTimeout(), "/readyz"); err != nil || waits.Err() != nil || by.Err() != nil {
			t.Errorf("ready: %v; ended with: %v; the other one: %v", err, waits.Err(), by.Err())
		}
	}
	serve(second, first)
	env.Must(first.Terminate())
	env.Must(first.Restart())
	env.Must(first.WaitReady(env.WithTimeout()))
	serve(first, second)
}

// TestDriverReplacedUnderRunningSidecar replaces the driver by one with other capabilities on the same socket.
func TestDriverReplacedUnderRunningSidecar(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	t.Run("clones", func(t *testing.T) {
		t.Parallel()
		env := newForRole(t, "owner", mockdriver.Options{})
		env.Must(env.MockDriver.Restart(env.Ctx, "--disable-capabilities=CLONE_VOLUME"))
		car := env.StartSidecar(fixture.FastRetries()...)
		pid := car.PID()
		class := env.CreateStorageClass()
		original := env.WaitBound(env.CreateClaim(class))
		clone := env.CreateClaim(class, fixture.CloneOf(original.BoundClaim))
		env.WaitClaimEvent(clone, "ProvisioningFailed", "CLONE_VOLUME")
		env.Must(env.MockDriver.Restart(env.Ctx))
		want := backend.Source{VolumeID: original.Handle}
		if there := env.volumeOnDisk(env.WaitBound(clone)); there.Source != want {
			t.Errorf("the volume is made from %+v", there.Source)
		}
		if car.PID() != pid || car.Err() != nil {
			t.Error("the sidecar was restarted")
		}
	})
	t.Run("topology", func(t *testing.T) {
		t.Parallel()
		env := newForRole(t, "owner", mockdriver.Options{})
		car := env.StartSidecar(fixture.FastRetries()...)
		class := env.CreateStorageClass()
		env.WaitBound(env.CreateClaim(class))
		env.CreateNode(map[string]string{"zone": "a"})
		env.Must(env.MockDriver.Restart(env.Ctx, "--topology=zone=a"))
		claim := env.CreateClaim(class)
		select {
		case <-car.Done():
		case <-env.WithTimeout().Done():
			t.Fatal("the sidecar goes on with a driver that it was not set up for")
		}
		if log := car.LogTail(3); car.Err() == nil || !strings.Contains(log, "VOLUME_ACCESSIBILITY_CONSTRAINTS") {
			t.Errorf("it ended with %v, and its log with:\n%s", car.Err(), log)
		}
		if n := len(env.CreateCalls(claim)); n != 0 {
			t.Errorf("%d CreateVolume calls without topology", n)
		}
		env.Must(car.Restart()) // as the kubelet does
		affinity := env.WaitBound(claim).BoundPV.Spec.NodeAffinity
		if affinity == nil || len(affinity.Required.NodeSelectorTerms) != 1 {
			t.Errorf("the PV has the node affinity %+v", affinity)
		}
	})
	t.Run("another driver", func(t *testing.T) {
		t.Parallel()
		env := newForRole(t, "owner", mockdriver.Options{})
		car := env.StartSidecar(fixture.FastRetries()...)
		vol := env.WaitBound(env.CreateClaim(env.CreateStorageClass()))
		env.Must(env.MockDriver.Restart(env.Ctx, "--name=other.csi.example.com"))
		env.MustDeleteClaim(vol.BoundClaim)
		select {
		case <-car.Done():
		case <-env.WithTimeout().Done():
			t.Fatal("the sidecar goes on with another driver")
		}
		if log := car.LogTail(3); car.Err() == nil || !strings.Contains(log, "other.csi.example.com") {
			t.Errorf("it ended with %v, and its log with:\n%s", car.Err(), log)
		}
		if n := env.DeleteCallCounts()[vol.Handle]; n != 0 {
			t.Errorf("%d DeleteVolume calls to another driver", n)
		}
		env.Must(env.MockDriver.Restart(env.Ctx))
		env.Must(car.Restart())
		env.Must(vol.WaitGone(env.WithTimeout()))
	})
}
