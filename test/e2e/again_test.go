//go:build unix

package e2e

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// Somebody takes the finalizer off while the driver works.
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
