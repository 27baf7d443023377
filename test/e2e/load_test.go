//go:build unix

package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestBudgetUnderLoad has users delete many volumes at once, so that the sidecar works from
// caches that lag, and counts what the driver and the API server were asked for.
func TestBudgetUnderLoad(t *testing.T) {
	volumes := size(500, 100)
	cases := map[string]struct {
		pvFirst bool
		writes  int // for each volume, beside the one that protects it
	}{
		"PV first":    {true, 1},
		"claim first": {false, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.sidecar()
			vols := s.makeMany(volumes, func(i int) storage.Spec { return storage.Spec{Dynamic: i%2 == 0} })
			s.waitAll(vols, "protected", isProtected)
			protected := s.settledWrites(volumes)
			s.all(vols, func(vol *storage.Volume) error {
				if c.pvFirst {
					if err := vol.DeletePV(s.ctx); err != nil {
						return err
					}
				}
				return vol.DeleteClaim(s.ctx)
			})
			s.waitAll(vols, "gone", isGone)
			disk, calls := s.onDiskAll(), s.deletionsAll()
			for _, vol := range vols {
				if disk[vol.Handle] || calls[vol.Handle] != 1 {
					t.Errorf("volume %s: on disk %v, %d DeleteVolume calls, want 1", vol.Handle, disk[vol.Handle], calls[vol.Handle])
				}
			}
			all := s.settledWrites(volumes * (1 + c.writes))
			if len(protected) != volumes || len(all) != volumes*(1+c.writes) {
				t.Errorf("%d writes to protect and %d to reclaim %d volumes, want %d and %d",
					len(protected), len(all)-len(protected), volumes, volumes, volumes*c.writes)
			}
			reads := s.reads(vols)
			each := func(n int) float64 { return float64(n) / float64(volumes) }
			t.Logf("%d volumes: %.2f writes each to protect, %.2f to reclaim; %.2f GETs; %.2f DeleteVolume calls", volumes,
				each(len(protected)), each(len(all)-len(protected)), each(reads), each(sum(calls)))
			if reads != 2*volumes {
				t.Errorf("%d GETs for %d volumes, want %d; more than two: %v", reads, volumes, 2*volumes, s.readOften(vols))
			}
			for _, e := range all {
				if e.Code != 200 {
					t.Errorf("%s %s %s was answered %d", e.Verb, e.Resource, e.Name, e.Code)
				}
			}
		})
	}
}

// settledWrites returns the sidecar's writes to PVs once the audit log has at least this
// many and no more come.
func (s *stage) settledWrites(least int) []controlplane.AuditEvent {
	s.t.Helper()
	return s.settledWritesTo(least, "persistentvolumes")
}

// settledWritesTo does so for its writes to these resources.
func (s *stage) settledWritesTo(least int, resources ...string) []controlplane.AuditEvent {
	s.t.Helper()
	const still = 300 * time.Millisecond
	ctx := s.soon()
	var last []controlplane.AuditEvent
	since := time.Now()
	for {
		events, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
			return slices.Contains(resources, e.Resource) && !strings.Contains("get list watch", e.Verb)
		})
		s.must(err)
		if len(events) != len(last) {
			last, since = events, time.Now()
		}
		if ctx.Err() != nil || (len(last) >= least && time.Since(since) > still) {
			return last
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// reads counts the sidecar's GETs of these PVs and their claims.
func (s *stage) reads(vols []*storage.Volume) int {
	s.t.Helper()
	names := map[string]bool{}
	for _, vol := range vols {
		names[vol.Name] = true
	}
	events, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		return e.Verb == "get" && names[e.Name] && strings.HasPrefix(e.Resource, "persistentvolume")
	})
	s.must(err)
	return len(events)
}

func sum(counts map[string]int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

// readOften returns what was read of the volumes of which more than one claim and one PV was.
func (s *stage) readOften(vols []*storage.Volume) map[string][]string {
	s.t.Helper()
	often := map[string][]string{}
	for _, vol := range vols {
		often[vol.Name] = nil
	}
	_, err := s.plane.AuditEventsOf(s.user, func(e controlplane.AuditEvent) bool {
		if _, ours := often[e.Name]; ours && e.Verb == "get" {
			often[e.Name] = append(often[e.Name], fmt.Sprint(e.Resource, " ", e.Code, " ", e.Received.Format("05.000")))
		}
		return false
	})
	s.must(err)
	maps.DeleteFunc(often, func(_ string, reads []string) bool { return len(reads) <= 2 })
	return often
}
