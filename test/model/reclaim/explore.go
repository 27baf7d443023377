package reclaim

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
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
	looked  memory.Opened[*replica]
	buffer  []byte
	// followed, if set, is the only move that is made; result is where it leads. listed receives
	// the moves that are possible, and none is made.
	followed *move
	result   *state
	listed   func(move)
}

func newWorker(w *World) *worker {
	k := &worker{World: w, machine: w.newMachine()}
	k.Make = k.make
	return k
}

// First returns the state in which the world begins.
func (k *worker) First() []byte {
	s := k.first(k.machine)
	return s.encode(nil)
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

func (k *worker) make(m move, step bool, do func(*scene)) {
	switch {
	case k.listed != nil:
		k.listed(m)
		return
	case k.followed != nil && *k.followed != m:
		return
	}
	n := scene{World: k.World, machine: k.machine, state: *k.s}
	do(&n)
	n.close()
	switch {
	case k.followed != nil:
		k.result = &n.state
	case n.wrong != "":
		k.visitor.Broke(m.code(), n.wrong)
	default:
		k.buffer = n.encode(k.buffer[:0])
		k.visitor.Reached(m.code(), step, k.buffer)
	}
}

func (s *state) encode(b []byte) []byte { return memory.Encode(b, &s.world, &s.knows) }

func decode(b []byte) (s state) {
	s.knows = memory.Decode(b, &s.world)
	return s
}
