//go:build unix

package e2e

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// answers has CreateVolume fail with a code and make nothing.
func answers(code string) faults.Plan {
	return faults.Plan{Rules: []faults.Rule{{Method: "CreateVolume", Action: faults.Fail, Code: code}}}
}

// removeNode removes a node, and the driver from it.
func (s *stage) removeNode(name string) {
	s.t.Helper()
	s.must(s.client.CoreV1().Nodes().Delete(s.ctx, name, metav1.DeleteOptions{}))
	s.must(s.client.StorageV1().CSINodes().Delete(s.ctx, name, metav1.DeleteOptions{}))
}

// lost has a claim's volume be created while nobody gets the answer.
func (s *stage) lost(class string, changes ...func(*storage.ClaimSpec)) *storage.Claim {
	s.t.Helper()
	s.must(s.driver.SetFaults(s.ctx, lostAnswers()))
	claim := s.claim(class, changes...)
	s.eventually("the volume is on the disk", func() bool { return len(s.onDiskAll()) == 1 })
	return claim
}

// oneVolume checks that the driver has one volume.
func (s *stage) oneVolume() {
	s.t.Helper()
	if there := s.onDiskAll(); len(there) != 1 {
		s.t.Errorf("there are %d volumes, want one: %v", len(there), there)
	}
}

// twoZones is a driver with two zones, of which the first has room for small volumes alone.
func twoZones() (zone string, options mockdriver.Options) {
	name := "zones-" + rand.String(8) + ".csi-reclaimer.io"
	zone = name + "/zone"
	return zone, mockdriver.Options{Name: name, Args: []string{"--place=" + zone + "=a@1Mi", "--place=" + zone + "=b"}}
}

// zoneOf is the zone of a PV.
func zoneOf(pv *v1.PersistentVolume) string {
	return pv.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
}

// TestTheNodesChangeWhileAVolumeIsInFlight: the answer to CreateVolume is lost, the volume is in zone b, and zone b loses
// its last node. The same request is repeated: the claim gets that volume, or, deleted meanwhile, goes, and the volume too.
func TestTheNodesChangeWhileAVolumeIsInFlight(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"the claim gets its volume": false, "the claim is deleted": true} {
		t.Run("immediate binding: "+name, func(t *testing.T) {
			t.Parallel()
			zone, options := twoZones()
			s := newStageAs(t, "owner", options)
			s.node(map[string]string{zone: "a"})
			leaves := s.node(map[string]string{zone: "b"})
			s.sidecar(eager()...)
			claim := s.lost(s.class(), ofSize("2Mi"))
			s.removeNode(leaves)
			if deleted {
				s.deleteClaim(claim)
				s.waitClaim(claim, "gone", noClaim) // while the driver does not answer
			}
			s.must(s.driver.ClearFaults(s.ctx))
			if deleted {
				s.settled(claim)
				s.gone(claim)
				return
			}
			vol := s.bound(claim)
			if zoneOf(vol.pv) != "b" {
				t.Errorf("the PV is in zone %s", zoneOf(vol.pv))
			}
			s.oneVolume()
			s.settled(claim)
			s.deleteClaim(claim)
			s.gone(claim)
		})
	}
	t.Run("late binding: another node is selected", func(t *testing.T) {
		t.Parallel()
		zone, options := twoZones()
		s := newStageAs(t, "owner", options)
		first, second := s.node(map[string]string{zone: "a"}), s.node(map[string]string{zone: "b"})
		s.sidecar(append(eager(), "--strict-topology")...)
		claim := s.lost(s.class(lateBinding), selected(first))
		s.removeNode(first)
		_, err := s.client.CoreV1().PersistentVolumeClaims(s.Namespace).Patch(s.ctx, claim.Name, types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+storage.SelectedNode+`":"`+second+`"}}}`), metav1.PatchOptions{})
		s.must(err)
		s.must(s.driver.ClearFaults(s.ctx))
		s.bound(claim)
		s.oneVolume()
		s.settled(claim)
		s.deleteClaim(claim)
		s.gone(claim)
	})
}

