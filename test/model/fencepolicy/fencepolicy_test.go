package fencepolicy

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

func TestNoWorldBreaksAPromise(t *testing.T) { modeltest.BreakNoPromise(t, Worlds(), 3_000) }

func TestStateSurvivesEncoding(t *testing.T) {
	modeltest.HasNoPadding[state](t)
	modeltest.Each(t, Worlds(), func(t *testing.T, w *World) {
		modeltest.Walk(t, modeltest.Random(t), &newWorker(w).Plain, 300, func(*state) {})
	})
}

// checked returns a transition with a node that the policy may fence.
func checked() *transition {
	c := &transition{World: &World{Zones: "aabb", Max: 2, PerZone: 1, Halt: 50}}
	c.nodes[0] = node{cut: true, unreachable: true, seen: true}
	c.session = session{of: 1, mayRun: true, mayBegin: true, wasAway: true}
	return c
}

func TestEachFenceIsChecked(t *testing.T) {
	fence := func(c *transition) string { c.check(0); return c.Wrong }
	modeltest.Check(t, checked, fence, map[string]modeltest.Case[*transition]{
		"all is well":              {nil, ""},
		"it was reachable":         {func(c *transition) { c.session.wasAway = false }, "F2"},
		"the policy was halted":    {func(c *transition) { c.session.mayRun = false }, "F2"},
		"there was no room":        {func(c *transition) { c.session.mayBegin = false }, "F2"},
		"another zone has one":     {func(c *transition) { c.nodes[2].fenced = byPolicy }, ""},
		"its zone has one":         {func(c *transition) { c.nodes[1].fenced = byPolicy }, "F2"},
		"its zone has one by hand": {func(c *transition) { c.nodes[1].fenced = byHand }, ""},
		"there are enough":         {func(c *transition) { c.nodes[2].fenced, c.nodes[3].fenced = byPolicy, byPolicy }, "F2"},
	})
}

func TestRestIsChecked(t *testing.T) {
	unsettled := func(c *transition) string { return newWorker(c.World).unsettled(&c.state) }
	modeltest.Check(t, checked, unsettled, map[string]modeltest.Case[*transition]{
		"a node waits":         {nil, "F4"},
		"it is fenced":         {func(c *transition) { c.nodes[0].fenced = byPolicy }, ""},
		"its zone has one":     {func(c *transition) { c.nodes[1].fenced = byHand }, ""},
		"its zone is gone":     {func(c *transition) { c.nodes[1] = c.nodes[0] }, ""},
		"too many are gone":    {func(c *transition) { c.nodes[2] = c.nodes[0]; c.Halt = 49 }, ""},
		"no more than allowed": {func(c *transition) { c.nodes[2] = c.nodes[0] }, "F4"},
	})
}
