package fencing

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// guard makes the moves of one replica of volume-guard, and of its calls.
func (k *worker) guard(s *state, i int) {
	l := &s.lines[i]
	if !l.up {
		k.Can(true, move{processStarts, i, 0}, func(c *transition) { c.start(i) })
		return
	}
	k.Breaks(true, &s.left.Crash, move{processEnds, i, 0}, func(c *transition) { c.lines[i] = line{} })
	k.Can(l.fence != s.fence, move{watchShowsFence, i, 0}, func(c *transition) { c.showFence(i) })
	k.Can(l.marked != s.node.marked(), move{watchShowsNode, i, 0}, func(c *transition) { c.showNode(i) })
	if l.session.on {
		k.calls(s, i)
	} else {
		k.Can(l.woken, move{workerBegins, i, 0}, func(c *transition) { c.begin(i) })
	}
	k.waits(s, i)
}

// waits ends the waits of a replica. It reads each fence every 10 s, and no session takes as long. A working kubelet
// renews its Lease in less than its duration, and writes its boot ID in less, too.
func (k *worker) waits(s *state, i int) {
	l := &s.lines[i]
	if l.session.on || !l.sight.seen {
		return
	}
	n, moved := s.node, l.sight.lease != s.node.lease
	passes := !n.connected() && !moved || n.connected() && moved && n.shown == n.boot
	k.Can(l.sight.since == young && passes, move{leaseGraceEnds, i, 0},
		func(c *transition) { c.lines[i].sight.since = old })
	k.Can(l.sight.runsOn && l.sight.runsSince == young && passes && (n.connected() || l.sight.since == old),
		move{runsGraceEnds, i, 0}, func(c *transition) { c.lines[i].sight.runsSince = old })
}

// start starts a replica with a list of the objects in the API server.
func (c *transition) start(i int) {
	c.lines[i] = line{up: true, fence: c.fence, marked: c.node.marked()}
	c.lines[i].woken = c.lines[i].work()
}

// begin lets a worker take the fence, and continues until the first Ask.
func (c *transition) begin(i int) {
	l := &c.lines[i]
	l.woken, l.timed = false, false
	l.session = work{on: true, fence: l.fence, changed: c.fence != l.fence, taintSeen: l.marked,
		wasAway: c.node.away()}
	c.machine.with(l.fence.uid, &l.sight, func(t *fencing.Tracker) {
		f := c.machine.facts(&l.session)
		s := fencing.Begin(t, f, c.machine.now)
		c.continues(i, &s)
	})
}

// attached returns the pods whose volumes are attached, a bit each.
func (c *transition) attached() (bits uint8) {
	for slot := range c.Pods {
		if c.pods[slot].attached {
			bits |= 1 << slot
		}
	}
	return bits
}

// continues records the changes of a session by an answer, or ends the session.
func (c *transition) continues(i int, s *fencing.Session) {
	l := &c.lines[i]
	if s.End == session.NotEnded {
		keep(&l.session, s, c.machine)
		return
	}
	l.session = work{}
	c.reason = string(s.Reason())
	switch s.Requeue() {
	case session.RequeueSoon, session.RequeueRetry:
		l.woken = l.work()
	case session.RequeueAfter:
		l.timed = true
	case session.RequeueNever:
	}
}

// keep records the state of a session beyond the results of its reads, which were recorded at the reads.
func keep(to *work, s *fencing.Session, m *machine) {
	f := &s.Facts
	reads := ranks(f.FenceRead, f.NodeRead, f.LeaseRead, f.Run.Read, f.Remaining.Read)
	to.fenceRead, to.nodeRead, to.leaseRead, to.runRead = reads[0], reads[1], reads[2], reads[3]
	to.remainingRead = reads[4]
	to.reads = slices.Max(reads[:])
	to.sight = m.sightOf(f.Sight)
	if to.nodeRead == 0 {
		to.nodeThere, to.nodeReady, to.nodeTainted, to.nodeChanged, to.nodeBoot = false, false, false, false, 0
		to.nodeSecond, to.nodeShunned, to.nodeUnready = false, false, false
	}
	if to.remainingRead == 0 {
		to.terminating, to.remains, to.attached = 0, 0, 0
	}
	to.podsOnly, to.listed = f.Remaining.PodsOnly, f.Remaining.AttachmentsListed
	to.basis = basisOf(f.Remaining.Basis)
	if to.runRead == 0 {
		to.runOf, to.runTry, to.runUndoes, to.runState, to.runSince = 0, 0, false, noRun, young
	}
}

