//go:build model

package claims

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

func TestNoWorldBreaksAPromise(t *testing.T) {
	for _, w := range Worlds() {
		t.Run(w.Name, func(t *testing.T) { modeltest.BreaksNoPromise(t, &w, 5_000) })
	}
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
			first := decode(k.First())
			modeltest.Walk(modeltest.Random(t), 300, &first, func(s *state) {
				if again := decode(s.encode(nil)); again.world != s.world {
					t.Fatal("a world differs from what was written of it")
				}
				modeltest.ForgetsNothing(t, k.machine, &s.knows)
			}, k.next)
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
			modeltest.Judged(t, c.wrong, tc.want)
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
			modeltest.Judged(t, newWorker(&w).unsettled(&c.state), tc.want)
		})
	}
}
