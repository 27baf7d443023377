//go:build model

package claims

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

var (
	maxStates = flag.Int("states", 5_000, "how many states of each world the test explores")
	seed      = flag.Uint64("seed", 0, "seed of the random walks (default: the time)")
)

// The worlds are explored whole by the program (make model); here it is as far as a test's time
// allows.
func TestNoWorldBreaksAPromise(t *testing.T) {
	for _, w := range Worlds() {
		t.Run(w.Name, func(t *testing.T) {
			r := w.Explore(t.Context(), search.Options{MaxStates: *maxStates})
			for _, f := range r.Findings() {
				t.Errorf("%s\n%s", f.Promise, strings.Join(w.Story(f.Moves), "\n"))
			}
			if !r.Exhausted && r.States < *maxStates {
				t.Errorf("ended after %d states", r.States)
			}
		})
	}
}

// walk makes random moves from the beginning of a world and has each state looked at.
func walk(t *testing.T, w *World, steps int, look func(*worker, *state)) {
	t.Helper()
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	random := rand.New(rand.NewPCG(*seed, 0))
	t.Logf("-seed=%d", *seed)
	k := newWorker(w)
	now := decode(k.First())
	for range steps {
		look(k, &now)
		var next []state
		k.s, k.listed = &now, func(_ move, s *state) { next = append(next, *s) }
		k.moves(&now)
		if len(next) == 0 {
			return
		}
		now = next[random.IntN(len(next))]
	}
}

func TestNothingOfAStateIsForgotten(t *testing.T) {
	for _, w := range Worlds() {
		t.Run(w.Name, func(t *testing.T) {
			walk(t, &w, 300, func(k *worker, s *state) {
				if again := decode(s.encode(nil)); again.world != s.world {
					t.Fatal("a world differs from what was written of it")
				}
				for _, known := range s.knows {
					if len(known) == 0 {
						continue
					}
					replica, rest := k.machine.Decode(known)
					if len(rest) != 0 {
						t.Fatalf("%d bytes are left of a replica", len(rest))
					}
					if twice := replica.Encode(nil); !bytes.Equal(twice, known) {
						t.Fatalf("a replica differs from what was written of it:\n%v\n%v", known, twice)
					}
					k.machine.Release(replica)
				}
			})
		})
	}
}

func TestEveryMoveIsTold(t *testing.T) {
	w := Worlds()[0]
	for v := range int(driverIsAtWork) + 8 {
		m := move{verb(v), 1, 0}
		if m.verb >= verbs && m.verb < callArrives {
			continue
		}
		if line := w.tellMove(m); line == "" || strings.Contains(line, "%!") || moveOf(m.code()) != m {
			t.Errorf("move %d is told as %q, and taken for %+v", v, line, moveOf(m.code()))
		}
	}
}

// judged returns a scene with a claim that lives, is held, and has a volume without a PV.
func judged(w *World) *scene {
	k := newWorker(w)
	c := &scene{World: w, machine: k.machine, state: decode(k.First())}
	c.claims[0].Protected = true
	c.volumes[0].there = true
	return c
}

func expect(t *testing.T, wrong, want string) {
	t.Helper()
	if got, _, _ := strings.Cut(wrong, ":"); got != want {
		t.Errorf("judged %q, want %q", wrong, want)
	}
}

