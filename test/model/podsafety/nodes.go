package podsafety

// machines makes the moves of kubelets, their machines, and their containers.
func (k *worker) machines(s *state) {
	for n := range maxNodes {
		k.lifeOf(s, n)
	}
	for slot := range k.Pods {
		if p := s.processes[slot]; p.node > 0 {
			k.kubelet(s, slot, int(p.node)-1)
		}
	}
	for slot := range k.Pods {
		p := s.pods[slot]
		k.Can(p.terminating && !p.graceZero && p.confirmed == confirmedThis && !s.graceOver[slot], move{graceEnds, 0, slot},
			func(c *transition) {
				c.graceOver[slot] = true
				for i := range c.Replicas {
					c.timePasses(i, slot)
				}
			})
	}
	k.faults(s)
}

// lifeOf makes the moves of a machine and its Node.
func (k *worker) lifeOf(s *state, n int) {
	node := s.nodes[n]
	k.Can(node.off && (!node.fence.inForce || node.fence.reboot), move{machineStarts, 0, n}, func(c *transition) {
		c.nodes[n].off, c.nodes[n].down, c.nodes[n].fresh = false, false, true
		c.renew(n)
	})
	k.Can(node.down && !node.off, move{kubeletStarts, 0, n}, func(c *transition) {
		c.nodes[n].down, c.nodes[n].fresh = false, true
		c.forgetPods(n)
		c.renew(n)
	})
	k.Can(node.connected() && node.fresh, move{kubeletRegisters, 0, n}, func(c *transition) {
		now := &c.nodes[n]
		now.fresh = false
		if !now.there {
			now.there, now.ready, now.taint, now.own = true, false, false, false
		}
	})
	k.Can(node.connected() && node.there && !node.lease, move{kubeletRenews, 0, n}, func(c *transition) {
		c.nodes[n].lease = true
		c.leaseChanges(n)
	})
	k.writesNode(s, n)
	k.Can(node.there && node.ready != node.connected(), move{nodeReadyChanges, 0, n}, func(c *transition) {
		c.nodes[n].ready = node.connected()
	})
	k.Can(!node.there && node.lease, move{leaseIsCollected, 0, n}, func(c *transition) {
		c.nodes[n].lease = false
		c.leaseChanges(n)
	})
	k.Can(node.fence.inForce && node.there && !node.ready && !node.own, move{fenceTaints, 0, n},
		func(c *transition) { c.nodes[n].own = true })
	k.Can(node.fence.exists && !node.fence.inForce && node.own, move{fenceUntaints, 0, n},
		func(c *transition) { c.nodes[n].own = false })
}

// writesNode makes the moves of a kubelet that writes the status of its Node: at once where the Node shows another
// machine, and from time to time.
func (k *worker) writesNode(s *state, n int) {
	node := s.nodes[n]
	works := k.Refusals && node.connected() && node.there && !node.fresh
	write := func(c *transition) {
		c.nodes[n].shows, c.nodes[n].beat = node.machine, node.beat+1
	}
	k.Can(works && node.shows != node.machine, move{kubeletWritesNode, 0, n}, write)
	k.Breaks(works && node.shows == node.machine && n == 0, &s.left.Beat, move{kubeletWritesNode, 0, n}, write)
}

// refuses makes the moves of a kubelet with a pod that it refuses. It ends containers that its runtime has of the pod,
// and reports after the deletion of the pod that it finds none.
func (k *worker) refuses(s *state, slot int) {
	p, api := s.processes[slot], s.pods[slot]
	k.Breaks(k.Refusals && !p.known && !p.refused && api.exists && !api.ended, &s.left.Refuse,
		move{kubeletRefuses, 0, slot}, func(c *transition) {
			c.processes[slot].known, c.processes[slot].refused = true, true
			c.write(slot, func(p *pod) { p.ended, p.phaseByKubelet, p.refused, p.statuses = true, true, true, noStatus })
		})
	k.Can(p.refused && !p.found() && api.exists && api.terminating && api.statuses == noStatus,
		move{kubeletFindsNothing, 0, slot}, func(c *transition) {
			now := &c.processes[slot]
			now.known, now.deleted, now.done = true, true, true
			c.write(slot, func(p *pod) { p.statuses, p.observed, p.written = absent, 2, 2 })
		})
	k.Can(p.refused && p.found(), move{processesEnd, 0, slot}, func(c *transition) { c.processes[slot].runs = false })
}

// renew renews the Lease of a kubelet that works again, if it exists.
func (c *transition) renew(n int) {
	if c.nodes[n].connected() && c.nodes[n].lease {
		c.leaseChanges(n)
	}
}

// forgetPods starts a kubelet without knowledge of its pods, whose containers run on.
func (c *transition) forgetPods(n int) {
	for slot := range c.processes {
		if p := &c.processes[slot]; int(p.node) == n+1 {
			p.known, p.deleted, p.done = false, false, false
		}
	}
}

// stop ends a machine, and all processes there.
func (c *transition) stop(n int) {
	c.nodes[n].off, c.nodes[n].fresh = true, false
	c.forgetPods(n)
	for slot := range c.processes {
		if p := &c.processes[slot]; int(p.node) == n+1 && !p.lost {
			p.runs, p.mounted = false, false
		}
	}
}

