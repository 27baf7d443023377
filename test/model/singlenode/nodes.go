package singlenode

// machines makes the moves of kubelets and their machines.
func (k *worker) machines(s *state) {
	for slot := range k.Pods {
		if s.processes[slot].node > 0 {
			k.kubelet(s, slot)
		}
	}
	k.faults(s)
}

// kubelet makes the moves of a kubelet with one pod.
func (k *worker) kubelet(s *state, slot int) {
	p := s.processes[slot]
	node := s.nodes[p.node-1]
	if !node.cut {
		k.reports(s, slot)
	}
	k.Can(p.known && !p.deleted && !p.runs && !p.done, move{containerStarts, 0, slot}, func(c *transition) {
		c.processes[slot].runs, c.processes[slot].mounted = true, true
		c.checkStart(slot)
	})
	k.Can(p.deleted && p.runs, move{processesEnd, 0, slot}, func(c *transition) { c.processes[slot].runs = false })
	k.Can(!p.runs && p.mounted && (p.deleted || p.done), move{volumeIsUnmounted, 0, slot},
		func(c *transition) { c.processes[slot].mounted = false })
	k.Breaks(p.runs && !p.deleted, &s.left.End, move{podCompletes, 0, slot},
		func(c *transition) { c.processes[slot].runs, c.processes[slot].done = false, true })
}

// reports makes the moves of a kubelet that reaches the API server.
func (k *worker) reports(s *state, slot int) {
	p, api := s.processes[slot], s.pods[slot]
	goes := api.terminating || !api.exists
	k.Can(!p.known && api.exists || p.known && !p.deleted && goes, move{kubeletSees, 0, slot}, func(c *transition) {
		now := &c.processes[slot]
		now.known, now.deleted, now.done = true, goes, now.done || api.ended
	})
	k.Can(p.done && !p.runs && api.exists && !api.ended, move{kubeletReportsEnd, 0, slot},
		editPod(slot, func(p *pod) { p.ended = true }))
}

// faults makes the faults of the first node.
func (k *worker) faults(s *state) {
	const n = 0
	node := s.nodes[n]
	k.Breaks(!node.cut, &s.left.Cut, move{kubeletIsCutOff, 0, n}, func(c *transition) {
		c.nodes[n].cut = true
		c.showNode(n)
	})
	k.User(node.cut, &s.left.Heal, move{kubeletReturns, 0, n}, func(c *transition) {
		c.nodes[n].cut = false
		c.showNode(n)
	})
	k.Breaks(true, &s.left.Reboot, move{machineReboots, 0, n}, func(c *transition) {
		if c.Budget.Fence > 0 { // only fences depend on it
			c.nodes[n].run++
		}
		for slot := range c.processes {
			// A kubelet that starts knows no pods, and no unreported end of a pod.
			if p := &c.processes[slot]; p.node == n+1 {
				*p = process{node: p.node}
			}
		}
	})
	k.Can(!node.cut && node.shown != node.run, move{kubeletShowsBoot, 0, n}, func(c *transition) {
		c.nodes[n].shown = c.nodes[n].run
	})
	k.User(!node.fence.inForce, &s.left.Fence, move{nodeIsFenced, 0, n}, func(c *transition) {
		now := fence{inForce: true, run: node.shown}
		for slot := range c.Pods {
			p := c.pods[slot]
			now.terminating[slot] = p.exists && p.terminating && int(p.node) == n+1
		}
		c.nodes[n].fence = now
		c.fenceChanges()
	})
	back := s.left.Unfence > 0 && node.fence.inForce && node.shown != node.fence.run
	k.User(back && !node.left && !k.leaving(s, n), nil, move{fencingListsPods, 0, n},
		func(c *transition) { c.nodes[n].left = true })
	k.User(node.left, &s.left.Unfence, move{nodeIsUnfenced, 0, n}, func(c *transition) {
		c.nodes[n].fence, c.nodes[n].left = fence{}, false
		c.fenceChanges()
		for slot := range c.Pods {
			if p := c.processes[slot]; p.runs && int(p.node) == n+1 {
				c.checkStart(slot)
			}
		}
	})
}

// leaving reports whether a held pod is terminating on a node. Node fencing lists such pods once the Node has another
// boot ID, and begins the end of a fence when none are left (leave in its engine).
func (k *worker) leaving(s *state, n int) bool {
	for slot := range k.Pods {
		if p := s.pods[slot]; p.exists && p.held && p.terminating && int(p.node) == n+1 {
			return true
		}
	}
	return false
}

func (c *transition) fenceChanges() {
	if !c.Lag {
		for i := range c.Replicas {
			c.showFence(i)
		}
	}
}
