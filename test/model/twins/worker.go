//go:build model

package twins

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/intree"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Explore searches the world until its bounds are exhausted, ctx ends or something is found.
func (w *World) Explore(ctx context.Context, o search.Options) search.Result {
	return search.Explore(ctx, func() search.Player { return newWorker(w) }, o)
}

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	machine *intree.Machine
	visitor *search.Visitor
	s       *state
	looked  [maxReplicas]*intree.Replica
	buffer  []byte
	// clusterMoves: one of Kubernetes' controllers can do something.
	clusterMoves, inCluster bool
	// listed, if set, is told of each move and what it leads to; nothing is searched.
	listed func(move, *state)
}

func newWorker(w *World) *worker {
	return &worker{World: w, machine: intree.NewMachine(w.PVs, w.Claims)}
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

// look returns what a replica knows, to look at only.
func (k *worker) look(s *state, i int) *intree.Replica {
	if k.looked[i] == nil {
		k.looked[i], _ = k.machine.Decode(s.knows[i])
	}
	return k.looked[i]
}

// moves makes every move that is possible in a state.
func (k *worker) moves(s *state) {
	for i, r := range k.looked {
		if r != nil {
			k.machine.Release(r)
			k.looked[i] = nil
		}
	}
	room := s.room(k.World)
	if room {
		k.users(s)
	}
	k.clusterMoves, k.inCluster = !room, true
	if room {
		k.cluster(s)
	}
	k.inCluster = false
	for i := range k.Replicas {
		k.guard(s, i)
	}
	k.arrivesLate(s)
}

// can makes a move that needs neither a user nor a fault.
func (k *worker) can(possible bool, m move, do func(*scene)) {
	if possible {
		k.clusterMoves = k.clusterMoves || k.inCluster
		k.make(m, true, do)
	}
}

// user makes a user's move, if the budget has any left.
func (k *worker) user(possible bool, left uint8, m move, do func(*scene)) {
	if possible && left > 0 {
		k.make(m, false, do)
	}
}

// breaks makes a move that is a fault.
func (k *worker) breaks(possible bool, left uint8, m move, do func(*scene)) {
	if possible && left > 0 {
		k.make(m, false, func(n *scene) {
			n.faulted = true
			do(n)
		})
	}
}

func (k *worker) make(m move, step bool, do func(*scene)) {
	n := scene{World: k.World, machine: k.machine, state: *k.s}
	do(&n)
	n.forgiveNoMore()
	n.close()
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
