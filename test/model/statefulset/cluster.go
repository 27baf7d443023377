package statefulset

// cluster makes the moves of Kubernetes' other controllers, the scheduler and the kubelet.
func (k *worker) cluster(s *state) {
	for slot := range s.sets {
		k.endSet(s, slot)
	}
	for n := range k.Ordinals {
		for name := range k.names() {
			k.runPod(s, name, n)
			k.Can(k.podIsGarbage(s, name, n), move{collectorDeletesPod, name, n}, func(c *transition) { c.deletePod(name, n) })
		}
		k.collectClaim(s, n)
		k.Can(s.claims[n].terminating && !k.uses(s, n), move{claimIsRemoved, 0, n},
			func(c *transition) { c.removeClaim(n) })
	}
}

// runPod makes the moves of the scheduler and the kubelet. The kubelet does not start a pod whose claim is terminating.
// The scheduler decides from a cache, so the claim may be terminating, or gone, when it binds the pod.
func (k *worker) runPod(s *state, name, n int) {
	p, c := s.pods[name][n], s.claims[n]
	k.Can(p.uid > 0 && !p.bound && c.uid > 0 && !c.terminating, move{podIsBound, name, n},
		func(c *transition) { c.pods[name][n].bound, c.pods[name][n].ready = true, true })
	k.Breaks(p.uid > 0 && !p.bound && (c.terminating || c.uid == 0), &s.left.Stale, move{podIsBoundLate, name, n},
		func(c *transition) { c.pods[name][n].bound = true })
	k.Can(p.bound && !p.terminating && !p.ready && c.uid > 0 && !c.terminating, move{kubeletStarts, name, n},
		func(c *transition) { c.pods[name][n].ready = true })
	k.Can(p.terminating, move{kubeletEnds, name, n}, func(c *transition) { c.pods[name][n] = pod{} })
}

// uses reports whether PVC protection finds a pod that is bound to a node and uses the claim.
func (k *worker) uses(s *state, n int) bool {
	for name := range k.names() {
		if p := s.pods[name][n]; p.uid > 0 && p.bound {
			return true
		}
	}
	return false
}

// podIsGarbage reports whether the set of a pod is gone, or being deleted in the foreground.
func (k *worker) podIsGarbage(s *state, name, n int) bool {
	p := s.pods[name][n]
	if p.uid == 0 || p.owner == 0 || p.terminating {
		return false
	}
	owner := s.sets[p.owner-1]
	return !owner.exists || owner.how == foreground
}

// endSet removes a terminating set: with the finalizer for orphans once the garbage collector knows no reference to it,
// and in the foreground after the objects that block its deletion.
func (k *worker) endSet(s *state, slot int) {
	at := s.sets[slot]
	if !at.terminating {
		return
	}
	name, owned, blocked := k.name(slot), false, false
	for n := range k.Ordinals {
		isOwner := int(s.pods[name][n].owner) == slot+1
		owned = owned || isOwner || s.claims[n].sets[slot] != noRef
		blocked = blocked || isOwner || s.claims[n].sets[slot] == controller
	}
	k.Can(at.how == orphan && owned, move{collectorOrphans, 0, slot}, func(c *transition) {
		for n := range c.Ordinals {
			if p := &c.pods[name][n]; int(p.owner) == slot+1 {
				p.owner = 0
			}
			c.claims[n].sets[slot] = noRef
		}
	})
	k.Can(at.how == orphan && !owned, move{setIsRemoved, 0, slot}, func(c *transition) { c.removeSet(slot, orphan) })
	k.Can(at.how == foreground && !blocked, move{setIsRemoved, 0, slot},
		func(c *transition) { c.removeSet(slot, foreground) })
}

// owners counts the living and the missing owners of a claim. waiting reports whether an owner waits for the claim.
func (k *worker) owners(s *state, n int) (live, gone int, waiting bool) {
	c := s.claims[n]
	for slot, kind := range c.sets {
		switch {
		case kind == noRef:
		case !s.sets[slot].exists:
			gone++
		case s.sets[slot].how == foreground:
			waiting = true
		default:
			live++
		}
	}
	for _, r := range c.pods {
		switch {
		case r.kind == noRef:
		case s.pods[r.name][n].uid == r.uid:
			live++
		default:
			gone++
		}
	}
	switch {
	case c.foreign == noRef:
	case s.foreignGone:
		gone++
	default:
		live++
	}
	return live, gone, waiting
}

// collectClaim plays the garbage collector (attemptToDeleteItem): it reads the claim and its owners, and binds its
// write to the result.
func (k *worker) collectClaim(s *state, n int) {
	c := s.claims[n]
	if c.uid == 0 || c.terminating {
		return
	}
	live, gone, waiting := k.owners(s, n)
	k.Can(live == 0 && (gone > 0 || waiting), move{collectorDeletesClaim, 0, n}, func(c *transition) {
		c.checkCollection(n)
		c.claims[n].terminating = true
	})
	k.Can(live > 0 && (gone > 0 || waiting), move{collectorRemovesReferences, 0, n}, func(c *transition) {
		at := &c.claims[n]
		for slot := range at.sets {
			if !c.sets[slot].exists || c.sets[slot].how == foreground {
				at.sets[slot] = noRef
			}
		}
		var left [2]podRef
		for _, r := range at.pods {
			if r.kind != noRef && c.pods[r.name][n].uid == r.uid {
				left = withPod(left, r)
			}
		}
		at.pods = left
		if c.foreignGone {
			at.foreign = noRef
		}
	})
}
