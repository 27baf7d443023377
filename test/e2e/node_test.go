//go:build unix

package e2e

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/ledger"
	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/grant"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/sidecar"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// segment is the one key of the drivers that run on each node.
const segment = "topology.csi-reclaimer.io/node"

// member is a node with the driver and the sidecar on it.
type member struct {
	*stage
	node, place string
	driver      *mockdriver.Driver
	car         *sidecar.Sidecar
}

// newMembers makes nodes, each with a driver and a sidecar of its own.
func newMembers(t *testing.T, n int, args ...string) (*stage, []*member) {
	t.Helper()
	var members []*member
	var s *stage
	for i := range n {
		place := "place-" + rand.String(8)
		options := mockdriver.Options{Profile: "no-attach", Args: []string{"--topology=" + segment + "=" + place}}
		m := &member{}
		if i == 0 {
			s = newStageAs(t, "node", options)
			m.driver = s.driver
		} else {
			options.Name = s.Driver
			m.driver = mockdriver.ForTest(t, options)
		}
		m.stage, m.node, m.place = s, s.node(map[string]string{segment: place}), place
		members = append(members, m)
	}
	if slices.Contains(args, "--enable-capacity") {
		s.must(grant.Capacity(s.ctx, s.client, s.Namespace, "csi-reclaimer"))
	}
	for _, m := range members {
		m.car = s.launchAs(sidecar.Options{Address: m.driver.Socket(), Env: []string{"NODE_NAME=" + m.node, "POD_NAMESPACE=" + s.Namespace}, Args: append(append(eager(),
			"--node-deployment", "--leader-election", "--leader-election-namespace="+s.Namespace,
			"--node-deployment-base-delay=100ms", "--node-deployment-max-delay=1s"), args...)})
		s.must(m.car.WaitReady(s.soon()))
	}
	return s, members
}

// calls returns the calls of a method that a member's driver received for a claim's volume.
func (m *member) calls(method string, claim *storage.Claim) []ledger.Call {
	m.t.Helper()
	calls, err := m.driver.Calls(method)
	m.must(err)
	return slices.DeleteFunc(calls, func(c ledger.Call) bool {
		return c.Name != volumeName(claim) && !strings.HasPrefix(c.Volume, volumeName(claim))
	})
}

// has tells whether a volume of a claim is on a member's disk.
func (m *member) has(claim *storage.Claim) bool {
	m.t.Helper()
	volumes, err := m.driver.Volumes()
	m.must(err)
	return slices.ContainsFunc(volumes, func(v backend.Volume) bool { return v.Name == volumeName(claim) })
}

// free waits until a claim is bound and no node has an entry for it, and returns its volume.
func (s *stage) free(claim *storage.Claim) *provisioned {
	s.t.Helper()
	vol := s.bound(claim)
	s.settled(claim)
	return vol
}

