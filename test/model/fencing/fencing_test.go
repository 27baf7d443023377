package fencing

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

func TestNoWorldBreaksAPromise(t *testing.T) { modeltest.BreakNoPromise(t, Worlds(), 3_000) }

// The contents of a NodeFence, a tracker and a session survive their encoding.
func TestStateSurvivesEncoding(t *testing.T) {
	modeltest.HasNoPadding[state](t)
	modeltest.Each(t, Worlds(), func(t *testing.T, w *World) {
		k := newWorker(w)
		modeltest.Walk(t, modeltest.Random(t), &k.Plain, 300, func(s *state) {
			if s.fence.uid > 0 {
				of := k.machine.fence(s.fence)
				if again := k.machine.status(s.fence, &of.Status); again != s.fence {
					t.Fatalf("a NodeFence is\n%+v, again\n%+v", s.fence, again)
				}
			}
			for _, l := range s.lines[:w.Replicas] {
				if again := k.machine.sightOf(k.machine.sight(l.sight)); again != l.sight {
					t.Fatalf("seen %+v, again %+v", l.sight, again)
				}
			}
		})
	})
}

// checked returns a transition with a fence in force, whose machine is off and whose pod is terminating.
func checked() *transition {
	w := &World{Pods: 1, Replicas: 1, Agents: []Agent{Power}}
	k := newWorker(w)
	c := &transition{World: w, machine: k.machine, state: k.Decode(k.First())}
	c.node.off, c.node.agent, c.node.ready = true, true, false
	c.pods[0] = pod{exists: true, terminating: true, attached: true}
	c.fence = fence{uid: 1, finalized: true, fenced: isTrue, count: 1, proven: true, proofOf: 1, proofBoot: 1, proofAt: 1}
	c.fence.attempts[0] = attempt{agent: 1, result: proven, boot: 1}
	c.runs[0] = run{state: succeeded, acted: true}
	c.lines[0].fence = c.fence
	c.lines[0].session = work{on: true, fence: c.fence, wasAway: true}
	return c
}

func TestEachStepIsChecked(t *testing.T) {
	release := func(c *transition) { c.checkRelease(0) }
	detach := func(c *transition) { c.checkDetach(0) }
	taint := func(c *transition) { c.checkTaint() }
	run := func(of fencing.Run) func(*transition) { return func(c *transition) { c.checkRun(of) } }
	runs := func(c *transition) { c.node.off, c.pods[0].runs, c.pods[0].known = false, true, true }
	volumes := func(c *transition) { c.checkVolumes() }
	lend := func(c *transition) { c.pods[0].lent, c.pods[0].unwritten = true, true }
	starts := func(c *transition) { c.node.off, c.pods[0].known = false, true }
	shun := func(c *transition) { c.checkShun() }
	untaint := func(c *transition) { c.checkUntaint() }
	shut := func(c *transition) { c.node.storage, c.node.shunned = 1, true }
	boots := func(c *transition) { shut(c); c.node.shown = 2 }
	modeltest.CheckSteps(t, checked, map[string]modeltest.Step[*transition]{
		"new pods are kept away":                       {shut, shun, ""},
		"new pods are kept away after a boot":          {boots, shun, "F9"},
		"new pods are kept away from volumes":          {nil, shun, "F9"},
		"new pods are kept away without a proof":       {func(c *transition) { shut(c); c.fence = fence{} }, shun, "F9"},
		"new pods are kept away no more":               {shut, untaint, "F9"},
		"new pods are kept away no more, after a boot": {boots, untaint, ""},
		"new pods are kept away no more, confirmed":    {func(c *transition) { shut(c); c.vouched = true }, untaint, ""},
		"the end, and new pods are kept away": {
			func(c *transition) { c.node.agent, c.node.shunned = false, true }, func(c *transition) { c.checkReturn() }, "F9"},
		"it is gone, and new pods are kept away": {shut, func(c *transition) { c.checkGone() }, "F9"},

		"a pod of a machine that is off":        {nil, release, ""},
		"a pod that runs":                       {runs, release, "F1"},
		"a pod that can start":                  {starts, release, "F1"},
		"a pod that runs, and a confirmation":   {func(c *transition) { runs(c); c.answered = true }, release, ""},
		"a volume":                              {nil, detach, ""},
		"a volume in use":                       {runs, detach, "F1"},
		"a taint":                               {nil, taint, ""},
		"a taint where a pod runs":              {runs, taint, "F1"},
		"a taint where a pod runs, after a lie": {func(c *transition) { runs(c); c.lied[0] = true }, taint, ""},
		"a taint on a Ready node":               {func(c *transition) { c.node.ready = true }, taint, "F3"},

		"an agent": {nil, run(fencing.Run{Attempt: 1}), ""},
		"an agent after the end": {
			func(c *transition) { c.fence.returned = isTrue }, run(fencing.Run{Attempt: 1}), "F5"},
		"an agent without a fence":      {func(c *transition) { c.fence = fence{} }, run(fencing.Run{Attempt: 1}), "F5"},
		"an agent that is not recorded": {nil, run(fencing.Run{Attempt: 2}), "F6"},
		"an agent that undoes": {
			func(c *transition) { c.fence.returned = isTrue }, run(fencing.Run{Attempt: 1, Undo: true}), ""},

		"an attempt": {nil, func(c *transition) { c.checkAttempt(0, attempt{pods: 1}) }, ""},
		"an attempt with another pod": {func(c *transition) { c.pods[0].terminating = false },
			func(c *transition) { c.checkAttempt(0, attempt{pods: 1}) }, "F1"},
		"an attempt on the control plane": {
			func(c *transition) { c.ControlPlane = true }, func(c *transition) { c.checkAttempt(0, attempt{}) }, "F2"},
		"an attempt on a Ready node": {func(c *transition) { c.Policy, c.lines[0].session.wasAway = true, false },
			func(c *transition) { c.checkAttempt(0, attempt{}) }, "F2"},
		"a proof": {nil, func(c *transition) { c.checkProof(0) }, ""},
		"a proof of nothing": {
			func(c *transition) { c.runs[0].acted = false }, func(c *transition) { c.checkProof(0) }, "F1"},
		"a volume that is fenced":  {func(c *transition) { lend(c); c.node.storage = 1 }, volumes, ""},
		"a volume that is not":     {lend, volumes, "F8"},
		"a volume, confirmed":      {func(c *transition) { lend(c); c.vouched = true }, volumes, ""},
		"a volume, all is written": {func(c *transition) { lend(c); c.pods[0].unwritten = false }, volumes, ""},
		"a proof is withdrawn":     {nil, func(c *transition) { c.checkStatus(0, fence{}) }, "F7"},
		"it counts no more": {
			func(c *transition) { c.pods[0] = pod{} }, func(c *transition) { c.checkStatus(0, counts(c)) }, ""},
		"it counts, a pod remains": {nil, func(c *transition) { c.checkStatus(0, counts(c)) }, "F2"},
		"a false proof is withdrawn": {
			func(c *transition) { c.lied[0] = true }, func(c *transition) { c.checkStatus(0, fence{}) }, ""},
		"the end, and all is undone": {
			func(c *transition) { c.node.agent = false }, func(c *transition) { c.checkReturn() }, ""},
		"the end, and nothing is": {nil, func(c *transition) { c.checkReturn() }, "F5"},
		"the end, abandoned":      {func(c *transition) { c.abandoned = true }, func(c *transition) { c.checkReturn() }, ""},
		"the end, an agent works": {
			func(c *transition) { c.node.agent, c.runs[0] = false, run1 }, func(c *transition) { c.checkReturn() }, "F5"},
		"the end, the taint is there": {
			func(c *transition) { c.node.agent, c.node.tainted = false, true }, func(c *transition) { c.checkReturn() }, "F3"},
		"it is gone, and its taint is there": {
			func(c *transition) { c.node.tainted = true }, func(c *transition) { c.checkGone() }, "F3"},
	})
}

