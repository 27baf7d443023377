package singlenode

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
)

// guard makes the moves of one replica of volume-guard, and of its calls.
func (k *worker) guard(s *state, i int) {
	l := &s.lines[i]
	if !l.up {
		k.Can(true, move{processStarts, i, 0}, func(c *transition) { c.start(i) })
		return
	}
	k.Breaks(true, &s.left.Crash, move{processEnds, i, 0}, func(c *transition) { c.lines[i] = line{} })
	k.Can(l.mode != s.mode, move{watchShowsNamespace, i, 0}, func(c *transition) { c.showMode(i) })
	k.Can(l.fenced != s.nodes[0].fence.inForce, move{watchShowsFence, i, 0}, func(c *transition) { c.showFence(i) })
	for slot := range k.Pods {
		k.Can(l.pods[slot] != s.pods[slot], move{watchShowsPod, i, slot}, func(c *transition) { c.showPod(i, slot) })
		if l.work[slot].on {
			k.podCalls(s, i, slot)
		} else {
			k.Can(l.woken[slot], move{workerBegins, i, slot}, func(c *transition) { c.begin(i, slot) })
		}
		k.Can(l.timed[slot] && !l.woken[slot] && k.goesOn(s, i, slot), move{pauseEnds, i, slot},
			func(c *transition) { c.wake(i, slot) })
		p := s.processes[slot]
		// A working kubelet unmounts in less time than the unmount grace.
		k.Can(l.ended[slot] == young && !p.mounted && k.waits(l, slot), move{unmountGraceEnds, i, slot},
			func(c *transition) { c.lines[i].ended[slot] = old; c.timePasses(i, slot) })
	}
	for n := range k.Claims {
		k.Can(l.behind[n], move{watchShowsClaim, i, n}, func(c *transition) { c.showClaim(i, n) })
		if l.locks[n].on {
			k.lockCalls(s, i, n)
		} else {
			k.Can(l.lockWoken[n], move{workerBeginsLock, i, n}, func(c *transition) { c.beginLock(i, n) })
		}
		k.Can(l.lockTimed[n] && !l.lockWoken[n] && k.polledLock(s, i, n), move{pauseEnds, i, locks + n},
			func(c *transition) { c.wakeLock(i, n) })
	}
}

// start starts a replica with a list of the objects in the API server.
func (c *transition) start(i int) {
	l := &c.lines[i]
	*l = line{up: true, mode: c.mode, fenced: c.nodes[0].fence.inForce, claims: c.claims}
	for slot := range c.Pods {
		l.pods[slot] = c.pods[slot]
		c.machine.saw(slot, c.pods[slot], c.seenOf(c.pods[slot]), &l.ended[slot])
	}
	c.wakeAll(i)
}

// showPod delivers the state of a pod to the watch of a replica, and enqueues the pods that share a claim with it and
// the locks of its claims.
func (c *transition) showPod(i, slot int) {
	l := &c.lines[i]
	if !l.up {
		return
	}
	l.gone[slot] = l.gone[slot] || l.pods[slot].exists && !c.pods[slot].exists && c.locks(l, slot)
	l.pods[slot] = c.pods[slot]
	c.machine.saw(slot, c.pods[slot], c.seenOf(c.pods[slot]), &l.ended[slot])
	l.ungated[slot] = l.ungated[slot] && c.pods[slot].gated
	c.wakeShared(i, slot)
}

// locks reports whether a pod has a lock according to a replica.
func (c *transition) locks(l *line, slot int) bool {
	for n := range c.Claims {
		if int(l.claims[n].lock) == slot+1 {
			return true
		}
	}
	return false
}

// wakeShared enqueues the pods that share a claim with a pod, and the locks of its claims.
func (c *transition) wakeShared(i, slot int) {
	for other := range c.Pods {
		if c.shares(slot, other) {
			c.wake(i, other)
		}
	}
	for _, n := range c.uses(slot) {
		c.wakeLock(i, n)
	}
}

