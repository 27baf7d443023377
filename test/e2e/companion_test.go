//go:build unix

package e2e

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/mockdriver"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestACompanionDeletesWhatAUserDeletesBeforeThePeer: of two released PVs a peer without KEP-2644 deletes one,
// after its volume. A user deletes the other, before the peer can delete its volume; the peer does nothing for it then. Nothing
// tells one from the other, so the companion has the driver asked for both.
func TestACompanionDeletesWhatAUserDeletesBeforeThePeer(t *testing.T) {
	t.Parallel()
	const stays = "example.com/look-at-it"
	s := newStageAs(t, "companion", mockdriver.Options{})
	name := "pv-" + rand.String(8)
	s.must(s.driver.SetFaults(s.ctx, faults.Plan{Rules: []faults.Rule{
		{Method: "DeleteVolume", VolumeName: name, Action: faults.Fail, Code: "Unavailable"},
	}}))
	s.peer(false)
	car := s.sidecar(append(eager(), "--role=companion")...)
	finalizer := func(pv *v1.PersistentVolume) { pv.Finalizers = []string{stays} }
	byPeer := s.make(storage.Spec{Dynamic: true, Change: finalizer})
	byUser := s.make(storage.Spec{Dynamic: true, Change: finalizer, Name: name})
	vols := []*storage.Volume{byPeer, byUser}
	s.waitAll(vols, "protected by the companion", func(pv *v1.PersistentVolume) bool {
		return pv != nil && companionProtected(pv)
	})
	s.all(vols, func(vol *storage.Volume) error { return vol.DeleteClaim(s.ctx) })
	s.eventually("the peer has tried to delete the volume", func() bool { return len(s.deletions(byUser.Handle)) > 0 })
	s.must(byUser.DeletePV(s.ctx))
	s.must(s.driver.SetFaults(s.ctx, faults.Plan{}))
	s.waitAll(vols, "let go by the companion", func(pv *v1.PersistentVolume) bool {
		return pv != nil && pv.DeletionTimestamp != nil && slices.Equal(pv.Finalizers, []string{stays})
	})
	for _, vol := range vols {
		if s.onDisk(vol.Handle) {
			t.Errorf("LEAK: volume %s of PV %s is still on the driver's disk", vol.Handle, vol.Name)
		}
	}
	if got := len(s.deletions(byPeer.Handle)); got != 2 {
		t.Errorf("%d DeleteVolume calls for the volume that the peer deleted, want 2", got)
	}
	s.metric(car, `csi_reclaimer_repeated_deletions_total{driver_name="`+s.Driver+`"}`, "2")
	if diff := cmp.Diff(s.traces(byPeer), s.traces(byUser)); diff != "" {
		t.Errorf("the peer's deletion of a PV can be told from a user's: the second call could be spared\n%s", diff)
	}
	for _, vol := range vols {
		_, err := s.client.CoreV1().PersistentVolumes().Patch(
			s.ctx, vol.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		s.must(err)
	}
}

// traces is what a PV shows, but for what every PV has of its own.
func (s *stage) traces(vol *storage.Volume) *v1.PersistentVolume {
	s.t.Helper()
	pv, err := vol.PV(s.ctx)
	s.must(err)
	if pv == nil {
		s.t.Fatalf("PV %s is gone", vol.Name)
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
