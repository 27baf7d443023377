//go:build unix

package reclaim

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestReclaimPolicyIsHonouredInBothDeletionOrders is the end-to-end matrix of KEP-2644: static and dynamic PVs, both
// policies, both orders of deletion, and a policy that changes in between.
func TestReclaimPolicyIsHonouredInBothDeletionOrders(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar()

	claimFirst := func(env *environment, vol *objects.Volume) {
		env.Must(vol.DeleteClaim(env.Ctx))
		env.Must(vol.WaitClaimGone(env.WithTimeout()))
	}
	pvFirst := func(env *environment, vol *objects.Volume) {
		env.Must(vol.DeletePV(env.Ctx))
		env.WaitPV(vol, "terminating", func(pv *v1.PersistentVolume) bool { return pv.DeletionTimestamp != nil })
		env.Barrier()       // the sidecar has decided on the PV
		env.ExpectKept(vol) // the claim still uses it
		claimFirst(env, vol)
	}
	orders := map[string]func(*environment, *objects.Volume){"claim first": claimFirst, "PV first": pvFirst}

	for kind, dynamic := range map[string]bool{"static": false, "dynamic": true} {
		for order, remove := range orders {
			t.Run(kind+", Delete, "+order+": the volume is deleted once, then the PV", func(t *testing.T) {
				env := env.forSubtest(t)
				vol := env.MakeVolume(objects.Spec{Dynamic: dynamic})
				env.WaitProtected(vol)
				remove(env, vol)
				env.Must(vol.WaitGone(env.WithTimeout()))
				env.ExpectDeleted(vol, 1)
				env.expectBudget(vol, order)
			})
			t.Run(kind+", Retain, "+order+": the volume is kept", func(t *testing.T) {
				env := env.forSubtest(t)
				vol := env.MakeVolume(objects.Spec{Dynamic: dynamic, Policy: v1.PersistentVolumeReclaimRetain})
				remove(env, vol)
				if order == "PV first" {
					env.Must(vol.WaitGone(env.WithTimeout()))
				} else {
					env.WaitPV(vol, "released", func(pv *v1.PersistentVolume) bool {
						return pv.Status.Phase == v1.VolumeReleased && !fixture.HasFinalizer(pv)
					})
				}
				env.Barrier()
				env.ExpectKept(vol)
			})
			t.Run(kind+", Delete changed to Retain, "+order+": the volume is kept", func(t *testing.T) {
				env := env.forSubtest(t)
				vol := env.MakeVolume(objects.Spec{Dynamic: dynamic})
				env.WaitProtected(vol)
				env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimRetain))
				env.WaitPV(vol, "without our finalizer", func(pv *v1.PersistentVolume) bool { return !fixture.HasFinalizer(pv) })
				remove(env, vol)
				if order == "PV first" {
					env.Must(vol.WaitGone(env.WithTimeout()))
				}
				env.Barrier()
				env.ExpectKept(vol)
			})
			t.Run(kind+", Retain changed to Delete, "+order+": the volume is deleted", func(t *testing.T) {
				env := env.forSubtest(t)
				vol := env.MakeVolume(objects.Spec{Dynamic: dynamic, Policy: v1.PersistentVolumeReclaimRetain})
				env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimDelete))
				env.WaitProtected(vol)
				remove(env, vol)
				env.Must(vol.WaitGone(env.WithTimeout()))
				env.ExpectDeleted(vol, 1)
			})
		}
	}
}

// expectBudget compares the sidecar's requests with the contract's budget: one write more to protect the PV, and the
// PV's deletion only if no user deleted it before.
func (env *environment) expectBudget(vol *objects.Volume, order string) {
	env.T.Helper()
	wantWrites := []string{"patch persistentvolumes 200", "delete persistentvolumes 200", "patch persistentvolumes 200"}
	if order == "PV first" {
		wantWrites = []string{"patch persistentvolumes 200", "patch persistentvolumes 200"}
	}
	// The claim is read only where its PV was released before the watch showed the claim's end.
	const readClaim = "get persistentvolumeclaims 404"
	wantReads := []string{"get persistentvolumes 200"}
	// The audit log may get an entry a moment after the client got its answer.
	ctx := env.WithTimeout()
	for {
		writes, reads := env.apiRequests(vol.Name)
		if len(writes) >= len(wantWrites) && len(reads) >= len(wantReads) || ctx.Err() != nil {
			if !slices.Equal(writes, wantWrites) {
				env.T.Errorf("writes = %v, want %v", writes, wantWrites)
			}
			if len(reads) > 0 && reads[0] == readClaim {
				reads = reads[1:]
			}
			if !slices.Equal(reads, wantReads) {
				env.T.Errorf("reads = %v, want %v, and the claim before at most", reads, wantReads)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestRetainOnTerminatingPVKeepsVolume(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar()
	vol := env.MakeVolume(objects.Spec{})
	env.WaitProtected(vol)
	env.Must(vol.DeletePV(env.Ctx))
	env.Must(vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimRetain))
	env.Barrier()
	// Terminating and bound: the finalizer holds it, so that the policy can turn back.
	env.WaitPV(vol, "protected and terminating",
		func(pv *v1.PersistentVolume) bool { return fixture.HasFinalizer(pv) && pv.DeletionTimestamp != nil })
	env.Must(vol.DeleteClaim(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectKept(vol)
}

func TestUnclaimedPVKeepsVolume(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar()
	vol := env.MakeVolume(objects.Spec{Unclaimed: true})
	env.WaitPV(vol, "available", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeAvailable })
	env.Must(vol.DeletePV(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.Barrier()
	env.ExpectKept(vol)
}

func TestReleasedPVWithClearedClaimRefKeepsVolume(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	vol := env.MakeVolume(objects.Spec{})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPV(vol, "released", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	_, err := env.Client.CoreV1().PersistentVolumes().Patch(env.Ctx, vol.Name, types.MergePatchType,
		[]byte(`{"spec":{"claimRef":null}}`), metav1.PatchOptions{})
	env.Must(err)
	env.StartSidecar()
	env.Barrier()
	env.ExpectKept(vol)
}

func TestPVOfAnotherProvisionerIsIgnored(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar()
	vol := env.MakeVolume(objects.Spec{Change: func(pv *v1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "another.driver.example.com"}
	}})
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitPV(vol, "released", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	env.Barrier()
	env.ExpectKept(vol)
	if writes, reads := env.apiRequests(vol.Name); len(writes)+len(reads) != 0 {
		t.Errorf("the sidecar touched a PV of another driver: %v %v", writes, reads)
	}
}

func TestSharedVolumeHandleIsDeletedWithItsLastPV(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar()
	first := env.MakeVolume(objects.Spec{})
	second := env.MakeVolume(objects.Spec{Handle: first.Handle})
	env.WaitProtected(first)
	env.WaitProtected(second)
	env.Must(first.DeleteClaim(env.Ctx))
	env.WaitPV(first, "released", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	env.Barrier()
	env.ExpectKept(first)
	env.Must(second.DeleteClaim(env.Ctx))
	env.Must(first.WaitGone(env.WithTimeout()))
	env.Must(second.WaitGone(env.WithTimeout()))
	if env.OnDisk(first.Handle) {
		t.Errorf("LEAK: volume %s is still on the driver's disk", first.Handle)
	}
}
