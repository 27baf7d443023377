//go:build unix

package reclaim

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// removeFinalizersRepeatedly strips a PV as often as it takes until the finalizer is not added to it any more.
func (env *environment) removeFinalizersRepeatedly(vol *objects.Volume) {
	env.T.Helper()
	for range 3 {
		env.WaitProtected(vol)
		env.RemoveFinalizers(vol)
	}
}

// runFinalizerCommand has another user add the finalizer to a PV, by the Event's command.
func (env *environment) runFinalizerCommand(vol *objects.Volume, text string) {
	env.T.Helper()
	patch := `{"metadata":{"finalizers":["` + volume.Finalizer + `"]}}`
	if text != "" && !strings.Contains(text, "kubectl patch pv "+vol.Name+" -p '"+patch+"'") {
		env.T.Fatalf("there is no command that adds the finalizer: %s", text)
	}
	_, err := env.Client.CoreV1().PersistentVolumes().Patch(
		env.Ctx, vol.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	env.Must(err)
}

// TestFinalizerConflictAffectsOnlyItsPV removes the finalizer of one PV again and again. All other PVs stay protected.
func TestFinalizerConflictAffectsOnlyItsPV(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutRequests)
	t.Parallel()
	env := newEnvironment(t)
	car := env.StartSidecar(fixture.FastRetries()...)
	looped, other := env.MakeVolume(objects.Spec{}), env.MakeVolume(objects.Spec{})
	env.WaitProtected(other)
	env.removeFinalizersRepeatedly(looped)
	env.WaitPVEvent(looped, "PVContested", "Other PVs are protected")
	env.WaitMetric(car, `csi_reclaimer_waiting_pvs{driver_name="`+env.Driver+`",reason="PVContested"}`, "1")
	env.WaitMetric(car, "csi_reclaimer_finalizers_contested", "0")
	before := env.WritesToPVs(env.User, []*objects.Volume{looped})["patch"]
	env.AnnotatePV(looped, "example.com/changed", "again")
	// Another PV's finalizer is added again, and a new PV gets one.
	env.RemoveFinalizers(other)
	env.WaitProtected(other)
	env.Must(other.DeletePV(env.Ctx))
	env.Must(other.DeleteClaim(env.Ctx))
	env.Must(other.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(other, 1)
	env.Barrier()
	if after := env.WritesToPVs(env.User, []*objects.Volume{looped})["patch"]; after != before || before != 3 {
		t.Errorf("%d patches before and %d after the contest was seen, want 3", before, after)
	}
	// Another user adds the finalizer: the PV is protected again.
	env.runFinalizerCommand(looped, env.PVEvents(looped, "PVContested")[0].Message)
	env.WaitMetric(car, `csi_reclaimer_pvs{driver_name="`+env.Driver+`",protected="true"}`, "1")
	env.RemoveFinalizers(looped)
	env.WaitProtected(looped)
	env.Must(looped.DeletePV(env.Ctx))
	env.Must(looped.DeleteClaim(env.Ctx))
	env.Must(looped.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(looped, 1)
}

// TestConflictOverManyFinalizersStopsAddingThem removes the finalizers of several PVs again and again.
func TestConflictOverManyFinalizersStopsAddingThem(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutRequests)
	t.Parallel()
	env := newEnvironment(t)
	car := env.StartSidecar(fixture.FastRetries()...)
	vols := env.MakeVolumes(3, func(int) objects.Spec { return objects.Spec{} })
	for _, vol := range vols {
		env.removeFinalizersRepeatedly(vol)
	}
	env.WaitMetric(car, "csi_reclaimer_finalizers_contested", "1")
	vol := vols[0]
	for _, vol := range vols {
		env.WaitPVEvent(vol, "FinalizerContested", "--role=companion")
	}
	before := env.WritesToPVs(env.User, []*objects.Volume{vol})["patch"]
	env.AnnotatePV(vol, "example.com/changed", "again")
	another := env.MakeVolume(objects.Spec{}) // nothing is protected any more
	env.WaitPVEvent(another, "FinalizerContested", "--role=companion")
	if after := env.WritesToPVs(env.User, []*objects.Volume{vol})["patch"]; after != before || before != 3 {
		t.Errorf("%d patches before and %d after the contest was seen, want 3", before, after)
	}
	// A volume is also deleted if its claim is deleted first.
	env.Must(vol.DeleteClaim(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(vol, 1)
	// Another user adds the finalizer to one of them: the conflict ends for all.
	env.runFinalizerCommand(another, "")
	env.WaitMetric(car, "csi_reclaimer_finalizers_contested", "0")
	env.WaitProtected(vols[1])
	env.Barrier()
}

func TestFinalizerRemovedByHandReleasesPV(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.StartSidecar(fixture.FastRetries()...)
	const other = "example.com/holds-it"
	for name, finalizers := range map[string][]string{"another finalizer holds the PV": {other},
		"it was the last finalizer": nil} {
		t.Run(name, func(t *testing.T) {
			env := env.forSubtest(t)
			vol := env.MakeVolume(objects.Spec{Change: func(pv *v1.PersistentVolume) { pv.Finalizers = finalizers }})
			env.WaitProtected(vol)
			env.AnnotatePV(vol, volume.HoldAnnotation, "time to remove the finalizer")
			env.Must(vol.DeletePV(env.Ctx))
			env.Must(vol.DeleteClaim(env.Ctx))
			env.WaitPV(vol, "released and held by us alone", func(pv *v1.PersistentVolume) bool {
				return pv.Status.Phase == v1.VolumeReleased && !slices.Contains(pv.Finalizers, "kubernetes.io/pv-protection")
			})
			env.RemoveFinalizers(vol)
			env.WaitPVEvent(vol, "ReclaimAbandoned", vol.Handle)
			env.Barrier()
			env.ExpectKept(vol)
		})
	}
}
