package provision

import (
	"bytes"
	"context"
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Explore searches the world until its bounds are exhausted, ctx ends or something is found.
func (w *World) Explore(ctx context.Context, o search.Options) search.Result {
	return search.Explore(ctx, func() search.Player { return newWorker(w) }, o)
}

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	search.Moves[move, *scene]
	visitor *search.Visitor
	s       *state
	buffer  []byte
	// listed, if set, gets each move and what it leads to; nothing is searched.
	listed func(move, *state)
}

func newWorker(w *World) *worker {
	k := &worker{World: w}
	k.Make = k.make
	return k
}

// scene is a state that a move is changing.
type scene struct {
	*World
	state
	// wrong is the promise that the move broke, in words.
	wrong string
}

func (c *scene) violates(format string, args ...any) {
	if c.wrong == "" {
		c.wrong = fmt.Sprintf(format, args...)
	}
}

// Break is called before a fault.
func (c *scene) Break() {}

// First returns the state in which the world begins.
func (k *worker) First() []byte {
	s := k.first()
	return s.encode(nil)
}

// Visit makes every move that is possible in a state.
func (k *worker) Visit(code []byte, v *search.Visitor) {
	s := decode(code)
	k.visitor, k.s = v, &s
	k.moves(&s)
	if !k.rests(&s) {
		return
	}
	switch wrong := k.unsettled(&s); {
	case wrong == "":
		v.Settled()
	case !k.comesBack(&s):
		v.Unsettled(wrong)
	}
}

func (k *worker) moves(s *state) {
	k.Busy = false
	k.users(s)
	k.admins(s)
	k.Cluster(func() { k.cluster(s) })
	k.lifetimes(s)
	for i := range k.Replicas {
		k.replica(s, i)
	}
	k.lateCalls(s)
}

func (k *worker) make(m move, step bool, do func(*scene)) {
	n := scene{World: k.World, state: *k.s}
	do(&n)
	n.sortLate()
	if k.Lag == 0 {
		n.showAll()
	}
	n.judgeLeak()
	switch {
	case k.listed != nil:
		k.listed(m, &n.state)
	case n.wrong != "":
		k.visitor.Broke(m.code(), n.wrong)
	default:
		k.buffer = n.encode(k.buffer[:0])
		k.visitor.Reached(m.code(), step, k.buffer)
	}
}

// showAll has all watches show what the API server has.
func (c *scene) showAll() {
	for i := range c.Replicas {
		if l := &c.lines[i]; l.up {
			l.claims, l.pvs = c.claims, c.pvs
		}
	}
}

// sortLate brings calls that nobody waits for into one order, as it does not matter.
func (c *scene) sortLate() {
	var a, b [256]byte
	for i := 1; i < maxLate; i++ {
		for j := i; j > 0 && bytes.Compare(c.late[j].code(a[:0]), c.late[j-1].code(b[:0])) > 0; j-- {
			c.late[j], c.late[j-1] = c.late[j-1], c.late[j]
		}
	}
}
