package pv

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

// A PV is read in the same way before and during its deletion.
func TestHeldPV(t *testing.T) {
	drop := inuse.Step(inuse.RemoveFinalizer, inuse.ReasonUnused)
	for phase, want := range map[v1.PersistentVolumePhase]inuse.Decision{
		v1.VolumeAvailable: drop, v1.VolumeReleased: drop, v1.VolumeBound: inuse.Rest(inuse.ReasonBound),
		"new": inuse.Rest(inuse.ReasonBound),
	} {
		for _, going := range []bool{false, true} {
			for _, finalizers := range [][]string{nil, {Finalizer}, {Finalizer, "other"}} {
				o := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv", UID: "u", Finalizers: finalizers},
					Status: v1.PersistentVolumeStatus{Phase: phase}}
				if going {
					o.DeletionTimestamp = &metav1.Time{}
				}
				got := held(o)
				if got.IfDeleted != want || got.Need != want || got.Object != PVOf(o).Object ||
					got.ByOthers != (len(finalizers) == 2) {
					t.Errorf("%s, being deleted: %v, %q: %+v, want %+v", phase, going, finalizers, got, want)
				}
			}
		}
	}
}
