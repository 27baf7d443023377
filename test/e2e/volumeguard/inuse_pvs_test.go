//go:build unix

package volumeguard

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	protectpv "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pv"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestInUsePVs disables the controller of kube-controller-manager: bound PVs stay, others are deleted.
func TestInUsePVs(t *testing.T) {
	t.Parallel()
	env := newWithVolumeGuard(t, fixture.Version(), unprotected())
	env.Start(protecting()...)
	vol := func(change func(*v1.PersistentVolume), unclaimed bool) *objects.Volume {
		return env.MakeVolume(objects.Spec{Handle: "none", Policy: v1.PersistentVolumeReclaimRetain, Unclaimed: unclaimed,
			Change: change})
	}
	bare := func(vol *objects.Volume) {
		_, err := env.Client.CoreV1().PersistentVolumes().Patch(env.Ctx, vol.Name, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		env.Must(err)
	}
	kept := func(pv *v1.PersistentVolume) bool { return slices.Contains(pv.Finalizers, protectpv.Finalizer) }

	free, bound := vol(nil, true), vol(nil, false)
	twin := vol(func(pv *v1.PersistentVolume) { pv.Labels = map[string]string{"csi-reclaimer.io/twin-of": "x"} }, true)
	bare(twin)
	for _, each := range []*objects.Volume{free, bound} {
		bare(each)
		env.WaitPV(each, "protected", kept)
	}
	env.Must(bound.DeletePV(env.Ctx))
	env.WaitPVEvent(bound, "Bound", "bound to a claim")
	env.Must(free.DeletePV(env.Ctx))
	env.Must(free.WaitGone(env.WithTimeout()))
	env.WaitPV(bound, "there", func(pv *v1.PersistentVolume) bool { return kept(pv) && pv.Status.Phase == v1.VolumeBound })
	env.WaitPV(twin, "unprotected", func(pv *v1.PersistentVolume) bool { return !kept(pv) })
	env.Must(bound.DeleteClaim(env.Ctx))
	env.Must(bound.WaitGone(env.WithTimeout()))
	env.Must(twin.DeletePV(env.Ctx))
	env.Must(twin.WaitGone(env.WithTimeout()))
}
