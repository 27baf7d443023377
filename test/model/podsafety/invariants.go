package podsafety

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
)

// checkRelease checks the patch that removes the finalizer. A person's word excuses the pod that it names: a
// confirmation, the taint on a node that was not Ready in the same read, and the end of the Node of a kubelet that has
// been cut off since.
func (c *transition) checkRelease(i, slot int, s *podsafety.Session) {
	p, why := c.processes[slot], s.Decision.Reason
	switch {
	case !c.pods[slot].held:
	case !c.pods[slot].terminating:
		c.Violates("S1: pod %d is released (%s), and is not being deleted", slot, why)
	case c.said(i, slot, why):
		c.excused[slot] = true
	case p.runs:
		c.Violates("S1: pod %d is released (%s), and its processes run", slot, why)
	case c.mayStart(p):
		c.Violates("S1: pod %d is released (%s), and its kubelet may start its processes", slot, why)
	case (why == podsafety.ReasonFinished || why == podsafety.ReasonRefused) && p.mounted && !c.collected[slot] &&
		!c.waited(i, slot) && !c.lines[i].sessions[slot].leaseSpoke: // without a Node, the time of its Lease is over
		c.Violates("S3: pod %d is released (%s), and its volume is mounted", slot, why)
	}
}

// said reports whether a person's word is the reason of a release.
func (c *transition) said(i, slot int, why podsafety.Reason) bool {
	now := c.lines[i].sessions[slot]
	return why == podsafety.ReasonConfirmed && c.pods[slot].confirmed == confirmedThis ||
		why == podsafety.ReasonOutOfService && now.taintSpoke || why == podsafety.ReasonNodeGone && now.goneSpoke
}

// waited reports whether a replica has waited for the unmount while the watch showed a working kubelet, according to
// the records with which its session began.
func (c *transition) waited(i, slot int) bool {
	s := c.lines[i].sessions[slot]
	return max(s.sight.finished, s.sight.refused) == old && s.sight.graceZero == old && s.seen.ready
}

// mayStart reports whether the kubelet of a pod may start its processes, because it knows the pod but not its deletion.
func (c *transition) mayStart(p process) bool {
	return p.node > 0 && p.known && !p.deleted && !p.done && !p.refused && !c.nodes[p.node-1].off
}

// checkDeletion checks a deletion without grace.
func (c *transition) checkDeletion(i, slot int, s *podsafety.Session) {
	api := c.pods[slot]
	switch {
	case !api.terminating && (!c.NoPodGC || c.lines[i].sessions[slot].nodeThere):
		c.Violates("S1: pod %d is deleted (%s) without a request", slot, s.Decision.Reason)
	case s.Decision.Reason == podsafety.ReasonNodeGone && !c.lines[i].sessions[slot].leaseSpoke:
		c.Violates("S1: pod %d loses its grace (%s), and its kubelet renews its Lease", slot, s.Decision.Reason)
	}
}

// checkStart checks the start of a pod's processes.
func (c *transition) checkStart(slot int) {
	for other := range c.Pods {
		if other != slot && c.name(other) == c.name(slot) && c.processes[other].runs && !c.excused[other] &&
			!c.excused[slot] {
			c.Violates("S1: pods %d and %d run under one name", other, slot)
		}
	}
}

// checkClaim checks the end of the claim.
func (c *transition) checkClaim() {
	for slot := range c.Pods {
		if c.processes[slot].runs && !c.excused[slot] {
			c.Violates("S3: the claim of pod %d is removed, and its processes run", slot)
		}
	}
}

// checkAttach checks the attachment of the volume to a node. A taint on a node detaches volumes regardless of the pods
// that run there.
func (c *transition) checkAttach(n int) {
	for slot := range c.Pods {
		p := c.processes[slot]
		if p.runs && int(p.node) != n+1 && !c.excused[slot] && !c.detachExcused[p.node-1] {
			c.Violates("S3: the volume is attached to node %s, and the processes of pod %d run on node %s", nodeName(n), slot,
				nodeName(int(p.node)-1))
		}
	}
}

// idle reports whether volume-guard has no work left.
func (k *worker) idle(s *state) bool {
	for i := range k.Replicas {
		l := &s.lines[i]
		if !l.up {
			return false
		}
		for n := range maxNodes {
			if l.nodes[n] != s.nodes[n].view() {
				return false
			}
		}
		if k.Ephemeral && (l.claim != s.claimView() || k.claimStep(s, i)) {
			return false
		}
		for slot := range k.Pods {
			if l.sessions[slot].on || l.woken[slot] || l.pods[slot] != (view{s.pods[slot].exists, s.pods[slot]}) ||
				k.Attach && k.lockStep(s, i, slot) {
				return false
			}
		}
	}
	return true
}

// unsettled returns the broken promise at rest, empty for none.
func (k *worker) unsettled(s *state) string {
	for slot := range k.Pods {
		p := s.pods[slot]
		switch {
		case !p.exists:
		case !p.held && !p.terminating:
			return "L1: a pod that runs is not held"
		case p.terminating && p.held && k.evidence(s, slot):
			return "L1: there is evidence, and the pod stays"
		}
	}
	if p := s.pods[0]; k.Ephemeral && s.claim && s.claimGoes && (!p.exists || !p.held) {
		return "L1: the claim of a pod that is not held is left"
	}
	if s.lock.exists && !s.pods[s.lock.holder-1].held {
		return "L1: a lock is left"
	}
	return ""
}

// evidence reports whether work on a deleted pod can go on, independently of the code that decides.
func (k *worker) evidence(s *state, slot int) bool {
	p := s.pods[slot]
	if p.node == 0 || p.confirmed == confirmedThis {
		return true
	}
	node := s.nodes[p.node-1]
	if p.refused || k.Refusals && node.machine > 0 {
		return false // without another heartbeat, or with another machine, a refused pod waits for a person
	}
	fence := node.fence
	return node.connected() && !s.processes[slot].lost || !node.there && !p.ending() || node.taint && !node.ready ||
		fence.inForce && (!fence.reboot || fence.covers&(1<<slot) != 0)
}
