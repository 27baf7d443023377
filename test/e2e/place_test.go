//go:build unix

package e2e

import (
	"maps"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// selected has a claim be for a node, as the scheduler would say. Here the test says so.
func selected(node string) func(*storage.ClaimSpec) {
	return func(spec *storage.ClaimSpec) {
		spec.Change = func(claim *v1.PersistentVolumeClaim) {
			claim.Annotations = map[string]string{storage.SelectedNode: node}
		}
	}
}

// node makes a node with these labels, on which the driver has registered them, if there are any.
func (s *stage) node(labels map[string]string) string {
	s.t.Helper()
	name := "node-" + rand.String(8)
	_, err := s.client.CoreV1().Nodes().Create(s.ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() { _ = s.client.CoreV1().Nodes().Delete(s.clean(), name, metav1.DeleteOptions{}) })
	if len(labels) == 0 {
		return name
	}
	_, err = s.client.StorageV1().CSINodes().Create(s.ctx, &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: s.Driver, NodeID: name, TopologyKeys: slices.Sorted(maps.Keys(labels))}}},
	}, metav1.CreateOptions{})
	s.must(err)
	s.t.Cleanup(func() { _ = s.client.StorageV1().CSINodes().Delete(s.clean(), name, metav1.DeleteOptions{}) })
	return name
}

// TestProvisionWhereTheNodeIs has a driver whose volumes are in one place.
func TestProvisionWhereTheNodeIs(t *testing.T) {
	t.Parallel()
	zone := map[string]string{"zone": "a"}
	zoned := mockdriver.Options{Args: []string{"--topology=zone=a"}}
	t.Run("late and immediate binding", func(t *testing.T) {
		t.Parallel()
		s := newStageAs(t, "owner", zoned)
		s.sidecar(eager()...)
		immediate := s.claim(s.class())
		s.waitTold(immediate, "ProvisioningFailed", "the driver is on no node yet")
		node := s.node(zone) // joins while the sidecar runs
		for _, vol := range []*provisioned{s.bound(s.claim(s.class(lateBinding), selected(node))), s.bound(immediate)} {
			terms := vol.pv.Spec.NodeAffinity.Required.NodeSelectorTerms
			if len(terms) != 1 || terms[0].MatchExpressions[0].Key != "zone" || terms[0].MatchExpressions[0].Values[0] != "a" {
				t.Errorf("PV %s is reachable from %+v", vol.pv.Name, terms)
			}
			if n := len(s.creations(vol.claim)); n != 1 {
				t.Errorf("%d CreateVolume calls", n)
			}
		}
	})
	t.Run("a node that is gone holds nobody", func(t *testing.T) {
		t.Parallel()
		s := newStageAs(t, "owner", zoned)
		car := s.sidecar(eager()...)
		node := s.node(zone)
		s.must(s.driver.SetFaults(s.ctx, slowly(true, 30*time.Second)))
		claim := s.claim(s.class(lateBinding), selected(node))
		s.eventually("the volume is on the disk", func() bool { return len(s.onDiskAll()) == 1 })
		car.Kill()
		s.must(s.client.CoreV1().Nodes().Delete(s.ctx, node, metav1.DeleteOptions{}))
		s.must(s.client.StorageV1().CSINodes().Delete(s.ctx, node, metav1.DeleteOptions{}))
		s.deleteClaim(claim)
		s.must(s.driver.ClearFaults(s.ctx))
		s.must(car.Restart())
		s.waitClaim(claim, "gone", noClaim)
		s.settled(claim)
		s.gone(claim)
	})
}