// ranks returns the places of reads in their order, 0 for a read that is missing. Their numbers grow for as long as a
// session goes on, such as beside another leader, and the engine only compares them.
func ranks(reads ...session.Read) (out [5]uint8) {
	for i, r := range reads {
		for _, other := range reads {
			if other.Order > 0 && other.Order <= r.Order {
				out[i]++
			}
		}
	}
	return out
}

// calls makes the possible outcomes of a call.
func (k *worker) calls(s *state, i int) {
	current := k.machine.session(&s.lines[i].session)
	ask := current.Ask()
	k.Can(true, move{callAnswered[ask.Action], i, 0}, func(c *transition) { c.answer(i, true, true) })
	k.Breaks(true, &s.left.API, move{callFails[ask.Action], i, 0}, func(c *transition) { c.answer(i, false, false) })
	if ask.Action >= fencing.AddFinalizer {
		k.Breaks(true, &s.left.API, move{answerLost[ask.Action], i, 0}, func(c *transition) { c.answer(i, true, false) })
	}
	if ask.Action != fencing.ListRemaining {
		return
	}
	k.Breaks(true, &s.left.List, move{listTakesLong, i, 0}, func(c *transition) {
		c.replied(i, func(s *fencing.Session, _ *fencing.Reply) {
			s.Facts.FenceRead, s.Facts.NodeRead, s.Facts.LeaseRead = session.Read{}, session.Read{}, session.Read{}
		})
	})
	k.Breaks(!ask.PodsOnly, &s.left.List, move{listIsAwaited, i, 0}, func(c *transition) {
		c.replied(i, func(_ *fencing.Session, r *fencing.Reply) {
			c.lines[i].session.attached = 0
			r.Remaining.All.VolumeAttachments, r.Remaining.AttachmentsListed = 0, false
		})
	})
}

// replied continues a session after its call was carried out, with changes to its facts and to the reply.
func (c *transition) replied(i int, change func(*fencing.Session, *fencing.Reply)) {
	l := &c.lines[i]
	s := c.machine.session(&l.session)
	reply := c.carryOut(i, s.Ask())
	change(&s, &reply)
	c.take(i, &s, reply)
}

// answer continues a session. done says whether its call is carried out, and answered whether it is answered.
func (c *transition) answer(i int, done, answered bool) {
	l := &c.lines[i]
	s := c.machine.session(&l.session)
	var reply fencing.Reply
	if done {
		reply = c.carryOut(i, s.Ask())
	}
	if !answered {
		reply = fencing.Reply{}
	}
	c.take(i, &s, reply)
}

// take continues a session with the reply to its call.
func (c *transition) take(i int, s *fencing.Session, reply fencing.Reply) {
	l := &c.lines[i]
	c.machine.with(l.session.fence.uid, &l.sight, func(t *fencing.Tracker) {
		s.Answer(t, reply, c.machine.now, c.machine.now)
	})
	c.continues(i, s)
}

