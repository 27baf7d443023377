package joint

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/modeltest"
)

// judged returns a scene in which the first pod runs on node a, and the second waits.
func judged() *scene {
	k := newWorker(&World{Agent: Volumes})
	s := k.Decode(k.First())
	s.born, s.pods[1] = true, pod{exists: true, held: true, gated: true}
	return k.scene(&s)
}

func TestEachStateIsJudged(t *testing.T) {
	both := func(c *scene) { c.processes[1] = process{node: nodeB, runs: true, mounted: true, known: true} }
	ends := func(c *scene) { c.processes[0].runs = false }
	stops := func(c *scene) { c.stop() }
	state := func(c *scene) { c.judge() }
	lock := func(why singlenode.Reason) func(*scene) { return func(c *scene) { c.freed(why) } }
	release := func(why podsafety.Reason) func(*scene) { return func(c *scene) { c.released(0, why) } }
	free := lock(singlenode.ReasonHolderGone)
	deleted := func(c *scene) { c.delete(0) }
	fenced := func(c *scene) { c.node.storage = true }
	gate := func(c *scene) { c.ungated(1) }
	for name, tc := range map[string]struct {
		prepare []func(*scene)
		judge   func(*scene)
		want    string
	}{
		"a pod runs":                  {nil, state, ""},
		"pods run on two nodes":       {[]func(*scene){both}, state, "S1"},
		"one has its volume mounted":  {[]func(*scene){both, ends}, state, "S1"},
		"one is kept from the volume": {[]func(*scene){both, fenced}, state, ""},
		"a person answers for one":    {[]func(*scene){both, func(c *scene) { c.excused[0] = true }}, state, ""},
		"one runs on a former machine": {
			[]func(*scene){both, func(c *scene) { c.stop(); c.former.runs[0] = true }}, state, "S1"},

		"one is mounted on a former machine": {
			[]func(*scene){both, func(c *scene) { c.stop(); c.former.mounted[0] = true }}, state, "S1"},
		"a pod goes that is mounted on a former machine": {
			[]func(*scene){stops, deleted, func(c *scene) { c.former.mounted[0] = true }},
			release(podsafety.ReasonFinished), "S3"},
		"the wait for its unmount is over": {
			[]func(*scene){stops, deleted, func(c *scene) {
				c.former.mounted[0], c.sights[0].finished, c.sights[0].graceZero = true, old, old
			}}, release(podsafety.ReasonFinished), ""},

		"the claim goes under a pod":    {[]func(*scene){func(c *scene) { c.claim = claim{} }}, state, "S2"},
		"the claim goes after its end":  {[]func(*scene){ends, func(c *scene) { c.claim = claim{} }}, state, ""},
		"the lock goes of a pod":        {nil, free, "S3"},
		"of a pod that may start again": {[]func(*scene){func(c *scene) { c.stop() }}, free, "S3"},
		"of a terminating pod":          {[]func(*scene){func(c *scene) { c.stop(); c.delete(0) }}, free, ""},
		"of a pod kept from the volume": {[]func(*scene){fenced, deleted}, lock(singlenode.ReasonVolumeFenced), ""},
		"of a pod that hangs": {
			[]func(*scene){ends, fenced, deleted}, lock(singlenode.ReasonHolderCompleted), "S3"},
		"a pod goes that has ended":       {[]func(*scene){ends, deleted}, release(podsafety.ReasonFinished), "S3"},
		"a pod goes that is unmounted":    {[]func(*scene){stops, deleted}, release(podsafety.ReasonFinished), ""},
		"a pod goes whose node is fenced": {[]func(*scene){ends, deleted}, release(podsafety.ReasonNodeFenced), ""},
		"the gate goes without the lock":  {nil, gate, "S3"},
		"the gate goes with it":           {[]func(*scene){func(c *scene) { c.claim.lock = 2 }}, gate, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := judged()
			for _, prepare := range tc.prepare {
				prepare(c)
			}
			tc.judge(c)
			modeltest.Broken(t, c.Wrong, tc.want)
		})
	}
}

func TestRestIsJudged(t *testing.T) {
	terminating := func(c *scene) { c.delete(0) }
	away := func(c *scene) { c.node.cut, c.node.ready = true, false }
	for name, tc := range map[string]struct {
		prepare []func(*scene)
		want    string
	}{
		"a pod waits for another":          {nil, ""},
		"that is terminating":              {[]func(*scene){terminating}, "L1"},
		"and whose node is away":           {[]func(*scene){terminating, away}, ""},
		"that does not exist":              {[]func(*scene){func(c *scene) { c.pods[0] = pod{} }}, "L1"},
		"it has the lock":                  {[]func(*scene){func(c *scene) { c.claim.lock = 2 }}, ""},
		"it has no gate":                   {[]func(*scene){func(c *scene) { c.pods[1].gated = false }}, "L1"},
		"no pod has the lock":              {[]func(*scene){func(c *scene) { c.claim.lock, c.pods[1] = 0, pod{} }}, "L1"},
		"the volume is kept from the node": {[]func(*scene){func(c *scene) { c.node.storage = true }}, "L1"},
		"the node is tainted":              {[]func(*scene){func(c *scene) { c.node.own = true }}, "L1"},
		"new pods are kept from the node":  {[]func(*scene){func(c *scene) { c.node.shunned = true }}, "L1"},
		"it is released, and stays": {[]func(*scene){terminating, func(c *scene) {
			c.pods[0].foreground, c.pods[0].held = true, false
		}}, "L1"},
		"its ephemeral claim stays": {[]func(*scene){func(c *scene) {
			c.World = &World{Ephemeral: true}
			c.claim = claim{exists: true, terminating: true, held: true}
			c.pods = [maxPods]pod{}
		}}, "L1"},
		"it has the VolumeLock":            {[]func(*scene){terminating, away, locked}, ""},
		"the VolumeLock is of no held pod": {[]func(*scene){locked, func(c *scene) { c.pods[0].held = false }}, "L1"},
		"another waits for its volume":     {[]func(*scene){terminating, away, beside}, ""},
		"another waits for no other's":     {[]func(*scene){beside, func(c *scene) { c.pods[0] = pod{} }}, "L1"},
		"a fence waits for nothing":        {[]func(*scene){func(c *scene) { c.fence.exists = true }}, "L1"},
		"a fence waits for a node":         {[]func(*scene){away, proven}, ""},
		"a fence waits for a reboot":       {[]func(*scene){proven, func(c *scene) { c.fence.renewed = true }}, ""},
		"a fence waits for a pod that it had": {
			[]func(*scene){proven, func(c *scene) { c.node.boot, c.node.shown = 2, 2 }}, "L1"},
	} {
		t.Run(name, func(t *testing.T) {
			c := judged()
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
func locked(c *scene) { c.volume.locked = 1 }

// beside binds the second pod to node b, in a world that attaches the volume.
func beside(c *scene) {
	c.World = &World{Attached: true}
	c.claim.lock, c.claim.kept = 0, false
	c.pods[1] = pod{exists: true, held: true, node: nodeB}
}

// proven puts a fence of the volume in force.
func proven(c *scene) {
	c.node.storage, c.run = true, succeeded
	c.fence = fence{exists: true, finalized: true, begun: true, result: 1, boot: 1, proven: true, proofBoot: 1,
		fenced: isTrue}
}
