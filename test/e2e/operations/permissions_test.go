//go:build unix

package operations

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestPermissionsAreNecessaryAndSufficient exercises each role with the shipped RBAC, and compares the requests with
// the rules, in both directions.
func TestPermissionsAreNecessaryAndSufficient(t *testing.T) {
	fixture.Begin(t, fixture.AboutRequests)
	for _, role := range []string{"owner", "node", "companion", "observer"} {
		t.Run(role, func(t *testing.T) {
			if role != "owner" {
				suite.Deep(t, suite.Load)
			}
			t.Parallel()
			// Without PUBLISH_UNPUBLISH_VOLUME the CSIDriver is asked whether volumes are attached.
			options := mockdriver.Options{Profile: "no-attach"}
			if role == "owner" {
				options.Args = []string{"--topology=zone=a"} // so that nodes matter
			}
			var place, node string
			if role == "node" {
				place = "place-" + rand.String(8)
				options.Args = []string{"--topology=" + fixture.NodeTopologyKey + "=" + place}
			}
			env := newForRole(t, role, options)
			if role == "observer" {
				env.StartPeer(true)
			}
			flags, as := append(fixture.FastRetries(), "--reclaim-unprotected", "--leader-election",
				"--leader-election-namespace="+env.Namespace,
				"--brake-deletions=4", "--immediate-topology=false"), role
			if role == "node" {
				node, as = env.CreateNode(map[string]string{fixture.NodeTopologyKey: place}), "owner"
				flags = append(flags, "--node-deployment", "--node-deployment-base-delay=100ms")
				env.NodeAffinity = topology.Affinity([]*csi.Topology{{Segments: map[string]string{fixture.NodeTopologyKey: place}}})
			}
			car := env.LaunchSidecarWith(program.SidecarOptions{Args: append(flags, "--role="+as),
				Env: []string{"NODE_NAME=" + node}})
			env.Must(car.WaitReady(env.WithTimeout()))
			switch role {
			case "owner":
				env.exerciseProvisioning(env.rejectSelectedNode)
			case "node":
				env.exerciseProvisioning(func() {})
			}
			env.exerciseRole(role, car)
			cluster, namespaced, err := rbac.Rules(role)
			env.Must(err)
			var elsewhere []string
			if role == "companion" || role == "observer" {
				// Used to finish an owner's volumes in flight: TestUninstallFinishesInFlightVolumes.
				elsewhere = []string{"create persistentvolumes", "get persistentvolumes"}
			}
			env.ExpectAllRulesUsed(slices.Concat(cluster, namespaced), elsewhere...)
		})
	}
}

// exerciseRole makes the sidecar do all that its role does.
func (env *environment) exerciseRole(role string, car *program.Program) {
	env.T.Helper()
	class := "class-" + env.Namespace
	env.StorageClasses().CreateForTest(&storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: env.Driver,
	})
	plain := func(pv *v1.PersistentVolume) {
		// No annotation names its Secret, so the class is asked; and it was attached once.
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": env.Driver,
			v1.BetaStorageClassAnnotation: class}
		pv.Finalizers = []string{"external-attacher/" + env.LeaseName()}
		pv.Spec.NodeAffinity = env.NodeAffinity
	}
	if role != "observer" {
		vol := env.MakeVolume(objects.Spec{Dynamic: true, Change: plain})
		env.WaitPV(vol, "protected", func(pv *v1.PersistentVolume) bool {
			return fixture.HasFinalizer(pv) || hasCompanionFinalizer(pv)
		})
		if role == "companion" {
			env.Must(vol.DeletePV(env.Ctx))
		}
		env.Must(vol.DeleteClaim(env.Ctx))
		env.WaitDeleteCalls(vol, 1)
	}
	for range 2 { // the same Event a second time is a patch
		lease := env.tripBreaker(func(pv *v1.PersistentVolume) {
			pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": env.Driver,
				v1.BetaStorageClassAnnotation: class}
			pv.Spec.NodeAffinity = env.NodeAffinity
		})
		env.Leases().Annotate(lease, reclaim.BrakeAnnotation, "")
		// A peer may have deleted the volumes long before: only the sidecar shows that it saw this.
		env.WaitMetric(car, "csi_reclaimer_braked", "0")
		env.Eventually("all volumes are gone", func() bool { return len(env.VolumesOnDisk()) == 0 })
	}
}

// exerciseProvisioning has the sidecar create all kinds of volumes, and calls special for its deployment.
func (env *environment) exerciseProvisioning(special func()) {
	env.T.Helper()
	class, tier := env.CreateStorageClass(), "tier-"+env.Namespace
	env.VolumeAttributesClasses().CreateForTest(&storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: tier}, DriverName: env.Driver, Parameters: map[string]string{"tier": "gold"},
	})
	source := env.WaitBound(env.CreateClaim(class, func(spec *objects.ClaimSpec) {
		spec.Change = func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = &tier }
	}))
	clone := env.WaitBound(env.CreateClaim(class, fixture.CloneOf(source.BoundClaim)))
	env.InstallSnapshotCRDs()
	restored := env.WaitBound(env.CreateClaim(class, fixture.FromSnapshot(env.CreateSnapshot(source, nil).Name)))
	special()
	for _, claim := range []*objects.Claim{clone.BoundClaim, restored.BoundClaim, source.BoundClaim} {
		env.MustDeleteClaim(claim)
	}
	env.Eventually("all volumes are gone", func() bool { return len(env.VolumesOnDisk()) == 0 })
}

