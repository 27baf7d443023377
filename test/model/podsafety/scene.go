package podsafety

import "github.com/csi-reclaimer/csi-reclaimer/test/model/search"

// scene is a copy of a state, under change by a move.
type scene struct {
	*World
	machine *machine
	state
	search.Verdict
}

// Settle makes the changes that follow a move at once, and returns the promise that the move broke.
func (c *scene) Settle() (to *state, wrong string) {
	c.settle()
	return &c.state, c.Wrong
}

// name returns the number of a pod's name. Pods have the name one after the other, or each has its own.
func (w *World) name(slot int) int {
	if w.Beside {
		return slot
	}
	return 0
}

// named returns the existing pod with the name of a pod, -1 for none.
func (c *scene) named(slot int) int {
	for other := range c.Pods {
		if c.pods[other].exists && c.name(other) == c.name(slot) {
			return other
		}
	}
	return -1
}

// write changes a pod at the API server. A terminating pod without grace goes with its last finalizer.
func (c *scene) write(slot int, edit func(*pod)) {
	was := c.pods[slot]
	now := was
	edit(&now)
	if now == was {
		return
	}
	if now.terminating && now.graceZero && !now.held {
		// volume-guard does not answer for a pod that was never held.
		c.excused[slot] = c.excused[slot] || !was.held
		now = pod{}
	}
	c.pods[slot] = now
	for i := range c.Replicas {
		c.lines[i].sessions[slot].changed = c.lines[i].sessions[slot].on
		if !c.Lag {
			c.showPod(i, slot)
		}
	}
}

// writeClaim changes the claim at the API server.
func (c *scene) writeClaim(edit func(*state)) {
	edit(&c.state)
	for i := range c.Replicas {
		if !c.Lag {
			c.showClaim(i)
		}
	}
}

// leaseChanges records that a Lease was renewed or removed.
func (c *scene) leaseChanges(n int) {
	for i := range c.Replicas {
		for slot := range c.Pods {
			if int(c.processes[slot].node) == n+1 {
				c.lines[i].sights[slot].leaseCurrent, c.lines[i].sights[slot].leaseFound = false, false
			}
		}
	}
}

// settle makes the changes that follow a move at once: kubelets report their volumes and renew their Leases, and
// watches without a lag deliver the nodes.
func (c *scene) settle() {
	for n := range maxNodes {
		node := &c.nodes[n]
		node.lost = !node.there && (node.lost || !node.connected())
		if !node.connected() {
			continue
		}
		c.mountSeen[n] = false
		for slot := range c.Pods {
			p := c.processes[slot]
			c.mountSeen[n] = c.mountSeen[n] || int(p.node) == n+1 && p.mounted && !p.lost
		}
	}
	c.settleWaits()
	if c.Lag {
		return
	}
	for i := range c.Replicas {
		for n := range maxNodes {
			if c.lines[i].up && c.lines[i].nodes[n] != c.nodes[n].view() {
				c.showNode(i, n)
			}
		}
	}
}

// settleWaits forgets the interruption of a wait for an unmount that no longer exists.
func (c *scene) settleWaits() {
	for i := range c.lines {
		for slot := range c.Pods {
			l := &c.lines[i]
			l.interrupted[slot] = l.interrupted[slot] && l.sights[slot].finished != never
		}
	}
}

// first returns the initial state of a world, with a pod on the first node.
func (w *World) first(m *machine) state {
	c := scene{World: w, machine: m}
	c.left, c.claim, c.claimHeld = w.Budget, true, w.Ephemeral
	for n := range c.nodes {
		c.nodes[n] = node{there: true, ready: true, lease: true}
	}
	p := pod{exists: true, node: 1, held: !w.Unheld}
	switch {
	case w.Unbound:
		p.node = 0
	case w.Starting:
		c.processes[0] = process{node: 1, known: true}
		c.attached[0] = w.Attach
	default:
		p.statuses, p.observed, p.written = running, 1, 1
		if w.Older {
			p.observed, p.written = 0, 0
		}
		c.processes[0] = process{node: 1, known: true, runs: true, mounted: true}
		c.attached[0] = w.Attach
	}
	c.pods[0], c.born[0] = p, true
	if w.Beside {
		c.pods[1], c.born[1] = pod{exists: true, held: true}, true
	}
	for i := range w.Replicas {
		c.start(i)
	}
	c.settle()
	return c.state
}
