//go:build unix

package reclaim

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

func TestDryRunReportsWithoutWrites(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	due, fresh := env.MakeVolume(objects.Spec{}), env.MakeVolume(objects.Spec{})
	kept := env.MakeVolume(objects.Spec{Policy: v1.PersistentVolumeReclaimRetain})
	env.ForEachVolume([]*objects.Volume{due, kept}, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs([]*objects.Volume{due, kept}, "released", fixture.IsReleased)
	car := env.StartSidecar("--dry-run", "--leader-election", "--brake-deletions=1",
		"--leader-election-namespace="+env.Namespace)
	env.Must(car.WaitLog(env.WithTimeout(), "Would do AddFinalizer"))
	env.WaitMetric(car, `csi_reclaimer_waiting_pvs{driver_name="`+env.Driver+`",reason="DryRun"}`, "2")
	env.ExpectKept(due)
	env.Must(fresh.DeleteClaim(env.Ctx))
	env.Must(fresh.DeletePV(env.Ctx))
	env.Must(fresh.WaitGone(env.WithTimeout()))
	events, err := env.Plane.AuditEventsOf(env.User, func(e controlplane.AuditEvent) bool {
		return e.APIGroup != "authorization.k8s.io" && !slices.Contains([]string{"get", "list", "watch"}, e.Verb)
	})
	env.Must(err)
	if len(events) > 0 {
		t.Errorf("a dry run wrote: %+v", events)
	}
	for _, vol := range []*objects.Volume{due, fresh, kept} {
		env.ExpectKept(vol)
	}
}

func TestStaticPVsAreIgnoredByFlag(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	env := newEnvironment(t)
	car := env.StartSidecar(fixture.FastRetries()...)
	static, dynamic := env.MakeVolume(objects.Spec{}), env.MakeVolume(objects.Spec{Dynamic: true})
	twin := env.MakeVolume(objects.Spec{Handle: dynamic.Handle})
	all := []*objects.Volume{static, dynamic, twin}
	env.WaitAllPVs(all, "protected", fixture.IsProtected)
	env.Must(car.Terminate())
	env.Must(car.Restart("--static-pvs=ignore"))
	env.Must(car.WaitReady(env.WithTimeout()))
	env.WaitAllPVs([]*objects.Volume{static, twin}, "without our finalizer",
		func(pv *v1.PersistentVolume) bool { return pv != nil && !fixture.HasFinalizer(pv) })
	env.ForEachVolume([]*objects.Volume{static, dynamic},
		func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs([]*objects.Volume{static, dynamic}, "released", fixture.IsReleased)
	env.WaitPVEvent(dynamic, "SharedHandle", twin.Name) // an ignored PV still needs its volume
	env.Must(static.DeletePV(env.Ctx))
	env.Must(static.WaitGone(env.WithTimeout()))
	env.Must(twin.DeleteClaim(env.Ctx))
	env.Must(dynamic.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(dynamic, 1)
	env.ExpectKept(static)
}

// TestProtectAnyPolicyClosesRace protects PVs of any policy, so that a policy change right before the deletion finds
// the finalizer.
func TestProtectAnyPolicyClosesRace(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(append(fixture.FastRetries(), "--finalizer-scope=bound-any")...)
	vols := env.MakeVolumes(10, func(int) objects.Spec { return objects.Spec{Policy: v1.PersistentVolumeReclaimRetain} })
	env.WaitAllPVs(vols, "protected", fixture.IsProtected)
	turned, kept := vols[:5], vols[5:]
	env.ForEachVolume(turned, func(vol *objects.Volume) error {
		return vol.SetPolicy(env.Ctx,
			v1.PersistentVolumeReclaimDelete)
	})
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeletePV(env.Ctx) })
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.WaitAllPVs(vols, "gone", fixture.IsGone)
	for _, vol := range turned {
		env.ExpectDeleted(vol, 1)
		if events := env.PVEvents(vol, "UnprotectedReclaim"); len(events) > 0 {
			t.Errorf("PV %s was not protected in time", vol.Name)
		}
	}
	for _, vol := range kept {
		env.ExpectKept(vol)
	}
}
