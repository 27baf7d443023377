package provision

import (
	"reflect"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

func TestNoWorldBreaksAPromise(t *testing.T) { modeltest.BreakNoPromise(t, Worlds(), 4_000) }

// named returns the world of a name.
func named(t *testing.T, name string) World {
	t.Helper()
	for _, w := range Worlds() {
		if w.Name == name {
			return w
		}
	}
	t.Fatalf("there is no world %q", name)
	return World{}
}

func TestStateSurvivesEncoding(t *testing.T) {
	modeltest.HasNoPadding[state](t)
	modeltest.Each(t, Worlds(), func(t *testing.T, w *World) {
		modeltest.Walk[state, move](t, modeltest.Random(t), newWorker(w), w.describe, 300, func(*state) {})
	})
}

// What no world varies, no world shows.
func TestEverythingVariesInSomeWorld(t *testing.T) {
	varies := map[string]bool{}
	for _, w := range Worlds() {
		for _, v := range []reflect.Value{reflect.ValueOf(w), reflect.ValueOf(w.Budget)} {
			for i := range v.NumField() {
				name := v.Type().Field(i).Name
				varies[name] = varies[name] || !w.Deep && !v.Field(i).IsZero()
			}
		}
	}
	for name, does := range varies {
		if !does && name != "Deep" && name != "strict" && name != "anew" && name != "credulous" &&
			name != "insistent" && name != "forgetful" && name != "hasty" {
			t.Errorf("%s does not vary in any world", name)
		}
	}
}

// An excuse is one for what it names, and each is needed: without it, just this promise is broken.
func TestEachExcuseIsNeeded(t *testing.T) {
	for name, promise := range map[string]string{
		"excuse: log deleted":          "P1",
		"excuse: entry settled":        "P1",
		"excuse: unfit volume settled": "P1",
		"excuse: finalizer removed":    "P1",
		"excuse: another provisioner":  "P2",
		"excuse: no room":              "P5",
		"excuse: later than quiet":     "P1",
	} {
		t.Run(name, func(t *testing.T) {
			w := named(t, name)
			w.strict = true
			r := search.Explore(t.Context(), &w, search.Options{})
			if len(r.Findings()) == 0 {
				t.Fatal("no promise is broken")
			}
			modeltest.Broken(t, r.Findings()[0].Promise, promise)
		})
	}
}

// Without Reply.Comparable a refusal of a driver that judges by other rules, or without the Secret, closes the entry of
// a volume that there is. Without NoteVersion an earlier
// version that comes back does so. Without Facts.SecondFailed an entry that gets no second request is never finished.
// Without ConfirmEntry the PersistentVolume of a volume is stored, or the volume deleted, that is the operator's.
func TestTheGuardsOfTheExitsAreNeeded(t *testing.T) {
	credulous, insistent, forgetful := func(w *World) { w.credulous = true }, func(w *World) { w.insistent = true },
		func(w *World) { w.forgetful = true }
	hasty := func(w *World) { w.hasty = true }
	for _, c := range []struct {
		world, promise string
		without        func(*World)
	}{
		{"driver replaced", "P1", credulous}, {"driver replaced, unsure", "P1", credulous}, {"Secret", "P1", credulous},
		{"log full", "P5", insistent}, {"driver replaced, unsure", "P1", forgetful},
		{"excuse: entry settled", "P2", hasty}, {"excuse: unfit volume settled", "P2", hasty},
	} {
		t.Run(c.world, func(t *testing.T) {
			w := named(t, c.world)
			c.without(&w)
			r := search.Explore(t.Context(), &w, search.Options{})
			if len(r.Findings()) == 0 {
				t.Fatal("no promise is broken")
			}
			modeltest.Broken(t, r.Findings()[0].Promise, c.promise)
		})
	}
}

// Earlier versions composed the request anew for each call. The worlds that the defects are played in see it.
func TestARequestThatIsComposedAnewIsNoticed(t *testing.T) {
	for _, name := range []string{"class", "zone", "node"} {
		t.Run(name, func(t *testing.T) {
			w := named(t, name)
			w.anew = true
			if r := search.Explore(t.Context(), &w, search.Options{}); len(r.Findings()) == 0 {
				t.Error("no promise is broken")
			}
		})
	}
}
