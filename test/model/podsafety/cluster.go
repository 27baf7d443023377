package podsafety

// cluster makes the moves of Kubernetes' own controllers.
func (k *worker) cluster(s *state) {
	for slot := range k.Pods {
		k.schedule(s, slot)
		if !k.NoPodGC {
			k.collect(s, slot)
		}
		unborn := !s.born[slot] && (slot == 0 || s.born[slot-1])
		k.Can(!k.Beside && unborn && !k.anyNamed(s, slot), move{replacementIsCreated, 0, slot}, func(c *transition) {
			c.born[slot] = true
			c.write(slot, func(p *pod) { *p = pod{exists: true, held: true} })
		})
	}
	k.Can(s.claim && s.claimGoes && !s.claimHeld && !k.claimUsed(s), move{claimIsRemoved, 0, 0}, func(c *transition) {
		c.writeClaim(func(s *state) { s.claim = false })
		c.checkClaim()
	})
	k.Can(k.Ephemeral && s.claim && !s.claimGoes && !s.pods[0].exists, move{claimIsCollected, 0, 0}, func(c *transition) {
		c.writeClaim(func(s *state) { s.claimGoes = true })
	})
	if k.Attach {
		k.attachDetach(s)
	}
}

func (k *worker) anyNamed(s *state, slot int) bool {
	for other := range k.Pods {
		if s.pods[other].exists && k.name(other) == k.name(slot) {
			return true
		}
	}
	return false
}

// claimUsed reports whether PVC protection sees a pod that is bound to a node and uses the claim. The claim of a
// generic ephemeral volume is used only by its pod, and not any more once that has no grace (podIsShutDown).
func (k *worker) claimUsed(s *state) bool {
	if p := s.pods[0]; k.Ephemeral {
		return p.exists && p.node > 0 && (!p.terminating || !p.graceZero)
	}
	for slot := range k.Pods {
		if s.pods[slot].exists && s.pods[slot].node > 0 {
			return true
		}
	}
	return false
}

// schedule binds a pod to a node that is Ready. The API server refuses to bind a terminating pod.
func (k *worker) schedule(s *state, slot int) {
	p := s.pods[slot]
	for n := range maxNodes {
		node := s.nodes[n]
		k.Can(p.exists && p.node == 0 && !p.terminating && node.there && node.ready && !node.taint && !node.own &&
			s.claim && !s.claimGoes && (!k.Ephemeral || slot == 0), move{podIsBound, n, slot}, func(c *transition) {
			c.processes[slot].node = uint8(n + 1)
			c.write(slot, func(p *pod) { p.node = uint8(n + 1) })
		})
	}
}

// collect plays the pod garbage collector, one write at a time (pkg/controller/podgc). It collects a pod of a missing
// node, and a terminating pod on a node that is out of service and not Ready.
func (k *worker) collect(s *state, slot int) {
	p := s.pods[slot]
	if !p.exists || p.node == 0 || p.terminating && p.graceZero {
		return
	}
	node := s.nodes[p.node-1]
	if node.there && (node.ready || !node.taint && !node.own || !p.terminating) {
		return
	}
	k.Can(!p.ended, move{collectorFailsPod, 0, slot}, func(c *transition) {
		c.write(slot, func(p *pod) {
			p.ended = true
			switch {
			case p.written == 0 && c.Older:
			case p.terminating:
				p.written = 2
			default:
				p.written = max(p.written, 1)
			}
		})
	})
	k.Can(p.ended, move{collectorDeletesPod, 0, slot}, func(c *transition) {
		c.collected[slot] = c.collected[slot] || c.processes[slot].mounted
		c.write(slot, func(p *pod) { p.terminating, p.graceZero = true, true })
	})
}

// wanted reports whether the attach-detach controller wants the volume attached to a node. A terminating pod without a
// running container status counts as ended (IsPodTerminated in pkg/volume/util).
func (k *worker) wanted(s *state, n int) bool {
	for slot := range k.Pods {
		p := s.pods[slot]
		if p.exists && int(p.node) == n+1 && !p.ended && (!p.terminating || p.statuses == running) {
			return true
		}
	}
	return false
}

// attachDetach plays the attach-detach controller (pkg/controller/volume/attachdetach/reconciler).
func (k *worker) attachDetach(s *state) {
	for n := range maxNodes {
		k.detach(s, n)
		free := s.attached == [maxNodes]bool{} && (!s.lock.exists || int(s.lock.node) == n+1)
		k.Can(k.wanted(s, n) && free && s.nodes[n].there && s.claim, move{volumeIsAttached, 0, n}, func(c *transition) {
			c.attached[n] = true
			c.detachExcused[n] = false
			c.checkAttach(n)
		})
	}
}

// detach makes the moves that detach the volume from a node.
func (k *worker) detach(s *state, n int) {
	node := s.nodes[n]
	tainted := node.there && (node.taint || node.own)
	forced := (!node.there || !node.ready) && k.lockedInTime(s, n)
	k.Can(s.attached[n] && !k.wanted(s, n) && (!s.mountSeen[n] || tainted || forced), move{volumeIsDetached, 0, n},
		func(c *transition) {
			c.attached[n] = false
			c.detachExcused[n] = c.detachExcused[n] || node.taint
		})
}

// lockedInTime reports whether volume-guard has done all work about locks that is due, because the six minutes until a
// volume is detached by force are long.
func (k *worker) lockedInTime(s *state, n int) bool {
	up := false
	for i := range k.Replicas {
		l := &s.lines[i]
		if !l.up {
			continue
		}
		up = true
		for slot := range k.Pods {
			if l.pods[slot] != (view{s.pods[slot].exists, s.pods[slot]}) || l.nodes[n] != s.nodes[n].view() ||
				k.lockStep(s, i, slot) {
				return false
			}
		}
	}
	return up
}
