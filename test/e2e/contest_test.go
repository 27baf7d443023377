//go:build unix

package e2e

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// strip takes the finalizer off, as another program or a person does.
func (s *stage) strip(vol *storage.Volume) {
	s.t.Helper()
	_, err := s.client.CoreV1().PersistentVolumes().Patch(s.ctx, vol.Name, types.StrategicMergePatchType,
		[]byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+reclaim.Finalizer+`"]}}`), metav1.PatchOptions{})
	s.must(err)
}

func TestNoWarOverTheFinalizer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	car := s.sidecar(eager()...)
	vol := s.make(storage.Spec{})
	for range 3 {
		s.waitProtected(vol)
		s.strip(vol)
	}
	s.metric(car, "csi_reclaimer_finalizers_contested", "1")
	s.waitEvent(vol, "FinalizerContested", "--role=companion")
	before := s.writes(s.user, []*storage.Volume{vol})["patch"]
	s.annotate(vol, "example.com/changed", "again")
	another := s.make(storage.Spec{}) // nothing is protected any more
	s.waitEvent(another, "FinalizerContested", "--role=companion")
	if after := s.writes(s.user, []*storage.Volume{vol})["patch"]; after != before || before != 3 {
		t.Errorf("%d patches before and %d after the contest was seen, want 3", before, after)
	}
	// A volume whose claim goes first is deleted all the same.
	s.must(vol.DeleteClaim(s.ctx))
	s.must(vol.WaitGone(s.soon()))
	s.expectDeleted(vol, 1)
	// Somebody else puts the finalizer on: peace, and work goes on.
	_, err := s.client.CoreV1().PersistentVolumes().Patch(s.ctx, another.Name, types.StrategicMergePatchType,
		[]byte(`{"metadata":{"finalizers":["`+reclaim.Finalizer+`"]}}`), metav1.PatchOptions{})
	s.must(err)
	s.metric(car, "csi_reclaimer_finalizers_contested", "0")
	s.fence()
}

func TestAFinalizerTakenOffByHandLetsThePVGo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	const other = "example.com/holds-it"
	for name, finalizers := range map[string][]string{"another finalizer holds the PV": {other}, "it was the last finalizer": nil} {
		t.Run(name, func(t *testing.T) {
			s := s.in(t)
			vol := s.make(storage.Spec{Change: func(pv *v1.PersistentVolume) { pv.Finalizers = finalizers }})
			s.waitProtected(vol)
			s.annotate(vol, reclaim.HoldAnnotation, "time to take it off")
			s.must(vol.DeletePV(s.ctx))
			s.must(vol.DeleteClaim(s.ctx))
			s.waitPV(vol, "released and held by us alone", func(pv *v1.PersistentVolume) bool {
				return pv.Status.Phase == v1.VolumeReleased && !slices.Contains(pv.Finalizers, "kubernetes.io/pv-protection")
			})
			s.strip(vol)
			s.waitEvent(vol, "ReclaimAbandoned", vol.Handle)
			s.fence()
			s.expectKept(vol)
		})
	}
}
