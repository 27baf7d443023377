package reclaim

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

func TestDeletedCalledOnceVolumeIsGone(t *testing.T) {
	var reported []string
	w, r := newWorldWith(t, Config{Deleted: func(class string, at []map[string]string) {
		reported = append(reported,
			fmt.Sprint(class, at))
	}})
	w.alter(r, func(pv *volume.PV) { pv.StorageClass, pv.Affinity, pv.SecretKnown = "fast", "zone=a", true })
	w.fail["delete volume"] = errors.New("broken")
	r.reconcile(t.Context(), "pv")
	if len(reported) > 0 {
		t.Errorf("reported %q of a volume that is there", reported)
	}
	delete(w.fail, "delete volume")
	for range 2 {
		r.reconcile(t.Context(), "pv")
	}
	if want := []string{"fast[map[zone:a]]"}; !slices.Equal(reported, want) {
		t.Errorf("reported %q, want %q", reported, want)
	}
}

// A panic of Deleted is logged, and the volume is not deleted again.
func TestPanicOfDeletedHidesNoDeletion(t *testing.T) {
	w, r := newWorldWith(t, Config{Deleted: func(string, []map[string]string) { panic("a mistake") }})
	if err := panics.Contain(t.Context(), func() { r.reconcile(t.Context(), "pv") }); err != nil {
		t.Error(err)
	}
	w.expect(t, reclaims()...)
}
