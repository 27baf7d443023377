package singlenode

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
	k := &worker{World: w, machine: newMachine(w)}
	k.Plain = search.Plain[state, move, *scene]{
		Begins: func() state { return w.first(k.machine) }, Copy: k.scene, Offer: k.moves, Rests: k.rests,
		Describe: w.describe,
	}
	return k
}

// scene returns a copy of a state for a change.
func (k *worker) scene(s *state) *scene { return &scene{World: k.World, machine: k.machine, state: *s} }

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
