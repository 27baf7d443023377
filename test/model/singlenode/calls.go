package singlenode

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
)

// locks is the offset of the numbers of locks in moves.
const locks = 8

// podCalls makes the possible outcomes of a call about a gated pod.
func (k *worker) podCalls(s *state, i, slot int) {
	session := k.transition(s).session(i, slot)
	ask := session.Ask()
	k.calls(s, i, slot, ask, func(c *transition, reply singlenode.Reply) { c.answer(i, slot, reply) })
}

// lockCalls makes the possible outcomes of a call about a lock.
func (k *worker) lockCalls(s *state, i, n int) {
	session := k.transition(s).lockSession(i, n)
	ask := session.Ask()
	k.calls(s, i, locks+n, ask, func(c *transition, reply singlenode.Reply) { c.answerLock(i, n, reply) })
}

// calls makes the possible outcomes of a call: it is carried out and answered, fails, is carried out without an answer,
// or is carried out after its sender has given it up.
func (k *worker) calls(s *state, i, on int, ask singlenode.Ask, answer func(*transition, singlenode.Reply)) {
	do := func(c *transition) singlenode.Reply {
		if ask.Action.Kind() == session.Writes {
			return c.write(i, c.writeOf(i, on, ask))
		}
		if on >= locks {
			return c.readForLock(i, on-locks, ask)
		}
		return c.read(i, on, ask)
	}
	k.Can(true, move{callAnswered[ask.Action], i, on}, func(c *transition) { answer(c, do(c)) })
	k.Breaks(true, &s.left.API, move{callFails[ask.Action], i, on}, func(c *transition) { answer(c, singlenode.Reply{}) })
	if ask.Action.Kind() != session.Writes {
		return
	}
	k.Breaks(true, &s.left.API, move{answerLost[ask.Action], i, on}, func(c *transition) {
		do(c)
		answer(c, singlenode.Reply{})
	})
	k.Breaks(!s.late.on, &s.left.Late, move{callIsLate[ask.Action], i, on}, func(c *transition) {
		c.late = c.writeOf(i, on, ask)
		answer(c, singlenode.Reply{})
	})
}

// lands makes the moves of a write that its sender has given up: it is carried out, or lost.
func (k *worker) lands(s *state) {
	k.Can(s.late.on, move{callLands, 0, 0}, func(c *transition) {
		late := c.late
		c.late = lateCall{}
		c.write(-1, late)
	})
}

func (c *transition) answer(i, slot int, reply singlenode.Reply) {
	s := c.session(i, slot)
	if l := &c.lines[i]; s.Ask().Action == singlenode.RemoveGate && reply.Outcome == session.Succeeded {
		l.ungated[slot] = l.pods[slot].gated
	}
	s.Answer(reply, c.machine.now, c.machine.now)
	c.continues(i, slot, &s)
	c.wakeAgain(i)
}

func (c *transition) answerLock(i, n int, reply singlenode.Reply) {
	s := c.lockSession(i, n)
	s.Answer(reply, c.machine.now, c.machine.now)
	c.continuesLock(i, n, &s)
	c.wakeAgain(i)
}

// wakeAgain drops work without any Ask from the queue.
func (c *transition) wakeAgain(i int) {
	l := &c.lines[i]
	for slot := range c.Pods {
		if l.woken[slot] && !l.work[slot].on {
			c.wake(i, slot)
		}
	}
	for n := range c.Claims {
		if l.lockWoken[n] && !l.locks[n].on {
			c.wakeLock(i, n)
		}
	}
}

// writeOf returns the write in the Ask of a session.
func (c *transition) writeOf(i, on int, ask singlenode.Ask) lateCall {
	l := &c.lines[i]
	w := lateCall{on: true, action: ask.Action, bound: ask.ResourceVersion != "" && c.Without != TheCompareAndSwap}
	if on >= locks {
		s := &l.locks[on-locks]
		w.claim, w.uid, w.reason = uint8(on-locks), s.claim.uid, s.reason
		w.expects = s.claim
		return w
	}
	s := &l.work[on]
	w.slot, w.reason = uint8(on), s.reason
	if ask.Action == singlenode.TakeLock {
		w.claim = s.claim - 1
		w.uid, w.expects, w.lock = s.claims[w.claim].uid, s.claims[w.claim], uint8(slotOf(ask.Lock.UID)+1)
	}
	return w
}

