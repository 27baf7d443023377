package fencing

// people makes the moves of users and administrators, each within the budget.
func (k *worker) people(s *state) {
	f, n := s.fence, s.node
	k.User(f.uid == 0 && (!k.Policy || n.there && n.away()), &s.left.Fence, move{nodeFenceIsCreated, 0, 0},
		func(c *transition) {
			c.born++
			c.falseWord = false
			c.writeFence(func(f *fence) {
				*f = fence{uid: c.born}
				if c.WhenReleased {
					f.unfence = whenReleased
				}
			})
		})
	k.User(f.uid == 0, &s.left.Restore, move{nodeFenceIsRestored, 0, 0}, func(c *transition) {
		c.born++
		c.falseWord = false
		c.writeFence(func(f *fence) { *f = fence{uid: c.born, word: 1, copied: true} })
	})
	for slot := range k.Pods {
		k.User(s.pods[slot].exists && !s.pods[slot].terminating, &s.left.Delete, move{userDeletesPod, 0, slot},
			func(c *transition) { c.pods[slot].terminating = true })
	}
	k.User(!n.person, &s.left.Off, move{userPowersOff, 0, 0}, func(c *transition) {
		c.node.person = true
		c.stop()
	})
	k.User(n.off && (n.agent || n.person), &s.left.On, move{userPowersOn, 0, 0}, func(c *transition) {
		// A person who has said that the machine stays off, and powers it on before this is a proof, answers for it.
		c.falseWord = c.falseWord || c.node.person
		c.node.agent, c.node.person = false, false
	})
	k.User(n.there, &s.left.DeleteNode, move{userDeletesNode, 0, 0}, func(c *transition) {
		c.writeNode(func(n *node) {
			n.there, n.ready, n.unready, n.tainted, n.shunned, n.shown = false, false, false, false, false, 0
		})
	})
	k.User(n.there, &s.left.Taint, move{userTaints, 0, 0},
		func(c *transition) { c.writeNode(func(n *node) { n.shunned = !n.shunned }) })
	if f.uid > 0 {
		k.masters(s)
	}
}

// masters makes the moves of people who control the NodeFence.
func (k *worker) masters(s *state) {
	f := s.fence
	say := func(c *transition, falsely bool) {
		c.falseWord = falsely
		c.writeFence(func(f *fence) { f.word, f.copied = f.word+1, false })
	}
	unsaid := f.word == 0 || f.copied
	k.User(s.node.person && (unsaid || s.falseWord), &s.left.Confirm, move{userConfirms, 0, 0},
		func(c *transition) { say(c, false) })
	k.User(!s.node.person && unsaid, &s.left.LieWord, move{userConfirmsFalsely, 0, 0},
		func(c *transition) { say(c, true) })
	k.User(f.unfence < now, &s.left.Now, move{userUnfences, 0, 0}, func(c *transition) {
		c.vouched = c.cutsOff()
		c.writeFence(func(f *fence) { f.unfence = now })
	})
	k.User(f.unfence < abandon, &s.left.Abandon, move{userAbandons, 0, 0}, func(c *transition) {
		c.abandoned, c.vouched = true, c.cutsOff()
		c.writeFence(func(f *fence) { f.unfence = abandon })
	})
	k.User(!f.terminating, &s.left.DeleteFence, move{userDeletesFence, 0, 0},
		func(c *transition) { c.writeFence(func(f *fence) { f.terminating = true }) })
}
