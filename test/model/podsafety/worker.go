package podsafety

import "github.com/csi-reclaimer/csi-reclaimer/test/model/search"

// Player returns a Player of the world.
func (w *World) Player() search.Player { return newWorker(w) }

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	search.Plain[state, move, *scene]
	machine *machine
}

func newWorker(w *World) *worker {
	k := &worker{World: w, machine: newMachine()}
	k.Plain = search.Plain[state, move, *scene]{
		Begins: func() state { return w.first(k.machine) },
		Copy:   func(s *state) *scene { return &scene{World: w, machine: k.machine, state: *s} },
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
