package intree

import (
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Player returns a Player of the world.
func (w *World) Player() search.Player { return newWorker(w) }

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	search.Plain[state, move, *scene]
	machine *machine
	looked  memory.Opened[*replica]
}

func newWorker(w *World) *worker {
	k := &worker{World: w, machine: newMachine(w.PVs, w.Claims)}
	k.Plain = search.Plain[state, move, *scene]{
		Begins: func() state { return w.first(k.machine) },
		Copy:   func(s *state) *scene { return &scene{World: w, machine: k.machine, state: *s} },
		Offer:  k.moves, Rests: k.rests, Describe: w.describe, Write: encode, Read: decode,
	}
	return k
}

// look returns what a replica knows, to look at only.
func (k *worker) look(s *state, i int) *replica { return k.looked.Open(k.machine, &s.knows, i) }

// moves makes every possible move of a state.
func (k *worker) moves(s *state) {
	k.looked.Release(k.machine)
	room := s.room(k.World)
	if room {
		k.users(s)
	}
	k.Busy = !room
	if room {
		k.Cluster(func() { k.cluster(s) })
	}
	for i := range k.Replicas {
		k.guard(s, i)
	}
	k.arrivesLate(s)
}

// rests returns the broken promise when volume-guard has nothing under way, empty for none. Some promises also hold
// while the cluster can act. A state in which a try is repeated by the clock is not at rest unless all is as it should
// be.
func (k *worker) rests(s *state) (wrong string, rests bool) {
	if !k.idle(s) {
		return "", false
	}
	if wrong = k.unsettled(s); wrong == "" {
		return "", !k.Busy
	}
	return wrong, !k.comesBack(s)
}
