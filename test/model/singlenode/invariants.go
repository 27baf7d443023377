package singlenode

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
)

// checkStart checks that the processes of a pod start, or reach their volumes again: no other pod may use one of its
// claims with a required lock, on any node. A pod that a fence keeps from the volumes uses no claim.
func (c *transition) checkStart(slot int) {
	if c.fenced(slot) {
		return
	}
	for other := range c.Pods {
		if other == slot || !c.processes[other].runs || c.excused[slot] || c.excused[other] || c.forgiven[slot][other] ||
			c.removing || c.fenced(other) {
			continue
		}
		for _, n := range c.uses(slot) {
			if c.usesClaim(other, n) && c.claims[n].uid > 0 && c.asks(c.mode, c.claims[n]) {
				c.Violates("S2: pods %d and %d use claim %d", other, slot, n)
			}
		}
	}
}

// fenced reports whether a fence keeps the processes of a pod from the volumes.
func (c *transition) fenced(slot int) bool {
	n := c.processes[slot].node
	return n > 0 && c.nodes[n-1].fence.inForce
}

// checkGate checks the removal of a pod's gate.
func (c *transition) checkGate(slot int, why singlenode.Reason) {
	p := c.pods[slot]
	if why != singlenode.ReasonAcquired {
		// A label that is added after the decision counts from when volume-guard has seen it.
		c.forgive(slot)
		return
	}
	if p.terminating || c.excused[slot] || c.removing {
		return
	}
	for _, n := range c.uses(slot) {
		if at := c.claims[n]; c.asks(c.mode, at) && (int(at.lock) != slot+1 || !at.kept) && !c.stripped {
			c.Violates("S2: pod %d loses its gate without the lock of claim %d", slot, n)
		}
	}
}

// checkFree checks the removal of a claim's lock.
func (c *transition) checkFree(n int) {
	holder := int(c.claims[n].lock) - 1
	if holder < 0 || holder >= c.Pods || c.removing || c.excused[holder] {
		return
	}
	p, at := c.pods[holder], c.processes[holder]
	fenced := c.fenced(holder) && p.terminating
	switch {
	case at.runs && !fenced:
		c.Violates("S2: the lock of claim %d is freed, and the processes of pod %d run", n, holder)
	case p.exists && !p.ended && !fenced && !c.leaves(holder, n):
		c.Violates("S2: the lock of claim %d is freed, and pod %d is there", n, holder)
	case at.mounted && !fenced:
		c.Violates("S2: the lock of claim %d is freed, and pod %d has its volume mounted", n, holder)
	}
}

// leaves reports whether a released pod leaves a claim that is being deleted, whose lock no other pod can take.
func (c *transition) leaves(slot, n int) bool {
	return c.pods[slot].foreground && !c.pods[slot].held && c.claims[n].terminating
}

// rests returns the broken promise when no component of the cluster can act, empty for none.
func (k *worker) rests(s *state) (wrong string, rests bool) {
	if k.Busy {
		return "", false
	}
	for n := range k.Claims {
		if wrong := k.unsettledClaim(s, n); wrong != "" {
			return wrong, true
		}
	}
	for slot := range k.Pods {
		if wrong := k.unsettledPod(s, slot); wrong != "" {
			return wrong, true
		}
	}
	return "", true
}

// unsettledClaim returns the promise that a claim breaks at rest. Lock and finalizer need an existing pod.
func (k *worker) unsettledClaim(s *state, n int) string {
	at := s.claims[n]
	if at.uid == 0 || at.lock == 0 && !at.kept {
		return ""
	}
	holder := int(at.lock) - 1
	switch {
	case s.removing:
		return "L1: volume-guard is uninstalled, and a claim has its lock or finalizer"
	case at.lock == 0 || at.lock == damaged:
		return "L1: a claim is kept, and no pod has its lock"
	case !s.pods[holder].exists:
		return "L1: a pod that does not exist has the lock of a claim"
	case s.pods[holder].ended && !s.pods[holder].terminating && !s.away(holder):
		return "L1: a pod that has completed has the lock of a claim"
	}
	return ""
}

