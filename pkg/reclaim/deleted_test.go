package reclaim

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func TestWhoFollowsDeletionsIsToldOnceTheVolumeIsGone(t *testing.T) {
	var told []string
	w, r := newWorldWith(t, Config{Deleted: func(class string, at []map[string]string) {
		told = append(told,
			fmt.Sprint(class, at))
	}})
	w.pv.StorageClass, w.pv.Affinity, w.pv.SecretKnown = "fast", "zone=a", true
	w.store(r, w.pv)
	w.fail["delete volume"] = errors.New("broken")
	r.reconcile(t.Context(), "pv")
	if len(told) > 0 {
		t.Errorf("told %q of a volume that is there", told)
	}
	delete(w.fail, "delete volume")
	for range 2 {
		r.reconcile(t.Context(), "pv")
	}
	if want := []string{"fast[map[zone:a]]"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
