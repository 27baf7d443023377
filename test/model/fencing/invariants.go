package fencing

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
)

// proofIsFalse reports whether the proof of the fence is false.
func (c *transition) proofIsFalse() bool { return c.fence.proven && c.lied[c.fence.proofOf-1] }

// checkRelease checks the release of a held pod because of a fence.
func (c *transition) checkRelease(slot int) {
	p := c.pods[slot]
	switch {
	case c.answered:
	case p.runs:
		c.Violates("F1: pod %d is released, and its processes run", slot)
	case p.known && !p.deleted && !c.node.off:
		c.Violates("F1: pod %d is released, and its kubelet may start its processes", slot)
	}
}

// checkDetach checks the detachment of a pod's volume because of the taint.
func (c *transition) checkDetach(slot int) {
	if c.pods[slot].runs && !c.answered {
		c.Violates("F1: the volume of pod %d is detached, and its processes run", slot)
	}
}

// checkTaint checks the taint of the node.
func (c *transition) checkTaint() {
	c.answered = c.answered || c.proofIsFalse()
	if c.node.ready {
		c.Violates("F3: a node that is Ready is tainted")
	}
	for slot := range c.Pods {
		if c.pods[slot].runs && !c.answered {
			c.Violates("F1: the node is tainted, and processes of pod %d run", slot)
		}
	}
}

// checkShun checks the taint that keeps new pods from the node.
func (c *transition) checkShun() {
	switch {
	case c.Replicas > 1: // the other leader may have ended the fence
	case !c.fence.proven, c.node.storage == 0:
		c.Violates("F9: new pods are kept from a node that reaches its volumes")
	case c.rebooted():
		c.Violates("F9: new pods are kept from a node that has booted")
	}
}

// checkUntaint checks the removal of all taints of a fence.
func (c *transition) checkUntaint() {
	if c.node.shunned && c.shuns() && c.Replicas == 1 {
		c.Violates("F9: new pods may join a node that does not reach its volumes")
	}
}

// shuns reports whether the node is to be kept from new pods.
func (s *state) shuns() bool {
	return s.fence.proven && s.fence.fenced == isTrue && s.node.there && s.node.storage != 0 && !s.rebooted() && !s.vouched
}

// rebooted reports whether the Node shows another boot than at the proof, be it of another machine.
func (s *state) rebooted() bool { return s.node.shown != s.fence.proofBoot }

// checkVolumes checks that no data from the node reaches a volume that another node writes to.
func (c *transition) checkVolumes() {
	for slot := range c.Pods {
		if p := c.pods[slot]; p.lent && p.unwritten && !c.shut() && !c.vouched {
			c.Violates("F8: the volume of pod %d is given away, and what its processes have written can reach it", slot)
		}
	}
}

// shut reports whether the machine does not reach the volumes of the pods.
func (c *transition) shut() bool {
	_, agent := c.volumeOf()
	return c.node.storage&bit(agent) != 0
}

// checkRun checks the start of an agent's run.
func (c *transition) checkRun(run fencing.Run) {
	if run.Undo {
		return
	}
	switch {
	case c.fence.uid == 0, c.fence.returned == isTrue:
		c.Violates("F5: an agent is started, and the fence has ended")
	case int(run.Attempt) > int(c.fence.count):
		c.Violates("F6: an agent is started for an attempt that was not written down")
	}
}

// checkWrite checks a write of the NodeFence.
func (c *transition) checkWrite(i int, ask fencing.Ask) {
	if ask.Action != fencing.WriteStatus {
		return
	}
	c.checkStatus(i, c.machine.status(c.fence, ask.Status))
}

// checkStatus checks the new status of a NodeFence.
func (c *transition) checkStatus(i int, is fence) {
	was := c.fence
	if is.count > was.count {
		c.checkAttempt(i, is.attempts[is.count-1])
	}
	if is.proven {
		c.checkProven(was, is)
	}
	if was.proven && !is.proven && !c.lied[was.proofOf-1] && c.node.off && c.node.boot == was.proofBoot {
		c.Violates("F7: a proof is withdrawn, and the machine is off")
	}
	if is.vacant && !was.vacant && slices.ContainsFunc(c.pods[:], func(p pod) bool { return p.exists || p.attached }) {
		c.Violates("F2: the fence of a node counts no more, and something remains on the node")
	}
	if is.returned == isTrue && was.returned != isTrue {
		c.checkReturn()
	}
}

// checkProven checks a proof, or an extension to more volumes.
func (c *transition) checkProven(was, is fence) {
	switch {
	case !was.proven, is.proofOf != was.proofOf:
		c.checkProof(int(is.proofOf) - 1)
	case is.covers != was.covers:
		c.checkProof(int(is.count) - 1)
	}
}

// checkAttempt checks the begin of an attempt.
func (c *transition) checkAttempt(i int, a attempt) {
	if c.ControlPlane {
		c.Violates("F2: a node of the control plane is fenced")
	}
	if c.Policy && !c.lines[i].session.wasAway {
		c.Violates("F2: a node that is not away is fenced for a policy")
	}
	for slot := range c.Pods {
		if a.pods&(1<<slot) != 0 && c.pods[slot].exists && !c.pods[slot].terminating {
			c.Violates("F1: pod %d counts as terminating, and is not", slot)
		}
	}
}

