//go:build unix

package reclaim

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

func TestHeldVolumeStaysUntilHoldIsRemoved(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(fixture.FastRetries()...)
	for _, order := range []string{"claim first", "PV first"} {
		held, other := env.MakeVolume(objects.Spec{}), env.MakeVolume(objects.Spec{})
		env.WaitProtected(held)
		env.WaitProtected(other)
		env.AnnotatePV(held, volume.HoldAnnotation, "evidence, ask the "+order+" desk")
		for _, vol := range []*objects.Volume{held, other} {
			if order == "PV first" {
				env.Must(vol.DeletePV(env.Ctx))
			}
			env.Must(vol.DeleteClaim(env.Ctx))
		}
		env.Must(other.WaitGone(env.WithTimeout()))
		env.WaitPVEvent(held, "Held", "ask the "+order+" desk")
		env.Barrier()
		env.ExpectKept(held)
		env.AnnotatePV(held, volume.HoldAnnotation, "")
		env.Must(held.WaitGone(env.WithTimeout()))
		env.ExpectDeleted(held, 1)
	}
}

func TestHoldStopsFailingDeletion(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(fixture.FastRetries()...)
	vol := env.MakeVolume(objects.Spec{})
	env.WaitProtected(vol)
	env.Must(env.MockDriver.SetFaults(env.Ctx,
		faults.Plan{Rules: []faults.Rule{{Method: "DeleteVolume", Volume: vol.Handle, Action: faults.Fail,
			Code: "Internal"}}}))
	env.Must(vol.DeleteClaim(env.Ctx))
	env.WaitDeleteCalls(vol, 2)
	env.AnnotatePV(vol, volume.HoldAnnotation, "wait")
	env.WaitPVEvent(vol, "Held", "wait")
	env.Must(env.MockDriver.SetFaults(env.Ctx, faults.Plan{}))
	env.Barrier()
	if !env.OnDisk(vol.Handle) {
		t.Error("the volume was deleted although it was held")
	}
}
