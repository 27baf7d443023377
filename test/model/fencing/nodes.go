package fencing

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// always makes the moves that recur and end no rest: renewals of Leases, reads, and polls. A kubelet that has started
// renews its Lease at most once before it writes its boot ID.
func (k *worker) always(s *state) {
	n := s.node
	renews := n.connected() && n.there && (n.shown == n.boot || n.lease == s.fence.proofAt)
	renew := func(c *transition) { c.node.lease = unused }
	if renews && k.heard(s) {
		k.Cluster(func() { k.Can(true, move{kubeletRenews, 0, 0}, renew) })
	} else {
		k.Can(renews, move{kubeletRenews, 0, 0}, renew)
	}
	for slot := range k.Pods {
		k.readsFence(s, slot, false)
	}
	for i := range k.Replicas {
		l := &s.lines[i]
		k.Can(l.up && l.timed && !l.session.on && !l.woken, move{pollBegins, i, 0}, func(c *transition) { c.begin(i) })
	}
}

// heard reports whether the next renewal of the Lease matters, because it can contradict a proof, or show that the node
// is back.
func (k *worker) heard(s *state) bool {
	f := s.fence
	contradicts := f.fenced == isTrue && f.proven && k.kindOf(f.attempts[f.proofOf-1].agent) != Volumes
	return contradicts || f.proven && (f.proofAt == s.node.lease || s.node.lease == 0)
}

// reports reports whether the kubelet of the current run writes the status of the Node.
func (n node) reports() bool { return n.connected() && n.there && n.shown == n.boot }

// changes reports whether the condition Ready is to change: by the kubelet, or to Unknown without it.
func (n node) changes() bool {
	return n.reports() && !n.ready || n.there && !n.connected() && (n.ready || n.unready)
}

// nodes makes the moves of the machine, of its kubelet as far as the Node is concerned, and of the node lifecycle.
func (k *worker) nodes(s *state) {
	n := s.node
	k.Can(n.off && !n.agent && !n.person && k.slowly(s), move{machineStarts, 0, 0}, func(c *transition) {
		c.node.off, c.node.boot = false, unused
	})
	k.Can(n.connected() && (n.shown != n.boot || !n.there), move{kubeletRegisters, 0, 0}, func(c *transition) {
		c.writeNode(func(n *node) {
			n.shown = n.boot
			if !n.there {
				n.there, n.ready = true, false
			}
		})
	})
	k.Can(n.changes() && k.tended(s), move{nodeReadyChanges, 0, 0},
		func(c *transition) { c.writeNode(func(n *node) { n.ready, n.unready = n.connected(), false }) })
	k.Breaks(n.reports() && !n.ready && !n.unready, &s.left.Unready, move{kubeletIsNotReady, 0, 0},
		func(c *transition) { c.writeNode(func(n *node) { n.unready = true }) })
	k.Can(n.lateLease && n.there, move{lateRenewal, 0, 0}, func(c *transition) {
		c.node.lateLease, c.node.lease = false, unused
	})
	k.Can(n.lateLease, move{lateIsLost, 0, 0}, func(c *transition) { c.node.lateLease = false })
	k.Can(n.lateStatus > 0 && n.there, move{lateStatus, 0, 0}, func(c *transition) {
		c.writeNode(func(n *node) { n.ready, n.unready, n.shown, n.lateStatus = true, false, n.lateStatus, 0 })
	})
	k.Can(n.lateStatus > 0, move{lateIsLost, 1, 0}, func(c *transition) { c.node.lateStatus = 0 })
	k.Can(!n.there && n.lease > 0, move{leaseIsCollected, 0, 0}, func(c *transition) { c.node.lease = 0 })
	k.faults(s)
}

// slowly reports whether all events have happened that take less time than the start of a machine: requests in flight
// are carried out or lost, and each replica has seen that the Lease is no longer renewed.
func (k *worker) slowly(s *state) bool {
	for _, l := range s.lines[:k.Replicas] {
		if l.sight.runsOn && l.sight.since == old {
			return false
		}
	}
	return !s.node.lateLease && s.node.lateStatus == 0
}

