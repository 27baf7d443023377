//go:build unix

package e2e

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/csi-reclaimer/csi-reclaimer/test/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestBudgetUnderLoad has users delete many volumes at once, so that the sidecar works from
// caches that lag, and counts what the driver and the API server were asked for.
func TestBudgetUnderLoad(t *testing.T) {
	const volumes, atOnce = 100, 16
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
			vols := make([]*storage.Volume, volumes)
			for i := range vols {
				vols[i] = s.make(storage.Spec{Dynamic: true})
			}
			for _, vol := range vols {
				s.waitProtected(vol)
			}
			protected := s.settledWrites(volumes)
			var users errgroup.Group
			users.SetLimit(atOnce)
			for _, vol := range vols {
				users.Go(func() error {
					if c.pvFirst {
						if err := vol.DeletePV(s.ctx); err != nil {
							return err
						}
					}
					return vol.DeleteClaim(s.ctx)
				})
			}
			s.must(users.Wait())
			for _, vol := range vols {
				s.must(vol.WaitGone(s.soon()))
				s.expectDeleted(vol, 1)
			}
			all := s.settledWrites(volumes * (1 + c.writes))
			if len(protected) != volumes || len(all) != volumes*(1+c.writes) {
				t.Errorf("%d writes to protect and %d to reclaim %d volumes, want %d and %d",
					len(protected), len(all)-len(protected), volumes, volumes, volumes*c.writes)
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
	const still = 300 * time.Millisecond
	ctx := s.soon()
	var last []controlplane.AuditEvent
	since := time.Now()
	for {
		events, err := cluster.AuditEvents(func(e controlplane.AuditEvent) bool {
			return e.User == s.user && e.Resource == "persistentvolumes" && !strings.Contains("get list watch", e.Verb)
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
