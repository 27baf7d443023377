package joint

// machines makes the moves of the machines, their kubelets, and their processes.
func (k *worker) machines(s *state) {
	for slot, p := range s.processes {
		if p.node == nodeB || p.node == nodeA && !s.node.off {
			k.kubelet(s, slot)
		}
	}
	k.life(s)
	k.agents(s)
	k.faults(s)
}

// kubelet makes the moves of a kubelet with one pod.
func (k *worker) kubelet(s *state, slot int) {
	p, api := s.processes[slot], s.pods[slot]
	connected := p.node == nodeB || s.node.connected()
	if connected {
		k.sees(s, slot)
		k.reports(s, slot)
	}
	mounts := p.mounted || connected && k.mountable(s, p.node)
	k.Can(p.known && !p.deleted && !p.runs && !p.done && mounts, move{containerStarts, slot}, func(c *transition) {
		c.processes[slot].runs, c.processes[slot].mounted = true, true
		if connected && api.exists {
			c.writePod(slot, func(p *pod) { p.statuses = running })
		}
	})
	k.ends(s, slot)
}

// mountable reports whether a kubelet that is not cut off mounts the volume on a node.
func (k *worker) mountable(s *state, n uint8) bool {
	reaches := n == nodeB || !s.node.fresh && !s.node.storage
	return reaches && s.claim.exists && (!k.Attached || s.attachShown(n))
}

// ends makes the ends of processes and mounts.
func (k *worker) ends(s *state, slot int) {
	p := s.processes[slot]
	k.Can(p.deleted && p.runs, move{processesEnd, slot}, func(c *transition) { c.processes[slot].runs = false })
	reaches := p.node == nodeB || !s.node.storage // else the unmount hangs
	k.Can(!p.runs && p.mounted && (p.deleted || p.done) && reaches, move{volumeIsUnmounted, slot},
		func(c *transition) { c.processes[slot].mounted = false })
	restarts := p.runs && p.known && !p.deleted && p.node == nodeA
	k.Breaks(restarts, &s.left.Restart, move{containerEnds, slot}, func(c *transition) { c.processes[slot].runs = false })
	k.Breaks(p.runs && !p.deleted, &s.left.End, move{podCompletes, slot},
		func(c *transition) { c.processes[slot].runs, c.processes[slot].done = false, true })
}

// sees lets a kubelet learn of a pod, or of its deletion or end.
func (k *worker) sees(s *state, slot int) {
	p, api := s.processes[slot], s.pods[slot]
	goes := api.terminating || !api.exists
	news := !p.known && (api.exists || p.mounted) || p.known && !p.deleted && goes
	k.Can(news, move{kubeletSees, slot}, func(c *transition) {
		now := &c.processes[slot]
		now.known, now.deleted, now.done = true, goes, now.done || api.ended
		if api.terminating {
			runs := now.runs
			c.writePod(slot, func(p *pod) { p.observe(runs, c.Attached) })
		}
	})
}

// observe is the write of a kubelet about a pod whose deletion it sees. Only the attach-detach controller cares whether
// its container runs.
func (now *pod) observe(runs, attached bool) {
	now.observed = true
	switch {
	case runs:
		now.statuses = running
	case attached && now.statuses == running:
		now.statuses = waiting
	}
}

// reports makes the moves of a kubelet that reports the end of a pod, and deletes it once its volume is unmounted.
func (k *worker) reports(s *state, slot int) {
	p, api := s.processes[slot], s.pods[slot]
	if !p.known || !api.exists {
		return
	}
	waits := k.Attached && !p.runs && !p.deleted && !p.done
	k.Can(waits && api.statuses == running, move{kubeletReportsWait, slot},
		editPod(slot, func(now *pod) { now.statuses = waiting }))
	reported := api.statuses == over || api.statuses == lost
	k.Can(!p.runs && (p.deleted || p.done) && !reported, move{kubeletReportsEnd, slot}, func(c *transition) {
		c.processes[slot].done = true
		c.writePod(slot, func(now *pod) { now.reportEnd(p) })
	})
	deletes := p.deleted && !p.mounted && reported
	k.Can(deletes && api.terminating && !api.graceZero, move{kubeletDeletes, slot},
		editPod(slot, func(p *pod) { p.graceZero = true }))
}