// tended reports whether volume-guard has removed the taint from a node that is Ready, if it does so at all, because a
// node that is cut off takes longer to become not Ready.
func (k *worker) tended(s *state) bool {
	if !s.node.ready || !s.node.tainted {
		return true
	}
	if !k.settled(s) {
		return false
	}
	for at := *s; ; { // a session ends with a write
		then := k.work(&at).state
		switch {
		case !then.node.tainted:
			return false
		case then == at:
			return true
		}
		at = then
	}
}

// faults makes the faults of the node.
func (k *worker) faults(s *state) {
	n := s.node
	k.Breaks(!n.cut, &s.left.Cut, move{kubeletIsCutOff, 0, 0}, func(c *transition) {
		c.late()
		c.node.cut = true
	})
	k.Breaks(n.cut && !n.lateLease && n.lateStatus == 0, &s.left.Heal, move{kubeletReturns, 0, 0},
		func(c *transition) { c.node.cut = false })
	k.Breaks(n.cut && !n.second, &s.left.Replace, move{machineIsReplaced, 0, 0},
		func(c *transition) { c.node.cut, c.node.second, c.node.boot = false, true, unused })
	k.Breaks(!n.off, &s.left.PowerCut, move{powerIsCut, 0, 0}, func(c *transition) { c.stop() })
}

// late puts requests of a working kubelet in flight.
func (c *transition) late() {
	if c.node.connected() && c.left.Late > 0 {
		c.left.Late--
		c.node.lateLease, c.node.lateStatus = true, c.node.boot
	}
}

// stop ends the machine, and all processes there.
func (c *transition) stop() {
	if !c.node.off {
		c.late()
	}
	c.node.off = true
	for slot := range c.pods {
		p := &c.pods[slot]
		p.runs, p.known, p.deleted, p.unwritten = false, false, false, false
	}
}

// kubelets makes the moves of the kubelet with its pods, and of the controllers of Kubernetes that end pods.
func (k *worker) kubelets(s *state) {
	for slot := range k.Pods {
		if s.node.second {
			k.newKubelet(s, slot)
		} else {
			k.kubelet(s, slot)
		}
		k.cluster(s, slot)
		k.holder(s, slot)
		k.locker(s, slot)
	}
}

// kubelet makes the moves of the kubelet with one pod. A kubelet that has started starts no pods before it is Ready,
// and writes this condition together with its boot ID.
func (k *worker) kubelet(s *state, slot int) {
	p, n := s.pods[slot], s.node
	k.Can(n.connected() && n.there && n.shown == n.boot && p.isNews(n.ready), move{kubeletSees, 0, slot},
		func(c *transition) {
			c.pods[slot].known, c.pods[slot].deleted = true, p.terminating || !p.exists
		})
	k.Can(!n.off && p.known && !p.deleted && !p.runs, move{containerStarts, 0, slot}, func(c *transition) {
		c.pods[slot].runs, c.pods[slot].unwritten = true, c.cutsOff()
	})
	k.Can(p.deleted && p.runs, move{processesEnd, 0, slot}, func(c *transition) {
		c.pods[slot].runs, c.pods[slot].unwritten = false, p.unwritten && c.shut()
	})
	k.Can(n.connected() && p.deleted && !p.runs && p.exists && p.terminating, move{podIsFinished, 0, slot},
		func(c *transition) { c.pods[slot] = pod{} })
}

// newKubelet makes the moves of the kubelet of another machine, which knows no container of the pod and reports its
// end.
func (k *worker) newKubelet(s *state, slot int) {
	p, n := s.pods[slot], s.node
	k.Can(n.connected() && n.shown == n.boot && p.exists && p.terminating, move{podIsFinished, 0, slot},
		func(c *transition) { c.pods[slot] = pod{runs: p.runs, unwritten: p.unwritten, lent: p.lent} })
}

// isNews reports whether the kubelet has to learn of a change of the pod.
func (p pod) isNews(ready bool) bool {
	if !p.known {
		return p.exists && ready
	}
	return !p.deleted && (p.terminating || !p.exists)
}

