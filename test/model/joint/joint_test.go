package joint

import (
	"slices"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

func TestNoWorldBreaksAPromise(t *testing.T) { modeltest.BreakNoPromise(t, Worlds(), 1_500) }

// A world that no longer breaks a promise belongs to the other worlds.
func TestBrokenWorldsBreakTheirPromise(t *testing.T) {
	for name, promise := range broken {
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(all, func(w World) bool { return w.Name == name })
			if i < 0 {
				t.Fatal("there is no such world")
			}
			modeltest.Finds(t, &all[i], 100_000, promise)
		})
	}
}

// The test removes each guard between two controllers where one reads the output of the other, and the model finds the
// purpose of the guard.
func TestEachGuardIsNeeded(t *testing.T) {
	for _, tc := range []struct {
		without Guard
		world   World
		want    string
	}{
		{TheHoldOfClaims, World{Unlocked: true, Budget: Budget{DeleteClaim: 1, DeleteNode: 1}}, "S2"},
		{TheWord, World{Budget: Budget{Taint: 1, Cut: 1, Heal: 1}}, "S3"},
		{TheRun, World{Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Reboot: 1}}, "S1"},
		{TheList, World{Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Reboot: 1}}, "S1"},
		{TheUnmount, World{Agent: Volumes, Uncovered: true, Unlocked: true,
			Budget: Budget{Delete: 1, Fence: 1, Reboot: 1, End: 1}}, "S3"},
		{TheWayOut, World{Agent: Reboot, Tried: true, Unlocked: true, Budget: Budget{Delete: 1, Fence: 1}}, "L1"},
		{TheStorage, World{Agent: Volumes, Budget: Budget{Fence: 1, Reboot: 1, End: 1}}, "S3"},
		{TheMachine, World{Agent: Volumes, FencedFirst: true, Unlocked: true,
			Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Replace: 1}}, "S3"},
		{TheNode, World{Budget: Budget{Delete: 1, Taint: 1, Untaint: 1, Cut: 1, Heal: 1}}, "S3"},
		{TheReboot, World{Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Unfence: 1}}, "S1"},
		{TheRelease, World{Ephemeral: true, Budget: Budget{Foreground: 1}}, "L1"},
		{TheShutDown, World{Ephemeral: true, Budget: Budget{Foreground: 1, Confirm: 1, Cut: 1}}, "L1"},
		{TheFinalizer, World{Ephemeral: true, BuiltIn: true, Unlocked: true,
			Budget: Budget{Foreground: 1, DeleteNode: 1}}, "S2"},
		{TheAttachLock, World{Attached: true, Budget: Budget{Delete: 1, Cut: 1, Restart: 1}}, "S1"},
		{TheRun, World{Attached: true, Agent: Volumes, FencedFirst: true,
			Budget: Budget{DeleteNode: 1, Fence: 1, Cut: 1, Replace: 1}}, "S1"},
	} {
		t.Logf("guard %d", tc.without)
		modeltest.Finds(t, &tc.world, 3_000, "")
		tc.world.Without = tc.without
		modeltest.Finds(t, &tc.world, 100_000, tc.want)
	}
}

// The contents of trackers and the output of node fencing survive their encoding.
func TestStateSurvivesEncoding(t *testing.T) {
	modeltest.HasNoPadding[state](t)
	modeltest.Each(t, all, func(t *testing.T, w *World) {
		k := newWorker(w)
		modeltest.Walk(t, modeltest.Random(t), &k.Plain, 200, func(s *state) {
			c := k.transition(s)
			for slot, p := range s.pods {
				if p.exists {
					c.keep(slot, c.tracker(slot))
				}
			}
			if o := k.machine.fence(s.fence); o != nil {
				c.fence = s.fence.status(&o.Status, s.node)
			}
			if c.state != *s {
				t.Fatalf("a state is\n%+v, again\n%+v", *s, c.state)
			}
		})
	})
}

// checked returns a transition in which the first pod runs on node a, and the second waits.
func checked() *transition {
	k := newWorker(&World{Agent: Volumes})
	s := k.Decode(k.First())
	s.born, s.pods[1] = true, pod{exists: true, held: true, gated: true}
	return k.transition(&s)
}

var inOrder = modeltest.InOrder[*transition]

