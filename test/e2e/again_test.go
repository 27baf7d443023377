//go:build unix

package e2e

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestAPVThatGoesWhileItsVolumeIsDeletedCostsNoSecondCall has somebody take the finalizer off
// while the driver works.
func TestAPVThatGoesWhileItsVolumeIsDeletedCostsNoSecondCall(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(eager()...)
	vol := s.make(storage.Spec{})
	s.waitProtected(vol)
	s.must(s.driver.SetFaults(s.ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", Volume: vol.Handle, First: 1, Action: faults.Delay, Delay: faults.Duration(1500 * time.Millisecond)},
	}}))
	s.must(vol.DeletePV(s.ctx))
	s.must(vol.DeleteClaim(s.ctx))
	s.waitCalls(vol, 1)
	s.strip(vol)
	s.must(vol.WaitGone(s.soon()))
	s.eventually("the driver has answered", func() bool { return !s.onDisk(vol.Handle) })
	s.fence()
	s.expectDeleted(vol, 1)
	if told := s.events(vol, "ReclaimAbandoned"); len(told) > 0 {
		t.Errorf("told about a volume that is gone: %s", told[0].Message)
	}
}

// TestWithoutFinalizersEachVolumeIsDeletedOnce has PVs go in the moment of their deletion.
func TestWithoutFinalizersEachVolumeIsDeletedOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.sidecar(append(eager(), "--honor-reclaim-policy=false")...)
	vols := s.makeMany(200, func(i int) storage.Spec { return storage.Spec{Dynamic: i%2 == 0} })
	s.all(vols, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.waitAll(vols, "gone", isGone)
	s.fenceWithout()
	disk, calls := s.onDiskAll(), s.deletionsAll()
	often := 0
	for _, vol := range vols {
		if disk[vol.Handle] {
			t.Errorf("LEAK: volume %s", vol.Handle)
		}
		if n := calls[vol.Handle]; n != 1 {
			often++
			if often < 5 {
				t.Errorf("the driver received %d DeleteVolume calls for PV %s, want 1", n, vol.Name)
			}
		}
	}
	t.Logf("%d of %d volumes were deleted more than once; most calls for one: %d", often, len(vols), most(calls))
}

// fenceWithout is fence where nothing is protected.
func (s *stage) fenceWithout() {
	s.t.Helper()
	vol := s.make(storage.Spec{})
	s.must(vol.DeleteClaim(s.ctx))
	s.must(vol.WaitPV(s.soon(), "gone", func(pv *v1.PersistentVolume) bool { return pv == nil }))
}

func most(counts map[string]int) (n int) {
	for _, c := range counts {
		n = max(n, c)
	}
	return n
}