// TestEachNodeLooksAfterItsOwnVolumes has two nodes, each with a driver and a sidecar.
func TestEachNodeLooksAfterItsOwnVolumes(t *testing.T) {
	t.Parallel()
	s, members := newMembers(t, 2)
	one, two := members[0], members[1]
	lately, atOnce := s.class(lateBinding), s.class()
	for name, make := range map[string]func() *storage.Claim{
		"late binding":      func() *storage.Claim { return s.claim(lately, selected(two.node)) },
		"immediate binding": func() *storage.Claim { return s.claim(atOnce) },
	} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			claim := make()
			vol := s.free(claim)
			own, other := one, two
			if len(two.calls("CreateVolume", claim)) > 0 {
				own, other = two, one
			}
			if name == "late binding" && own != two {
				t.Error("made on a node that was not selected")
			}
			if made, wrong := own.calls("CreateVolume", claim), other.calls("CreateVolume", claim); len(made) != 1 || len(wrong) != 0 {
				t.Errorf("%d and %d CreateVolume calls, want one", len(made), len(wrong))
			}
			if !own.has(claim) || !protected(vol.pv) {
				t.Errorf("the volume is on its disk: %v; finalizers of its PV: %v", own.has(claim), vol.pv.Finalizers)
			}
			s.deleteClaim(claim)
			s.must(vol.WaitGone(s.soon()))
			if own.has(claim) {
				t.Error("LEAK: the volume is on its node's disk")
			}
			if right, wrong := own.calls("DeleteVolume", claim), other.calls("DeleteVolume", claim); len(right) != 1 || len(wrong) != 0 {
				t.Errorf("%d DeleteVolume calls on its node and %d on the other, want one and none", len(right), len(wrong))
			}
			if n := s.finalizersPut(vol.pv.Name); n != 0 {
				t.Errorf("finalizers were put on the PV %d times, which was born with them", n)
			}
		})
	}
	t.Run("a PV from before gets its finalizer once, from its own node", func(t *testing.T) {
		s := s.in(t)
		claim := s.claim(lately, selected(one.node))
		vol := s.free(claim)
		// As one that a provisioner without finalizers made.
		_, err := s.client.CoreV1().PersistentVolumes().Patch(s.ctx, vol.pv.Name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		s.must(err)
		s.waitProtected(vol.Volume)
		if n := s.finalizersPut(vol.pv.Name); n != 1 {
			t.Errorf("finalizers were put on the PV %d times, want once", n)
		}
		s.deleteClaim(claim)
		s.must(vol.WaitGone(s.soon()))
		if one.has(claim) || len(two.calls("DeleteVolume", claim)) > 0 {
			t.Error("the wrong node was asked, or none")
		}
	})
}

// finalizersPut counts the writes of sidecars to the finalizers of a PV while that was not being deleted.
func (s *stage) finalizersPut(pv string) int {
	s.t.Helper()
	events, err := cluster.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.Resource == "persistentvolumes" && e.Name == pv && e.Verb == "patch" && e.Code == 200
	})
	s.must(err)
	deleted, err := cluster.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.Resource == "persistentvolumes" && e.Name == pv && e.Verb == "delete"
	})
	s.must(err)
	if len(deleted) > 0 {
		return len(events) - 1 // the last lets it go
	}
	return len(events)
}

// TestAClaimMovesToAnotherNode has a node's driver make a volume whose answer is lost, and the node be dead
// while another one is selected.
func TestAClaimMovesToAnotherNode(t *testing.T) {
	t.Parallel()
	s, members := newMembers(t, 2)
	one, two := members[0], members[1]
	s.must(one.driver.SetFaults(s.ctx, faults.Plan{Rules: []faults.Rule{{Method: "CreateVolume", Action: faults.Fail, AfterWork: true, Code: "DeadlineExceeded"}}}))
	claim := s.claim(s.class(lateBinding), selected(one.node))
	s.eventually("the volume is on the first node's disk", func() bool { return one.has(claim) })
	one.car.Kill()
	_, err := s.client.CoreV1().PersistentVolumeClaims(s.Namespace).Patch(s.ctx, claim.Name, "application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"`+storage.SelectedNode+`":"`+two.node+`"}}}`), metav1.PatchOptions{})
	s.must(err)
	vol := s.bound(claim)
	if !two.has(claim) || !one.has(claim) {
		t.Fatalf("on disk: first node %v, second %v", one.has(claim), two.has(claim))
	}
	s.must(one.driver.ClearFaults(s.ctx))
	s.must(one.car.Restart())
	s.free(claim)
	s.eventually("what the first node had begun is gone", func() bool { return !one.has(claim) })
	if !two.has(claim) || len(two.calls("DeleteVolume", claim)) > 0 {
		t.Error("WRONG DELETE: the claim's volume is gone")
	}
	s.deleteClaim(claim)
	s.must(vol.WaitGone(s.soon()))
	if two.has(claim) {
		t.Error("LEAK: the volume is on its node's disk")
	}
}