func TestEachStateIsChecked(t *testing.T) {
	both := func(c *transition) { c.processes[1] = process{node: nodeB, runs: true, mounted: true, known: true} }
	ends := func(c *transition) { c.processes[0].runs = false }
	stops := func(c *transition) { c.stop() }
	state := func(c *transition) { c.check() }
	lock := func(why singlenode.Reason) func(*transition) { return func(c *transition) { c.freed(why) } }
	release := func(why podsafety.Reason) func(*transition) { return func(c *transition) { c.released(0, why) } }
	free := lock(singlenode.ReasonHolderGone)
	deleted := func(c *transition) { c.delete(0) }
	fenced := func(c *transition) { c.node.storage = true }
	gate := func(c *transition) { c.ungated(1) }
	modeltest.CheckSteps(t, checked, map[string]modeltest.Step[*transition]{
		"a pod runs":                  {nil, state, ""},
		"pods run on two nodes":       {both, state, "S1"},
		"one has its volume mounted":  {inOrder(both, ends), state, "S1"},
		"one is kept from the volume": {inOrder(both, fenced), state, ""},
		"a person answers for one":    {inOrder(both, func(c *transition) { c.excused[0] = true }), state, ""},
		"one runs on a former machine": {
			inOrder(both, func(c *transition) { c.stop(); c.former.runs[0] = true }), state, "S1"},

		"one is mounted on a former machine": {
			inOrder(both, func(c *transition) { c.stop(); c.former.mounted[0] = true }), state, "S1"},
		"a pod goes that is mounted on a former machine": {
			inOrder(stops, deleted, func(c *transition) { c.former.mounted[0] = true }),
			release(podsafety.ReasonFinished), "S3"},
		"the wait for its unmount is over": {
			inOrder(stops, deleted, func(c *transition) {
				c.former.mounted[0], c.sights[0].finished, c.sights[0].graceZero = true, old, old
			}), release(podsafety.ReasonFinished), ""},

		"the claim goes under a pod":      {func(c *transition) { c.claim = claim{} }, state, "S2"},
		"the claim goes after its end":    {inOrder(ends, func(c *transition) { c.claim = claim{} }), state, ""},
		"the lock goes of a pod":          {nil, free, "S3"},
		"of a pod that may start again":   {func(c *transition) { c.stop() }, free, "S3"},
		"of a terminating pod":            {func(c *transition) { c.stop(); c.delete(0) }, free, ""},
		"of a pod kept from the volume":   {inOrder(fenced, deleted), lock(singlenode.ReasonVolumeFenced), ""},
		"of a pod that hangs":             {inOrder(ends, fenced, deleted), lock(singlenode.ReasonHolderCompleted), "S3"},
		"a pod goes that has ended":       {inOrder(ends, deleted), release(podsafety.ReasonFinished), "S3"},
		"a pod goes that is unmounted":    {inOrder(stops, deleted), release(podsafety.ReasonFinished), ""},
		"a pod goes whose node is fenced": {inOrder(ends, deleted), release(podsafety.ReasonNodeFenced), ""},
		"the gate goes without the lock":  {nil, gate, "S3"},
		"the gate goes with it":           {func(c *transition) { c.claim.lock = 2 }, gate, ""},
	})
}

func TestRestIsChecked(t *testing.T) {
	terminating := func(c *transition) { c.delete(0) }
	away := func(c *transition) { c.node.cut, c.node.ready = true, false }
	unsettled := func(c *transition) string {
		wrong, _ := newWorker(c.World).rests(&c.state)
		return wrong
	}
	modeltest.Check(t, checked, unsettled, map[string]modeltest.Case[*transition]{
		"a pod waits for another":          {nil, ""},
		"that is terminating":              {terminating, "L1"},
		"and whose node is away":           {inOrder(terminating, away), ""},
		"that does not exist":              {func(c *transition) { c.pods[0] = pod{} }, "L1"},
		"it has the lock":                  {func(c *transition) { c.claim.lock = 2 }, ""},
		"it has no gate":                   {func(c *transition) { c.pods[1].gated = false }, "L1"},
		"no pod has the lock":              {func(c *transition) { c.claim.lock, c.pods[1] = 0, pod{} }, "L1"},
		"the volume is kept from the node": {func(c *transition) { c.node.storage = true }, "L1"},
		"the node is tainted":              {func(c *transition) { c.node.own = true }, "L1"},
		"new pods are kept from the node":  {func(c *transition) { c.node.shunned = true }, "L1"},
		"it is released, and stays": {
			inOrder(terminating, func(c *transition) { c.pods[0].foreground, c.pods[0].held = true, false }), "L1"},
		"its ephemeral claim stays": {func(c *transition) {
			c.World = &World{Ephemeral: true}
			c.claim = claim{exists: true, terminating: true, held: true}
			c.pods = [maxPods]pod{}
		}, "L1"},
		"it has the VolumeLock":            {inOrder(terminating, away, locked), ""},
		"the VolumeLock is of no held pod": {inOrder(locked, func(c *transition) { c.pods[0].held = false }), "L1"},
		"another waits for its volume":     {inOrder(terminating, away, beside), ""},
		"another waits for no other's":     {inOrder(beside, func(c *transition) { c.pods[0] = pod{} }), "L1"},
		"a fence waits for nothing":        {func(c *transition) { c.fence.exists = true }, "L1"},
		"a fence waits for a node":         {inOrder(away, proven), ""},
		"a fence waits for a reboot":       {inOrder(proven, func(c *transition) { c.fence.renewed = true }), ""},
		"a fence waits for a pod that it had": {
			inOrder(proven, func(c *transition) { c.node.boot, c.node.shown = 2, 2 }), "L1"},
	})
}

