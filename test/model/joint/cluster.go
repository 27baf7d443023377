package joint

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
		func(c *scene) { c.claim = claim{} })
}

// workload creates the second pod once the first no longer counts, and binds it. A user creates it earlier.
func (k *worker) workload(s *state) {
	first, second := s.pods[0], s.pods[1]
	counts := first.exists && !first.terminating && !first.ended || k.Unlocked || k.Ephemeral
	k.Can(!s.born && !counts, move{replacementIsCreated, 1}, func(c *scene) { c.create() })
	k.User(!s.born && counts, s.left.Early, move{userCreatesPod, 1}, func(c *scene) {
		c.left.Early--
		c.create()
	})
	k.Can(second.exists && !second.gated && second.node == 0 && !second.terminating && s.claim.exists &&
		!s.claim.terminating, move{podIsBound, 1}, func(c *scene) {
		c.processes[1].node = nodeB
		c.writePod(1, func(p *pod) { p.node = nodeB })
	})
}

// create creates the second pod. The policies of admission add the finalizer, and the gate if the namespace asks for
// locks.
func (c *scene) create() {
	c.born = true
	c.writePod(1, func(p *pod) { *p = pod{exists: true, held: true, gated: !c.Attached} })
}

// evict makes the moves that end a pod of node a. The taint out-of-service deletes the pod
// (pkg/controller/tainteviction). The pod garbage collector ends a pod whose Node is gone, or that is terminating on a
// node that is out of service and not Ready (pkg/controller/podgc).
func (k *worker) evict(s *state, slot int) {
	p, n := s.pods[slot], s.node
	out := n.there && (n.taint || n.own)
	k.Can(out && !p.terminating, move{podIsEvicted, slot}, func(c *scene) { c.delete(slot) })
	collects := !n.there || out && !n.ready && p.terminating
	if p.terminating && p.graceZero || !collects {
		return
	}
	k.Can(!p.ended, move{collectorFailsPod, slot}, func(c *scene) { c.writePod(slot, func(p *pod) { p.ended = true }) })
	k.Can(p.ended, move{collectorDeletesPod, slot}, func(c *scene) {
		c.writePod(slot, func(p *pod) { p.terminating, p.graceZero = true, true })
	})
}

// delete deletes a pod with grace. The API server sets the grace of a pod that has no node, or has ended, to 0
// (CheckGracefulDelete).
func (c *scene) delete(slot int) {
	c.writePod(slot, func(p *pod) { p.terminating, p.graceZero = true, p.node == 0 || p.ended })
}
