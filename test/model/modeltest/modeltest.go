// Package modeltest has the tests that worlds of every kind are put to.
package modeltest

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"math/rand/v2"
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

// World is one that can be explored.
type World interface {
	Explore(ctx context.Context, o search.Options) search.Result
	Story(moves []search.Move) []string
}

// BreaksNoPromise explores the first states of a world. The worlds are explored whole by the program
// (make model).
func BreaksNoPromise(t *testing.T, w World, states int) {
	t.Helper()
	states = cmp.Or(*maxStates, states)
	r := w.Explore(t.Context(), search.Options{MaxStates: states})
	for _, f := range r.Findings() {
		t.Errorf("%s\n%s", f.Promise, strings.Join(w.Story(f.Moves), "\n"))
	}
	if !r.Exhausted && r.States < states {
		t.Errorf("ended after %d states", r.States)
	}
}

// Random returns a source for walks, and says how they are repeated.
func Random(t *testing.T) *rand.Rand {
	t.Helper()
	seed := cmp.Or(*seed, uint64(time.Now().UnixNano()))
	t.Logf("-seed=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Walk has each state looked at on a random walk of so many steps, or until nothing more can happen,
// which next says by nil.
func Walk[S any](random *rand.Rand, steps int, now *S, look func(*S), next func(*S, *rand.Rand) *S) {
	for i := 0; i < steps && now != nil; i++ {
		look(now)
		now = next(now, random)
	}
}

// Any returns one of several states, nil of none.
func Any[S any](random *rand.Rand, states []S) *S {
	if len(states) == 0 {
		return nil
	}
	return &states[random.IntN(len(states))]
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

// Judged compares what is wrong, in words, with the promise that ought to be broken; empty is none.
func Judged(t *testing.T, wrong, promise string) {
	t.Helper()
	if got, _, _ := strings.Cut(wrong, ":"); got != promise {
		t.Errorf("judged %q, want %q", wrong, promise)
	}
}
