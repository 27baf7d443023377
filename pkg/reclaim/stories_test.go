package reclaim

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Histories that once lost or leaked a volume. The model checker finds such histories.

// retained makes the PV of a world need the removal of its finalizer: terminating, released, policy Retain.
func retained(w *world, r *Controller, version string) {
	w.alter(r, retain, terminate, func(pv *volume.PV) { pv.ResourceVersion = version })
}

// turnedBack delivers the PV after our write removed the finalizer, and then with the policy set back to Delete.
func turnedBack(w *world, r *Controller, dropped, turned string) {
	w.alter(r, func(pv *volume.PV) { pv.HasFinalizer, pv.ResourceVersion = false, dropped })
	w.alter(r, func(pv *volume.PV) { pv.Policy, pv.ResourceVersion = volume.PolicyDelete, turned })
}

// The watch shows the PV's end before the API server answers our write.
func TestPatchAnswerAfterPVEnd(t *testing.T) {
	w, r := newWorld(t)
	retained(w, r, "1")
	w.at("drop", func() {
		turnedBack(w, r, "2", "3")
		w.end(r)
	})
	w.written = "2"
	r.reconcile(t.Context(), "pv")
	r.reconcile(t.Context(), "pv")
	w.expect(t, "drop", "list attachments", "list PVs", "read claim", "delete volume")
}

// A lagging cache would have the finalizer removed again.
func TestLaggingCacheRemovesFinalizerOnce(t *testing.T) {
	w, r := newWorld(t)
	retained(w, r, "1")
	w.written = "2"
	r.reconcile(t.Context(), "pv")
	r.reconcile(t.Context(), "pv")
	w.expect(t, "drop")
	turnedBack(w, r, "2", "3")
	w.end(r)
	w.diary = nil
	r.reconcile(t.Context(), "pv")
	w.expect(t, "list attachments", "list PVs", "read claim", "delete volume")
}

// The write that adds the finalizer is answered after the removal was sent.
func TestProtectAnswerAfterLaterRemoval(t *testing.T) {
	w, r := newWorld(t)
	w.end(r)
	w.alter(r, func(pv *volume.PV) { pv.UID, pv.HasFinalizer, pv.ResourceVersion = "fresh", false, "1" })
	c, needed := r.beginProtect("pv")
	if !needed {
		t.Fatal("an unprotected PV needs no protection")
	}
	w.pv.HasFinalizer = true
	retained(w, r, "3")
	w.written = "4"
	r.reconcile(t.Context(), "pv")
	r.endProtect(t.Context(), c, answer{Reply: reclaim.Reply{Outcome: reclaim.OK, Version: "2"}})
	r.reconcile(t.Context(), "pv")
	w.expect(t, "drop")
	turnedBack(w, r, "4", "5")
	w.end(r)
	w.diary = nil
	r.reconcile(t.Context(), "pv")
	w.expect(t, "list attachments", "list PVs", "read claim", "delete volume")
}
