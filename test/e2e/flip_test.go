//go:build unix

package e2e

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestAPolicyIsTurnedAndThePVDeletedAtOnce leaves the sidecar no time to protect the PV.
func TestAPolicyIsTurnedAndThePVDeletedAtOnce(t *testing.T) {
	retain := func(int) storage.Spec { return storage.Spec{Policy: v1.PersistentVolumeReclaimRetain} }
	flip := func(s *stage) func(*storage.Volume) error {
		return func(vol *storage.Volume) error {
			if err := vol.SetPolicy(s.ctx, v1.PersistentVolumeReclaimDelete); err != nil {
				return err
			}
			return vol.DeletePV(s.ctx)
		}
	}
	unclaim := func(s *stage) func(*storage.Volume) error {
		return func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) }
	}
	t.Run("the claim is gone already", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		s.sidecar(eager()...)
		vols := s.makeMany(size(200, 100), retain)
		bystanders := s.makeMany(5, retain)
		s.all(append(append([]*storage.Volume{}, vols...), bystanders...), unclaim(s))
		s.waitAll(vols, "released", isReleased)
		s.all(vols, flip(s))
		s.expectNoLeak(vols)
		for _, vol := range bystanders {
			s.expectKept(vol)
		}
	})
	t.Run("the claim goes later", func(t *testing.T) {
		t.Parallel()
		s := newStage(t)
		s.sidecar(eager()...)
		vols := s.makeMany(20, retain)
		s.all(vols, flip(s))
		s.all(vols, unclaim(s))
		s.expectNoLeak(vols)
	})
}

// expectNoLeak waits until every volume is deleted, once, and those that went after their PV are
// reported.
func (s *stage) expectNoLeak(vols []*storage.Volume) {
	s.t.Helper()
	s.waitAll(vols, "gone", isGone)
	s.eventually("no volume is left", func() bool {
		disk := s.onDiskAll()
		for _, vol := range vols {
			if disk[vol.Handle] {
				return false
			}
		}
		return true
	})
	calls, patches := s.deletionsAll(), s.patchesAll()
	late := 0
	for _, vol := range vols {
		if calls[vol.Handle] != 1 {
			s.t.Errorf("the driver received %d DeleteVolume calls for PV %s, want 1", calls[vol.Handle], vol.Name)
		}
		// A PV that was protected in time was patched twice: on and off.
		if patches[vol.Name] != 2 {
			s.waitEvent(vol, "UnprotectedReclaim", vol.Handle)
			late++
		}
	}
	s.t.Logf("%d of %d PVs were gone before they could be protected; all volumes are deleted, once each", late, len(vols))
}

// patchesAll counts the sidecar's patches that took effect, by PV.
func (s *stage) patchesAll() map[string]int {
	s.t.Helper()
	events, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.Resource == "persistentvolumes" && e.Verb == "patch" && e.Code == 200
	})
	s.must(err)
	count := map[string]int{}
	for _, e := range events {
		count[e.Name]++
	}
	return count
}