// checkProof checks a proof. A person's word is a proof, even if it is false, but a copy of one is not.
func (c *transition) checkProof(of int) {
	kind := c.kindAt(of)
	slot := of
	switch kind {
	case Remediation:
		slot = maxAttempts
	case Volumes:
		slot = c.firstOf(c.fence.attempts[of].agent)
	case Power, Reboot, Person:
	}
	switch {
	case kind == Person && c.fence.copied:
		c.Violates("F1: a word about another NodeFence is a proof")
	case kind == Person:
		c.lied[of] = c.falseWord
	case !c.lied[of] && !c.runs[slot].acted && c.left.Vanish == c.Budget.Vanish:
		c.Violates("F1: a proof is written down, and its agent has done nothing")
	}
}

// checkReturn checks the end of the fence.
func (c *transition) checkReturn() {
	if c.abandoned {
		return
	}
	if c.node.agent || c.node.storage != 0 {
		c.Violates("F5: the fence has ended, and what its agents did was not undone")
	}
	for slot := range c.runs {
		if r := c.runs[slot]; r.state == running && !r.acted { // one that was stopped, and has not ended in time, may act yet
			c.Violates("F5: the fence has ended, and an agent is at work")
		}
	}
	if c.node.tainted && c.Replicas == 1 { // the other leader may taint it at the same time, and removes that
		c.Violates("F3: the fence has ended, and its taint is there")
	}
	c.checkEndOfShun()
}

// checkEndOfShun checks the end of a fence. The other leader, or a person, may taint the node at the same time.
func (c *transition) checkEndOfShun() {
	if c.node.shunned && c.Replicas == 1 && c.left.Taint == c.Budget.Taint {
		c.Violates("F9: the fence has ended, and new pods are kept from the node")
	}
}

// checkGone checks the removal of the NodeFence.
func (c *transition) checkGone() {
	if c.node.tainted {
		c.Violates("F3: the NodeFence is gone, and its taint is there")
	}
	c.checkEndOfShun()
}

// idle reports whether volume-guard has no work left.
func (k *worker) idle(s *state) bool {
	if !k.settled(s) {
		return false
	}
	return !slices.ContainsFunc(s.lines[:k.Replicas], func(l line) bool { return l.woken })
}

// polled lets each replica work on the fence once more, and returns the reason of the wait. rests reports whether this
// changes the state in no way.
func (k *worker) polled(s *state) (reason string, rests bool) {
	if s.fence.uid == 0 && !s.node.marked() {
		return "", true
	}
	c := k.work(s)
	return c.reason, c.state == *s && c.reason != "NodeRuns"
}

// work lets each replica work on the fence once more.
func (k *worker) work(s *state) *transition {
	c := transition{World: k.World, machine: k.machine, state: *s}
	for i := range k.Replicas {
		c.begin(i)
		for range 64 {
			if c.lines[i].session.on {
				c.answer(i, true, true)
			}
		}
	}
	c.settle()
	return &c
}

// unsettled returns the broken promise at rest, empty for none.
func (k *worker) unsettled(s *state, reason string) string {
	n := s.node
	switch {
	case s.shuns() && !n.shunned:
		return "F9: new pods may join a node that does not reach its volumes"
	case n.shunned && (!s.fence.proven || s.fence.returned == isTrue || s.rebooted()):
		return "F9: new pods are kept from the node for good"
	case reason != "" && !k.isSo(s, reason):
		return "F4: the fence waits for good: " + reason
	case reason != "":
	case n.tainted:
		return "F3: there is no fence, and its taint is there"
	case (n.agent || n.storage != 0) && !s.abandoned:
		return "F5: there is no fence, and what its agents did was not undone"
	}
	return ""
}

// ignored reports whether a person's confirmation does not replace the proof of a reboot.
func (k *worker) ignored(s *state) bool {
	f := s.fence
	if !f.proven || f.word == 0 || f.copied || !s.node.there || s.node.ready {
		return false
	}
	kind := k.kindOf(f.attempts[f.proofOf-1].agent)
	return (kind == Reboot || kind == Remediation) && !slices.ContainsFunc(f.attempts[:f.count], func(a attempt) bool {
		return a.result == contradicted && a.word == f.word
	})
}

// isSo reports whether a fence may wait for this reason, because it is true and names a remedy.
func (k *worker) isSo(s *state, reason string) bool {
	n, away := s.node, !s.node.connected()
	switch reason {
	case "Released", "Fenced":
		return (away || n.storage != 0) && !k.ignored(s) // and Reason NeedsReboot after its next renewal
	case "AwaitsReturn":
		return away
	case "RemainsOnNode":
		return away && slices.ContainsFunc(s.pods[:], func(p pod) bool { return p.exists || p.attached })
	case "NeedsReboot":
		return n.storage != 0
	case "MachineReplaced":
		return n.second
	case "WaitsForConfirmation":
		return s.fence.count > 0 && k.kindOf(s.fence.attempts[s.fence.count-1].agent) == Person
	case "NodeNotFound", "NodeDeleted":
		return !n.there
	case "ControlPlaneNode":
		return k.ControlPlane
	case "UnfenceFailed":
		return slices.ContainsFunc(append(s.undos[:], s.runs[maxAttempts]), func(r run) bool { return r.hung })
	}
	return reason == "AllAgentsFailed"
}
