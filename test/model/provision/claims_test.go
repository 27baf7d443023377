package provision

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

func TestNoWorldBreaksAPromise(t *testing.T) {
	for _, w := range Worlds() {
		t.Run(w.Name, func(t *testing.T) { modeltest.BreaksNoPromise(t, &w, 4_000) })
	}
}

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

// next makes one of the moves of a state.
func (k *worker) next(s *state, random *rand.Rand) *state {
	var all []state
	k.s, k.listed = s, func(_ move, to *state) { all = append(all, *to) }
	k.moves(s)
	return modeltest.Any(random, all)
}

func TestNothingOfAStateIsForgotten(t *testing.T) {
	for _, w := range Worlds() {
		t.Run(w.Name, func(t *testing.T) {
			k := newWorker(&w)
			first := k.first()
			modeltest.Walk(modeltest.Random(t), 300, &first, func(s *state) {
				if decode(s.encode(nil)) != *s {
					t.Fatal("a state differs from its written form")
				}
			}, k.next)
		})
	}
}

// A struct with padding would make two codes of one state.
func TestAStateHasNoPadding(t *testing.T) {
	var size func(reflect.Type) uintptr
	size = func(of reflect.Type) (n uintptr) {
		switch of.Kind() {
		case reflect.Struct:
			for i := range of.NumField() {
				n += size(of.Field(i).Type)
			}
		case reflect.Array:
			n = uintptr(of.Len()) * size(of.Elem())
		default:
			n = of.Size()
		}
		return n
	}
	if of := reflect.TypeFor[state](); size(of) != of.Size() {
		t.Errorf("%d bytes hold %d", of.Size(), size(of))
	}
}

func TestEveryMoveIsTold(t *testing.T) {
	w := named(t, "nodes")
	for v := range verbs {
		m := move{v, 1, 0, uint8(provision.StorePV)}
		if line := w.tellMove(m); line == "" || strings.Contains(line, "%!") || moveOf(m.code()) != m {
			t.Errorf("move %d is written as %q, and taken for %+v", v, line, moveOf(m.code()))
		}
	}
}

// What no world varies, no world shows.
func TestEverythingVariesInSomeWorld(t *testing.T) {
	varies := map[string]bool{}
	for _, w := range Worlds() {
		if w.About == "" || w.Constant == "" && !w.Deep {
			t.Errorf("world %q does not say what it is for, or what it holds constant", w.Name)
		}
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
			r := w.Explore(t.Context(), search.Options{})
			if len(r.Findings()) == 0 {
				t.Fatal("no promise is broken")
			}
			modeltest.Judged(t, r.Findings()[0].Promise, promise)
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
			r := w.Explore(t.Context(), search.Options{})
			if len(r.Findings()) == 0 {
				t.Fatal("no promise is broken")
			}
			modeltest.Judged(t, r.Findings()[0].Promise, c.promise)
		})
	}
}

// Earlier versions composed the request anew for each call. The worlds that the defects are played in see it.
func TestARequestThatIsComposedAnewIsNoticed(t *testing.T) {
	for _, name := range []string{"class", "zone", "node"} {
		t.Run(name, func(t *testing.T) {
			w := named(t, name)
			w.anew = true
			if r := w.Explore(t.Context(), search.Options{}); len(r.Findings()) == 0 {
				t.Error("no promise is broken")
			}
		})
	}
}
