package podsafety

import (
	"context"

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
	machine *machine
	visitor *search.Visitor
	s       *state
	buffer  []byte
	// listed, if set, sees each move and what it leads to; nothing is searched.
	listed func(move, *state)
}

func newWorker(w *World) *worker {
	k := &worker{World: w, machine: newMachine()}
	k.Make = k.make
	return k
}

// First returns the state in which the world begins.
func (k *worker) First() []byte {
	s := k.first(k.machine)
	return s.encode(nil)
}

// Visit makes every move that is possible in a state.
func (k *worker) Visit(code []byte, v *search.Visitor) {
	s := decode(code)
	k.visitor, k.s = v, &s
	k.moves(&s)
	if k.Busy || !k.idle(&s) {
		return
	}
	if wrong := k.unsettled(&s); wrong != "" {
		v.Unsettled(wrong)
		return
	}
	v.Settled()
}

// moves makes every move that is possible in a state.
func (k *worker) moves(s *state) {
	k.Busy = false
	k.people(s)
	k.Cluster(func() {
		k.cluster(s)
		k.machines(s)
		for i := range k.Replicas {
			k.guard(s, i)
		}
	})
}

func (k *worker) make(m move, step bool, do func(*scene)) {
	n := scene{World: k.World, machine: k.machine, state: *k.s}
	do(&n)
	n.settle()
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
