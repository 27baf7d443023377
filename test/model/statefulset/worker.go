package statefulset

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Explore searches the world until its bounds are exhausted, ctx ends or a promise is broken.
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
	atRest  bool
	buffer  []byte
	// listed, if set, receives each move and the resulting state instead of the search.
	listed func(move, *state)
}

func newWorker(w *World) *worker {
	k := &worker{World: w, machine: newMachine(w)}
	k.Make = k.make
	return k
}

// scene returns a copy of a state for a change.
func (k *worker) scene(s *state) *scene { return &scene{World: k.World, machine: k.machine, state: *s} }

// First returns the initial state of the world.
func (k *worker) First() []byte {
	s := k.first(k.machine)
	for k.Settled {
		k.s, k.listed = &s, nil
		next, found := s, false
		k.Make = func(_ move, step bool, do func(*scene)) {
			if n := k.scene(&s); step && !found {
				do(n)
				n.settle()
				next, found = n.state, n.state != s
			}
		}
		k.moves(&s)
		k.Make = k.make
		if s = next; !found {
			break
		}
	}
	return s.encode(nil)
}

// Visit makes every possible move of a state.
func (k *worker) Visit(code []byte, v *search.Visitor) {
	s := decode(code)
	k.visitor, k.s = v, &s
	k.moves(&s)
	if !k.atRest {
		return
	}
	if wrong := k.unsettled(&s); wrong != "" {
		v.Unsettled(wrong)
		return
	}
	v.Settled()
}

// moves makes every possible move of a state. People come last, because the state at rest before their moves counts.
func (k *worker) moves(s *state) {
	k.Busy, k.atRest = false, false
	k.Cluster(func() {
		k.cluster(s)
		k.managing(s)
		k.lateCalls(s)
		for i := range k.Replicas {
			k.guard(s, i)
		}
	})
	k.atRest = !k.Busy && k.idle(s)
	k.people(s)
}

func (k *worker) make(m move, step bool, do func(*scene)) {
	n := k.scene(k.s)
	if k.atRest {
		n.rests()
	}
	do(n)
	n.settle()
	if !k.Counts {
		n.number()
	}
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
