//go:build unix

package upgrade

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// phase brings volumes to one moment of their life, under one version. The returned function lets them continue under
// another version, and checks their end.
type phase func(*environment) (end func())

// phases returns the moments. Moments that cut calls to the driver come last.
func phases() []phase {
	return []phase{
		waitingForConsumer, bound, boundUnprotected, terminatingBound, attached, deletionFails, deletedAndKeptByAnother,
		retained, heldVolume, companions, creationUnclear, creationUnclearAndClaimDeleted, creationOfPVRefused, callsCut,
	}
}

// waitingForConsumer has a claim that waits for a pod, before any call.
func waitingForConsumer(env *environment) func() {
	claim := env.CreateClaim(env.CreateStorageClass(fixture.WithWaitForFirstConsumer))
	return func() {
		node := env.CreateNode(nil)
		_, err := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).Patch(env.Ctx, claim.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, objects.SelectedNode, node), metav1.PatchOptions{})
		env.Must(err)
		env.WaitBound(claim)
		env.expectDeletedByClaim(claim)
	}
}

// bound has one volume that stays in use, and another whose claim is deleted.
func bound(env *environment) func() {
	class := env.CreateStorageClass()
	used, done := env.WaitBound(env.CreateClaim(class)), env.WaitBound(env.CreateClaim(class))
	return func() {
		env.expectDeletedByClaim(done.BoundClaim)
		env.ExpectKept(used.Volume)
		pv, err := used.PV(env.Ctx)
		env.Must(err)
		if !fixture.IsProtected(pv) || pv.Status.Phase != v1.VolumeBound {
			env.T.Errorf("PV %s is %s, want bound and protected", used.Name, objects.Describe(pv))
		}
	}
}

// boundUnprotected has a static PV without a finalizer, because its policy is Retain. The policy is changed to Delete
// later.
func boundUnprotected(env *environment) func() {
	vol := env.MakeVolume(objects.Spec{Policy: v1.PersistentVolumeReclaimRetain})
	return func() {
		env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimDelete))
		env.WaitProtected(vol)
		env.Must(vol.DeletePV(env.Ctx))
		env.Must(vol.DeleteClaim(env.Ctx))
		env.expectDeletedOnce(vol)
	}
}

// terminatingBound has a PV that was deleted before its claim.
func terminatingBound(env *environment) func() {
	vol := env.protected()
	env.Must(vol.DeletePV(env.Ctx))
	return func() {
		env.ExpectKept(vol)
		env.Must(vol.DeleteClaim(env.Ctx))
		env.expectDeletedOnce(vol)
	}
}

// attached has a released PV that is attached to a node.
func attached(env *environment) func() {
	vol := env.protected()
	attachment := env.Attach(vol)
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPVEvent(vol, "Attached", "")
	return func() {
		env.ExpectKept(vol)
		env.Detach(attachment)
		env.expectDeletedOnce(vol)
	}
}

// deletionFails has a driver that refuses to delete the volume for the time being.
func deletionFails(env *environment) func() {
	vol := env.protected()
	env.faults.add(faults.Rule{Name: vol.Name, Method: "DeleteVolume", Volume: vol.Handle, Action: faults.Fail,
		Code: "Internal"})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitDeleteCalls(vol, 2)
	return func() {
		tried := len(env.DeleteCalls(vol.Handle))
		env.WaitDeleteCalls(vol, tried+1)
		if !env.OnDisk(vol.Handle) {
			env.T.Errorf("volume %s is gone, and the driver has not deleted it", vol.Handle)
		}
		env.faults.heal(vol.Name)
		env.Must(vol.WaitGone(env.WithTimeout()))
		calls := env.DeleteCalls(vol.Handle)
		succeeded := 0
		for _, call := range calls {
			if call.Code == "OK" {
				succeeded++
			}
		}
		if succeeded != 1 || env.OnDisk(vol.Handle) {
			env.T.Errorf("volume %s: on disk %v, deleted %d times, want 1: %+v", vol.Handle, env.OnDisk(vol.Handle), succeeded,
				calls)
		}
	}
}

// deletedAndKeptByAnother has a PV with a deleted volume that stays because of another program's finalizer.
func deletedAndKeptByAnother(env *environment) func() {
	const finalizer = "example.com/backup"
	vol := env.MakeVolume(objects.Spec{Dynamic: true,
		Change: func(pv *v1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, finalizer) }})
	env.WaitProtected(vol)
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPV(vol, "kept by the other finalizer alone", func(pv *v1.PersistentVolume) bool {
		return pv.DeletionTimestamp != nil && !fixture.HasFinalizer(pv)
	})
	return func() {
		_, err := env.Client.CoreV1().PersistentVolumes().Patch(env.Ctx, vol.Name, types.StrategicMergePatchType,
			[]byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+finalizer+`"]}}`), metav1.PatchOptions{})
		env.Must(err)
		env.expectDeletedOnce(vol)
	}
}

// retained has a released PV with policy Retain.
func retained(env *environment) func() {
	vol := env.MakeVolume(objects.Spec{Dynamic: true, Policy: v1.PersistentVolumeReclaimRetain})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPV(vol, "released", fixture.IsReleased)
	return func() { env.ExpectKept(vol) }
}

// heldVolume has a released PV that an administrator holds.
func heldVolume(env *environment) func() {
	vol := env.protected()
	env.AnnotatePV(vol, volume.HoldAnnotation, "evidence")
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPVEvent(vol, "Held", "evidence")
	return func() {
		env.Barrier()
		env.ExpectKept(vol)
		env.AnnotatePV(vol, volume.HoldAnnotation, "")
		env.expectDeletedOnce(vol)
	}
}

// companions has PVs with the finalizer of a companion. One of them is deleted before its claim. An owner replaces the
// companion.
func companions(env *environment) func() {
	companion := func() *objects.Volume {
		return env.MakeVolume(objects.Spec{Dynamic: true, Change: func(pv *v1.PersistentVolume) {
			pv.Finalizers = append(pv.Finalizers, volume.CompanionFinalizer)
		}})
	}
	seen := companion()
	env.WaitProtected(seen)
	env.Must(seen.DeletePV(env.Ctx))
	return func() {
		unseen := companion()
		env.WaitProtected(unseen)
		env.WaitPV(unseen, "without the companion's finalizer", func(pv *v1.PersistentVolume) bool {
			return !slices.Contains(pv.Finalizers, volume.CompanionFinalizer)
		})
		for _, vol := range []*objects.Volume{seen, unseen} {
			env.Must(vol.DeleteClaim(env.Ctx))
			env.expectDeletedOnce(vol)
		}
	}
}

// protected makes a volume that is bound and has the finalizer.
func (env *environment) protected() *objects.Volume {
	env.T.Helper()
	vol := env.MakeVolume(objects.Spec{Dynamic: true})
	env.WaitProtected(vol)
	return vol
}

// expectDeletedOnce waits until a PV is gone, and checks that exactly one call has deleted its volume.
func (env *environment) expectDeletedOnce(vol *objects.Volume) {
	env.T.Helper()
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(vol, 1)
}

// expectDeletedByClaim deletes a claim that is bound, and checks that its volume goes with it.
func (env *environment) expectDeletedByClaim(claim *objects.Claim) {
	env.T.Helper()
	vol := env.WaitBound(claim)
	env.MustDeleteClaim(claim)
	env.expectDeletedOnce(vol.Volume)
	env.ExpectNothingLeft(claim)
}

// newClaimName is the name of a claim that is not there yet.
func newClaimName() string { return "claim-" + rand.String(8) }
