//go:build unix

package reclaim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// apiRequests returns the sidecar's requests for one PV's name.
func (env *environment) apiRequests(name string) (writes, reads []string) {
	env.T.Helper()
	events, err := env.Plane.AuditEventsOf(env.User, func(e controlplane.AuditEvent) bool {
		return e.Name == name && strings.HasPrefix(e.Resource, "persistentvolume")
	})
	env.Must(err)
	for _, e := range events {
		what := fmt.Sprintf("%s %s %d", e.Verb, e.Resource, e.Code)
		if e.Verb == "get" {
			reads = append(reads, what)
		} else {
			writes = append(writes, what)
		}
	}
	return writes, reads
}

// TestRequestBudgetUnderLoad deletes many volumes at once, so that the sidecar works from stale caches, and counts the
// calls to the driver and the API server.
func TestRequestBudgetUnderLoad(t *testing.T) {
	suite.Deep(t, suite.Load)
	fixture.NewestOnly(t, fixture.AboutRequests)
	volumes := fixture.Size(500, 100)
	cases := map[string]struct {
		pvFirst bool
		writes  int // for each volume, without the write that protects it
	}{
		"PV first":    {true, 1},
		"claim first": {false, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			env := newEnvironment(t)
			env.StartSidecar()
			vols := env.MakeVolumes(volumes, func(i int) objects.Spec { return objects.Spec{Dynamic: i%2 == 0} })
			env.WaitAllPVs(vols, "protected", fixture.IsProtected)
			protected := env.settledWrites(vols, volumes)
			env.ForEachVolume(vols, func(vol *objects.Volume) error {
				if c.pvFirst {
					if err := vol.DeletePV(env.Ctx); err != nil {
						return err
					}
				}
				return vol.DeleteClaim(env.Ctx)
			})
			env.WaitAllPVs(vols, "gone", fixture.IsGone)
			disk, calls := env.VolumesOnDisk(), env.DeleteCallCounts()
			for _, vol := range vols {
				if disk[vol.Handle] || calls[vol.Handle] != 1 {
					t.Errorf("volume %s: on disk %v, %d DeleteVolume calls, want 1", vol.Handle, disk[vol.Handle], calls[vol.Handle])
				}
			}
			all := env.settledWrites(vols, volumes*(1+c.writes))
			if len(protected) != volumes || len(all) != volumes*(1+c.writes) {
				t.Errorf("%d writes to protect and %d to reclaim %d volumes, want %d and %d",
					len(protected), len(all)-len(protected), volumes, volumes, volumes*c.writes)
			}
			reads := env.reads(vols)
			each := func(n int) float64 { return float64(n) / float64(volumes) }
			t.Logf("%d volumes: %.2f writes each to protect, %.2f to reclaim; %.2f GETs; %.2f DeleteVolume calls", volumes,
				each(len(protected)), each(len(all)-len(protected)), each(reads), each(fixture.Sum(calls)))
			// The PV, and the claim where the PV was released before the watch showed the claim's end.
			if reads < volumes || reads > 2*volumes {
				t.Errorf("%d GETs for %d volumes, want one or two each; more than two: %v", reads, volumes,
					env.readMoreThanTwice(vols))
			}
			for _, e := range all {
				if e.Code != 200 {
					t.Errorf("%s %s %s was answered %d", e.Verb, e.Resource, e.Name, e.Code)
				}
			}
		})
	}
}

// settledWrites returns the sidecar's writes to these PVs once the audit log has at least this many, and the sidecar
// has dealt with a volume that came after them.
func (env *environment) settledWrites(vols []*objects.Volume, least int) (writes []controlplane.AuditEvent) {
	env.T.Helper()
	env.Barrier()
	names := map[string]bool{}
	for _, vol := range vols {
		names[vol.Name] = true
	}
	env.Eventually(fmt.Sprintf("%d writes to the PVs", least), func() bool {
		writes = slices.DeleteFunc(env.WritesTo(least, "persistentvolumes"),
			func(e controlplane.AuditEvent) bool { return !names[e.Name] })
		return len(writes) >= least
	})
	return writes
}

// reads counts the sidecar's GETs of these PVs and their claims.
func (env *environment) reads(vols []*objects.Volume) int {
	env.T.Helper()
	names := map[string]bool{}
	for _, vol := range vols {
		names[vol.Name] = true
	}
	events, err := env.Plane.AuditEventsOf(env.User, func(e controlplane.AuditEvent) bool {
		return e.Verb == "get" && names[e.Name] && strings.HasPrefix(e.Resource, "persistentvolume")
	})
	env.Must(err)
	return len(events)
}

// readMoreThanTwice returns the reads of volumes with more than two reads of claim and PV together.
func (env *environment) readMoreThanTwice(vols []*objects.Volume) map[string][]string {
	env.T.Helper()
	often := map[string][]string{}
	for _, vol := range vols {
		often[vol.Name] = nil
	}
	_, err := env.Plane.AuditEventsOf(env.User, func(e controlplane.AuditEvent) bool {
		if _, ours := often[e.Name]; ours && e.Verb == "get" {
			often[e.Name] = append(often[e.Name], fmt.Sprint(e.Resource, " ", e.Code, " ", e.Received.Format("05.000")))
		}
		return false
	})
	env.Must(err)
	maps.DeleteFunc(often, func(_ string, reads []string) bool { return len(reads) <= 2 })
	return often
}
