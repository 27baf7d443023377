package singlenode

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
)

// cluster makes the moves of Kubernetes' own controllers, and of the hold.
func (k *worker) cluster(s *state) {
	for slot := range k.Pods {
		k.schedule(s, slot)
		k.ends(s, slot)
	}
	k.workload(s)
	for n := range k.Claims {
		at := s.claims[n]
		k.Can(at.uid > 0 && at.terminating && !k.protects(s, n), move{claimIsRemoved, 0, n},
			editClaim(n, func(at *claim) { *at = claim{} }))
		k.Can(at.uid > 0 && !at.terminating && !at.bound, move{claimIsBound, 0, n},
			editClaim(n, func(at *claim) { at.bound = true }))
	}
	if k.Ephemeral {
		k.ephemeral(s)
	}
	k.lands(s)
}

// workload creates the pods of a set, one after the other.
func (k *worker) workload(s *state) {
	if k.Workload == Beside {
		return
	}
	for slot := 1; slot < k.Pods; slot++ {
		if s.born[slot] || !s.born[slot-1] {
			continue
		}
		k.Can(!k.counts(s), move{replacementIsCreated, 0, slot}, func(c *transition) { c.create(slot) })
	}
}

// counts reports whether the controller of the set counts a pod as existing. A ReplicaSet ignores a pod that is
// terminating or has ended, a StatefulSet waits until its object is gone.
func (k *worker) counts(s *state) bool {
	for slot := range k.Pods {
		p := s.pods[slot]
		if p.exists && (k.Workload == StatefulSet || !p.terminating && !p.ended) {
			return true
		}
	}
	return false
}

// create creates a pod, which gets the gate if the namespace asks for it.
func (c *transition) create(slot int) {
	c.born[slot] = true
	c.writePod(slot, func(p *pod) {
		*p = pod{exists: true, gated: c.mode != singlenode.ModeOff, held: !c.Unheld, queued: c.Queued}
	})
}

// schedule binds a pod without a gate to its node, if the node is not cut off and the claims can be used. The API
// server refuses to bind a pod that has a gate or is terminating.
func (k *worker) schedule(s *state, slot int) {
	p := s.pods[slot]
	if !p.exists || p.gated || p.queued || p.node > 0 || p.terminating {
		return
	}
	for _, n := range k.uses(slot) {
		if at := s.claims[n]; at.uid == 0 || at.terminating || !at.bound || k.Ephemeral && int(at.owner) != slot+1 {
			return
		}
	}
	n := nodeOf(slot)
	k.Can(!s.nodes[n].cut, move{podIsBound, n, slot}, func(c *transition) {
		c.processes[slot].node = uint8(n + 1)
		c.writePod(slot, func(p *pod) { p.node = uint8(n + 1) })
	})
}

// nodeOf returns the node of a pod. The first pod has the node with the faults.
func nodeOf(slot int) int { return min(slot, maxNodes-1) }

// ends removes the object of a terminating pod, or only the hold if its claim keeps the object. A held pod stays until
// its processes have ended, its volumes are unmounted and its kubelet no longer starts it, or a person has confirmed
// that: test/model/podsafety shows that the hold keeps this promise.
func (k *worker) ends(s *state, slot int) {
	p, at := s.pods[slot], s.processes[slot]
	over := p.node == 0 || !s.nodes[p.node-1].cut && at.known && at.deleted && !at.runs && !at.mounted
	ends := p.exists && p.terminating && (over || p.confirmed && p.held)
	k.Can(ends && !p.foreground, move{podIsRemoved, 0, slot}, func(c *transition) {
		c.excused[slot] = c.excused[slot] || !over
		c.writePod(slot, func(p *pod) { *p = pod{} })
	})
	k.Can(ends && p.foreground && p.held, move{podIsReleased, 0, slot}, func(c *transition) {
		c.excused[slot] = c.excused[slot] || !over
		c.writePod(slot, func(p *pod) { p.held = false })
	})
}

// protects reports whether a finalizer keeps a claim: the finalizer of the lock, or that from PVC protection, which
// sees the pods that are bound to a node and have not ended, except for a released pod with an ephemeral volume
// (podIsShutDown in pkg/controller/volume/pvcprotection).
func (k *worker) protects(s *state, n int) bool {
	if s.claims[n].kept && k.Without != TheFinalizer {
		return true
	}
	for slot := range k.Pods {
		if p := s.pods[slot]; p.exists && p.node > 0 && !p.ended && (p.held || !p.foreground) && k.usesClaim(slot, n) {
			return true
		}
	}
	return false
}

// ephemeral makes the moves of the ephemeral volume controller and the garbage collector.
func (k *worker) ephemeral(s *state) {
	at := s.claims[0]
	for slot := range k.Pods {
		waits := s.pods[slot].foreground && !s.pods[slot].held
		k.Can(waits && int(at.owner) != slot+1, move{podIsRemoved, 0, slot}, editPod(slot, func(p *pod) { *p = pod{} }))
		k.Can(at.uid == 0 && s.pods[slot].exists && !s.pods[slot].terminating, move{claimIsCreatedFor, 0, slot},
			editClaim(0, func(at *claim) { *at = claim{uid: firstUID + uint8(slot), bound: true, owner: uint8(slot + 1)} }))
	}
	goes := at.uid > 0 && at.owner > 0 && (!s.pods[at.owner-1].exists || s.pods[at.owner-1].foreground)
	k.Can(goes && !at.terminating, move{claimIsCollected, 0, 0}, editClaim(0, func(at *claim) { at.terminating = true }))
}
