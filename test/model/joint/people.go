package joint

// people makes the moves of users and administrators, and of programs that act for them, each within the budget.
// Changes that the policies of admission refuse do not happen.
func (k *worker) people(s *state) {
	for slot, p := range s.pods {
		if p.exists {
			k.users(s, slot)
		}
	}
	k.User(s.claim.exists && !s.claim.terminating, &s.left.DeleteClaim, move{userDeletesClaim, 0},
		func(c *transition) { c.claim.terminating = true })
	k.administrators(s)
}

// administrators makes the moves of administrators of node a and its fence, and of programs that detect and remediate
// nodes.
func (k *worker) administrators(s *state) {
	n, f := s.node, s.fence
	k.User(n.there && !n.taint, &s.left.Taint, move{userTaints, 0}, func(c *transition) { c.node.taint = true })
	k.User(n.taint, &s.left.Untaint, move{userUntaints, 0}, func(c *transition) { c.node.taint = false })
	k.User(n.there, &s.left.DeleteNode, move{userDeletesNode, 0}, func(c *transition) {
		now := &c.node
		now.there, now.ready, now.taint, now.own, now.shunned = false, false, false, false, false
		c.leaseChanges()
	})
	k.User(!f.exists && k.Agent != NoAgent, &s.left.Fence, move{nodeIsFenced, 0}, func(c *transition) {
		c.fence = fence{exists: true}
		if k.Tried {
			c.late = atWork
		}
	})
	k.User(f.exists && !f.terminating, &s.left.Unfence, move{programDeletesFence, 0}, func(c *transition) {
		c.ending = false // the write is bound to the former NodeFence
		c.fence.terminating = true
		c.writeFence(0, nil)
	})
	k.User(f.exists && !f.now, &s.left.Now, move{userEndsFence, 0}, func(c *transition) {
		c.ending = false
		c.fence.now = true
		for slot, p := range c.processes {
			c.excused[slot] = c.excused[slot] || p.node == nodeA
		}
	})
}

// users makes the moves of users of one pod. A force deletion is refused unless it is confirmed, the pod has no node,
// or it has ended and was not deleted before (csi-reclaimer-pod-force-delete). Only volume-guard removes finalizer or
// gate, and both exist from the creation on (csi-reclaimer-pod-hold-stays, csi-reclaimer-pod-gate-stays,
// csi-reclaimer-pod-gate-required).
func (k *worker) users(s *state, slot int) {
	p := s.pods[slot]
	k.User(!p.terminating, &s.left.Delete, move{userDeletesPod, slot}, func(c *transition) { c.delete(slot) })
	k.User(!p.terminating, &s.left.Foreground, move{userDeletesInForeground, slot}, func(c *transition) {
		c.pods[slot].foreground = true
		c.delete(slot)
	})
	free := p.node == 0 || p.ended && (!p.terminating || !p.held)
	k.User(!p.graceZero && (p.confirmed || free), &s.left.Force, move{userForces, slot},
		editPod(slot, func(p *pod) { p.terminating, p.graceZero = true, true }))
	k.User(!p.confirmed, &s.left.Confirm, move{userConfirms, slot}, editPod(slot, func(p *pod) { p.confirmed = true }))
}