// locked puts the volume into the VolumeLock for the first pod.
func locked(c *transition) { c.volume.locked = 1 }

// beside binds the second pod to node b, in a world that attaches the volume.
func beside(c *transition) {
	c.World = &World{Attached: true}
	c.claim.lock, c.claim.kept = 0, false
	c.pods[1] = pod{exists: true, held: true, node: nodeB}
}

// proven puts a fence of the volume in force.
func proven(c *transition) {
	c.node.storage, c.run = true, succeeded
	c.fence = fence{exists: true, finalized: true, begun: true, result: 1, boot: 1, proven: true, proofBoot: 1,
		fenced: isTrue}
}

// script plays moves, one after the other.
type script struct {
	*worker
	modeltest.Script[state, move, *transition]
}

func begin(t *testing.T, w World) *script {
	k := newWorker(&w)
	return &script{k, modeltest.NewScript(t, &k.Plain)}
}

// then makes a move for each verb, of the first pod for which it is possible.
func (s *script) then(verbs ...verb) *script {
	s.T.Helper()
	s.InTurn(verbs...)
	return s
}

// guardVerbs are the moves of volume-guard.
var guardVerbs = []verb{holdActs, gateActs, lockActs, protectorActs, claimHoldActs, volumeLockActs, fencingActs,
	fenceEnds}

// guardActs lets volume-guard and the agent do all work that is due.
func (s *script) guardActs() {
	s.T.Helper()
	s.All(append([]verb{agentActs, agentUndoes}, guardVerbs...)...)
}

// shows checks the state of the two pods and the claim.
func (s *script) shows(what string, is func(*state) bool) *script {
	s.T.Helper()
	if !is(&s.Now) {
		s.T.Errorf("it is not so that %s, after\n%s", what, &s.Script)
	}
	return s
}

func claimStays(s *state) bool { return s.claim.exists && s.claim.protected }

func secondWaits(s *state) bool { return s.pods[1].exists && s.pods[1].gated }

func TestFenceLendsVolumeUntilReboot(t *testing.T) {
	s := begin(t, World{Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Heal: 1, Reboot: 1}})
	s.then(kubeletIsCutOff, readyChanges, userDeletesPod, replacementIsCreated).guardActs()
	s.shows("the second pod waits", secondWaits).then(nodeIsFenced).guardActs()
	s.shows("it does not", func(s *state) bool { return !secondWaits(s) && s.pods[0].held })
	s.then(kubeletReturns, readyChanges).guardActs()
	s.shows("the fence stays", func(s *state) bool { return s.node.storage && s.fence.fenced == isTrue })
	s.then(machineReboots, readyChanges, machineStarts, kubeletRegisters, readyChanges, kubeletSees, kubeletReportsEnd,
		kubeletDeletes).guardActs()
	s.shows("it has ended", func(s *state) bool { return !s.node.storage && !s.pods[0].exists })
}

// The kubelet starts the pod again before it is deleted, so that the reboot unmounts nothing. The pod waits for its own
// kubelet alone, also before volume-guard ends the fence.
func TestPodOfNewBootWaitsForUnmount(t *testing.T) {
	for _, completes := range []bool{false, true} {
		s := begin(t, World{Agent: Volumes, Uncovered: true, Budget: Budget{Delete: 1, Fence: 1, Reboot: 1, End: 1}})
		s.then(nodeIsFenced).guardActs()
		s.then(machineReboots, readyChanges, machineStarts, kubeletRegisters, readyChanges, kubeletSees, containerStarts)
		if completes {
			s.then(podCompletes, kubeletReportsEnd, userDeletesPod, kubeletSees)
		} else {
			s.then(userDeletesPod, kubeletSees, processesEnd, kubeletReportsEnd)
		}
		s.All(holdActs, gateActs, lockActs, protectorActs, claimHoldActs, volumeLockActs)
		if completes {
			s.shows("the pod has no grace", func(s *state) bool { return s.pods[0].graceZero })
		}
		s.shows("the fence is in force, and the pod held", func(s *state) bool {
			return s.fence.fenced == isTrue && s.booted() && s.pods[0].held && s.processes[0].mounted
		})
		s.then(volumeIsUnmounted)
		if completes {
			s.then(unmountGraceEnds)
		} else {
			s.then(kubeletDeletes)
		}
		s.guardActs()
		s.shows("both are gone", func(s *state) bool { return !s.pods[0].exists && s.fence.fenced != isTrue })
	}
}

