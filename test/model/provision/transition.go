package provision

import (
	"bytes"

	encoding "github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Player returns a Player of the world.
func (w *World) Player() search.Player { return newWorker(w) }

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	search.Plain[state, move, *transition]
}

func newWorker(w *World) *worker {
	k := &worker{World: w}
	k.Plain = search.Plain[state, move, *transition]{
		Begins: w.first, Copy: func(s *state) *transition { return &transition{World: w, state: *s} }, Offer: k.moves,
		Rests: k.rests, Describe: w.describe,
	}
	return k
}

// transition is a copy of a state, under change by a move.
type transition struct {
	*World
	state
	search.Verdict
}

func (k *worker) moves(s *state) {
	k.users(s)
	k.admins(s)
	k.Cluster(func() { k.cluster(s) })
	k.lifetimes(s)
	for i := range k.Replicas {
		k.replica(s, i)
	}
	k.lateCalls(s)
}

// rests returns the broken promise if nothing is under way any more, empty for none. A state in which a failed call is
// repeated by the clock is not at rest unless all is as it should be.
func (k *worker) rests(s *state) (wrong string, rests bool) {
	if !k.idle(s) {
		return "", false
	}
	wrong = k.unsettled(s)
	return wrong, wrong == "" || !k.comesBack(s)
}

// Settle makes the changes that follow a move at once, and returns the promise that the move broke.
func (c *transition) Settle() (to *state, wrong string) {
	c.sortLate()
	if c.Lag == 0 {
		c.showAll()
	}
	c.checkLeak()
	return &c.state, c.Wrong
}

// showAll has all watches show what the API server has.
func (c *transition) showAll() {
	for i := range c.Replicas {
		if l := &c.lines[i]; l.up {
			l.claims, l.pvs = c.claims, c.pvs
		}
	}
}

// sortLate brings calls that nobody waits for into one order, as it does not matter.
func (c *transition) sortLate() {
	for i := 1; i < maxLate; i++ {
		for j := i; j > 0 && bytes.Compare(encoding.Bytes(&c.late[j]), encoding.Bytes(&c.late[j-1])) > 0; j-- {
			c.late[j], c.late[j-1] = c.late[j-1], c.late[j]
		}
	}
}
