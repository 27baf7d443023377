package podsafety

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
)

// guard makes the moves of one replica of volume-guard, and of its calls.
func (k *worker) guard(s *state, i int) {
	l := &s.lines[i]
	if !l.up {
		k.Can(true, move{processStarts, i, 0}, func(c *transition) { c.start(i) })
		return
	}
	k.Breaks(true, &s.left.Crash, move{processEnds, i, 0}, func(c *transition) { c.lines[i] = line{} })
	for n := range maxNodes {
		k.Can(l.nodes[n] != s.nodes[n].view(), move{watchShowsNode, i, n}, func(c *transition) { c.showNode(i, n) })
	}
	if k.Ephemeral {
		k.Can(l.claim != s.claimView(), move{watchShowsClaim, i, 0}, func(c *transition) { c.showClaim(i) })
		k.Can(k.claimStep(s, i), move{workerSettlesClaim, i, 0}, func(c *transition) { c.settleClaim(i) })
	}
	for slot := range k.Pods {
		k.Can(l.pods[slot] != view{s.pods[slot].exists, s.pods[slot]}, move{watchShowsPod, i, slot},
			func(c *transition) { c.showPod(i, slot) })
		if l.sessions[slot].on {
			k.calls(s, i, slot)
		} else {
			k.Can(l.woken[slot] && l.pods[slot].known, move{workerBegins, i, slot}, func(c *transition) { c.begin(i, slot) })
		}
		k.time(s, i, slot)
		k.Can(k.Attach && k.lockStep(s, i, slot), move{workerLocks, i, slot}, func(c *transition) { c.carryOutLock(i, slot) })
	}
}

// start starts a replica with a list of the objects in the API server.
func (c *transition) start(i int) {
	c.lines[i] = line{up: true}
	for n := range maxNodes {
		c.lines[i].nodes[n] = c.nodes[n].view()
	}
	c.lines[i].machine, c.lines[i].same[0] = c.nodes[0].shows, c.Without == TheRecord
	for slot := range c.Pods {
		c.showPod(i, slot)
	}
	c.showClaim(i)
}

// showPod delivers the state of a pod to the watch of a replica.
func (c *transition) showPod(i, slot int) {
	l := &c.lines[i]
	if !l.up {
		return
	}
	p := c.pods[slot]
	l.pods[slot] = view{p.exists, p}
	l.woken[slot] = p.exists
	if !p.exists {
		l.sights[slot], l.timed[slot], l.same[slot] = sight{}, false, false
		return
	}
	c.machine.with(slot, l, func(t *podsafety.Tracker) {
		t.Saw(c.reported(c.machine.pod(slot, p, c.graceOver[slot])), c.machine.seenOf(l.nodeOf(p)), c.machine.now)
	})
}

// showNode delivers the state of a node and its fence to the watch of a replica, and enqueues the pods there.
func (c *transition) showNode(i, n int) {
	l := &c.lines[i]
	before := c.machine.seenOf(l.nodes[n])
	l.nodes[n] = c.nodes[n].view()
	outage := !before.Ready() || !c.machine.seenOf(l.nodes[n]).Ready()
	for slot := range c.Pods {
		here := l.pods[slot].known && int(l.pods[slot].pod.node) == n+1
		other := n == 0 && l.nodes[n].machine != l.machine && c.Without != TheMachine
		l.same[slot] = l.same[slot] && (!here || !outage && !other)
		l.woken[slot] = l.woken[slot] || here
		if here && outage && l.sights[slot].finished != never {
			l.sights[slot].finished, l.interrupted[slot] = young, true
		}
	}
}

// nodeOf returns the node of a pod from the watch of a replica.
func (l *line) nodeOf(p pod) nodeView {
	if p.node == 0 {
		return nodeView{}
	}
	return l.nodes[p.node-1]
}

// begin lets a worker take a pod, and continues until the first Ask.
func (c *transition) begin(i, slot int) {
	l := &c.lines[i]
	l.woken[slot], l.timed[slot] = false, false
	known := l.pods[slot].pod
	l.sessions[slot] = work{on: true, pod: known, changed: c.pods[slot] != known, seen: l.nodeOf(known),
		sight: l.sights[slot], interrupted: l.interrupted[slot], same: l.same[slot], machine: l.machine}
	c.machine.with(slot, l, func(t *podsafety.Tracker) {
		s := podsafety.Begin(t, c.facts(slot, &l.sessions[slot]), c.machine.now)
		c.continues(i, slot, &s)
	})
}