// carryOut plays the API server for a call, and answers.
func (c *transition) carryOut(i int, ask fencing.Ask) fencing.Reply {
	s := &c.lines[i].session
	reply := fencing.Reply{Outcome: session.Succeeded}
	switch ask.Action {
	case fencing.ReadFence:
		reply.Found, reply.Fence = c.fence.uid != 0, c.machine.fence(c.fence)
		s.fence, s.changed = c.fence, false
	case fencing.ReadNode:
		s.nodeThere, s.nodeReady, s.nodeTainted = c.node.there, c.node.ready, c.node.tainted
		s.nodeUnready = c.node.unready
		s.nodeBoot, s.nodeShunned, s.nodeChanged = c.node.shown, c.node.shunned, false
		s.nodeSecond = c.node.second && c.node.shown == c.node.boot
		reply.Node = c.machine.nodeFacts(s)
	case fencing.ReadLease:
		s.lease = c.node.lease
		reply.Lease = objects.Lease{ResourceVersion: version("l", s.lease)}
	case fencing.ReadRun:
		s.runOf, s.runTry, s.runUndoes = uint8(ask.Run.Attempt), uint8(ask.Run.Try), ask.Run.Undo
		s.runState, s.runSince = c.readRun(ask.Run)
		reply.Run = c.machine.runFacts(s)
	case fencing.ListRemaining:
		c.listRemaining(s, ask.PodsOnly)
		reply.Remaining = remaining(s)
	case fencing.StartRun:
		if c.overtaken(ask.Run) {
			return fencing.Reply{Outcome: session.Unanswered}
		}
		c.checkRun(ask.Run)
		c.startRun(ask.Run)
	case fencing.StopRun:
		c.stopRun(ask.Run)
	case fencing.AddTaint, fencing.RemoveTaint:
		reply.Outcome = c.taint(i, ask)
	default:
		reply.Outcome = c.write(i, ask)
	}
	return reply
}

// crossed reports whether another leader has started the agent of an attempt since this one has read that it was not
// started, and records the end of the attempt for that reason. The model excludes this, as in overtaken.
func (c *transition) crossed(s *work) bool {
	return s.runRead > 0 && !s.runUndoes && s.runState == noRun && c.object(s.of()).state != noRun
}

// overtaken reports whether another leader has recorded the end of an attempt since this one has read that it is at
// work. The model excludes this, because a session starts an agent within seconds of that read.
func (c *transition) overtaken(of fencing.Run) bool {
	return !of.Undo && (c.fence.uid == 0 || c.fence.attempts[of.Attempt-1].result != 0)
}

// listRemaining lists the remaining pods of the node, and attachments too unless podsOnly.
func (c *transition) listRemaining(s *work, podsOnly bool) {
	s.terminating, s.remains, s.attached, s.listed = 0, 0, 0, !podsOnly
	if !podsOnly {
		s.attached = c.attached()
	}
	for slot := range c.Pods {
		p, bit := c.pods[slot], uint8(1)<<slot
		if p.exists {
			s.remains |= bit
		}
		if p.exists && p.terminating {
			s.terminating |= bit
		}
	}
}

// taint changes the taints of the Node, provided that the Node has not changed since it was read.
func (c *transition) taint(i int, ask fencing.Ask) session.Outcome {
	if c.lines[i].session.nodeChanged || !c.node.there {
		return session.Conflict
	}
	switch ask.Taint {
	case fencing.OutOfService:
		c.checkTaint()
	case fencing.VolumesFenced:
		c.checkShun()
	case fencing.NoTaint:
		c.checkUntaint()
	}
	c.writeNode(func(n *node) {
		n.tainted, n.shunned = ask.Taint == fencing.OutOfService, ask.Taint == fencing.VolumesFenced
	})
	return session.Succeeded
}

// write changes the NodeFence, provided that it has not changed since it was read.
func (c *transition) write(i int, ask fencing.Ask) session.Outcome {
	s := &c.lines[i].session
	switch {
	case c.fence.uid == 0 || fenceUID(c.fence.uid) != ask.UID:
		return session.Gone
	case s.changed:
		return session.Conflict
	case c.crossed(s):
		return session.Unanswered
	}
	c.checkWrite(i, ask)
	c.writeFence(func(f *fence) {
		switch ask.Action {
		case fencing.AddFinalizer:
			f.finalized = true
		case fencing.RemoveFinalizer:
			f.finalized = false
		case fencing.DeleteFence:
			f.terminating = true
		case fencing.WriteStatus:
			*f = c.machine.status(*f, ask.Status)
		default:
		}
	})
	return session.Succeeded
}