// showNode delivers the state of a node to the watches of all replicas.
func (c *transition) showNode(n int) {
	for i := range c.Replicas {
		l := &c.lines[i]
		for slot := range c.Pods {
			if p := l.pods[slot]; l.up && p.exists && int(p.node) == n+1 {
				c.machine.saw(slot, p, c.seenOf(p), &l.ended[slot])
				c.wakeShared(i, slot)
			}
		}
	}
}

// showClaim delivers the state of a claim to the watch of a replica, and enqueues the pods that use it.
func (c *transition) showClaim(i, n int) {
	l := &c.lines[i]
	if !l.up {
		return
	}
	if holder := int(l.claims[n].lock) - 1; holder >= 0 && holder < c.Pods {
		l.gone[holder] = l.gone[holder] && c.Without == TheUID
	}
	l.claims[n], l.behind[n] = c.claims[n], false
	c.wakeLock(i, n)
	for slot := range c.Pods {
		if c.usesClaim(slot, n) {
			c.wake(i, slot)
		}
	}
}

func (c *transition) showMode(i int) {
	if c.lines[i].up {
		c.lines[i].mode = c.mode
		c.wakeAll(i)
	}
}

func (c *transition) showFence(i int) {
	if c.lines[i].up {
		c.lines[i].fenced = c.nodes[0].fence.inForce
		c.wakeAll(i)
	}
}

func (c *transition) wakeAll(i int) {
	for slot := range c.Pods {
		c.wake(i, slot)
	}
	for n := range c.Claims {
		c.wakeLock(i, n)
	}
}

// wake enqueues a pod. Work without any Ask is done at once, because only a change can lead to an Ask, and a change
// enqueues the pod again.
func (c *transition) wake(i, slot int) {
	l := &c.lines[i]
	if l.work[slot].on {
		l.woken[slot] = true
		return
	}
	c.begin(i, slot)
	if l.work[slot].on {
		l.work[slot], l.woken[slot] = podSession{}, true
	}
}

func (c *transition) wakeLock(i, n int) {
	l := &c.lines[i]
	if l.locks[n].on {
		l.lockWoken[n] = true
		return
	}
	c.beginLock(i, n)
	if l.locks[n].on {
		l.locks[n], l.lockWoken[n] = lockSession{}, true
	}
}

// begin lets a worker take a pod, and continues until the first Ask.
func (c *transition) begin(i, slot int) {
	l := &c.lines[i]
	l.woken[slot], l.timed[slot] = false, false
	if !l.pods[slot].exists || !c.machine.gated(slot, l.pods[slot], l.ungated[slot]) {
		return
	}
	l.work[slot] = c.sessionOf(l, slot)
	s := singlenode.Begin(c.facts(i, slot, &l.work[slot]), c.machine.now)
	c.continues(i, slot, &s)
}

// sessionOf returns a session with the state of a replica's watches.
func (c *transition) sessionOf(l *line, slot int) podSession {
	s := podSession{on: true, removing: c.removing, pod: l.pods[slot], mode: l.mode, claims: l.claims}
	for n := range c.Claims {
		s.unasked[n] = c.machine.unasked(l.claims[n], l.mode)
	}
	return s
}

func (c *transition) beginLock(i, n int) {
	l := &c.lines[i]
	l.lockWoken[n], l.lockTimed[n] = false, false
	if l.claims[n].uid == 0 {
		return
	}
	now := lockSession{on: true, removing: c.removing, claim: l.claims[n]}
	// The watch cache finds the holder by its name.
	if holder := int(now.claim.lock) - 1; holder >= 0 && holder < c.Pods {
		for slot := range c.Pods {
			if l.pods[slot].exists && (slot == holder || c.Workload == StatefulSet) {
				now.holder, now.pod, now.ended = uint8(slot+1), l.pods[slot], l.ended[slot]
			}
			now.gone = now.gone || l.gone[slot] && (slot == holder || c.Without == TheUID)
		}
	}
	l.locks[n] = now
	s := singlenode.BeginLock(c.lockFacts(i, n, &l.locks[n]), c.machine.now)
	c.continuesLock(i, n, &s)
}