// continues records the changes of a session by an answer, or ends the session.
func (c *transition) continues(i, slot int, s *podsafety.Session) {
	l := &c.lines[i]
	if s.End == session.NotEnded {
		now, f := &l.sessions[slot], &s.Facts
		now.podRead, now.nodeRead = uint8(f.PodRead.Order), uint8(f.NodeRead.Order)
		now.leaseRead, now.fenceRead = uint8(f.LeaseRead.Order), uint8(f.FenceRead.Order)
		now.reads, now.sight, now.outdated = uint8(s.ReadCount), c.machine.sightOf(f.Sight), f.Outdated
		now.action, now.reason = s.Decision.Action, uint8(slices.Index(c.machine.reasons, s.Decision.Reason))
		return
	}
	l.sessions[slot] = work{}
	switch s.Requeue() {
	case session.RequeueSoon, session.RequeueRetry:
		l.woken[slot] = l.pods[slot].known
	case session.RequeueAfter:
		l.timed[slot] = true
	case session.RequeueNever:
	}
}

// calls makes the possible outcomes of a call.
func (k *worker) calls(s *state, i, slot int) {
	c := transition{World: k.World, machine: k.machine, state: *s}
	work := c.session(i, slot)
	action := work.Ask().Action
	k.Can(true, move{callAnswered[action], i, slot}, func(c *transition) { c.answer(i, slot, true, true) })
	k.Breaks(true, &s.left.API, move{callFails[action], i, slot}, func(c *transition) { c.answer(i, slot, false, false) })
	if action.Kind() == session.Writes {
		k.Breaks(true, &s.left.API, move{answerLost[action], i, slot}, func(c *transition) { c.answer(i, slot, true, false) })
	}
}

// answer continues a session. done says whether its call is carried out, and answered whether it is answered.
func (c *transition) answer(i, slot int, done, answered bool) {
	s := c.session(i, slot)
	var reply podsafety.Reply
	if done {
		reply = c.carryOut(i, slot, &s)
	}
	if !answered {
		reply = podsafety.Reply{}
	}
	l := &c.lines[i]
	c.machine.with(slot, l, func(t *podsafety.Tracker) {
		s.Answer(t, reply, c.machine.now, c.machine.now)
	})
	c.continues(i, slot, &s)
}

// carryOut plays the API server for a call, and answers.
func (c *transition) carryOut(i, slot int, s *podsafety.Session) podsafety.Reply {
	ask := s.Ask()
	reply := podsafety.Reply{Outcome: session.Succeeded}
	now := &c.lines[i].sessions[slot]
	at := c.named(slot)
	switch ask.Action {
	case podsafety.ReadPod:
		if at >= 0 {
			reply.Found, reply.Pod = true, c.reported(c.machine.pod(at, c.pods[at], c.graceOver[at]))
		}
		if at == slot {
			now.pod, now.changed = c.pods[slot], false
		}
	case podsafety.ReadNode, podsafety.ReadLease, podsafety.ReadFence:
		c.readNode(now, slot, ask.Action, &reply)
	case podsafety.ForceDelete:
		if at < 0 || ask.UID != "" && uidOf(at) != ask.UID {
			return podsafety.Reply{Outcome: session.Gone}
		}
		c.checkDeletion(i, at, s)
		c.write(at, func(p *pod) { p.terminating, p.graceZero = true, true })
	case podsafety.AddFinalizer, podsafety.RemoveFinalizer, podsafety.RemoveFinalizerByUID:
		return c.patch(i, slot, at, s)
	case podsafety.Wait:
	}
	return reply
}

// readNode answers a read about the node of a pod.
func (c *transition) readNode(now *work, slot int, action podsafety.Action, reply *podsafety.Reply) {
	n := int(c.processes[slot].node) - 1
	node := c.nodes[n]
	switch action {
	case podsafety.ReadNode:
		now.nodeThere, now.nodeReady, now.nodeTaint, now.nodeOwn = node.there, node.ready, node.taint, node.own
		now.taintSpoke = node.there && node.taint && !node.ready
		now.goneSpoke = !node.there && node.lost && !now.pod.ending()
		now.nodeMachine, now.nodeBeat = node.shows, node.beat
		reply.Node = c.nodeRead(now)
	case podsafety.ReadLease:
		now.leaseFound, now.leaseSpoke = node.lease, !node.connected() || !node.lease
		reply.Lease = objects.Lease{Found: node.lease, ResourceVersion: leaseVersion(node.lease)}
	default:
		now.fence = node.fence
		reply.Fence = fenceFacts(node.fence, slot)
	}
}

