//go:build unix

package e2e

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	protectpv "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestProtectPVs where kube-controller-manager's own controller is off: what is bound stays, what is not goes.
func TestProtectPVs(t *testing.T) {
	t.Parallel()
	s := newGuardStage(t, version, unprotected())
	s.guard(protecting()...)
	vol := func(change func(*v1.PersistentVolume), unclaimed bool) *storage.Volume {
		return s.make(storage.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain, Unclaimed: unclaimed, Change: change})
	}
	bare := func(vol *storage.Volume) {
		_, err := s.client.CoreV1().PersistentVolumes().Patch(s.ctx, vol.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		s.must(err)
	}
	kept := func(pv *v1.PersistentVolume) bool { return slices.Contains(pv.Finalizers, protectpv.Finalizer) }

	free, bound := vol(nil, true), vol(nil, false)
	twin := vol(func(pv *v1.PersistentVolume) { pv.Labels = map[string]string{"csi-reclaimer.io/twin-of": "x"} }, true)
	bare(twin)
	for _, each := range []*storage.Volume{free, bound} {
		bare(each)
		s.waitPV(each, "protected", kept)
	}
	s.must(bound.DeletePV(s.ctx))
	s.waitEvent(bound, "Bound", "bound to a claim")
	s.must(free.DeletePV(s.ctx))
	s.must(free.WaitGone(s.soon()))
	s.waitPV(bound, "there", func(pv *v1.PersistentVolume) bool { return kept(pv) && pv.Status.Phase == v1.VolumeBound })
	s.waitPV(twin, "unprotected", func(pv *v1.PersistentVolume) bool { return !kept(pv) })
	s.must(bound.DeleteClaim(s.ctx))
	s.must(bound.WaitGone(s.soon()))
	s.must(twin.DeletePV(s.ctx))
	s.must(twin.WaitGone(s.soon()))
}
