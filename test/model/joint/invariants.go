package joint

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
)

// writes reports whether processes of pods on node a, and on node b, can write to the volume, except for pods that a
// person answers for. Two machines with one name count as one node. Data that a process has written before its end can
// reach a volume that is mounted.
func (c *transition) writes() (a, b bool) {
	for slot, p := range c.processes {
		if c.excused[slot] {
			continue
		}
		a = a || p.mounted && p.node == nodeA && !c.node.storage || c.former.writes(slot)
		b = b || p.mounted && p.node == nodeB
	}
	return a, b
}

// writes reports whether the data of a pod can reach the volume from the former machine.
func (f former) writes(slot int) bool { return (f.runs[slot] || f.mounted[slot]) && !f.storage }

func (c *transition) check() {
	a, b := c.writes()
	switch {
	case a && b:
		c.Violates("S1: processes on two nodes can write to the volume")
	case !c.claim.exists && c.runs():
		c.Violates("S2: the claim is gone and its volume deleted, and a process can write to it")
	}
}

// runs reports whether a process runs that can write to the volume.
func (c *transition) runs() bool {
	for slot, p := range c.processes {
		here := p.runs && (p.node == nodeB || !c.node.storage)
		if !c.excused[slot] && (here || c.former.runs[slot] && !c.former.storage) {
			return true
		}
	}
	return false
}

// released checks the release of a pod by the hold, and excuses a person's word: a confirmation, the taint on a node
// that is not Ready, and the end of the Node of a kubelet that has been cut off since.
func (c *transition) released(slot int, why podsafety.Reason) {
	n := c.node
	switch why {
	case podsafety.ReasonConfirmed:
	case podsafety.ReasonOutOfService:
		if !n.taint || n.ready {
			return
		}
	case podsafety.ReasonNodeGone:
		if !n.lost {
			return
		}
	case podsafety.ReasonFinished:
		mounted := c.processes[slot].mounted || c.former.mounted[slot] && !c.waited(slot)
		if mounted && !c.excused[slot] {
			c.Violates("S3: pod %d is released because it has ended, and its volume is mounted", slot)
		}
		if !c.former.mounted[slot] {
			return
		}
	default:
		return
	}
	c.excused[slot] = true
}

// waited reports whether the unmount grace of a pod is over, counted from the end of the last outage. That is the guess
// that the documentation names, if another machine has the name of the node, and no fence keeps it from the volume.
func (c *transition) waited(slot int) bool {
	return !c.shut && c.sights[slot].finished == old && c.sights[slot].graceZero == old && c.opened != young
}

// freed checks the removal of the claim's lock.
func (c *transition) freed(why singlenode.Reason) {
	holder := int(c.claim.lock) - 1
	if holder < 0 || c.excused[holder] {
		return
	}
	api, p := c.pods[holder], c.processes[holder]
	reaches := p.node == nodeB || !c.node.storage
	switch {
	case c.former.writes(holder), p.mounted && reaches:
		c.Violates("S3: the lock is freed, and processes of pod %d can write", holder)
	case p.mounted && why == singlenode.ReasonHolderCompleted:
		c.Violates("S3: the lock is freed because pod %d has completed, and its volume is mounted", holder)
	case api.exists && !api.terminating && !api.ended:
		c.Violates("S3: the lock is freed, and the kubelet of pod %d may start its processes", holder)
	}
}

// ungated checks the removal of a pod's gate.
func (c *transition) ungated(slot int) {
	if int(c.claim.lock) != slot+1 || !c.claim.kept {
		c.Violates("S3: pod %d loses its gate without the lock", slot)
	}
}

// rests returns the broken promise when no component of the cluster can act, empty for none.
func (k *worker) rests(s *state) (wrong string, rests bool) {
	if k.Busy {
		return "", false
	}
	for slot, p := range s.pods {
		if wrong := k.unsettledPod(s, slot, p); wrong != "" {
			return wrong, true
		}
	}
	if wrong := k.unsettledClaim(s); wrong != "" {
		return wrong, true
	}
	if by := s.volume.locked; by > 0 && !s.pods[by-1].held {
		return "L1: a pod that is not held keeps the VolumeLock", true
	}
	return k.unsettledFence(s), true
}

