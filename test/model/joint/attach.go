package joint

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

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
			func(c *scene) { c.volume.attach(n, true) })
		k.Can(at.on(n) && !s.wanted(n) && k.detaches(s, n), move{volumeIsDetached, int(n)},
			func(c *scene) { c.volume.attach(n, false) })
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
// does not use it, or is not healthy for six minutes. By then, a working kubelet has unmounted the volume of an ended
// pod, the pod garbage collector has deleted each pod that it set to Failed, and volume-guard has done all work about
// the VolumeLock.
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
	c := k.scene(s)
	c.lockVolume()
	return (!s.node.there || !s.node.ready) && c.volume == s.volume
}

// showUse lets a kubelet report the volumes of node a that are in use, which it does before it mounts one.
func (c *scene) showUse() {
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
func (c *scene) lockVolume() {
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
func (c *scene) needsLock(slot int, locked, left bool) bool {
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
func (c *scene) runOf(f objects.Fence) objects.Fence {
	f.SinceTerminating = f.SinceTerminating || c.Without == TheRun
	return f
}
