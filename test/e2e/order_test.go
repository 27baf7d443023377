//go:build unix

package e2e

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestReclaim is the end-to-end matrix of KEP-2644: static and dynamic PVs, both policies,
// both orders of deletion, and the policy changed on the way.
func TestReclaim(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar()

	claimFirst := func(s *stage, vol *storage.Volume) {
		s.must(vol.DeleteClaim(s.ctx))
		s.must(vol.WaitClaimGone(s.soon()))
	}
	pvFirst := func(s *stage, vol *storage.Volume) {
		s.must(vol.DeletePV(s.ctx))
		s.waitPV(vol, "terminating", func(pv *v1.PersistentVolume) bool { return pv.DeletionTimestamp != nil })
		s.expectKept(vol) // the claim still uses it
		claimFirst(s, vol)
	}
	orders := map[string]func(*stage, *storage.Volume){"claim first": claimFirst, "PV first": pvFirst}

	for kind, dynamic := range map[string]bool{"static": false, "dynamic": true} {
		for order, remove := range orders {
			t.Run(kind+", Delete, "+order+": the volume is deleted once and the PV goes", func(t *testing.T) {
				s := s.in(t)
				vol := s.make(storage.Spec{Dynamic: dynamic})
				s.waitProtected(vol)
				remove(s, vol)
				s.must(vol.WaitGone(s.soon()))
				s.expectDeleted(vol, 1)
				s.expectBudget(vol, order)
			})
			t.Run(kind+", Retain, "+order+": the volume is kept", func(t *testing.T) {
				s := s.in(t)
				vol := s.make(storage.Spec{Dynamic: dynamic, Policy: v1.PersistentVolumeReclaimRetain})
				remove(s, vol)
				if order == "PV first" {
					s.must(vol.WaitGone(s.soon()))
				} else {
					s.waitPV(vol, "released", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased && !protected(pv) })
				}
				s.fence()
				s.expectKept(vol)
			})
			t.Run(kind+", Delete turned to Retain, "+order+": the volume is kept", func(t *testing.T) {
				s := s.in(t)
				vol := s.make(storage.Spec{Dynamic: dynamic})
				s.waitProtected(vol)
				s.must(vol.SetPolicy(s.ctx, v1.PersistentVolumeReclaimRetain))
				s.waitPV(vol, "without our finalizer", func(pv *v1.PersistentVolume) bool { return !protected(pv) })
				remove(s, vol)
				if order == "PV first" {
					s.must(vol.WaitGone(s.soon()))
				}
				s.fence()
				s.expectKept(vol)
			})
			t.Run(kind+", Retain turned to Delete, "+order+": the volume is deleted", func(t *testing.T) {
				s := s.in(t)
				vol := s.make(storage.Spec{Dynamic: dynamic, Policy: v1.PersistentVolumeReclaimRetain})
				s.must(vol.SetPolicy(s.ctx, v1.PersistentVolumeReclaimDelete))
				s.waitProtected(vol)
				remove(s, vol)
				s.must(vol.WaitGone(s.soon()))
				s.expectDeleted(vol, 1)
			})
		}
	}
}

// in returns the stage for a subtest.
func (s *stage) in(t *testing.T) *stage {
	sub := *s
	sub.t = t
	return &sub
}

// expectBudget compares what the sidecar asked the API server for with the contract's
// budget: one write more to protect the PV; the PV's deletion only if nobody asked before.
func (s *stage) expectBudget(vol *storage.Volume, order string) {
	s.t.Helper()
	wantWrites := []string{"patch persistentvolumes 200", "delete persistentvolumes 200", "patch persistentvolumes 200"}
	if order == "PV first" {
		wantWrites = []string{"patch persistentvolumes 200", "patch persistentvolumes 200"}
	}
	wantReads := []string{"get persistentvolumeclaims 404", "get persistentvolumes 200"}
	// The audit log may get an entry a moment after the client got its answer.
	ctx := s.soon()
	for {
		writes, reads := s.requests(vol.Name)
		if len(writes) >= len(wantWrites) && len(reads) >= len(wantReads) || ctx.Err() != nil {
			if !slices.Equal(writes, wantWrites) {
				s.t.Errorf("writes = %v, want %v", writes, wantWrites)
			}
			if !slices.Equal(reads, wantReads) {
				s.t.Errorf("reads = %v, want %v", reads, wantReads)
			}
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestAPVDeletedWhileTurnedToRetainIsRescuedOrLetGo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar()
	vol := s.make(storage.Spec{})
	s.waitProtected(vol)
	s.must(vol.DeletePV(s.ctx))
	s.must(vol.SetPolicy(s.ctx, v1.PersistentVolumeReclaimRetain))
	s.fence()
	// Terminating and bound: the finalizer holds it, so that the policy can turn back.
	s.waitPV(vol, "protected and terminating", func(pv *v1.PersistentVolume) bool { return protected(pv) && pv.DeletionTimestamp != nil })
	s.must(vol.DeleteClaim(s.ctx))
	s.must(vol.WaitGone(s.soon()))
	s.expectKept(vol)
}

func TestAPVNobodyClaimedKeepsItsVolume(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar()
	vol := s.make(storage.Spec{Unclaimed: true})
	s.waitPV(vol, "available", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeAvailable })
	s.must(vol.DeletePV(s.ctx))
	s.must(vol.WaitGone(s.soon()))
	s.fence()
	s.expectKept(vol)
}

func TestAnAdministratorTakesAReleasedVolumeBack(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	vol := s.make(storage.Spec{})
	s.must(vol.DeleteClaim(s.ctx))
	s.waitPV(vol, "released", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	_, err := s.client.CoreV1().PersistentVolumes().Patch(s.ctx, vol.Name, types.MergePatchType, []byte(`{"spec":{"claimRef":null}}`), metav1.PatchOptions{})
	s.must(err)
	s.sidecar()
	s.fence()
	s.expectKept(vol)
}

func TestForeignPVsAreLeftAlone(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar()
	vol := s.make(storage.Spec{Change: func(pv *v1.PersistentVolume) {
		pv.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "another.driver.example.com"}
	}})
	s.must(vol.DeleteClaim(s.ctx))
	s.waitPV(vol, "released", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	s.fence()
	s.expectKept(vol)
	if writes, reads := s.requests(vol.Name); len(writes)+len(reads) != 0 {
		t.Errorf("the sidecar touched a PV of another driver: %v %v", writes, reads)
	}
}

func TestPVsOfOneHandleWaitForTheLastThatNeedsIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar()
	first := s.make(storage.Spec{})
	second := s.make(storage.Spec{Handle: first.Handle})
	s.waitProtected(first)
	s.waitProtected(second)
	s.must(first.DeleteClaim(s.ctx))
	s.waitPV(first, "released", func(pv *v1.PersistentVolume) bool { return pv.Status.Phase == v1.VolumeReleased })
	s.fence()
	s.expectKept(first)
	s.must(second.DeleteClaim(s.ctx))
	s.must(first.WaitGone(s.soon()))
	s.must(second.WaitGone(s.soon()))
	if s.onDisk(first.Handle) {
		t.Errorf("LEAK: volume %s is still on the driver's disk", first.Handle)
	}
}
