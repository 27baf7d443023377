package statefulset

import "github.com/csi-reclaimer/csi-reclaimer/test/model/search"

// Player returns a Player of the world.
func (w *World) Player() search.Player { return newWorker(w) }

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	search.Plain[state, move, *scene]
	machine *machine
	// atRest means that the state whose moves are offered is at rest. It is false for the moves of the cluster.
	atRest bool
}

func newWorker(w *World) *worker {
	k := &worker{World: w, machine: newMachine(w)}
	k.Plain = search.Plain[state, move, *scene]{
		Begins: k.begins, Copy: k.copied, Offer: k.moves, Describe: w.describe,
		Rests: func(s *state) (wrong string, rests bool) {
			if !k.atRest {
				return "", false
			}
			return k.unsettled(s), true
		},
	}
	return k
}

// scene returns a copy of a state for a change.
func (k *worker) scene(s *state) *scene { return &scene{World: k.World, machine: k.machine, state: *s} }

// copied returns a copy of a state for a move, with notes for the judge if it is at rest.
func (k *worker) copied(s *state) *scene {
	c := k.scene(s)
	if k.atRest {
		c.rests()
	}
	return c
}

// begins returns the initial state of the world, which in a settled world is at rest.
func (k *worker) begins() state {
	s := k.first(k.machine)
	for goesOn := k.Settled; goesOn; {
		goesOn = false
		for o := range k.List(&s) {
			if o.Step && *o.To != s {
				s, goesOn = *o.To, true
				break
			}
		}
	}
	return s
}

// moves makes every possible move of a state. People come last, because the state at rest before their moves counts.
func (k *worker) moves(s *state) {
	k.atRest = false
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