// patch changes the finalizer of the pod that has the name.
func (c *transition) patch(i, slot, at int, s *podsafety.Session) podsafety.Reply {
	ask, now := s.Ask(), c.lines[i].sessions[slot]
	switch {
	case at < 0 || ask.UID != "" && uidOf(at) != ask.UID:
		return podsafety.Reply{Outcome: session.Gone}
	case ask.ResourceVersion != "" && now.changed, ask.Action == podsafety.AddFinalizer && c.pods[at].terminating:
		return podsafety.Reply{Outcome: session.Conflict}
	}
	if ask.Action != podsafety.AddFinalizer {
		c.checkRelease(i, at, s)
	}
	c.write(at, func(p *pod) { p.held = ask.Action == podsafety.AddFinalizer })
	return podsafety.Reply{Outcome: session.Succeeded}
}

// time ends the waits of a pod.
func (k *worker) time(s *state, i, slot int) {
	l, p := &s.lines[i], s.processes[slot]
	if !l.timed[slot] || p.node == 0 {
		return
	}
	k.timeOfUnmount(s, i, slot)
	node, seen := s.nodes[p.node-1], l.sights[slot]
	// A working kubelet sees the deletion of a pod in less than the duration of its Lease. A kubelet that does not track
	// generations also ends the pod in this time. A working kubelet renews the Lease as long as it exists.
	heard := p.deleted && (!p.runs || !k.Older)
	k.Can(seen.graceZero == young && (!node.connected() || heard), move{forceGraceEnds, i, slot},
		func(c *transition) { c.lines[i].sights[slot].graceZero = old; c.timePasses(i, slot) })
	k.Can(seen.lease == young && (!node.connected() || !node.lease), move{leaseGraceEnds, i, slot},
		func(c *transition) { c.lines[i].sights[slot].lease = old; c.timePasses(i, slot) })
}

// timeOfUnmount ends the waits for an unmount, and for a heartbeat. A working kubelet unmounts in less time than the
// unmount grace.
func (k *worker) timeOfUnmount(s *state, i, slot int) {
	l, p := &s.lines[i], s.processes[slot]
	node, seen := s.nodes[p.node-1], l.sights[slot]
	k.Can((seen.finished == young || seen.refused == young) && (!node.connected() || !p.mounted || p.lost),
		move{unmountGraceEnds, i, slot}, func(c *transition) {
			for _, since := range []*age{&c.lines[i].sights[slot].finished, &c.lines[i].sights[slot].refused} {
				if *since == young {
					*since = old
				}
			}
			c.timePasses(i, slot)
		})
	// While it waits for a heartbeat, the node is read again from time to time.
	waits := seen.refused == old && seen.graceZero != young && l.same[slot]
	k.Can(waits && seen.heartbeat > 0 && seen.heartbeat != node.beat+1, move{nodeIsReadAgain, i, slot},
		func(c *transition) { c.timePasses(i, slot) })
}

// timePasses enqueues a pod that waits for the clock.
func (c *transition) timePasses(i, slot int) {
	l := &c.lines[i]
	if l.timed[slot] {
		l.timed[slot], l.woken[slot] = false, true
	}
}

// lockFacts returns the facts about the lock for a pod.
func (k *worker) lockFacts(s *state, i, slot int) podsafety.LockFacts {
	l := &s.lines[i]
	known := l.pods[slot].pod
	return podsafety.LockFacts{
		Holder: uidOf(slot), Locked: s.lock.exists && int(s.lock.holder) == slot+1,
		Pod: k.machine.pod(slot, known, s.graceOver[slot]), NodeSeen: k.machine.seenOf(l.nodeOf(known)),
	}
}

// lockStep reports whether a replica has work about the lock for a pod.
func (k *worker) lockStep(s *state, i, slot int) bool {
	action := podsafety.DecideLock(k.lockFacts(s, i, slot), k.machine.now)
	return action == podsafety.CreateLock && !s.lock.exists || action == podsafety.ReadHolder ||
		action == podsafety.RemoveLock
}

// carryOutLock carries out the next step about the lock for a pod, and the step after a read.
func (c *transition) carryOutLock(i, slot int) {
	k := worker{World: c.World, machine: c.machine}
	f := k.lockFacts(&c.state, i, slot)
	action := podsafety.DecideLock(f, c.machine.now)
	if action == podsafety.ReadHolder {
		f.Pod = objects.Pod{}
		if at := c.named(slot); at >= 0 {
			f.Pod = c.machine.pod(at, c.pods[at], c.graceOver[at])
		}
		f.PodRead = clock.ReadAt(1)
		action = podsafety.DecideLock(f, c.machine.now)
		if action == podsafety.KeepLock {
			c.showPod(i, slot)
		}
	}
	switch action {
	case podsafety.CreateLock:
		c.lock = lock{exists: true, holder: uint8(slot + 1), node: c.lines[i].pods[slot].pod.node}
	case podsafety.RemoveLock:
		c.lock = lock{}
	default:
	}
}