// rejectSelectedNode has the sidecar reject a selected node without the driver.
func (env *environment) rejectSelectedNode() {
	env.T.Helper()
	late := env.CreateClaim(env.CreateStorageClass(fixture.WithWaitForFirstConsumer),
		fixture.WithSelectedNode(env.CreateNode(nil)))
	env.WaitClaim(late, "without that node", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.Annotations[objects.SelectedNode] == ""
	})
	env.MustDeleteClaim(late)
}

// deleteUnprotected makes PVs that go before they can be protected.
func (env *environment) deleteUnprotected(n int, change func(*v1.PersistentVolume)) {
	env.T.Helper()
	vols := env.MakeVolumes(n, func(int) objects.Spec {
		return objects.Spec{Dynamic: true, Policy: v1.PersistentVolumeReclaimRetain, Change: change}
	})
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(vols, "released", fixture.IsReleased)
	env.ForEachVolume(vols, func(vol *objects.Volume) error {
		if err := vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimDelete); err != nil {
			return err
		}
		return env.DeletePVIfPresent(vol)
	})
}

// tripBreaker has PVs vanish until a Lease says that the brake is on, and returns its name. Where a
// peer works beside, it may protect most of them in time.
func (env *environment) tripBreaker(change func(*v1.PersistentVolume)) (name string) {
	env.T.Helper()
	looks := 0
	env.Eventually("the Lease says that the brake is on", func() bool {
		if looks%100 == 0 {
			env.deleteUnprotected(10, change)
		}
		looks++
		for _, lease := range env.Leases().List() {
			if lease.Annotations[reclaim.BrakeAnnotation] != "" {
				name = lease.Name
			}
		}
		return name != ""
	})
	return name
}

func TestStockProvisionerPermissionsAreSufficient(t *testing.T) {
	fixture.Begin(t, fixture.AboutRequests)
	env := newForRole(t, "", mockdriver.Options{})
	env.SetRules(fixture.StockProvisionerRules("patch"))
	car := env.StartSidecar(fixture.FastRetries()...)
	env.Barrier()
	vol := env.MakeProtected(objects.Spec{})
	env.DeletePVFirst(vol)
	env.Must(vol.WaitGone(env.WithTimeout()))
	class := env.CreateStorageClass()
	made := env.WaitBound(env.CreateClaim(class))
	// That sidecar may update claims, and not patch them: the source of a clone is protected all the same.
	clone := env.WaitBound(env.CreateClaim(class, fixture.CloneOf(made.BoundClaim)))
	env.WaitClaim(made.BoundClaim, "protected", func(claim *v1.PersistentVolumeClaim) bool {
		return claim != nil && slices.Contains(claim.Finalizers, request.CloningFinalizer)
	})
	for _, vol := range []*fixture.Provisioned{made, clone} {
		env.MustDeleteClaim(vol.BoundClaim)
		env.Must(vol.WaitGone(env.WithTimeout()))
		env.ExpectNothingLeft(vol.BoundClaim)
	}
	// csi-reclaimer runs without its additional features, and says so.
	env.Must(car.WaitLog(env.WithTimeout(), "Preflight: may not get volumeattributesclasses"))
	log, err := car.Log()
	env.Must(err)
	for line := range strings.Lines(log) {
		if strings.Contains(line, "Preflight: may not") && !strings.Contains(line, "get volumeattributesclasses") &&
			!strings.Contains(line, "get mutatingadmissionpolic") {
			t.Errorf("something is missing: %s", line)
		}
	}
}

func TestOldStockProvisionerPermissionsLackPatch(t *testing.T) {
	fixture.Begin(t, fixture.AboutRequests)
	env := newForRole(t, "", mockdriver.Options{})
	env.SetRules(fixture.StockProvisionerRules())
	car := env.StartSidecar(fixture.FastRetries()...) // ready: no deletion is unsafe
	env.Must(car.WaitLog(env.WithTimeout(), `Preflight: may not patch persistentvolumes: no existing PV is protected`))
	if log := car.LogTail(200); !strings.Contains(log,
		`{apiGroups: [\"\"], resources: [\"persistentvolumes\"], verbs: [\"patch\"]}`) {
		t.Errorf("the rule to add is not named:\n%s", log)
	}
}