func TestHeldPodKeepsClaimAfterPodGarbageCollection(t *testing.T) {
	s := begin(t, World{Unlocked: true, Budget: Budget{DeleteClaim: 1, DeleteNode: 1}})
	s.then(userDeletesClaim, userDeletesNode, collectorFailsPod, collectorDeletesPod).guardActs()
	s.shows("the claim stays", claimStays).then(kubeletSees, processesEnd, volumeIsUnmounted, kubeletReportsEnd)
	s.then(leaseGraceEnds, forceGraceEnds, unmountGraceEnds).guardActs()
	s.shows("nothing keeps the claim", func(s *state) bool { return !s.pods[0].exists && !s.claim.protected })
}

// A kubelet that does not run unmounts nothing, however long that takes.
func TestCompletedPodKeepsLockOnNodeThatIsAway(t *testing.T) {
	s := begin(t, World{Budget: Budget{End: 1, Cut: 1, Heal: 1}})
	timePasses := func() { s.All(append([]verb{unmountGraceEnds}, guardVerbs...)...) }
	s.then(podCompletes, kubeletReportsEnd, replacementIsCreated, kubeletIsCutOff, readyChanges)
	timePasses()
	s.shows("the second pod waits", secondWaits).then(kubeletReturns, readyChanges)
	timePasses()
	s.shows("the second pod waits for the unmount", secondWaits).then(volumeIsUnmounted)
	timePasses()
	s.shows("it does not", func(s *state) bool { return !secondWaits(s) })
}

func TestConfirmationGivesVolumeToSecondPod(t *testing.T) {
	s := begin(t, World{Budget: Budget{Force: 1, Confirm: 1, DeleteClaim: 1, Cut: 1}})
	s.then(kubeletIsCutOff, userConfirms, userForces, replacementIsCreated).guardActs()
	s.shows("the second pod does not wait", func(s *state) bool { return s.excused[0] && !secondWaits(s) })
}

// The pod waits for its claim, and the claim for the lock.
func TestForegroundDeletionEnds(t *testing.T) {
	s := begin(t, World{Ephemeral: true, Budget: Budget{Foreground: 1}})
	s.then(userDeletesInForeground, claimIsCollected, kubeletSees).guardActs()
	s.shows("the claim stays", claimStays).then(processesEnd, kubeletReportsEnd, volumeIsUnmounted, kubeletDeletes)
	s.guardActs()
	s.then(unmountGraceEnds).guardActs()
	s.then(claimIsRemoved, podIsUnblocked)
	s.shows("the pod is gone", func(s *state) bool { return !s.pods[0].exists })
}

// The pod waits for its container to start again, so that Kubernetes does not count it once it is deleted. Its kubelet,
// which is cut off, starts the container.
func TestVolumeLockKeepsVolumeFromSecondNode(t *testing.T) {
	s := begin(t, World{Attached: true, Budget: Budget{Delete: 1, Cut: 1, Heal: 1, Restart: 1}})
	s.then(containerEnds, kubeletReportsWait, kubeletIsCutOff, containerStarts, readyChanges, userDeletesPod)
	s.guardActs()
	s.then(replacementIsCreated, podIsBound, volumeIsDetached)
	s.shows("the API server refuses the attachment", func(s *state) bool { return s.volume.locked == 1 })
	if s.First(volumeIsAttached) {
		t.Errorf("the volume is attached\n%s", &s.Script)
	}
	s.then(kubeletReturns, readyChanges, kubeletSees, processesEnd, kubeletReportsEnd, volumeIsUnmounted, kubeletDeletes)
	s.guardActs()
	s.then(volumeIsAttached)
	s.shows("it is attached to node b", func(s *state) bool { return s.volume.onB && s.volume.locked == 0 })
}

func TestFenceLiftsVolumeLock(t *testing.T) {
	s := begin(t, World{Attached: true, Agent: Volumes, Budget: Budget{Delete: 1, Fence: 1, Cut: 1, Restart: 1}})
	s.then(containerEnds, kubeletReportsWait, kubeletIsCutOff, readyChanges, userDeletesPod).guardActs()
	s.shows("the volume is locked", func(s *state) bool { return s.volume.locked == 1 }).then(nodeIsFenced).guardActs()
	s.then(replacementIsCreated, podIsBound, volumeIsDetached, volumeIsAttached)
	s.shows("the first pod is held", func(s *state) bool { return s.pods[0].held && s.volume.onB })
}
