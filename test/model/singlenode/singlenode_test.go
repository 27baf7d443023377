package singlenode

import (
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

func TestNoWorldBreaksAPromise(t *testing.T) { modeltest.BreakNoPromise(t, Worlds(), 3_000) }

// The test removes each guard where it meets the API server, and the model finds the purpose of the guard.
func TestEachGuardIsNeeded(t *testing.T) {
	for without, tc := range map[Guard]struct {
		world World
		want  string
	}{
		TheCompareAndSwap: {World{Lag: true}, "S2"},
		TheOrder:          {World{Claims: 2, Uses: both}, "L1"},
		TheList:           {World{Lag: true, Budget: Budget{Preset: 1}}, "S2"},
		TheHolder:         {World{Replicas: 2, Lag: true}, "S2"},
		TheUID:            {World{Workload: StatefulSet, Replicas: 2, Lag: true, Budget: Budget{Delete: 1}}, "S2"},
		TheFinalizer:      {World{Budget: Budget{DeleteClaim: 1, Recreate: 1}}, "S2"},
		TheOtherGates:     {World{Queued: true, Budget: Budget{Admit: 1}}, "L1"},
		TheHold:           {World{Unheld: true, Budget: Budget{Force: 1, Cut: 1}}, "S2"},
		TheRun: {World{Workload: ReplicaSet, Running: true,
			Budget: Budget{Delete: 1, Fence: 1, Unfence: 1, Reboot: 1}}, "S2"},
	} {
		t.Logf("guard %d", without)
		tc.world.complete()
		modeltest.Finds(t, &tc.world, 3_000, "")
		tc.world.Without = without
		modeltest.Finds(t, &tc.world, 200_000, tc.want)
	}
}

// The contents of a tracker and a session survive their encoding.
func TestStateSurvivesEncoding(t *testing.T) {
	modeltest.HasNoPadding[state](t)
	modeltest.Each(t, Worlds(), func(t *testing.T, w *World) {
		k := newWorker(w)
		modeltest.Walk(t, modeltest.Random(t), &k.Plain, 300, func(s *state) {
			for i := range w.Replicas {
				k.remembers(t, s, i)
			}
		})
	})
}

// remembers checks that the sessions of a replica repeat their last Ask.
func (k *worker) remembers(t *testing.T, s *state, i int) {
	t.Helper()
	c := k.transition(s)
	for slot := range k.Pods {
		if !s.lines[i].work[slot].on {
			continue
		}
		session := c.session(i, slot)
		before := s.lines[i].work[slot]
		c.continues(i, slot, &session)
		if c.lines[i].work[slot] != before || session.Ask().Action == singlenode.Wait {
			t.Fatalf("a session is\n%+v, again\n%+v", before, c.lines[i].work[slot])
		}
	}
	for n := range k.Claims {
		if !s.lines[i].locks[n].on {
			continue
		}
		session := c.lockSession(i, n)
		before := s.lines[i].locks[n]
		c.continuesLock(i, n, &session)
		if c.lines[i].locks[n] != before || session.Ask().Action == singlenode.Wait {
			t.Fatalf("a session is\n%+v, again\n%+v", before, c.lines[i].locks[n])
		}
	}
}

// checked returns a transition with a running pod that has the lock, and a gated pod that waits for it.
func checked() *transition {
	w := &World{}
	w.complete()
	k := newWorker(w)
	c := k.transition(&state{mode: singlenode.ModeAll})
	c.pods = [maxPods]pod{{exists: true, held: true, node: 1}, {exists: true, held: true, gated: true}}
	c.born = [maxPods]bool{true, true}
	c.processes[0] = process{node: 1, known: true, runs: true, mounted: true}
	c.claims[0] = claim{uid: firstUID, bound: true, lock: 1, kept: true}
	c.start(0)
	return c
}

func TestEachStepIsChecked(t *testing.T) {
	start := func(c *transition) { c.checkStart(1) }
	gate := func(c *transition) { c.checkGate(1, singlenode.ReasonAcquired) }
	free := func(c *transition) { c.checkFree(0) }
	over := func(c *transition) {
		c.processes[0] = process{node: 1, known: true, done: true}
		c.pods[0].ended = true
	}
	gone := func(c *transition) { c.processes[0], c.pods[0] = process{}, pod{} }
	released := func(c *transition) {
		c.processes[0] = process{node: 1, known: true, deleted: true}
		c.pods[0].terminating, c.pods[0].foreground, c.pods[0].held = true, true, false
	}
	fence := func(c *transition) { c.nodes[0].fence.inForce = true }
	fenced := func(c *transition) { fence(c); c.pods[0].terminating = true }
	modeltest.CheckSteps(t, checked, map[string]modeltest.Step[*transition]{
		"a pod starts beside another": {nil, start, "S2"},
		"after another":               {over, start, ""},
		"beside a fenced pod":         {fenced, start, ""},
		"fenced, beside another":      {func(c *transition) { fence(c); c.processes[1].node = 1 }, start, ""},
		"and both nodes are not": {
			func(c *transition) { fence(c); c.processes[0].node, c.processes[1].node = 2, 2 }, start, "S2"},
		"beside a confirmed pod": {func(c *transition) { c.excused[0] = true }, start, ""},
		"beside one whose gate was removed": {
			func(c *transition) { c.forgiven[0][1], c.forgiven[1][0] = true, true }, start, ""},
		"where no namespace asks":          {func(c *transition) { c.mode = singlenode.ModeOff }, start, ""},
		"where another claim is asked for": {func(c *transition) { c.mode = singlenode.ModeSelected }, start, ""},
		"where the claim asks": {
			func(c *transition) { c.mode, c.claims[0].labelled = singlenode.ModeSelected, true }, start, "S2"},
		"where it is not known": {
			func(c *transition) { c.mode, c.claims[0].bound = singlenode.ModeSelected, false }, start, "S2"},
		"after an uninstallation": {func(c *transition) { c.removing = true }, start, ""},

		"a gate goes without the lock": {nil, gate, "S2"},
		"a gate goes with it":          {func(c *transition) { c.claims[0].lock = 2 }, gate, ""},
		"a gate goes without the finalizer": {
			func(c *transition) { c.claims[0].lock, c.claims[0].kept = 2, false }, gate, "S2"},
		"a gate goes that is not asked for":  {func(c *transition) { c.mode = singlenode.ModeOff }, gate, ""},
		"a gate goes of a pod that does too": {func(c *transition) { c.pods[1].terminating = true }, gate, ""},

		"a lock is freed of a pod that runs":    {nil, free, "S2"},
		"a lock of a pod that may run is freed": {func(c *transition) { c.processes[0].runs = false }, free, "S2"},
		"a lock of a completed pod is freed":    {over, free, ""},
		"and has its volume mounted":            {func(c *transition) { over(c); c.processes[0].mounted = true }, free, "S2"},
		"a lock of a released pod is freed": {
			func(c *transition) { released(c); c.claims[0].terminating = true }, free, ""},
		"and another pod can take it": {released, free, "S2"},
		"and it is held": {
			func(c *transition) { released(c); c.pods[0].held, c.claims[0].terminating = true, true }, free, "S2"},
		"a lock of a deleted pod is freed": {gone, free, ""},
		"a lock of a fenced pod is freed":  {fenced, free, ""},
		"and not terminating":              {fence, free, "S2"},
		"a lock of a waiting pod is freed": {func(c *transition) { c.claims[0].lock = 2 }, free, "S2"},
	})
}

func TestRestIsChecked(t *testing.T) {
	unsettled := func(c *transition) string {
		c.start(0)
		wrong, _ := newWorker(c.World).rests(&c.state)
		return wrong
	}
	modeltest.Check(t, checked, unsettled, map[string]modeltest.Case[*transition]{
		"a pod waits":                    {nil, ""},
		"no pod has the lock":            {func(c *transition) { c.claims[0].lock = 0 }, "L1"},
		"nothing is locked":              {func(c *transition) { c.claims[0].lock, c.claims[0].kept = 0, false }, "L1"},
		"the lock is damaged":            {func(c *transition) { c.claims[0].lock = damaged }, "L1"},
		"its pod is gone":                {func(c *transition) { c.pods[0] = pod{} }, "L1"},
		"its pod has completed":          {func(c *transition) { c.pods[0].ended = true }, "L1"},
		"and its node is away":           {func(c *transition) { c.pods[0].ended, c.nodes[0].cut = true, true }, ""},
		"its pod is released, and stays": {func(c *transition) { c.pods[0].foreground, c.pods[0].held = true, false }, "L1"},
		"its pod is terminating":         {func(c *transition) { c.pods[0].terminating = true }, ""},
		"it has the lock itself":         {func(c *transition) { c.claims[0].lock = 2 }, ""},
		"and nothing is in its way":      {func(c *transition) { c.claims[0].lock, c.pods[0] = 2, pod{} }, "L1"},
		"it is terminating":              {func(c *transition) { c.pods[1].terminating = true }, "L1"},
		"its claim is terminating":       {func(c *transition) { c.claims[0].terminating = true }, ""},
		"its claim is gone":              {func(c *transition) { c.claims[0] = claim{} }, ""},
		"it is not held":                 {func(c *transition) { c.pods[1].held = false }, ""},
		"volume-guard is uninstalled":    {func(c *transition) { c.removing = true }, "L1"},
		"and only a gate is left":        {func(c *transition) { c.removing, c.claims[0] = true, claim{uid: 1} }, "L1"},
		"and nothing is left": {
			func(c *transition) { c.removing, c.claims[0], c.pods[1] = true, claim{}, pod{} }, ""},
		"a pod is there without any lock": {func(c *transition) { c.claims[0], c.pods[1] = claim{uid: 1}, pod{} }, ""},
	})
}

// Each pod has the lock that the other one waits for.
func TestCircleIsFound(t *testing.T) {
	w := &World{Claims: 2, Uses: [maxPods][]int{{0, 1}, {1, 0}}, Without: TheOrder}
	w.complete()
	k := newWorker(w)
	c := k.transition(&state{mode: singlenode.ModeAll})
	c.pods = [maxPods]pod{{exists: true, held: true, gated: true}, {exists: true, held: true, gated: true}}
	c.claims = [maxClaims]claim{{uid: 1, bound: true, lock: 1, kept: true}, {uid: 2, bound: true, lock: 2, kept: true}}
	c.start(0)
	wrong, _ := k.rests(&c.state)
	modeltest.Broken(t, wrong, "L1")
	if !strings.Contains(wrong, "each other") {
		t.Error(wrong)
	}
}
