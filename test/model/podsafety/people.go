package podsafety

// people makes the moves of users and administrators, each within the budget.
func (k *worker) people(s *state) {
	for slot := range k.Pods {
		if s.pods[slot].exists && (slot == 0 || !k.Beside) {
			k.users(s, slot)
		}
	}
	k.User(s.claim && !s.claimGoes, &s.left.DeleteClaim, move{userDeletesClaim, 0, 0},
		func(c *transition) { c.writeClaim(func(s *state) { s.claimGoes = true }) })
	k.administrators(s)
	k.fencers(s)
}

// users makes the moves of users of one pod.
func (k *worker) users(s *state, slot int) {
	p := s.pods[slot]
	k.User(!p.terminating, &s.left.Delete, move{userDeletesPod, 0, slot}, func(c *transition) {
		// The API server sets the grace of a pod that has no node, or has ended, to 0 (CheckGracefulDelete).
		c.write(slot, func(p *pod) { p.terminating, p.graceZero = true, p.node == 0 || p.ended })
	})
	force := func(c *transition) { c.write(slot, func(p *pod) { p.terminating, p.graceZero = true, true }) }
	k.User(!p.graceZero && p.confirmed == confirmedThis, &s.left.Force, move{userForces, 0, slot}, force)
	k.User(!p.graceZero, &s.left.Unasked, move{userForcesUnasked, 0, slot}, force)
	k.User(p.confirmed != confirmedThis, &s.left.Confirm, move{userConfirms, 0, slot},
		editPod(slot, func(p *pod) { p.confirmed = confirmedThis }))
	k.User(p.confirmed == confirmedThis, &s.left.Withdraw, move{userWithdraws, 0, slot},
		editPod(slot, func(p *pod) { p.confirmed = notConfirmed }))
	k.User(p.confirmed == notConfirmed, &s.left.Mistake, move{userConfirmsOther, 0, slot},
		editPod(slot, func(p *pod) { p.confirmed = confirmedOther }))
}

// administrators makes the moves of administrators of the first node.
func (k *worker) administrators(s *state) {
	const n = 0
	node := s.nodes[n]
	k.User(node.there, &s.left.DeleteNode, move{userDeletesNode, 0, n}, func(c *transition) {
		now := &c.nodes[n]
		now.there, now.ready, now.taint, now.own = false, false, false, false
	})
	k.User(node.there && !node.taint, &s.left.Taint, move{userTaints, 0, n},
		func(c *transition) { c.nodes[n].taint = true })
	k.User(node.taint, &s.left.Untaint, move{userUntaints, 0, n}, func(c *transition) { c.nodes[n].taint = false })
}

// fencers fences the first node, and unfences it. Agents do not lie.
func (k *worker) fencers(s *state) {
	const n = 0
	node := s.nodes[n]
	begin := func(c *transition, reboot bool) {
		f := fence{exists: true, inForce: true, reboot: reboot}
		for slot := range c.Pods {
			if c.pods[slot].exists && c.pods[slot].terminating {
				f.covers |= 1 << slot
			}
		}
		c.nodes[n].fence = f
		c.stop(n)
	}
	k.User(!node.fence.inForce, &s.left.Fence, move{nodeIsFenced, 0, n}, func(c *transition) { begin(c, false) })
	k.User(!node.fence.inForce, &s.left.Reboot, move{nodeIsRebooted, 0, n}, func(c *transition) { begin(c, true) })
	k.User(node.fence.inForce, &s.left.Unfence, move{nodeIsUnfenced, 0, n},
		func(c *transition) { c.nodes[n].fence.inForce = false })
}
