//go:build unix

package operations

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

func hasCompanionFinalizer(pv *v1.PersistentVolume) bool {
	return slices.Contains(pv.Finalizers, volume.CompanionFinalizer)
}

// TestCompanionDeletesVolumeOfPVDeletedByUser has two released PVs. A peer without KEP-2644 deletes one, after its
// volume. A user deletes the other before the peer deletes its volume; the peer then does nothing. The companion cannot
// distinguish the two cases, so it calls DeleteVolume for both.
func TestCompanionDeletesVolumeOfPVDeletedByUser(t *testing.T) {
	fixture.NewestOnly(t, fixture.AboutPeer)
	t.Parallel()
	const stays = "example.com/look-at-it"
	env := newForRole(t, "companion", mockdriver.Options{})
	name := "pv-" + rand.String(8)
	env.Must(env.MockDriver.SetFaults(env.Ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", VolumeName: name, Action: faults.Fail, Code: "Unavailable"},
	}}))
	env.StartPeer(false)
	car := env.StartSidecar(append(fixture.FastRetries(), "--role=companion")...)
	finalizer := func(pv *v1.PersistentVolume) { pv.Finalizers = []string{stays} }
	byPeer := env.MakeVolume(objects.Spec{Dynamic: true, Change: finalizer})
	byUser := env.MakeVolume(objects.Spec{Dynamic: true, Change: finalizer, Name: name})
	vols := []*objects.Volume{byPeer, byUser}
	env.WaitAllPVs(vols, "protected by the companion", func(pv *v1.PersistentVolume) bool {
		return pv != nil && hasCompanionFinalizer(pv)
	})
	env.ForEachVolume(vols, func(vol *objects.Volume) error { return vol.DeleteClaim(env.Ctx) })
	env.Eventually("the peer has tried to delete the volume",
		func() bool { return len(env.DeleteCalls(byUser.Handle)) > 0 })
	env.Must(byUser.DeletePV(env.Ctx))
	env.Must(env.MockDriver.SetFaults(env.Ctx, faults.Plan{}))
	env.WaitAllPVs(vols, "released by the companion", func(pv *v1.PersistentVolume) bool {
		return pv != nil && pv.DeletionTimestamp != nil && slices.Equal(pv.Finalizers, []string{stays})
	})
	for _, vol := range vols {
		if env.OnDisk(vol.Handle) {
			t.Errorf("LEAK: volume %s of PV %s is still on the driver's disk", vol.Handle, vol.Name)
		}
	}
	// The peer repeats its call where it works before its watch has shown that the PV is terminating.
	ours := 0
	calls := env.DeleteCalls(byPeer.Handle)
	for _, call := range calls {
		if call.PID == car.PID() {
			ours++
		}
	}
	if ours != 1 || len(calls) < 2 {
		t.Errorf("%d DeleteVolume calls for the volume that the peer deleted, %d by the companion, want 1 by it", len(calls),
			ours)
	}
	env.WaitMetric(car, `csi_reclaimer_repeated_deletions_total{driver_name="`+env.Driver+`"}`, "2")
	if diff := cmp.Diff(env.createWithTraces(byPeer), env.createWithTraces(byUser)); diff != "" {
		t.Errorf("the peer's deletion of a PV differs from a user's: the second call is not necessary\n%s", diff)
	}
	for _, vol := range vols {
		_, err := env.Client.CoreV1().PersistentVolumes().Patch(
			env.Ctx, vol.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		env.Must(err)
	}
}

// createWithTraces returns a PV's fields without the ones that differ between PVs.
func (env *environment) createWithTraces(vol *objects.Volume) *v1.PersistentVolume {
	env.T.Helper()
	pv, err := vol.PV(env.Ctx)
	env.Must(err)
	if pv == nil {
		env.T.Fatalf("PV %s is gone", vol.Name)
	}
	pv.Name, pv.UID, pv.ResourceVersion, pv.Generation = "", "", "", 0
	pv.CreationTimestamp, pv.DeletionTimestamp, pv.Status.LastPhaseTransitionTime = metav1.Time{}, nil, nil
	pv.Spec.ClaimRef, pv.Spec.CSI.VolumeHandle = nil, ""
	for i := range pv.ManagedFields {
		pv.ManagedFields[i].Time = nil
	}
	slices.SortFunc(pv.ManagedFields, func(a, b metav1.ManagedFieldsEntry) int {
		return slices.Compare(
			[]string{a.Manager, a.Subresource, string(a.Operation)}, []string{b.Manager, b.Subresource, string(b.Operation)})
	})
	return pv
}