// reportEnd is the write of a kubelet about an ended pod. It does not replace a final phase.
func (now *pod) reportEnd(p process) {
	now.succeeded = now.succeeded || p.done && !p.deleted && !now.ended
	now.ended, now.byKubelet = true, now.byKubelet || !now.ended
	now.statuses, now.observed = over, now.terminating
	if p.unknown {
		now.statuses = lost
	}
}

// life makes the moves of the machine of node a, and of its Node.
func (k *worker) life(s *state) {
	n := s.node
	k.Can(n.off && !n.agent, move{machineStarts, 0}, func(c *transition) {
		c.node.off, c.node.fresh = false, true
		c.node.boot++
	})
	k.Can(n.connected() && n.fresh, move{kubeletRegisters, 0}, func(c *transition) {
		now := &c.node
		now.fresh, now.shown, now.shownMachine = false, now.boot, now.machine
		for slot := range c.processes {
			p := &c.processes[slot]
			p.leaving = p.node == nodeA && c.pods[slot].terminating
		}
		if !now.there {
			now.there = true
			c.leaseChanges()
		}
	})
	works := n.connected() && !n.fresh
	k.Can(n.there && (n.ready && !n.connected() || !n.ready && works), move{readyChanges, 0},
		func(c *transition) { c.node.ready = !n.ready })
}

// stop ends the machine of node a, and all processes there. A kubelet that starts knows no pod.
func (c *transition) stop() {
	c.node.off, c.node.fresh = true, false
	for slot := range c.processes {
		if p := &c.processes[slot]; p.node == nodeA {
			*p = process{node: nodeA, unknown: p.unknown}
		}
	}
}

// agents makes the moves of the agent that fences node a, and of the agent that undoes it. Its reports are true of the
// machine that the Node shows.
func (k *worker) agents(s *state) {
	k.Can(s.run == atWork, move{agentActs, 0}, func(c *transition) {
		c.run = succeeded
		switch here := c.node.shownMachine == c.node.machine; c.Agent {
		case Volumes:
			c.node.storage = c.node.storage || here && !c.Uncovered
			c.former.storage = c.former.storage || !here && !c.Uncovered
		case Power:
			c.node.agent = true
			c.stop()
		default:
			c.stop()
		}
	})
	k.Breaks(s.late == atWork, nil, move{agentActsLate, 0},
		func(c *transition) { c.late, c.node.storage = succeeded, true })
	k.Can(s.run == stopping, move{agentEnds, 0}, func(c *transition) { c.run = noRun })
	k.Can(s.undoLate == atWork, move{agentUndoes, 1},
		func(c *transition) { c.undoLate, c.node.storage = succeeded, false })
	k.Can(s.undo == atWork, move{agentUndoes, 0}, func(c *transition) {
		c.undo = succeeded
		c.node.storage, c.node.agent, c.former.storage = false, false, false
	})
}

// faults makes the faults of node a.
func (k *worker) faults(s *state) {
	n := s.node
	k.Breaks(!n.cut, &s.left.Cut, move{kubeletIsCutOff, 0}, func(c *transition) { c.node.cut = true })
	k.User(n.cut, &s.left.Heal, move{kubeletReturns, 0}, func(c *transition) { c.node.cut = false })
	k.Breaks(!n.off, &s.left.Reboot, move{machineReboots, 0}, func(c *transition) { c.stop() })
	fenced := s.fence.begun && !k.Attached || n.storage
	replaces := n.cut && !n.off && (fenced || !k.FencedFirst)
	k.User(replaces, &s.left.Replace, move{machineIsReplaced, 0}, func(c *transition) {
		for slot, p := range c.processes {
			c.former.runs[slot] = p.node == nodeA && p.runs
			c.former.mounted[slot] = p.node == nodeA && p.mounted && !n.ready
		}
		c.former.storage = n.storage
		c.stop()
		now := &c.node
		now.cut, now.storage, now.off, now.fresh = false, false, false, true
		now.boot++
		now.machine++
		for slot := range c.processes {
			c.processes[slot].unknown = c.processes[slot].node == nodeA
		}
	})
}