// TestTheClassChangesWhileAVolumeIsInFlight: the driver refuses, with InvalidArgument, what the class asks for now. That says
// nothing about the volume that was asked for before.
func TestTheClassChangesWhileAVolumeIsInFlight(t *testing.T) {
	t.Parallel()
	for _, restarts := range []bool{false, true} {
		name := map[bool]string{false: "while it runs", true: "over a restart"}[restarts]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStageAs(t, "owner", mockdriver.Options{Args: []string{"--parameters=tier"}})
			car := s.sidecar(eager()...)
			class := s.class(parameter("tier", "gold"))
			claim := s.lost(class)
			if restarts {
				car.Kill()
			}
			s.must(s.client.StorageV1().StorageClasses().Delete(s.ctx, class, metav1.DeleteOptions{}))
			_, err := s.MakeClass(s.ctx, storage.Class{Name: class, Parameters: map[string]string{"teir": "gold"}})
			s.must(err)
			s.deleteClaim(claim)
			s.must(s.driver.ClearFaults(s.ctx))
			if restarts {
				s.must(car.Restart())
			}
			s.waitClaim(claim, "gone", noClaim)
			s.settled(claim)
			s.gone(claim)
		})
	}
}

// TestAFirstAnswerAlreadyExists: nothing of ours exists, so nothing is kept for it.
func TestAFirstAnswerAlreadyExists(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	s.must(s.driver.SetFaults(s.ctx, answers("AlreadyExists")))
	claim := s.claim(s.class())
	s.waitTold(claim, "ProvisioningFailed", "AlreadyExists")
	s.deleteClaim(claim)
	s.waitClaim(claim, "gone", noClaim)
	s.settled(claim)
	s.nothingLeft(claim)
}

// TestADriverThatDoesNotSay whether it made a volume keeps neither a claim nor its namespace. When it recovers, the volume
// gets a PV and is reclaimed.
func TestADriverThatDoesNotSay(t *testing.T) {
	t.Parallel()
	exhausted := faults.Plan{Rules: []faults.Rule{
		{Name: "lost", Method: "CreateVolume", Action: faults.Fail, AfterWork: true, Code: "DeadlineExceeded", First: 1, PerVolume: true},
		{Name: "full", Method: "CreateVolume", Action: faults.Fail, Code: "ResourceExhausted"},
	}}
	for name, plan := range map[string]faults.Plan{
		"Internal": answers("Internal"), "Unknown": answers("Unknown"), "ResourceExhausted after a timeout": exhausted,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.sidecar(eager()...)
			users, class := s.elsewhere(), s.class()
			s.must(s.driver.SetFaults(s.ctx, plan))
			deleted, inNamespace := s.claim(class), users.claim(class)
			for _, claim := range []*storage.Claim{deleted, inNamespace} {
				s.eventually("it was asked twice", func() bool { return len(s.creations(claim)) > 1 })
			}
			s.deleteClaim(deleted)
			users.deleteNamespace()
			s.waitClaim(deleted, "gone", noClaim)
			users.waitNamespaceGone()
			if !s.inFlight(deleted) || !s.inFlight(inNamespace) {
				t.Error("the driver has not said whether there is a volume, and the entry is closed")
			}
			s.must(s.driver.ClearFaults(s.ctx))
			for _, claim := range []*storage.Claim{deleted, inNamespace} {
				s.settled(claim)
				s.gone(claim)
			}
		})
	}
}

// TestAWayOutFinishesWhatIsInFlight, or names it.
func TestAWayOutFinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	// left is a claim whose volume is in flight while no sidecar runs.
	left := func(s *stage) *storage.Claim {
		car := s.sidecar(eager()...)
		claim := s.lost(s.class())
		s.must(car.Terminate())
		if !s.inFlight(claim) {
			s.t.Error("nothing is in flight")
		}
		return claim
	}
	quiet := "--in-flight-quiet-period=2s"
	t.Run("--release-finalizers finishes it", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		claim := left(s)
		s.must(s.driver.ClearFaults(s.ctx))
		said, err := s.release(quiet)
		if err != nil || s.inFlight(claim) {
			t.Errorf("%v, in flight: %v, said %q", err, s.inFlight(claim), said)
		}
		vol := s.bound(claim)
		if protected(vol.pv) {
			t.Error("the PV has the finalizer")
		}
		s.deleteClaim(claim)
		s.waitClaim(claim, "gone", noClaim)
	})
	t.Run("--provision=false finishes it", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		claim := left(s)
		s.must(s.driver.ClearFaults(s.ctx))
		s.sidecar(append(eager(), "--provision=false")...)
		s.bound(claim)
		s.settled(claim)
		s.oneVolume()
	})
	for _, role := range []string{"companion", "observer"} {
		t.Run("role "+role+" finishes it", func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			claim := left(s)
			s.must(s.client.RbacV1().ClusterRoleBindings().Delete(s.ctx, s.Namespace, metav1.DeleteOptions{}))
			s.must(grant.Sidecar(s.ctx, s.client, s.Namespace, "csi-reclaimer", role))
			s.must(s.driver.ClearFaults(s.ctx))
			s.sidecar(append(eager(), "--role="+role)...)
			s.bound(claim)
			s.settled(claim)
			s.oneVolume()
		})
	}
	t.Run("kubectl reclaim names it", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		claim := left(s)
		said, err := s.ended(s.plugin("release", "--driver="+s.Driver, "--yes"))
		if err == nil {
			t.Error("the release succeeds, and a volume is in flight")
		}
		entry := s.inFlightAll()[volumeName(claim)]
		s.expectTold(said, "Volume "+volumeName(claim)+", for claim "+s.Namespace+"/"+claim.Name+", is in flight since", "in flight, and nobody finishes them")
		s.expectTold(s.told("status", "--driver="+s.Driver), "1 (", volumeName(claim))
		wayOut := "kubectl annotate lease -n " + entry.Lease.Namespace + " " + entry.Lease.Name + " " + entry.Annotation + "-"
		s.expectTold(s.told("explain", "pvc/"+claim.Name), "In flight", volumeName(claim), wayOut)
		s.deleteClaim(claim)
		s.waitClaim(claim, "gone", noClaim)
		s.expectTold(s.told("explain", "pvc/"+claim.Name), "does not exist, and volume "+volumeName(claim)+" is in flight", wayOut)
	})
}