// cluster makes the moves of Kubernetes' own controllers. The taint deletes pods that do not tolerate it, then marks
// them Failed, and detaches their volumes (pkg/controller/tainteviction, podgc, volume/attachdetach).
func (k *worker) cluster(s *state, slot int) {
	p, n := s.pods[slot], s.node
	outOfService := n.there && n.tainted
	there := outOfService && p.exists
	k.Can(there && !p.terminating && slot == 0, move{podIsEvicted, 0, slot}, func(c *transition) {
		c.pods[slot].terminating = true
	})
	k.Can(there && !n.ready && p.terminating && !p.collected, move{podIsCollected, 0, slot},
		func(c *transition) { c.pods[slot].collected = true })
	unused := outOfService || n.connected() && !p.runs || !p.exists && !n.ready
	k.Can(p.attached && unused && (!p.exists || p.collected), move{volumeIsDetached, 0, slot}, func(c *transition) {
		c.checkDetach(slot)
		c.pods[slot].attached = false
	})
}

// holder plays the controller that holds pods. It reads the evidence of a fence after it has seen the deletion: the
// NodeFence, and then the Node.
func (k *worker) holder(s *state, slot int) {
	p := s.pods[slot]
	if !p.exists || !p.terminating {
		return
	}
	e := k.shown(s, slot)
	k.readsFence(s, slot, true)
	seen := s.seen(p.evidence)
	k.Can(p.evidence.covered && !p.evidence.notReady && seen, move{holderReadsNode, 0, slot},
		func(c *transition) { c.pods[slot].evidence.notReady, c.pods[slot].evidence.boot = true, 0 })
	k.Can(p.evidence.covered && p.evidence.notReady, move{holderReleases, 0, slot}, func(c *transition) {
		c.checkRelease(slot)
		c.pods[slot] = pod{attached: p.attached, runs: p.runs, known: p.known, deleted: p.deleted, unwritten: p.unwritten,
			lent: p.lent}
	})
	// The holder begins again after each pause, even if the Node is Ready.
	k.Can(p.evidence.covered && (!p.evidence.notReady && !seen || !e.covered), move{holderBeginsAnew, 0, slot},
		func(c *transition) { c.pods[slot].evidence = evidence{} })
}

// readsFence makes the reads of the NodeFence by the holder. inTime selects reads after which the Node can show the
// required state. The others are in vain, unless another event happens in between.
func (k *worker) readsFence(s *state, slot int, inTime bool) {
	p := s.pods[slot]
	if !p.exists || !p.terminating || p.evidence.covered {
		return
	}
	e := k.shown(s, slot)
	k.Can(e.covered && s.seen(e) == inTime, move{holderReadsFence, 0, slot}, func(c *transition) {
		c.pods[slot].evidence = e
		c.answered = c.answered || c.proofIsFalse()
	})
}

// seen reports whether the Node shows the state that this evidence requires.
func (s *state) seen(e evidence) bool {
	return s.node.there && !s.node.ready && (!e.bound || s.node.shown == e.boot)
}

// shown returns the result of a live read of the NodeFence about a pod.
func (k *worker) shown(s *state, slot int) evidence {
	shown := fencing.Evidence(k.machine.fence(s.fence), podUID(slot))
	down := objects.Node{Found: true, Ready: objects.ReadyUnknown}
	if shown.EndsPod(down) {
		return evidence{covered: true}
	}
	if down.BootID = shown.BootID; shown.EndsPod(down) {
		return evidence{covered: true, bound: true, boot: number(shown.BootID)}
	}
	return evidence{}
}

// locker plays the controller that locks claims for one pod at a time. It gives the volume of a held, terminating pod
// to another one if a fence keeps the run of the node from it. It reads the NodeFence, and then the Node.
func (k *worker) locker(s *state, slot int) {
	p := s.pods[slot]
	if !k.cutsOff() || !p.exists || !p.terminating || p.lent {
		return
	}
	shown := fencing.Evidence(k.machine.fence(s.fence), podUID(slot))
	volume, _ := k.volumeOf()
	k.Can(!p.fencedOff && shown.CoversVolume(volume), move{lockerReadsFence, 0, slot}, func(c *transition) {
		c.pods[slot].fencedOff = true
	})
	node := objects.Node{Found: s.node.there, BootID: version("b", s.node.shown)}
	k.Can(p.fencedOff && shown.OfRun(node), move{volumeIsLent, 0, slot}, func(c *transition) {
		c.pods[slot].fencedOff, c.pods[slot].lent = false, true
	})
}
