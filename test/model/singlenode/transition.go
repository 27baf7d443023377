package singlenode

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// transition is a copy of a state, under change by a move.
type transition struct {
	*World
	machine *machine
	state
	search.Verdict
}

// Settle returns the state after a move, and the promise that the move broke.
func (c *transition) Settle() (to *state, wrong string) { return &c.state, c.Wrong }

// uses returns the numbers of the claims of a pod, in the order of its volumes.
func (w *World) uses(slot int) []int {
	if w.Uses[slot] == nil {
		return []int{0}
	}
	return w.Uses[slot]
}

func (w *World) usesClaim(slot, n int) bool {
	for _, used := range w.uses(slot) {
		if used == n {
			return true
		}
	}
	return false
}

func (w *World) shares(a, b int) bool {
	for _, n := range w.uses(a) {
		if w.usesClaim(b, n) {
			return true
		}
	}
	return false
}

// named returns the existing pod with the name of a pod, -1 for none.
func (c *transition) named(slot int) int {
	for other := range c.Pods {
		if c.pods[other].exists && (other == slot || c.Workload == StatefulSet) {
			return other
		}
	}
	return -1
}

// asks reports whether a lock of a claim is required.
func (w *World) asks(m mode, k claim) bool {
	return m == singlenode.ModeAll || m == singlenode.ModeSelected && (k.labelled || !k.bound || w.PVAsks)
}

// writePod changes a pod at the API server.
func (c *transition) writePod(slot int, edit func(*pod)) {
	was := c.pods[slot]
	edit(&c.pods[slot])
	if c.pods[slot] != was && !c.Lag {
		for i := range c.Replicas {
			c.showPod(i, slot)
		}
	}
}

// writeClaim changes a claim at the API server. A terminating claim goes with its last finalizer.
func (c *transition) writeClaim(n int, edit func(*claim)) {
	was := c.claims[n]
	edit(&c.claims[n])
	for i := range c.Replicas {
		switch {
		case c.claims[n] == was:
		case c.Lag:
			c.lines[i].behind[n] = c.lines[i].up
		default:
			c.showClaim(i, n)
		}
	}
}

// editPod and editClaim return a change at the API server.
func editPod(slot int, edit func(*pod)) func(*transition) {
	return func(c *transition) { c.writePod(slot, edit) }
}

func editClaim(n int, edit func(*claim)) func(*transition) {
	return func(c *transition) { c.writeClaim(n, edit) }
}

// first returns the initial state of a world.
func (w *World) first(m *machine) state {
	c := transition{World: w, machine: m}
	c.left, c.mode = w.Budget, w.Mode
	for n := range w.Claims {
		if !w.Ephemeral {
			c.claims[n] = claim{uid: firstUID + 2*uint8(n), bound: !w.Unbound}
		}
	}
	c.born[0] = true
	c.pods[0] = pod{exists: true, gated: true, held: !w.Unheld, queued: w.Queued}
	if w.Running {
		c.pods[0].gated, c.pods[0].node = false, 1
		c.processes[0] = process{node: 1, known: true, runs: true, mounted: true}
	}
	for i := range w.Replicas {
		c.start(i)
	}
	return c.state
}

// UIDs are random, so the UID of a claim that is created again can come before or after the others.
const firstUID = 4

// Player returns a Player of the world.
func (w *World) Player() search.Player { return newWorker(w) }

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	search.Plain[state, move, *transition]
	machine *machine
}

func newWorker(w *World) *worker {
	k := &worker{World: w, machine: newMachine(w)}
	k.Plain = search.Plain[state, move, *transition]{
		Begins: func() state { return w.first(k.machine) }, Copy: k.transition, Offer: k.moves, Rests: k.rests,
		Describe: w.describe,
	}
	return k
}

// transition returns a copy of a state for a change.
func (k *worker) transition(s *state) *transition {
	return &transition{World: k.World, machine: k.machine, state: *s}
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
