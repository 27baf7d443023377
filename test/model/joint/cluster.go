package joint

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
)

// cluster makes the moves of Kubernetes' own controllers.
func (k *worker) cluster(s *state) {
	for slot, p := range s.pods {
		if p.exists && p.node == nodeA {
			k.evict(s, slot)
		}
	}
	k.workload(s)
	if k.Ephemeral {
		k.collectGarbage(s)
	}
	if k.BuiltIn {
		k.unprotect(s)
	}
	if k.Attached {
		k.attachDetach(s)
	}
	held := s.claim.held && k.Without != TheFinalizer
	k.Can(s.claim.terminating && !s.claim.kept && !s.claim.protected && !held, move{claimIsRemoved, 0},
		func(c *transition) { c.claim = claim{} })
}

// workload creates the second pod once the first no longer counts, and binds it. A user creates it earlier.
func (k *worker) workload(s *state) {
	first, second := s.pods[0], s.pods[1]
	counts := first.exists && !first.terminating && !first.ended || k.Unlocked || k.Ephemeral
	k.Can(!s.born && !counts, move{replacementIsCreated, 1}, func(c *transition) { c.create() })
	k.User(!s.born && counts, &s.left.Early, move{userCreatesPod, 1}, func(c *transition) { c.create() })
	k.Can(second.exists && !second.gated && second.node == 0 && !second.terminating && s.claim.exists &&
		!s.claim.terminating, move{podIsBound, 1}, func(c *transition) {
		c.processes[1].node = nodeB
		c.writePod(1, func(p *pod) { p.node = nodeB })
	})
}

// create creates the second pod. The policies of admission add the finalizer, and the gate if the namespace asks for
// locks.
func (c *transition) create() {
	c.born = true
	c.writePod(1, func(p *pod) { *p = pod{exists: true, held: true, gated: !c.Attached} })
}

// evict makes the moves that end a pod of node a. The taint out-of-service deletes the pod
// (pkg/controller/tainteviction). The pod garbage collector ends a pod whose Node is gone, or that is terminating on a
// node that is out of service and not Ready (pkg/controller/podgc).
func (k *worker) evict(s *state, slot int) {
	p, n := s.pods[slot], s.node
	out := n.there && (n.taint || n.own)
	k.Can(out && !p.terminating, move{podIsEvicted, slot}, func(c *transition) { c.delete(slot) })
	collects := !n.there || out && !n.ready && p.terminating
	if p.terminating && p.graceZero || !collects {
		return
	}
	k.Can(!p.ended, move{collectorFailsPod, slot}, editPod(slot, func(p *pod) { p.ended = true }))
	k.Can(p.ended, move{collectorDeletesPod, slot},
		editPod(slot, func(p *pod) { p.terminating, p.graceZero = true, true }))
}

// delete deletes a pod with grace. The API server sets the grace of a pod that has no node, or has ended, to 0
// (CheckGracefulDelete).
func (c *transition) delete(slot int) {
	c.writePod(slot, func(p *pod) { p.terminating, p.graceZero = true, p.node == 0 || p.ended })
}

// on reports whether the volume is attached to a node.
func (v volume) on(n uint8) bool { return n == nodeA && v.onA || n == nodeB && v.onB }

// attachShown reports whether the Node shows the volume as attached, without which its kubelet mounts none
// (GenerateVerifyControllerAttachedVolumeFunc in pkg/volume/util/operationexecutor).
func (s *state) attachShown(n uint8) bool { return s.volume.on(n) && (n == nodeB || s.node.there) }

func (v *volume) attach(n uint8, is bool) {
	if n == nodeA {
		v.onA = is
	} else {
		v.onB = is
	}
}

// attachDetach makes the moves of the attach-detach controller (pkg/controller/volume/attachdetach/reconciler), which
// attaches the volume to one node at a time. The policy csi-reclaimer-attach-lock refuses an attachment to another node
// than that of the VolumeLock. A detachment stops no process: the storage accepts the writes of both nodes.
func (k *worker) attachDetach(s *state) {
	at := s.volume
	for _, n := range []uint8{nodeA, nodeB} {
		refused := n != nodeA && at.locked > 0 && k.Without != TheAttachLock
		there := n == nodeB || s.node.there
		k.Can(!at.onA && !at.onB && s.wanted(n) && !refused && there && s.claim.exists, move{volumeIsAttached, int(n)},
			func(c *transition) { c.volume.attach(n, true) })
		k.Can(at.on(n) && !s.wanted(n) && k.detaches(s, n), move{volumeIsDetached, int(n)},
			func(c *transition) { c.volume.attach(n, false) })
	}
}

// wanted reports whether the attach-detach controller wants the volume attached to a node. A terminating pod without a
// running container counts as ended (IsPodTerminated in pkg/volume/util).
func (s *state) wanted(n uint8) bool {
	for _, p := range s.pods {
		if p.exists && p.node == n && !p.ended && (!p.terminating || p.statuses == running) {
			return true
		}
	}
	return false
}

// detaches reports whether the attach-detach controller detaches a volume that it does not want on a node: the node
// does not use it, or is not healthy, and no pod has needed the volume for six minutes. By then, a working kubelet has
// unmounted the volume of an ended pod, the pod garbage collector has deleted each pod that it set to Failed, and
// volume-guard has done all work about the VolumeLock.
func (k *worker) detaches(s *state, n uint8) bool {
	if n == nodeB {
		return !s.processes[1].mounted
	}
	if !s.volume.inUse {
		return true
	}
	for slot, p := range s.pods {
		if p.node == nodeA && (p.ended && !p.byKubelet && !p.terminating || s.unmounts(slot)) {
			return false
		}
	}
	c := k.transition(s)
	c.lockVolume()
	return (!s.node.there || !s.node.ready) && c.volume == s.volume
}