// counts returns the fence without a count against limits.
func counts(c *transition) fence {
	f := c.fence
	f.vacant = true
	return f
}

// rebootedAndConfirmed is a fence with the proof of a reboot, which a person has confirmed since.
func rebootedAndConfirmed(c *transition) {
	w := *c.World
	w.Agents = []Agent{Reboot}
	c.World, c.fence.word = &w, 1
}

// run1 is an agent at work.
var run1 = run{state: running}

func TestRestIsChecked(t *testing.T) {
	rests := func(reason string) func(*transition) {
		return func(c *transition) { c.Wrong = newWorker(c.World).unsettled(&c.state, reason) }
	}
	modeltest.CheckSteps(t, checked, map[string]modeltest.Step[*transition]{
		"released":              {nil, rests("Released"), ""},
		"released, and it runs": {func(c *transition) { c.node.off = false }, rests("Released"), "F4"},
		"a reboot, confirmed":   {rebootedAndConfirmed, rests("Fenced"), "F4"},
		"a reboot, and a copy": {
			func(c *transition) { rebootedAndConfirmed(c); c.fence.copied = true }, rests("Fenced"), ""},
		"it is undone":             {nil, rests("AwaitsReturn"), ""},
		"a pod remains":            {nil, rests("RemainsOnNode"), ""},
		"nothing remains":          {func(c *transition) { c.pods[0] = pod{} }, rests("RemainsOnNode"), "F4"},
		"a person is waited for":   {nil, rests("WaitsForConfirmation"), "F4"},
		"all have failed":          {nil, rests("AllAgentsFailed"), ""},
		"its Node is not there":    {func(c *transition) { c.node.there = false }, rests("NodeDeleted"), ""},
		"its Node is there":        {nil, rests("NodeDeleted"), "F4"},
		"another machine":          {func(c *transition) { c.node.second = true }, rests("MachineReplaced"), ""},
		"the same machine":         {nil, rests("MachineReplaced"), "F4"},
		"the undoing does not end": {func(c *transition) { c.undos[0].hung = true }, rests("UnfenceFailed"), ""},
		"nothing hinders it":       {nil, rests("UnfenceFailed"), "F4"},
		"it is being undone":       {nil, rests("Unfencing"), "F4"},
		"an agent is at work":      {nil, rests("Fencing"), "F4"},
		"new pods may join":        {func(c *transition) { c.node.storage = 1 }, rests("Fenced"), "F9"},
		"new pods stay away":       {func(c *transition) { c.node.storage, c.node.shunned = 1, true }, rests("Fenced"), ""},
		"new pods stay away, it has booted": {
			func(c *transition) { c.node.storage, c.node.shunned, c.node.shown = 1, true, 2 }, rests("Fenced"), "F9"},
		"new pods stay away, without a fence": {
			func(c *transition) { c.node.shunned, c.fence = true, fence{} }, rests(""), "F9"},
		"no fence":                  {func(c *transition) { c.node.agent = false }, rests(""), ""},
		"no fence, but its taint":   {func(c *transition) { c.node.tainted = true }, rests(""), "F3"},
		"no fence, but it is off":   {nil, rests(""), "F5"},
		"no fence, it is abandoned": {func(c *transition) { c.abandoned = true }, rests(""), ""},
	})
}