// kubelet makes the moves of a kubelet with one pod.
func (k *worker) kubelet(s *state, slot, n int) {
	node, p, api := s.nodes[n], s.processes[slot], s.pods[slot]
	if node.down || node.off {
		return
	}
	if node.connected() {
		k.reports(s, slot)
		k.refuses(s, slot)
	}
	k.Can(p.startable() && (!k.Attach || s.attached[n]), move{containerStarts, 0, slot}, func(c *transition) {
		c.processes[slot].runs, c.processes[slot].mounted = true, true
		c.checkStart(slot)
	})
	k.Can(p.deleted && p.found() && !p.refused, move{processesEnd, 0, slot},
		func(c *transition) { c.processes[slot].runs = false })
	k.Can(!p.runs && p.mounted && !p.lost && p.deleted && (p.done || !api.exists), move{volumeIsUnmounted, 0, slot},
		func(c *transition) { c.processes[slot].mounted = false })
}

// startable reports whether the kubelet starts the container of the pod, as far as it knows the pod.
func (p process) startable() bool { return p.known && !p.deleted && !p.runs && !p.done && !p.refused }

// reports makes the moves of a kubelet that reaches the API server.
func (k *worker) reports(s *state, slot int) {
	k.sees(s, slot)
	p, api := s.processes[slot], s.pods[slot]
	differs := (api.statuses == running) != p.found()
	k.Can(p.known && !p.deleted && api.exists && !api.ended && differs, move{kubeletReports, 0, slot},
		func(c *transition) { c.report(slot, 1) })
	ends := p.deleted && !p.found() && !p.done && api.exists && !p.refused
	k.Can(ends, move{kubeletReportsEnd, 0, slot}, func(c *transition) { c.reportEnd(slot, true) })
	k.Can(ends && k.Older && !api.ended, move{kubeletReportsEndOfInit, 0, slot},
		func(c *transition) { c.reportEnd(slot, false) })
	k.Can(p.done && (!p.mounted || p.lost) && api.exists && !api.graceZero, move{kubeletDeletes, 0, slot},
		editPod(slot, func(p *pod) { p.graceZero = true }))
}

// sees makes the moves of a kubelet that learns of a pod, or of its deletion or end.
func (k *worker) sees(s *state, slot int) {
	p, api := s.processes[slot], s.pods[slot]
	refuses := p.refused || k.Refusals && s.nodes[p.node-1].machine > 0
	k.Can(!refuses && (!p.known && api.exists || p.known && !p.deleted && api.terminating), move{kubeletSees, 0, slot},
		func(c *transition) {
			now := &c.processes[slot]
			now.known, now.deleted = true, api.terminating
			if api.terminating {
				c.report(slot, 2)
			}
		})
	k.Can(!api.exists && (p.known && !p.deleted || !p.known && (p.runs || p.mounted)), move{kubeletSees, 0, slot},
		func(c *transition) { c.processes[slot].known, c.processes[slot].deleted = true, true })
}

// report reports the containers of a pod for a generation, as its kubelet finds them.
func (c *transition) report(slot int, generation uint8) {
	c.write(slot, func(p *pod) {
		switch {
		case c.processes[slot].found():
			p.statuses = running
		case c.processes[slot].lost && p.statuses != over: // a kubelet keeps an end that was reported
			p.statuses = unknown
		case p.statuses == running:
			p.statuses = waiting
		}
		if !c.Older {
			p.observed, p.written = generation, max(p.written, generation)
		}
		// A final phase leads to the condition, whether the containers have ended or not.
		p.reasonEnded = p.reasonEnded || p.ended
	})
}

// reportEnd reports the end of a pod. ran says whether the main container ran.
func (c *transition) reportEnd(slot int, ran bool) {
	c.processes[slot].done = true
	c.write(slot, func(p *pod) {
		p.phaseByKubelet = p.phaseByKubelet || !p.ended
		p.ended, p.reasonEnded = true, p.reasonEnded || ran
		if c.processes[slot].lost && p.statuses != over {
			p.statuses = unknown
		} else {
			p.statuses = over
		}
		if !c.Older {
			p.observed, p.written = 2, 2
		}
	})
}

// faults makes the faults of the first node.
func (k *worker) faults(s *state) {
	const n = 0
	node := s.nodes[n]
	k.Breaks(!node.cut && !node.off, &s.left.Cut, move{kubeletIsCutOff, 0, n},
		func(c *transition) { c.nodes[n].cut = true })
	k.User(node.cut, &s.left.Heal, move{kubeletReturns, 0, n}, func(c *transition) {
		c.nodes[n].cut = false
		c.renew(n)
	})
	k.Breaks(node.cut, &s.left.Replace, move{machineIsReplaced, 0, n}, func(c *transition) {
		if c.Refusals {
			c.nodes[n].machine++
		}
		c.nodes[n].cut, c.nodes[n].down, c.nodes[n].off, c.nodes[n].fresh = false, false, false, true
		c.forgetPods(n)
		for slot := range c.processes {
			if p := &c.processes[slot]; int(p.node) == n+1 {
				p.lost = p.lost || p.runs || p.mounted && !node.ready
			}
		}
		c.renew(n)
	})
	k.Breaks(!node.down && !node.off, &s.left.KubeletEnds, move{kubeletEnds, 0, n},
		func(c *transition) { c.nodes[n].down = true })
	k.Breaks(!node.off, &s.left.PowerCut, move{powerIsCut, 0, n}, func(c *transition) { c.stop(n) })
	for slot := range k.Pods {
		p := s.processes[slot]
		k.Breaks(p.node == n+1 && p.runs && !p.deleted && p.known && !node.down, &s.left.Container,
			move{containerEnds, 0, slot},
			func(c *transition) { c.processes[slot].runs = false })
	}
}
