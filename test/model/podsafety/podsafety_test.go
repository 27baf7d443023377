package podsafety

import (
	"slices"
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Each guard of the evidence about refused pods is needed.
func TestMissingGuardBreaksPromise(t *testing.T) {
	t.Parallel()
	for guard, promise := range broken {
		var found []string
		for _, w := range Worlds() {
			if w.Without = guard; w.Refusals {
				for _, f := range search.Explore(t.Context(), &w, search.Options{}).Findings() {
					found = append(found, f.Promise)
				}
			}
		}
		if !slices.ContainsFunc(found, func(f string) bool { return strings.HasPrefix(f, promise) }) {
			t.Errorf("without guard %d: %q is broken, want %s", guard, found, promise)
		}
	}
}

func TestNoWorldBreaksAPromise(t *testing.T) { modeltest.BreakNoPromise(t, Worlds(), 3_000) }

// The contents of a tracker and a session survive their encoding.
func TestStateSurvivesEncoding(t *testing.T) {
	modeltest.HasNoPadding[state](t)
	modeltest.Each(t, Worlds(), func(t *testing.T, w *World) {
		k := newWorker(w)
		modeltest.Walk(t, modeltest.Random(t), &k.Plain, 300, func(s *state) {
			for i := range w.Replicas {
				for slot, seen := range s.lines[i].sights {
					if again := k.machine.sightOf(k.machine.sight(seen)); again != seen {
						t.Fatalf("pod %d: seen %+v, again %+v", slot, seen, again)
					}
				}
			}
		})
	})
}

// checked returns a transition with a terminating pod, whose session has made all reads.
func checked() *transition {
	w := &World{Pods: 2, Replicas: 1, Attach: true}
	k := newWorker(w)
	c := &transition{World: w, machine: k.machine, state: k.Decode(k.First())}
	c.pods[0].terminating = true
	c.lines[0].sessions[0] = work{on: true, pod: c.pods[0]}
	return c
}

// waits sets for how long the replica has seen the pod finished and with grace 0, on a node that is Ready or not.
func (c *transition) waits(finished, graceZero age, ready bool) {
	s := &c.lines[0].sessions[0]
	s.sight.finished, s.sight.graceZero, s.seen.ready = finished, graceZero, ready
}

// ephemeral makes the claim a generic ephemeral volume's, which is being deleted.
func (c *transition) ephemeral() { c.Ephemeral, c.claimGoes, c.claimHeld = true, true, true }

// because sets the reason of the step in the session of the pod.
func (c *transition) because(reason string) {
	for i, r := range c.machine.reasons {
		if string(r) == reason {
			c.lines[0].sessions[0].reason = uint8(i)
		}
	}
}

func TestEachStepIsChecked(t *testing.T) {
	release := func(reason string) func(*transition) {
		return func(c *transition) {
			c.because(reason)
			s := c.session(0, 0)
			c.checkRelease(0, 0, &s)
		}
	}
	remove := func(reason string) func(*transition) {
		return func(c *transition) {
			c.because(reason)
			s := c.session(0, 0)
			c.checkDeletion(0, 0, &s)
		}
	}
	ended := func(c *transition) {
		c.processes[0] = process{node: 1, known: true, deleted: true, done: true}
	}
	mounted := func(c *transition) { ended(c); c.processes[0].mounted = true }
	modeltest.CheckSteps(t, checked, map[string]modeltest.Step[*transition]{
		"a pod that has ended": {ended, release("Finished"), ""},
		"a pod that runs":      {nil, release("Finished"), "S1"},
		"a pod that can start": {func(c *transition) { c.processes[0].runs = false }, release("NeverBound"), "S1"},
		"on a machine that is off": {
			func(c *transition) { c.processes[0].runs, c.nodes[0].off = false, true }, release("NodeFenced"), ""},
		"that is not being deleted": {
			func(c *transition) { ended(c); c.pods[0].terminating = false }, release("Finished"), "S1"},
		"its volume is mounted": {mounted, release("Finished"), "S3"},
		"it was waited for":     {func(c *transition) { mounted(c); c.waits(old, old, true) }, release("Finished"), ""},
		"it was waited for before the force deletion": {
			func(c *transition) { mounted(c); c.waits(old, young, true) }, release("Finished"), "S3"},
		"it was waited for while the node was away": {
			func(c *transition) { mounted(c); c.waits(old, old, false) }, release("Finished"), "S3"},
		"the garbage collector was between": {
			func(c *transition) { mounted(c); c.collected[0] = true }, release("Finished"), ""},
		"confirmed":             {func(c *transition) { c.pods[0].confirmed = confirmedThis }, release("Confirmed"), ""},
		"confirmed for another": {func(c *transition) { c.pods[0].confirmed = confirmedOther }, release("Confirmed"), "S1"},
		"confirmed, and released for another": {
			func(c *transition) { c.pods[0].confirmed = confirmedThis }, release("Finished"), "S1"},
		"tainted and not Ready": {
			func(c *transition) { c.lines[0].sessions[0].taintSpoke = true }, release("OutOfService"), ""},
		"tainted and Ready": {nil, release("OutOfService"), "S1"},
		"its Node is gone": {
			func(c *transition) { c.lines[0].sessions[0].goneSpoke = true }, release("NodeGone"), ""},
		"its Node is gone, its kubelet not": {nil, release("NodeGone"), "S1"},

		"forced on a node that is gone": {
			func(c *transition) { c.lines[0].sessions[0].leaseSpoke = true }, remove("NodeGone"), ""},
		"forced while it renews":  {nil, remove("NodeGone"), "S1"},
		"forced, and not deleted": {func(c *transition) { c.pods[0].terminating = false }, remove("Confirmed"), "S1"},

		"one runs under the name": {nil, func(c *transition) { c.checkStart(0) }, ""},
		"two run under the name": {
			func(c *transition) { c.processes[1].runs = true }, func(c *transition) { c.checkStart(1) }, "S1"},
		"a person answers for one": {
			func(c *transition) { c.processes[1].runs, c.excused[0] = true, true }, func(c *transition) { c.checkStart(1) }, ""},
		"the claim goes":          {nil, func(c *transition) { c.checkClaim() }, "S3"},
		"the claim goes after it": {ended, func(c *transition) { c.checkClaim() }, ""},
		"attached to its node":    {nil, func(c *transition) { c.checkAttach(0) }, ""},
		"attached to another":     {nil, func(c *transition) { c.checkAttach(1) }, "S3"},
		"detached by a taint": {
			func(c *transition) { c.detachExcused[0] = true }, func(c *transition) { c.checkAttach(1) }, ""},
	})
}

func TestRestIsChecked(t *testing.T) {
	away := func(c *transition) { c.nodes[0].cut, c.nodes[0].ready = true, false }
	unsettled := func(c *transition) string { return newWorker(c.World).unsettled(&c.state) }
	modeltest.Check(t, checked, unsettled, map[string]modeltest.Case[*transition]{
		"a pod that runs":         {func(c *transition) { c.pods[0].terminating = false }, ""},
		"that is not held":        {func(c *transition) { c.pods[0].terminating, c.pods[0].held = false, false }, "L1"},
		"its kubelet works":       {nil, "L1"},
		"its kubelet is cut off":  {away, ""},
		"and it is confirmed":     {func(c *transition) { away(c); c.pods[0].confirmed = confirmedThis }, "L1"},
		"and it was never bound":  {func(c *transition) { away(c); c.pods[0].node = 0 }, "L1"},
		"and its Node is gone":    {func(c *transition) { away(c); c.nodes[0].there = false }, "L1"},
		"and its node is tainted": {func(c *transition) { away(c); c.nodes[0].taint = true }, "L1"},
		"and its node is fenced":  {func(c *transition) { away(c); c.nodes[0].fence.inForce = true }, "L1"},
		"and its node was fenced": {func(c *transition) { away(c); c.nodes[0].fence.exists = true }, ""},
		"and rebooted": {
			func(c *transition) { away(c); c.nodes[0].fence = fence{inForce: true, reboot: true, covers: 1} }, "L1"},
		"and rebooted before": {func(c *transition) { away(c); c.nodes[0].fence = fence{inForce: true, reboot: true} }, ""},
		"a lock for it":       {func(c *transition) { away(c); c.lock = lock{exists: true, holder: 1, node: 1} }, ""},
		"a lock for a pod that is gone": {
			func(c *transition) { away(c); c.lock = lock{exists: true, holder: 2, node: 1} }, "L1"},
		"it is released, and not gone":  {func(c *transition) { c.pods[0].held = false }, ""},
		"a claim of it":                 {func(c *transition) { away(c); c.ephemeral() }, ""},
		"a claim of a pod that is gone": {func(c *transition) { c.ephemeral(); c.pods[0] = pod{} }, "L1"},
	})
}