func TestEachStepIsJudged(t *testing.T) {
	w := World{Name: "one", Claims: []string{"data"}, Replicas: 1, Lag: 1}
	deleted := func(c *scene) { c.claims[0].Terminating = true }
	deletion := func(c *scene) { c.judgeDeletion(0, 0, provision.Ask{}) }
	for name, tc := range map[string]struct {
		prepare, judge func(*scene)
		want           string
	}{
		"the volume of a claim that is deleted": {func(c *scene) { deleted(c); c.lines[0].absent[0] = true }, deletion, ""},
		"without a look at its PV":              {deleted, deletion, "P2"},
		"of a claim that lives":                 {func(c *scene) { c.lines[0].absent[0] = true }, deletion, "P2"},
		"of one that lives, not as ordered": {func(c *scene) {
			c.volumes[0].spoiled = true
			c.lines[0].absent[0] = true
		}, deletion, ""},
		"the volume of a PV is lost":              {func(c *scene) { c.pvs[0] = pv{claim: 1} }, func(c *scene) { c.judgeLoss(0) }, "P2"},
		"that of a PV whose claim is deleted":     {func(c *scene) { deleted(c); c.pvs[0] = pv{claim: 1} }, func(c *scene) { c.judgeLoss(0) }, ""},
		"a PV for a volume that is there":         {nil, func(c *scene) { c.judgePV(0) }, ""},
		"a PV for a volume that is deleted":       {func(c *scene) { c.volumes[0] = volume{} }, func(c *scene) { c.judgePV(0) }, "P2"},
		"that of a claim that is deleted as well": {func(c *scene) { deleted(c); c.volumes[0] = volume{} }, func(c *scene) { c.judgePV(0) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := judged(&w)
			if tc.prepare != nil {
				tc.prepare(c)
			}
			tc.judge(c)
			expect(t, c.wrong, tc.want)
		})
	}
}

func TestRestIsJudged(t *testing.T) {
	w := World{Name: "one", Claims: []string{"data"}, Replicas: 1, Lag: 1}
	has := func(c *scene) {
		c.pvs[0], c.claims[0].Bound, c.claims[0].Protected = pv{claim: 1}, provision.BoundOwn, false
	}
	gone := func(c *scene) { c.claims[0] = provision.ClaimView{} }
	for name, tc := range map[string]struct {
		prepare func(*scene)
		want    string
	}{
		"a claim with its PV":                {has, ""},
		"which is held":                      {func(c *scene) { has(c); c.claims[0].Protected = true }, "P5"},
		"whose volume is gone":               {func(c *scene) { has(c); c.volumes[0] = volume{} }, "P5"},
		"a claim without a PV":               {func(c *scene) { c.claims[0].Protected = false }, "P5"},
		"a claim that is deleted, and held":  {func(c *scene) { c.claims[0].Terminating = true }, "P5"},
		"its class gone, nothing known":      {func(c *scene) { c.class, c.faulted = false, true }, ""},
		"its class gone, and nothing broke":  {func(c *scene) { c.class = false }, "P5"},
		"a volume of which nobody knows":     {gone, "P1"},
		"one whose claim was let go by hand": {func(c *scene) { gone(c); c.stripped[0] = true }, ""},
		"one of which people were told":      {func(c *scene) { gone(c); c.told[0], c.faulted = true, true }, ""},
		"and nothing broke":                  {func(c *scene) { gone(c); c.told[0] = true }, "P1"},
		"a bound claim whose PV is gone, held": {func(c *scene) {
			c.claims[0].Terminating, c.claims[0].Bound, c.faulted = true, provision.BoundOwn, true
		}, ""},
		"and nothing broke there": {func(c *scene) { c.claims[0].Terminating, c.claims[0].Bound = true, provision.BoundOwn }, "P5"},
		"nothing at all":          {func(c *scene) { gone(c); c.volumes[0] = volume{} }, ""},
		"a claim that needs no volume": {func(c *scene) {
			c.claims[0] = provision.ClaimView{Version: 1, Bound: provision.BoundElsewhere}
			c.volumes[0] = volume{}
		}, ""},
		"one that waits for its name":         {func(c *scene) { has(c); c.pvs[0].terminating = true }, ""},
		"a claim whose class is gone, unheld": {func(c *scene) { c.class, c.claims[0].Protected, c.volumes[0] = false, false, volume{} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := judged(&w)
			tc.prepare(c)
			expect(t, newWorker(&w).unsettled(&c.state), tc.want)
		})
	}
}
