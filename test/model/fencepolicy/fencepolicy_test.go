package fencepolicy

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

func TestNoWorldBreaksAPromise(t *testing.T) {
	for _, w := range Worlds() {
		t.Run(w.Name, func(t *testing.T) {
			if w.About == "" || w.Constant == "" {
				t.Error("the world does not say what it is about, or what it holds constant")
			}
			modeltest.BreaksNoPromise(t, &w, 3_000)
		})
	}
}

// next makes one of the moves of a state.
func (k *worker) next(s *state, random *rand.Rand) *state {
	var all []state
	k.s, k.listed = s, func(_ move, to *state) { all = append(all, *to) }
	k.moves(s)
	return modeltest.Any(random, all)
}

func TestStateSurvivesEncoding(t *testing.T) {
	for _, w := range Worlds() {
		t.Run(w.Name, func(t *testing.T) {
			k := newWorker(&w)
			first := decode(k.First())
			modeltest.Walk(modeltest.Random(t), 300, &first, func(s *state) {
				if again := decode(s.encode(nil)); again != *s {
					t.Fatal("a state differs from its written form")
				}
			}, k.next)
		})
	}
}

func TestMovesAreDescribed(t *testing.T) {
	w := Worlds()[0]
	for v := range verbs {
		m := move{v, 1}
		if line := w.describe(m); line == "" || strings.Contains(line, "%!") || moveOf(m.code()) != m {
			t.Errorf("move %d is reported as %q, and taken for %+v", v, line, moveOf(m.code()))
		}
	}
}

// judged returns a scene with a node that the policy may fence.
func judged() *scene {
	c := &scene{World: &World{Name: "one", Zones: "aabb", Max: 2, PerZone: 1, Halt: 50}}
	c.nodes[0] = node{cut: true, unreachable: true, seen: true}
	c.session = session{of: 1, mayRun: true, mayBegin: true, wasAway: true}
	return c
}

func TestEachFenceIsJudged(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*scene)
		want    string
	}{
		"all is well":              {nil, ""},
		"it was reachable":         {func(c *scene) { c.session.wasAway = false }, "F2"},
		"the policy was halted":    {func(c *scene) { c.session.mayRun = false }, "F2"},
		"there was no room":        {func(c *scene) { c.session.mayBegin = false }, "F2"},
		"another zone has one":     {func(c *scene) { c.nodes[2].fenced = byPolicy }, ""},
		"its zone has one":         {func(c *scene) { c.nodes[1].fenced = byPolicy }, "F2"},
		"its zone has one by hand": {func(c *scene) { c.nodes[1].fenced = byHand }, ""},
		"there are enough": {func(c *scene) {
			c.nodes[2].fenced, c.nodes[3].fenced = byPolicy, byPolicy
		}, "F2"},
	} {
		t.Run(name, func(t *testing.T) {
			c := judged()
			if tc.prepare != nil {
				tc.prepare(c)
			}
			c.judge(0)
			modeltest.Judged(t, c.wrong, tc.want)
		})
	}
}

func TestRestIsJudged(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(*scene)
		want    string
	}{
		"a node waits":         {nil, "F4"},
		"it is fenced":         {func(c *scene) { c.nodes[0].fenced = byPolicy }, ""},
		"its zone has one":     {func(c *scene) { c.nodes[1].fenced = byHand }, ""},
		"its zone is gone":     {func(c *scene) { c.nodes[1] = c.nodes[0] }, ""},
		"too many are gone":    {func(c *scene) { c.nodes[2] = c.nodes[0]; c.Halt = 49 }, ""},
		"no more than allowed": {func(c *scene) { c.nodes[2] = c.nodes[0] }, "F4"},
	} {
		t.Run(name, func(t *testing.T) {
			c := judged()
			if tc.prepare != nil {
				tc.prepare(c)
			}
			modeltest.Judged(t, newWorker(c.World).unsettled(&c.state), tc.want)
		})
	}
}
