package intree

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
)

// releaseIn releases all PVs of a world through a controller that has just started.
func releaseIn(w *world) (Released, error) {
	w.start()
	w.c.cfg.Workers = 1 // the world runs one step at a time
	return w.c.releaseAll(w.t.Context())
}

func TestReleaseRemovesOwnFinalizers(t *testing.T) {
	w := newWorld(t, "used", "going", "theirs", "nobodys", "static")
	w.edit("static", func(pv *v1.PersistentVolume) { delete(pv.Annotations, "pv.kubernetes.io/provisioned-by") })
	w.edit("nobodys", func(pv *v1.PersistentVolume) { pv.Finalizers = append(pv.Finalizers, intree.Finalizer) })
	w.settle()
	w.deletePVBy("going")
	w.settle()
	w.edit("theirs", guard(false, ""))
	w.edit("theirs", guard(true, kcm))
	w.edit("theirs", setPolicy(v1.PersistentVolumeReclaimRetain))
	w.modern = false
	got, err := releaseIn(w)
	if err != nil {
		t.Fatal(err)
	}
	// While another program is seen to manage the finalizer, a terminating PV is left to it.
	if got.PVs != 1 || len(got.Abandoned) > 0 || !slices.Equal(got.Left, []string{"going", "nobodys", "theirs"}) {
		t.Errorf("released %+v", got)
	}
	for name, want := range map[string]bool{"used": false, "going": true, "theirs": true, "nobodys": true,
		"static": false} {
		if on := slices.Contains(w.pvs[name].Finalizers, intree.Finalizer); on != want {
			t.Errorf("%s: the finalizer is on: %v, want %v", name, on, want)
		}
	}
	w.edit("theirs", guard(false, ""))
	if got, err = releaseIn(w); err != nil || got.PVs != 1 || !slices.Equal(got.Abandoned, []string{"going"}) ||
		!slices.Equal(got.Left, []string{"nobodys"}) {
		t.Errorf("released %+v, %v", got, err)
	}
}

func TestReleaseEndsTwins(t *testing.T) {
	for call, deleting := range map[string]bool{"create": false, "turn": true} {
		w := newWorld(t, "a")
		w.upTo(call)
		w.diary = nil
		got, err := releaseIn(w)
		if err != nil || got.PVs != 1 || got.Twins != 1 || !slices.Equal(got.Abandoned, []string{"a"}) {
			t.Errorf("released %+v, %v", got, err)
		}
		want := []string{"delete a-reclaim", "patch a +[] -[kubernetes.io/pv-controller]"}
		if deleting {
			want = append([]string{"turn a-reclaim to Retain"}, want...)
		}
		if wrote := w.wroteDown(); !slices.Equal(wrote, want) {
			t.Errorf("written: %q, want %q", wrote, want)
		}
		for w.controllers() {
		}
		w.expectNoPV("a")
		w.expectKept("a")
	}
}

func TestReleaseEndsOrphanedTwin(t *testing.T) {
	w := newWorld(t, "a")
	w.upTo("turn")
	w.edit("a", guard(false, ""))
	got, err := releaseIn(w)
	if err != nil || got.Twins != 1 || got.PVs != 0 {
		t.Errorf("released %+v, %v", got, err)
	}
	for w.controllers() {
	}
	w.expectNoPV("a")
	w.expectKept("a")
}

// Another program's finalizer is removed from a twin, which does not count the PV as released.
func TestReleaseRemovesForeignFinalizerOfTwin(t *testing.T) {
	w := newWorld(t, "a")
	w.upTo("create")
	w.edit("a-reclaim", guard(true, kcm))
	w.deletePVBy("a-reclaim")
	w.start()
	w.edit("a-reclaim", func(pv *v1.PersistentVolume) { pv.Finalizers = []string{intree.Finalizer} })
	got, err := w.c.releaseOne(t.Context(), "a")
	if err != nil || got.PVs != 0 || !slices.Equal(got.Left, []string{"a"}) || w.pvs["a-reclaim"] != nil {
		t.Errorf("released %+v, %v", got, err)
	}
	w.expectKept("a")
}

func TestReleaseContinuesAfterFailure(t *testing.T) {
	broken := errors.New("broken")
	w := newWorld(t, "a", "b", "c")
	w.settle()
	changed := false
	w.before = func(what string) error {
		switch {
		case strings.HasPrefix(what, "patch b"):
			return broken
		case what == "read c-reclaim" && !changed: // c changes between the read and the write
			changed = true
			w.edit("c", func(pv *v1.PersistentVolume) { pv.Annotations["changed"] = "yes" })
		}
		return nil
	}
	w.start()
	w.c.cfg.Workers = 1
	got, err := w.c.releaseAll(t.Context())
	if !errors.Is(err, broken) || got.PVs != 2 {
		t.Errorf("released %+v, %v", got, err)
	}
}

func TestReleaseOfMissingPV(t *testing.T) {
	w := newWorld(t, "a")
	w.settle()
	w.edit("a", func(pv *v1.PersistentVolume) { pv.Finalizers, pv.DeletionTimestamp = nil, &metav1.Time{Time: now()} })
	if got, err := w.c.releaseOne(t.Context(), "a"); err != nil || got.PVs != 0 {
		t.Errorf("released %+v, %v", got, err)
	}
}