// TestAnEntryThatSomebodyRemoves is left to them, while the sidecar runs.
func TestAnEntryThatSomebodyRemoves(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	s.must(s.driver.SetFaults(s.ctx, answers("Internal")))
	claim := s.claim(s.class())
	s.eventually("the volume is in flight", func() bool { return s.inFlight(claim) && len(s.creations(claim)) > 1 })
	s.deleteClaim(claim)
	s.waitClaim(claim, "gone", noClaim)
	entry := s.inFlightAll()[volumeName(claim)]
	_, err := s.client.CoordinationV1().Leases(entry.Lease.Namespace).Patch(s.ctx, entry.Lease.Name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+entry.Annotation+`":null}}}`), metav1.PatchOptions{})
	s.must(err)
	s.settled(claim)
	s.must(s.driver.ClearFaults(s.ctx))
	s.bound(s.claim(s.class()))
	s.nothingLeft(claim)
}

// TestAClaimOfAnEarlierVersion has the finalizer that earlier versions added while its volume was made, and a volume of which
// nobody knows but the driver. The entry is written before the finalizer goes, and the volume is found.
func TestAClaimOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"the claim gets its volume": false, "the claim was deleted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			claim := s.claim(s.class(), func(spec *storage.ClaimSpec) {
				spec.Change = func(claim *v1.PersistentVolumeClaim) { claim.Finalizers = []string{provision.LegacyFinalizer} }
			})
			_, err := s.CSI.CreateVolume(s.ctx, &csi.CreateVolumeRequest{
				Name: volumeName(claim), CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20},
				VolumeCapabilities: []*csi.VolumeCapability{{
					AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
					AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{}},
				}},
			})
			s.must(err)
			if deleted {
				s.deleteClaim(claim)
				s.waitClaim(claim, "terminating", func(now *v1.PersistentVolumeClaim) bool { return now.DeletionTimestamp != nil })
			}
			s.sidecar(eager()...)
			if deleted {
				s.waitClaim(claim, "gone", noClaim)
				s.settled(claim)
				s.gone(claim)
			} else {
				s.bound(claim)
				s.oneVolume()
				s.settled(claim)
			}
			s.entryBeforeFinalizer(claim)
		})
	}
}

// entryBeforeFinalizer checks that the sidecar wrote the entry of a claim before it removed the finalizer.
func (s *stage) entryBeforeFinalizer(claim *storage.Claim) {
	s.t.Helper()
	written := s.settledWritesTo(2, "leases", "persistentvolumeclaims")
	entry, finalizer := -1, -1
	for i, e := range written {
		switch {
		case e.Resource == "leases" && e.Verb == "update" && e.Code == 200:
			entry = i
		case e.Resource == "persistentvolumeclaims" && e.Name == claim.Name && e.Verb == "patch" && e.Code == 200:
			finalizer = i
		}
		if finalizer >= 0 {
			break
		}
	}
	if finalizer < 0 || entry < 0 {
		s.t.Errorf("the finalizer went by write %d, the last of the log before it was %d, of %d", finalizer, entry, len(written))
	}
}
