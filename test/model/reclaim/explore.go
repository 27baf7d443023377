package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
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
	k := &worker{World: w, machine: w.newMachine()}
	k.Plain = search.Plain[state, move, *scene]{
		Begins: func() state { return w.first(k.machine) },
		Copy:   func(s *state) *scene { return &scene{World: w, machine: k.machine, state: *s} },
		Offer:  k.moves, Rests: k.rests, Describe: w.describe, Write: encode, Read: decode,
	}
	return k
}

func (w *World) newMachine() *machine {
	names := make([]string, 0, maxPVs)
	for _, def := range w.PVs {
		names = append(names, def.Name)
	}
	return newMachine(reclaim.Rules{Driver: driver, Role: w.Role, ReclaimUnprotected: true}, names, w.vocabulary())
}

// look returns what a replica knows, to look at only.
func (k *worker) look(s *state, i int) *replica { return k.looked.Open(k.machine, &s.knows, i) }

// rests returns the broken promise if nothing is under way any more, empty for none. A state in which a try is repeated
// by the clock is not at rest unless all is as it should be.
func (k *worker) rests(s *state) (wrong string, rests bool) {
	if !k.idle(s) {
		return "", false
	}
	wrong = k.unsettled(s)
	return wrong, wrong == "" || !k.comesBack(s)
}

// moves makes every move that is possible in a state.
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
		k.sidecar(s, i)
	}
	k.arrivesLate(s)
}

func encode(b []byte, s *state) []byte { return memory.Encode(b, &s.world, &s.knows) }

func decode(b []byte) (s state) {
	s.knows = memory.Decode(b, &s.world)
	return s
}
