//go:build unix

package reclaim

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestPVRemovedDuringDeleteVolumeCausesNoSecondCall removes the finalizer while the driver executes DeleteVolume.
func TestPVRemovedDuringDeleteVolumeCausesNoSecondCall(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutRequests)
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(fixture.FastRetries()...)
	vol := env.MakeVolume(objects.Spec{})
	env.WaitProtected(vol)
	env.Must(env.MockDriver.SetFaults(env.Ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", Volume: vol.Handle, Action: faults.Block},
	}}))
	env.Must(vol.DeletePV(env.Ctx))
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitDeleteCalls(vol, 1)
	env.RemoveFinalizers(vol)
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.Must(env.MockDriver.ClearFaults(env.Ctx))
	env.Eventually("the driver has answered", func() bool { return !env.OnDisk(vol.Handle) })
	env.Barrier()
	env.ExpectDeleted(vol, 1)
	if events := env.PVEvents(vol, "ReclaimAbandoned"); len(events) > 0 {
		t.Errorf("an Event about a volume that is gone: %s", events[0].Message)
	}
}

// TestPVNameIsReused creates a PV under the name of another PV that is being reclaimed.
func TestPVNameIsReused(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(fixture.FastRetries()...)
	first := env.MakeVolume(objects.Spec{})
	env.WaitProtected(first)
	env.Must(first.DeletePV(env.Ctx))
	env.Must(first.DeleteClaim(env.Ctx))
	env.Must(first.WaitGone(env.WithTimeout()))
	second := env.MakeVolume(objects.Spec{Name: first.Name})
	if second.PVUID == first.PVUID || second.Handle == first.Handle {
		t.Fatalf("not another PV: %+v %+v", first, second)
	}
	env.WaitProtected(second)
	env.Barrier()
	env.ExpectDeleted(first, 1)
	env.ExpectKept(second)
	env.Must(second.DeleteClaim(env.Ctx))
	env.Must(second.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(second, 1)
}