// unsettledPod returns the promise that a pod breaks at rest. A gated pod has to wait for the reported reason, with a
// way out.
func (k *worker) unsettledPod(s *state, slot int) string {
	p := s.pods[slot]
	switch {
	case p.exists && p.foreground && !p.held:
		return "L1: a pod that is deleted in the foreground is released, and stays"
	case !p.exists || !p.gated:
		return ""
	case s.removing:
		return "L1: volume-guard is uninstalled, and a pod has its gate"
	case p.terminating:
		return "L1: a pod that has no node is terminating, and stays"
	}
	d, waits := k.polled(s, 0, slot)
	switch {
	case !waits:
		return "L1: a pod could go on, and no replica works on it"
	case !k.isSo(s, slot, d):
		return "L1: a pod waits (" + string(d.Reason) + "), which is not so"
	case !p.queued && d.Reason == singlenode.ReasonClaimInUse && k.locker(s, slot, d).queued:
		return "L1: a pod that a queue has admitted waits for one that it keeps"
	case k.circle(s, slot):
		return "L1: pods wait for each other"
	}
	return ""
}

// polled returns the decision about a pod after all reads of a session, and reports whether the pod waits. A session
// that would write does not wait.
func (k *worker) polled(s *state, i, slot int) (d singlenode.Decision, waits bool) {
	c := k.transition(s)
	c.begin(i, slot)
	for c.lines[i].work[slot].on {
		session := c.session(i, slot)
		ask := session.Ask()
		if ask.Action == singlenode.TakeLock || ask.Action == singlenode.RemoveGate {
			return session.Decision, false
		}
		reply := c.read(i, slot, ask)
		session = c.session(i, slot)
		session.Answer(reply, c.machine.now, c.machine.now)
		c.continues(i, slot, &session)
		d = session.Decision
	}
	if d.Reason == "" {
		begins := c.sessionOf(&c.lines[i], slot)
		begun := singlenode.Begin(c.facts(i, slot, &begins), c.machine.now)
		d = begun.Decision
	}
	return d, true
}

// polledLock reports whether a session about a lock would write after its reads.
func (k *worker) polledLock(s *state, i, n int) bool {
	c := k.transition(s)
	c.beginLock(i, n)
	for c.lines[i].locks[n].on {
		session := c.lockSession(i, n)
		ask := session.Ask()
		if ask.Action == singlenode.FreeLock {
			return true
		}
		reply := c.readForLock(i, n, ask)
		session = c.lockSession(i, n)
		session.Answer(reply, c.machine.now, c.machine.now)
		c.continuesLock(i, n, &session)
	}
	return false
}

// isSo reports whether the reason of a waiting pod is true, independently of the code that decides.
func (k *worker) isSo(s *state, slot int, d singlenode.Decision) bool {
	n := k.machine.claimNumber(d.Claim, k.machine.flipped(slot))
	switch d.Reason {
	case singlenode.ReasonNotHeld:
		return !s.pods[slot].held
	case singlenode.ReasonOtherGates:
		return s.pods[slot].queued
	default:
	}
	if n < 0 {
		return false
	}
	at := s.claims[n]
	switch d.Reason {
	case singlenode.ReasonClaimMissing:
		return at.uid == 0
	case singlenode.ReasonClaimTerminating:
		return at.terminating
	case singlenode.ReasonClaimInUse:
		return at.lock > 0 && at.lock != damaged && int(at.lock) != slot+1 && s.pods[at.lock-1].exists
	case singlenode.ReasonUsedWithoutLock:
		return k.usedWithoutLock(s, slot, n)
	default:
	}
	return false
}

// locker returns the pod whose lock another pod waits for.
func (k *worker) locker(s *state, slot int, d singlenode.Decision) pod {
	return s.pods[s.claims[k.machine.claimNumber(d.Claim, k.machine.flipped(slot))].lock-1]
}

// usedWithoutLock reports whether another pod uses a claim without having a gate.
func (k *worker) usedWithoutLock(s *state, slot, n int) bool {
	for other := range k.Pods {
		p := s.pods[other]
		if other != slot && p.exists && !p.gated && k.usesClaim(other, n) && (!p.ended || p.terminating || s.away(other)) {
			return true
		}
	}
	return false
}

// away reports whether the node of a pod is cut off.
func (s *state) away(slot int) bool {
	n := s.pods[slot].node
	return n > 0 && s.nodes[n-1].cut
}

// circle reports whether a pod waits for itself by way of others, none of which can go on before another does.
func (k *worker) circle(s *state, slot int) bool {
	at := slot
	for range k.Pods {
		d, _ := k.polled(s, 0, at)
		if d.Reason != singlenode.ReasonClaimInUse {
			return false
		}
		at = int(s.claims[k.machine.claimNumber(d.Claim, k.machine.flipped(at))].lock) - 1
		if !s.pods[at].exists || !s.pods[at].gated {
			return false
		}
		if at == slot {
			return true
		}
	}
	return false
}
