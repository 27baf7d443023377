//go:build unix

package e2e

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane/fakenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestProvisionForPods has the real scheduler choose the nodes of pods, and the volumes follow them.
func TestProvisionForPods(t *testing.T) {
	t.Parallel()
	name := "zonal-" + rand.String(8) + ".csi-reclaimer.io"
	zone := name + "/zone" // of this driver alone: other tests have nodes too
	s := newStageAs(t, "owner", mockdriver.Options{Name: name, Args: []string{"--place=" + zone + "=tiny@1Mi", "--place=" + zone + "=large"}})
	_, err := s.MakeDriver(s.ctx, nil)
	s.must(err)
	t.Cleanup(func() { _ = s.client.StorageV1().CSIDrivers().Delete(s.clean(), name, metav1.DeleteOptions{}) })
	s.sidecar(eager()...)
	class := s.class(lateBinding)
	join := func(place string) string {
		node := "node-" + place + "-" + rand.String(8)
		fakenode.ForTest(t, cluster, node, fakenode.Config{Drivers: map[string]fakenode.Driver{name: {Place: map[string]string{zone: place}}}})
		return node
	}
	// runs waits until the pod runs on the node, with its volume in that place.
	runs := func(s *stage, pod *storage.Pod, node string, claim *storage.Claim, place string) {
		s.t.Helper()
		got, err := pod.WaitRunning(s.soon())
		s.must(err)
		vol := s.bound(claim)
		there := s.volumeOf(vol).Topology
		if got != node || len(there) != 1 || there[0][zone] != place {
			s.t.Errorf("the pod runs on %s, its volume is in %v; want %s and %s", got, there, node, place)
		}
		terms := vol.pv.Spec.NodeAffinity.Required.NodeSelectorTerms
		if len(terms) != 1 || len(terms[0].MatchExpressions) != 1 || terms[0].MatchExpressions[0].Key != zone || terms[0].MatchExpressions[0].Values[0] != place {
			s.t.Errorf("PV %s is reachable from %+v", vol.Name, terms)
		}
	}
	tiny, large := join("tiny"), ""

	t.Run("a place that is full leads to another node", func(t *testing.T) {
		s := s.in(t)
		claim := s.claim(class, ofSize("2Mi"))
		pod, err := s.MakePod(s.ctx, storage.PodSpec{Name: "large", Claims: []string{claim.Name}, Change: func(pod *v1.Pod) {
			pod.Spec.Affinity = rather(zone, "large") // where there is no node yet
		}})
		s.must(err)
		s.asked(claim)
		large = join("large")
		runs(s, pod, large, claim, "large")
		calls := s.creations(claim)
		for _, call := range calls[:len(calls)-1] {
			if call.Code != "ResourceExhausted" {
				t.Errorf("CreateVolume for the place that is full was answered %s", call.Code)
			}
		}
		t.Logf("%d calls for the place that is full", len(calls)-1)
	})
	t.Run("the volume is made where the pod goes", func(t *testing.T) {
		s := s.in(t)
		claim := s.claim(class)
		pod, err := s.MakePod(s.ctx, storage.PodSpec{Name: "tiny", Claims: []string{claim.Name}, Selector: map[string]string{zone: "tiny"}})
		s.must(err)
		runs(s, pod, tiny, claim, "tiny")
		if n := len(s.creations(claim)); n != 1 {
			t.Errorf("%d CreateVolume calls", n)
		}
	})
	t.Run("a pod that is deleted meanwhile leaves no volume", func(t *testing.T) {
		s := s.in(t)
		s.must(s.driver.SetFaults(s.ctx, slowly(true, 2*time.Second)))
		const name = "brief"
		pod, err := s.MakePod(s.ctx, storage.PodSpec{Name: name, Claims: []string{name}, Selector: map[string]string{zone: "large"}})
		s.must(err)
		claim, err := s.MakeClaim(s.ctx, storage.ClaimSpec{Name: name, Class: class, Change: func(claim *v1.PersistentVolumeClaim) {
			// As that of a generic ephemeral volume: it goes with its pod.
			claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}
		}})
		s.must(err)
		s.asked(claim)
		s.must(pod.Delete(s.ctx))
		s.must(pod.WaitGone(s.soon()))
		s.waitClaim(claim, "gone", noClaim)
		s.settled(claim)
		s.gone(claim)
	})
}

// rather has a pod prefer nodes with a label, and take others.
func rather(label, value string) *v1.Affinity {
	return &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{
		Weight: 100,
		Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: label, Operator: v1.NodeSelectorOpIn, Values: []string{value}},
		}},
	}}}}
}
