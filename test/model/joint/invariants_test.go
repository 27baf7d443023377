package joint

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

// checked returns a transition in which the first pod runs on node a, and the second waits.
func checked() *transition {
	k := newWorker(&World{Agent: Volumes})
	s := k.Decode(k.First())
	s.born, s.pods[1] = true, pod{exists: true, held: true, gated: true}
	return k.transition(&s)
}

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
	for name, tc := range map[string]struct {
		prepare []func(*transition)
		check   func(*transition)
		want    string
	}{
		"a pod runs":                  {nil, state, ""},
		"pods run on two nodes":       {[]func(*transition){both}, state, "S1"},
		"one has its volume mounted":  {[]func(*transition){both, ends}, state, "S1"},
		"one is kept from the volume": {[]func(*transition){both, fenced}, state, ""},
		"a person answers for one":    {[]func(*transition){both, func(c *transition) { c.excused[0] = true }}, state, ""},
		"one runs on a former machine": {
			[]func(*transition){both, func(c *transition) { c.stop(); c.former.runs[0] = true }}, state, "S1"},

		"one is mounted on a former machine": {
			[]func(*transition){both, func(c *transition) { c.stop(); c.former.mounted[0] = true }}, state, "S1"},
		"a pod goes that is mounted on a former machine": {
			[]func(*transition){stops, deleted, func(c *transition) { c.former.mounted[0] = true }},
			release(podsafety.ReasonFinished), "S3"},
		"the wait for its unmount is over": {
			[]func(*transition){stops, deleted, func(c *transition) {
				c.former.mounted[0], c.sights[0].finished, c.sights[0].graceZero = true, old, old
			}}, release(podsafety.ReasonFinished), ""},

		"the claim goes under a pod":    {[]func(*transition){func(c *transition) { c.claim = claim{} }}, state, "S2"},
		"the claim goes after its end":  {[]func(*transition){ends, func(c *transition) { c.claim = claim{} }}, state, ""},
		"the lock goes of a pod":        {nil, free, "S3"},
		"of a pod that may start again": {[]func(*transition){func(c *transition) { c.stop() }}, free, "S3"},
		"of a terminating pod":          {[]func(*transition){func(c *transition) { c.stop(); c.delete(0) }}, free, ""},
		"of a pod kept from the volume": {[]func(*transition){fenced, deleted}, lock(singlenode.ReasonVolumeFenced), ""},
		"of a pod that hangs": {
			[]func(*transition){ends, fenced, deleted}, lock(singlenode.ReasonHolderCompleted), "S3"},
		"a pod goes that has ended":       {[]func(*transition){ends, deleted}, release(podsafety.ReasonFinished), "S3"},
		"a pod goes that is unmounted":    {[]func(*transition){stops, deleted}, release(podsafety.ReasonFinished), ""},
		"a pod goes whose node is fenced": {[]func(*transition){ends, deleted}, release(podsafety.ReasonNodeFenced), ""},
		"the gate goes without the lock":  {nil, gate, "S3"},
		"the gate goes with it":           {[]func(*transition){func(c *transition) { c.claim.lock = 2 }}, gate, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := checked()
			for _, prepare := range tc.prepare {
				prepare(c)
			}
			tc.check(c)
			modeltest.Broken(t, c.Wrong, tc.want)
		})
	}
}

func TestRestIsChecked(t *testing.T) {
	terminating := func(c *transition) { c.delete(0) }
	away := func(c *transition) { c.node.cut, c.node.ready = true, false }
	for name, tc := range map[string]struct {
		prepare []func(*transition)
		want    string
	}{
		"a pod waits for another": {nil, ""},
		"that is terminating":     {[]func(*transition){terminating}, "L1"},
		"and whose node is away":  {[]func(*transition){terminating, away}, ""},
		"that does not exist":     {[]func(*transition){func(c *transition) { c.pods[0] = pod{} }}, "L1"},
		"it has the lock":         {[]func(*transition){func(c *transition) { c.claim.lock = 2 }}, ""},
		"it has no gate":          {[]func(*transition){func(c *transition) { c.pods[1].gated = false }}, "L1"},
		"no pod has the lock": {[]func(*transition){func(c *transition) { c.claim.lock, c.pods[1] = 0, pod{} }},
			"L1"},
		"the volume is kept from the node": {[]func(*transition){func(c *transition) { c.node.storage = true }}, "L1"},
		"the node is tainted":              {[]func(*transition){func(c *transition) { c.node.own = true }}, "L1"},
		"new pods are kept from the node":  {[]func(*transition){func(c *transition) { c.node.shunned = true }}, "L1"},
		"it is released, and stays": {[]func(*transition){terminating, func(c *transition) {
			c.pods[0].foreground, c.pods[0].held = true, false
		}}, "L1"},
		"its ephemeral claim stays": {[]func(*transition){func(c *transition) {
			c.World = &World{Ephemeral: true}
			c.claim = claim{exists: true, terminating: true, held: true}
			c.pods = [maxPods]pod{}
		}}, "L1"},
		"it has the VolumeLock": {[]func(*transition){terminating, away, locked}, ""},
		"the VolumeLock is of no held pod": {[]func(*transition){locked, func(c *transition) { c.pods[0].held = false }},
			"L1"},
		"another waits for its volume": {[]func(*transition){terminating, away, beside}, ""},
		"another waits for no other's": {[]func(*transition){beside, func(c *transition) { c.pods[0] = pod{} }}, "L1"},
		"a fence waits for nothing":    {[]func(*transition){func(c *transition) { c.fence.exists = true }}, "L1"},
		"a fence waits for a node":     {[]func(*transition){away, proven}, ""},
		"a fence waits for a reboot":   {[]func(*transition){proven, func(c *transition) { c.fence.renewed = true }}, ""},
		"a fence waits for a pod that it had": {
			[]func(*transition){proven, func(c *transition) { c.node.boot, c.node.shown = 2, 2 }}, "L1"},
	} {
		t.Run(name, func(t *testing.T) {
			c := checked()
			for _, prepare := range tc.prepare {
				prepare(c)
			}
			k := newWorker(c.World)
			wrong, _ := k.rests(&c.state)
			modeltest.Broken(t, wrong, tc.want)
		})
	}
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