// unsettledClaim returns the promise that the claim breaks at rest.
func (k *worker) unsettledClaim(s *state) string {
	at := s.claim
	switch {
	case k.Ephemeral && at.terminating && !s.pods[0].held:
		return "L1: the claim of a pod that is not held stays"
	case at.exists && at.lock > 0 && !s.pods[at.lock-1].exists:
		return "L1: a pod that does not exist has the lock"
	case at.exists && at.kept && at.lock == 0:
		return "L1: the claim is kept, and no pod has its lock"
	case at.terminating && at.protected && !s.pods[0].exists && !s.pods[1].exists:
		return "L1: nothing uses the claim, and it stays"
	}
	return ""
}

// unsettledPod returns the promise that a pod breaks at rest. It has to run, or to have completed, or to wait for a
// true reason with a way out.
func (k *worker) unsettledPod(s *state, slot int, p pod) string {
	switch {
	case !p.exists:
		return ""
	case p.foreground && !p.held:
		return "L1: a pod that is deleted in the foreground is released, and stays"
	case k.Attached && p.node == nodeB && !s.pods[0].exists && !s.volume.onB:
		return "L1: a pod waits for its volume, and nothing keeps that from its node"
	case p.terminating:
		if d := k.transition(s).hold(slot); !holdIsSo(s, slot, d.Reason) {
			return "L1: a pod stays (" + string(d.Reason) + "), which is not so, or has no way out"
		}
	case p.gated:
		if d := k.transition(s).gate(slot); !k.gateIsSo(s, slot, d.Reason) {
			return "L1: a pod waits (" + string(d.Reason) + "), which is not so"
		}
	case p.node == 0 && s.claim.exists && !s.claim.terminating:
		return "L1: a pod is not bound to a node"
	}
	return ""
}

// holdIsSo reports whether a pod may be held for a reason, because it is true and names a remedy.
func holdIsSo(s *state, slot int, why podsafety.Reason) bool {
	p, n := s.pods[slot], s.node
	away := p.node == nodeA && !n.connected()
	return map[podsafety.Reason]bool{
		"NodeUnreachable":       away && !p.confirmed,
		"OutOfServiceNodeReady": n.taint && n.ready,
		"VolumesFenced":         p.node == nodeA && s.shut && !s.booted(),
		"EndNotReported":        p.ended && (away || p.statuses == lost),
		"NodeGoneDuringEnd":     away && !n.there,
	}[why]
}

// gateIsSo reports whether a pod may wait for a reason.
func (k *worker) gateIsSo(s *state, slot int, why singlenode.Reason) bool {
	other := s.pods[1-slot]
	switch why {
	case singlenode.ReasonClaimMissing:
		return !s.claim.exists
	case singlenode.ReasonClaimTerminating:
		return s.claim.terminating
	case singlenode.ReasonClaimInUse, singlenode.ReasonUsedWithoutLock:
		return other.exists && !other.gated
	default:
		return false
	}
}

// unsettledFence returns the promise that the fence breaks at rest.
func (k *worker) unsettledFence(s *state) string {
	n, f := s.node, s.fence
	why := k.transition(s).fencing()
	switch {
	case !f.exists && (n.own || n.shunned):
		return "L1: there is no fence, and its taint is there"
	case !f.exists && (n.storage || n.agent):
		return "L1: there is no fence, and what its agent did was not undone"
	case f.exists && !k.fenceIsSo(s, why):
		return "L1: the fence waits (" + string(why) + "), which is not so, or has no way out"
	}
	return ""
}

// fenceIsSo reports whether the fence may wait for a reason.
func (k *worker) fenceIsSo(s *state, why fencing.Reason) bool {
	n := s.node
	switch why {
	case "Fenced", "Released", "AwaitsReturn":
		return !n.connected()
	case "NeedsReboot":
		return s.fence.proven && n.shown == s.fence.proofBoot
	case "MachineReplaced":
		return n.shownMachine != s.fence.proofMachine
	case "RemainsOnNode":
		return s.pods[0].exists || s.pods[1].exists
	case "NodeNotFound", "NodeDeleted":
		return !n.there
	case "AllAgentsFailed":
		return s.fence.result > 1
	default:
		return false
	}
}
