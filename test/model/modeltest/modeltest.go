// Package modeltest has the tests that worlds of every kind are put to.
package modeltest

import (
	"bytes"
	"cmp"
	"flag"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

var (
	maxStates = flag.Int("states", 0, "how many states of each world the test explores (default: as its time allows)")
	seed      = flag.Uint64("seed", 0, "seed of the random walks (default: the time)")
)

// Each runs a test for each world, under its name.
func Each[W any, P interface {
	*W
	search.World
}](t *testing.T, worlds []W, test func(*testing.T, P)) {
	for i := range worlds {
		w := P(&worlds[i])
		t.Run(w.GetPurpose().Name, func(t *testing.T) { test(t, w) })
	}
}

// BreakNoPromise explores the first states of each world. The worlds are explored whole by the program (make model).
// Each world says what it is about, and what it holds constant if worlds of its kind do.
func BreakNoPromise[W any, P interface {
	*W
	search.World
}](t *testing.T, worlds []W, states int) {
	states = cmp.Or(*maxStates, states)
	hasConstants := func(w search.World) bool { return len(w.GetPurpose().Constants) > 0 }
	needed := slices.ContainsFunc(search.All[W, P](worlds), hasConstants)
	Each(t, worlds, func(t *testing.T, w P) {
		if is := w.GetPurpose(); is.About == "" || needed && !is.Deep && !hasConstants(w) {
			t.Error("the world does not say what it is about, or what it holds constant")
		}
		r := search.Explore(t.Context(), w, search.Options{MaxStates: states})
		for _, f := range r.Findings() {
			t.Errorf("%s\n%s", f.Promise, strings.Join(f.Trace, "\n"))
		}
		if !r.Exhausted && r.States < states {
			t.Errorf("ended after %d states", r.States)
		}
	})
}

// Finds explores a world until it breaks a promise, or for so many states, and compares the promise with the expected
// one; empty is none.
func Finds(t *testing.T, w search.World, states int, promise string) {
	t.Helper()
	r := search.Explore(t.Context(), w, search.Options{MaxStates: states})
	found := append(r.Findings(), search.Finding{})[0]
	Broken(t, found.Promise, promise)
	t.Logf("%d states, %d moves: %s\n%s", r.States, len(found.Moves), found.Promise, strings.Join(found.Trace, "\n"))
}

// Random returns a source for walks, and logs how they are repeated.
func Random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := cmp.Or(*seed, uint64(time.Now().UnixNano()))
	t.Logf("-seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Walk goes a random walk of so many steps, or until no move is possible. It checks that each state survives its
// encoding, and that each move has a sentence. look makes further checks.
func Walk[S, M any, C search.Transition[S]](t *testing.T, random *rand.Rand, k *search.Plain[S, M, C], steps int,
	look func(*S)) {
	t.Helper()
	now := k.Begins()
	for range steps {
		b := k.Encode(&now)
		if again := k.Decode(b); !bytes.Equal(k.Encode(&again), b) {
			t.Fatal("a state differs from its written form")
		}
		look(&now)
		options := slices.Collect(k.List(&now))
		if len(options) == 0 {
			return
		}
		o := options[random.IntN(len(options))]
		if line := k.Describe(o.Move); line == "" || strings.Contains(line, "%") {
			t.Errorf("move %+v is described as %q", o.Move, line)
		}
		now = *o.To
	}
}

// HasNoPadding checks that equal states are equal bytes.
func HasNoPadding[S any](t *testing.T) {
	t.Helper()
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
	if of := reflect.TypeFor[S](); size(of) != of.Size() {
		t.Errorf("%d bytes of a state hold %d", of.Size(), size(of))
	}
}

// ForgetsNothing reads and writes again what the replicas of a state know.
func ForgetsNothing[R memory.Replica](t *testing.T, m memory.Machine[R], knows *memory.Knows) {
	t.Helper()
	for _, known := range knows {
		if len(known) == 0 {
			continue
		}
		replica, rest := m.Decode(known)
		if len(rest) != 0 {
			t.Fatalf("%d bytes are left of a replica", len(rest))
		}
		if twice := replica.Encode(nil); !bytes.Equal(twice, known) {
			t.Fatalf("a replica differs from what was written of it:\n%v\n%v", known, twice)
		}
		m.Release(replica)
	}
}

// Step is a change of a state, a check after the change, and the promise that the check finds broken; empty is none.
type Step[C any] = struct {
	Prepare, Check func(C)
	Want           string
}

// CheckSteps runs each step with a fresh state.
func CheckSteps[C interface{ Broken() string }](t *testing.T, fresh func() C, steps map[string]Step[C]) {
	for name, s := range steps {
		t.Run(name, func(t *testing.T) {
			c := fresh()
			InOrder(s.Prepare, s.Check)(c)
			Broken(t, c.Broken(), s.Want)
		})
	}
}

// Case is a change of a state, and the promise that is broken after the change; empty is none.
type Case[C any] = struct {
	Prepare func(C)
	Want    string
}

// Check makes the change of each case to a fresh state. wrong returns the broken promise.
func Check[C any](t *testing.T, fresh func() C, wrong func(C) string, cases map[string]Case[C]) {
	for name, is := range cases {
		t.Run(name, func(t *testing.T) {
			c := fresh()
			InOrder(is.Prepare)(c)
			Broken(t, wrong(c), is.Want)
		})
	}
}

// InOrder returns changes as one, without those that are nil.
func InOrder[C any](changes ...func(C)) func(C) {
	return func(c C) {
		for _, change := range changes {
			if change != nil {
				change(c)
			}
		}
	}
}

// Broken compares the description of a broken promise with the promise that a test expects; empty is none.
func Broken(t *testing.T, wrong, promise string) {
	t.Helper()
	if got, _, _ := strings.Cut(wrong, ":"); got != promise {
		t.Errorf("%q is broken, want %q", wrong, promise)
	}
}