// continues records the changes of a session by an answer, or ends the session.
func (c *transition) continues(i, slot int, s *singlenode.Session) {
	l := &c.lines[i]
	now := &l.work[slot]
	if s.End != session.NotEnded {
		*now = podSession{}
		switch s.Requeue() {
		case session.RequeueSoon, session.RequeueRetry:
			l.woken[slot] = true
		case session.RequeueAfter:
			l.timed[slot] = true
		case session.RequeueNever:
		}
		return
	}
	f, m := &s.Facts, c.machine
	now.reads, now.action = uint8(s.ReadCount), s.Decision.Action
	now.reason = uint8(slices.Index(m.reasons, s.Decision.Reason))
	now.modeRead, now.listRead = uint8(f.ModeRead.Order), uint8(f.UsersRead.Order)
	now.claim = uint8(m.claimNumber(s.Decision.Claim, m.flipped(slot)) + 1)
	for _, known := range f.Claims {
		now.claimReads[m.claimNumber(known.Claim.Name, m.flipped(slot))] = uint8(known.Read.Order)
	}
	now.other = 0
	for _, u := range f.Users {
		other := slotOf(u.Pod.UID)
		now.fenceReads[other], now.nodeReads[other] = uint8(u.FenceRead.Order), uint8(u.NodeRead.Order)
		if u.Pod.UID == s.Decision.User {
			now.other = uint8(other + 1)
		}
	}
	if now.action == singlenode.RemoveGate {
		// No other field counts any more.
		*now = podSession{on: true, pod: now.pod, action: now.action, reason: now.reason, past: now.past}
	}
}

func (c *transition) continuesLock(i, n int, s *singlenode.LockSession) {
	l := &c.lines[i]
	now := &l.locks[n]
	if s.End != session.NotEnded {
		*now = lockSession{}
		switch s.Requeue() {
		case session.RequeueSoon, session.RequeueRetry:
			l.lockWoken[n] = true
		case session.RequeueAfter:
			l.lockTimed[n] = true
		case session.RequeueNever:
		}
		return
	}
	now.reads, now.action = uint8(s.ReadCount), s.Decision.Action
	now.reason = uint8(slices.Index(c.machine.reasons, s.Decision.Reason))
	now.holderRead, now.fenceRead = uint8(s.Facts.HolderRead.Order), uint8(s.Facts.Holder.FenceRead.Order)
	now.nodeRead = uint8(s.Facts.Holder.NodeRead.Order)
	if now.action == singlenode.FreeLock {
		*now = lockSession{on: true, removing: now.removing, claim: now.claim, action: now.action, reason: now.reason,
			ended: now.ended}
	}
}

// waits reports whether work about the claims of a pod waits for the clock.
func (k *worker) waits(l *line, slot int) bool {
	for other := range k.Pods {
		if l.timed[other] && k.shares(slot, other) {
			return true
		}
	}
	for _, n := range k.uses(slot) {
		if l.lockTimed[n] {
			return true
		}
	}
	return false
}

// goesOn reports whether work on a pod that waits for the clock would lead to a write.
func (k *worker) goesOn(s *state, i, slot int) bool {
	_, waits := k.polled(s, i, slot)
	return !waits
}

// timePasses enqueues the work that waits for the clock.
func (c *transition) timePasses(i, slot int) {
	l := &c.lines[i]
	for other := range c.Pods {
		if l.timed[other] && c.shares(slot, other) {
			c.wake(i, other)
		}
	}
	for _, n := range c.uses(slot) {
		if l.lockTimed[n] {
			c.wakeLock(i, n)
		}
	}
}