// write plays the API server for a write, and answers.
func (c *transition) write(i int, w lateCall) singlenode.Reply {
	if w.action == singlenode.RemoveGate {
		return c.patchGate(w)
	}
	n := int(w.claim)
	at := c.claims[n]
	switch {
	case at.uid != w.uid:
		return singlenode.Reply{Outcome: session.Gone}
	case w.bound && versionOf(at) != versionOf(w.expects), at.terminating && !at.kept && w.lock > 0:
		// The API server adds no finalizer to a terminating object.
		return singlenode.Reply{Outcome: session.Conflict}
	}
	if w.lock == 0 {
		c.checkFree(n)
	}
	c.writeClaim(n, func(at *claim) { at.lock, at.kept = w.lock, w.lock > 0 })
	if i < 0 {
		return singlenode.Reply{}
	}
	if w.lock == 0 {
		return singlenode.Reply{Outcome: session.Succeeded}
	}
	c.lines[i].work[w.slot].claims[n] = c.claims[n]
	return singlenode.Reply{Outcome: session.Succeeded,
		Claim: c.machine.claim(n, c.claims[n], false, c.machine.flipped(int(w.slot)))}
}

func (c *transition) patchGate(w lateCall) singlenode.Reply {
	slot := int(w.slot)
	if !c.pods[slot].exists {
		return singlenode.Reply{Outcome: session.Gone}
	}
	if c.pods[slot].gated {
		c.checkGate(slot, c.machine.reasons[w.reason])
		c.writePod(slot, func(p *pod) { p.gated = false })
	}
	return singlenode.Reply{Outcome: session.Succeeded}
}

// read plays the API server for a read of a session about a gated pod.
func (c *transition) read(i, slot int, ask singlenode.Ask) singlenode.Reply {
	reply := singlenode.Reply{Outcome: session.Succeeded}
	now := &c.lines[i].work[slot]
	switch ask.Action {
	case singlenode.ReadNamespace:
		now.mode, reply.Mode = c.mode, c.mode
	case singlenode.ReadClaim:
		n := c.machine.claimNumber(ask.Name, c.machine.flipped(slot))
		now.claims[n], now.unasked[n] = c.claims[n], c.machine.unasked(c.claims[n], ask.Mode)
		reply.Claim = c.machine.claim(n, c.claims[n], now.unasked[n], c.machine.flipped(slot))
	case singlenode.ReadFence:
		now.fences[now.other-1] = c.nodes[0].fence
		reply.Fence = c.machine.fence(int(now.other)-1, c.nodes[0].fence)
	case singlenode.ReadNode:
		now.runs[now.other-1] = c.nodes[0].shown
		reply.Node = nodeFacts(c.nodes[0].shown)
	case singlenode.ListPods:
		now.past = true
		for other := range c.Pods {
			c.list(i, slot, other, &reply)
		}
	default:
	}
	return reply
}

// list adds a pod to the answer to a list, if it has no gate and uses a claim of the session's pod.
func (c *transition) list(i, slot, other int, reply *singlenode.Reply) {
	l := &c.lines[i]
	p := c.pods[other]
	if c.Without == TheList {
		p = l.pods[other]
	}
	c.machine.saw(other, p, c.seenOf(p), &l.ended[other])
	if !p.exists || p.gated || !c.shares(slot, other) {
		return
	}
	now := &l.work[slot]
	now.listed[other], now.users[other], now.ended[other] = true, p, l.ended[other]
	reply.Users = append(reply.Users, c.user(i, other, p, l.ended[other], c.machine.flipped(slot)))
}

// readForLock plays the API server for a read of a session about a lock.
func (c *transition) readForLock(i, n int, ask singlenode.Ask) singlenode.Reply {
	reply := singlenode.Reply{Outcome: session.Succeeded}
	l := &c.lines[i]
	now := &l.locks[n]
	switch ask.Action {
	case singlenode.ReadFence:
		now.fence = c.nodes[0].fence
		reply.Fence = c.machine.fence(int(now.holder)-1, c.nodes[0].fence)
		return reply
	case singlenode.ReadNode:
		now.node = c.nodes[0].shown
		reply.Node = nodeFacts(c.nodes[0].shown)
		return reply
	default:
	}
	if c.Without == TheHolder {
		if now.holder > 0 {
			reply.Users = []singlenode.User{c.user(i, int(now.holder)-1, now.pod, now.ended, false)}
		}
		return reply
	}
	now.holder, now.pod, now.ended = 0, pod{}, never
	if at := c.named(int(now.claim.lock) - 1); at >= 0 {
		c.machine.saw(at, c.pods[at], c.seenOf(c.pods[at]), &l.ended[at])
		now.holder, now.pod, now.ended = uint8(at+1), c.pods[at], l.ended[at]
		reply.Users = []singlenode.User{c.user(i, at, now.pod, now.ended, false)}
	}
	return reply
}