// showUse lets a kubelet report the volumes of node a that are in use, which it does before it mounts one.
func (c *transition) showUse() {
	n := c.node
	if !c.Attached || !n.connected() || !n.there || n.fresh {
		return
	}
	c.volume.inUse = false
	for _, p := range c.processes {
		c.volume.inUse = c.volume.inUse || p.node == nodeA && p.mounted
	}
}

// lockVolume is a session about the VolumeLock of node a (lockVolumes in pkg/podsafety).
func (c *transition) lockVolume() {
	before := c.volume.locked
	if before > 0 && !c.needsLock(int(before)-1, true, false) {
		c.volume.locked = 0
	}
	left := before > 0 && c.volume.locked == 0
	for slot, p := range c.pods {
		if p.node == nodeA && c.volume.locked == 0 && c.needsLock(slot, false, left) {
			c.volume.locked = uint8(slot + 1)
		}
	}
}

// needsLock reports whether the volume stays in the VolumeLock for a pod, or is put there.
func (c *transition) needsLock(slot int, locked, left bool) bool {
	m := c.machine
	f := podsafety.LockFacts{Holder: uidOf(slot), Locked: locked, Left: left, Pod: m.pod(slot, c.pods[slot]),
		NodeSeen: c.nodeSeen(nodeA), FenceSeen: c.shown(nodeA, "").InForce, Volume: objects.Volume{Driver: driver}}
	read := session.Read{Sent: m.now, Order: 1}
	action := podsafety.DecideLock(f, m.now)
	for action == podsafety.ReadLockFence || action == podsafety.ReadHolder {
		if action == podsafety.ReadHolder {
			f.PodRead = read
		} else {
			f.Fence, f.Node, f.FenceRead = c.runOf(c.shown(nodeA, uidOf(slot))), c.nodeOf(nodeA), read
		}
		action = podsafety.DecideLock(f, m.now)
	}
	return action == podsafety.CreateLock || action == podsafety.KeepLock && locked
}

// runOf returns the evidence of a fence for a lock, which without the guard concerns every run of the node.
func (c *transition) runOf(f objects.Fence) objects.Fence {
	f.SinceTerminating = f.SinceTerminating || c.Without == TheRun
	return f
}

// collectGarbage makes the moves of the garbage collector with a claim that the first pod controls. It deletes the
// claim of a pod that is gone, or that is deleted in the foreground. The claim blocks that deletion (BlockOwnerDeletion
// in pkg/controller/volume/ephemeral).
func (k *worker) collectGarbage(s *state) {
	owner, at := s.pods[0], s.claim
	goes := !owner.exists || owner.foreground
	k.Can(at.exists && !at.terminating && goes, move{claimIsCollected, 0},
		func(c *transition) { c.claim.terminating = true })
	k.Can(owner.foreground && !at.exists, move{podIsUnblocked, 0}, editPod(0, func(p *pod) { p.foreground = false }))
}

// unprotect makes the move of Kubernetes' own pvc-protection. Its user is a pod on a node, and for the claim of a
// generic ephemeral volume only as long as the pod has grace (podIsShutDown in pkg/controller/volume/pvcprotection).
func (k *worker) unprotect(s *state) {
	used := false
	for _, p := range s.pods {
		used = used || p.exists && p.node > 0 && (!k.Ephemeral || !p.terminating || !p.graceZero)
	}
	k.Can(s.claim.terminating && s.claim.protected && !used, move{claimIsUnprotected, 0},
		func(c *transition) { c.claim.protected = false })
}

// holdClaim is a session of the hold about the claim of a generic ephemeral volume.
func (c *transition) holdClaim() {
	m := c.machine
	f := podsafety.ClaimFacts{Claim: m.claim(c.claim).hold, Mode: podsafety.ModeEnforce, Pod: m.pod(0, c.pods[0])}
	action := podsafety.DecideClaim(f, m.now)
	if action == podsafety.ReadClaimPod {
		f.PodRead = session.Read{Sent: m.now, Order: 1}
		action = podsafety.DecideClaim(f, m.now)
	}
	switch action {
	case podsafety.HoldClaim:
		c.claim.held = true
	case podsafety.ReleaseClaim:
		c.claim.held = false
	default:
	}
}

// protect is a session of pvc-protection about the claim, in place of Kubernetes' own controller.
func (c *transition) protect() {
	if !c.claim.exists {
		return
	}
	var users []pvc.Pod
	for slot, p := range c.pods {
		if p.exists {
			users = append(users, c.machine.user(slot, p))
		}
	}
	f := pvc.Facts{Duty: inuse.Duty{Mode: inuse.ModeFull, Alone: true}, Ended: pvc.ReleaseTerminated,
		Claim: c.machine.claim(c.claim).protection}
	f.Seen = pvc.UsageOf(f.Claim, users)
	d := pvc.Decide(f)
	if d.Action == inuse.ReadUsers {
		f.Read = pvc.Reading{Made: true, Usage: f.Seen}
		d = pvc.Decide(f)
	}
	switch d.Action {
	case inuse.AddFinalizer:
		c.claim.protected = true
	case inuse.RemoveFinalizer:
		c.claim.protected = false
	default:
	}
}
