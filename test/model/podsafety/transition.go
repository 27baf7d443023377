package podsafety

import (
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// transition is a copy of a state, under change by a move.
type transition struct {
	*World
	machine *machine
	state
	search.Verdict
}

// Settle makes the changes that follow a move at once, and returns the promise that the move broke.
func (c *transition) Settle() (to *state, wrong string) {
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
func (c *transition) named(slot int) int {
	for other := range c.Pods {
		if c.pods[other].exists && c.name(other) == c.name(slot) {
			return other
		}
	}
	return -1
}

// write changes a pod at the API server. A terminating pod without grace goes with its last finalizer.
func (c *transition) write(slot int, edit func(*pod)) {
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

// editPod returns a change of a pod at the API server.
func editPod(slot int, edit func(*pod)) func(*transition) {
	return func(c *transition) { c.write(slot, edit) }
}

// writeClaim changes the claim at the API server.
func (c *transition) writeClaim(edit func(*state)) {
	edit(&c.state)
	for i := range c.Replicas {
		if !c.Lag {
			c.showClaim(i)
		}
	}
}

// leaseChanges records that a Lease was renewed or removed.
func (c *transition) leaseChanges(n int) {
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
func (c *transition) settle() {
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
func (c *transition) settleWaits() {
	for i := range c.lines {
		for slot := range c.Pods {
			l := &c.lines[i]
			l.interrupted[slot] = l.interrupted[slot] && l.sights[slot].finished != never
		}
	}
}

// first returns the initial state of a world, with a pod on the first node.
func (w *World) first(m *machine) state {
	c := transition{World: w, machine: m}
	c.left, c.claim, c.claimHeld = w.Budget, true, w.Ephemeral
	for n := range c.nodes {
		c.nodes[n] = node{there: true, ready: true, lease: true}
	}
	p := pod{exists: true, node: 1, held: !w.Unheld}
	switch {
	case w.Unbound:
		p.node = 0
	case w.Refusals:
		c.processes[0] = process{node: 1}
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
		c.lines[i].same[0] = w.Refusals
	}
	c.settle()
	return c.state
}

// Player returns a Player of the world.
func (w *World) Player() search.Player { return newWorker(w) }

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	search.Plain[state, move, *transition]
	machine *machine
}

func newWorker(w *World) *worker {
	k := &worker{World: w, machine: newMachine()}
	k.Plain = search.Plain[state, move, *transition]{
		Begins: func() state { return w.first(k.machine) },
		Copy:   func(s *state) *transition { return &transition{World: w, machine: k.machine, state: *s} },
		Offer:  k.moves, Rests: k.rests, Describe: w.describe,
	}
	return k
}

// moves makes every possible move of a state.
func (k *worker) moves(s *state) {
	k.people(s)
	k.Cluster(func() {
		k.cluster(s)
		k.machines(s)
		for i := range k.Replicas {
			k.guard(s, i)
		}
	})
}

// rests returns the broken promise when no component of the cluster can act, empty for none. The state is not at rest
// while volume-guard has work.
func (k *worker) rests(s *state) (wrong string, rests bool) {
	if k.Busy || !k.idle(s) {
		return "", false
	}
	return k.unsettled(s), true
}
