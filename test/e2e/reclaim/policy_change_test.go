//go:build unix

package reclaim

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestPolicyChangedToDeleteRightBeforeDeletion leaves the sidecar no time to protect the PV.
func TestPolicyChangedToDeleteRightBeforeDeletion(t *testing.T) {
	t.Parallel()
	retain := func(int) objects.Spec { return objects.Spec{Policy: v1.PersistentVolumeReclaimRetain} }
	flip := func(env *environment) func(*objects.Volume) error {
		return func(vol *objects.Volume) error {
			if err := vol.SetPolicy(env.Ctx, v1.PersistentVolumeReclaimDelete); err != nil {
				return err
			}
			return env.DeletePVIfPresent(vol) // csi-reclaimer may have been quicker
		}
	}
	unclaim := func(env *environment) func(*objects.Volume) error {
		return func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) }
	}
	t.Run("the claim was deleted before", func(t *testing.T) {
		t.Parallel()
		env := newEnvironment(t)
		env.StartSidecar(fixture.FastRetries()...)
		vols := env.MakeVolumes(fixture.Size(200, 20), retain)
		bystanders := env.MakeVolumes(5, retain)
		env.ForEachVolume(append(append([]*objects.Volume{}, vols...), bystanders...), unclaim(env))
		env.WaitAllPVs(vols, "released", fixture.IsReleased)
		env.ForEachVolume(vols, flip(env))
		env.expectNoLeak(vols)
		for _, vol := range bystanders {
			env.ExpectKept(vol)
		}
	})
	t.Run("the claim is deleted later", func(t *testing.T) {
		t.Parallel()
		env := newEnvironment(t)
		env.StartSidecar(fixture.FastRetries()...)
		vols := env.MakeVolumes(20, retain)
		env.ForEachVolume(vols, flip(env))
		env.ForEachVolume(vols, unclaim(env))
		env.expectNoLeak(vols)
	})
}

// expectNoLeak waits until every volume is deleted once, and volumes deleted after their PV are reported.
func (env *environment) expectNoLeak(vols []*objects.Volume) {
	env.T.Helper()
	env.WaitAllPVs(vols, "gone", fixture.IsGone)
	env.Eventually("no volume is left", func() bool {
		disk := env.VolumesOnDisk()
		for _, vol := range vols {
			if disk[vol.Handle] {
				return false
			}
		}
		return true
	})
	calls, patches := env.DeleteCallCounts(), env.patchCounts()
	late := 0
	for _, vol := range vols {
		if calls[vol.Handle] != 1 {
			env.T.Errorf("the driver received %d DeleteVolume calls for PV %s, want 1", calls[vol.Handle], vol.Name)
		}
		// A PV that was protected in time was patched twice: on and off. The audit log is written behind the answers.
		inTime := patches[vol.Name] == 2
		reported := func() bool {
			return slices.ContainsFunc(env.PVEvents(vol, "UnprotectedReclaim"),
				func(e v1.Event) bool { return strings.Contains(e.Message, vol.Handle) })
		}
		if !inTime {
			env.Eventually("PV "+vol.Name+" was protected in time, or its end is reported", func() bool {
				inTime = env.patchCounts()[vol.Name] == 2
				return inTime || reported()
			})
		}
		if !inTime {
			late++
		}
	}
	env.T.Logf("%d of %d PVs were gone before they could be protected; all volumes are deleted, once each", late,
		len(vols))
}

// patchCounts counts the sidecar's patches that took effect, by PV.
func (env *environment) patchCounts() map[string]int {
	env.T.Helper()
	events, err := env.Plane.AuditEventsOf(env.User, func(e controlplane.AuditEvent) bool {
		return e.Resource == "persistentvolumes" && e.Verb == "patch" && e.Code == 200
	})
	env.Must(err)
	count := map[string]int{}
	for _, e := range events {
		count[e.Name]++
	}
	return count
}