func TestReadinessFailsWithoutPermissionToReadClaims(t *testing.T) {
	fixture.Begin(t, suite.WaitsForClock, fixture.AboutProgram)
	env := newForRole(t, "", mockdriver.Options{})
	all := fixture.StockProvisionerRules("patch")
	env.SetRules(append(all[:1:1], all[2:]...)) // no claims
	car := env.LaunchSidecar(fixture.FastRetries()...)
	env.Must(car.WaitLog(env.WithTimeout(), "Preflight: may not get persistentvolumeclaims"))
	env.waitUnready(car, "persistentvolumeclaims")
	vol := env.MakeVolume(objects.Spec{})
	env.WaitProtected(vol) // protection needs no claims
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPVEvent(vol, "APIReadFailed", "")
	env.ExpectKept(vol)
	env.SetRules(all)
	granted := time.Now()
	env.Must(car.WaitReady(env.WithTimeout()))
	env.ExpectReclaimed(vol, 1)
	t.Logf("green and at work %v after the right was granted", time.Since(granted).Round(time.Second))
}

// A replica that may not use its Lease never leads.
func TestReadinessFailsWithoutLease(t *testing.T) {
	fixture.Begin(t, fixture.AboutProgram)
	env := newForRole(t, "companion", mockdriver.Options{})
	car := env.LaunchSidecar("--role=companion", "--leader-election", "--leader-election-namespace=default")
	env.Must(car.WaitLog(env.WithTimeout(), "Preflight: may not get leases"))
	env.waitUnready(car, "leases")
}

// waitUnready waits until /readyz is red and gives this reason, which comes after the program has logged it.
func (env *environment) waitUnready(car *program.Program, why string) {
	env.T.Helper()
	env.Eventually("/readyz is red because of "+why, func() bool {
		_, err := car.Get(env.Ctx, "/readyz")
		return err != nil && strings.Contains(err.Error(), why)
	})
}

func TestDriverWithoutDeleteVolumeIsIgnored(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	env := newForRole(t, "owner", mockdriver.Options{Profile: "static", Args: []string{"--static-volume=there"}})
	car := env.LaunchSidecar()
	env.Must(car.WaitLog(env.WithTimeout(), "does not advertise CREATE_DELETE_VOLUME"))
	env.waitUnready(car, "CREATE_DELETE_VOLUME")
	vol := env.MakeVolume(objects.Spec{Handle: "there"})
	env.DeletePVFirst(vol)
	env.Must(vol.WaitGone(env.WithTimeout())) // no finalizer of ours holds it forever
	if events := env.WritesToPVs(env.User, []*objects.Volume{vol}); len(events) > 0 {
		t.Errorf("wrote %v", events)
	}
}

// TestLeakDetectionNeedsListVolumes expects the program to report a driver that cannot list volumes.
func TestLeakDetectionNeedsListVolumes(t *testing.T) {
	fixture.Begin(t, fixture.AboutDriver)
	env := newLeakEnvironment(t, mockdriver.Options{Profile: "no-list"})
	car := env.StartSidecar(append(fixture.FastRetries(), "--leak-check-interval=50ms")...)
	env.Must(car.WaitLog(env.WithTimeout(), "does not advertise LIST_VOLUMES: no leak check runs"))
	const missing = "does not advertise LIST_VOLUMES"
	if r := env.report(car); !strings.Contains(r.Off, missing) || len(r.Volumes) > 0 {
		t.Errorf("%+v", r)
	}
	text, err := car.Get(env.Ctx, "/leaks")
	env.Must(err)
	env.ExpectOutput(text, "No leak checks are made: driver "+env.Driver+" "+missing)
	env.Barrier() // all else continues
}

// TestLeakDetectionPermissions uses the role with the fewest rules; missing permissions are reported.
func TestLeakDetectionPermissions(t *testing.T) {
	fixture.Begin(t, fixture.AboutRequests)
	env := newForRole(t, "observer", mockdriver.Options{})
	car := env.StartSidecar("--role=observer", "--leak-check-interval=100ms", "--leader-election",
		"--leader-election-namespace="+env.Namespace)
	env.Eventually("it says that it may not",
		func() bool { return strings.Contains(env.report(car).Failure, "forbidden") })
	env.WaitEvent(v1.ObjectReference{Kind: "Lease", Name: env.LeaseName() + "-reclaimer"}, "LeakCheckFailed")
	env.grantLeakCheck()
	env.Eventually("a leak check is complete",
		func() bool { r := env.report(car); return r.Failure == "" && !r.Completed.IsZero() })
	rules, err := rbac.AuditRules()
	env.Must(err)
	env.Eventually("all that is granted is used", func() bool {
		used := map[string]bool{}
		for _, e := range env.AuditEvents(env.User,
			func(e controlplane.AuditEvent) bool { return e.Code != http.StatusForbidden }) {
			used[e.Verb+" "+e.Resource] = true
		}
		for _, rule := range rules {
			if len(rule.Resources) != 1 || len(rule.Verbs) != 1 || !used[rule.Verbs[0]+" "+rule.Resources[0]] {
				return false
			}
		}
		return true
	})
}
