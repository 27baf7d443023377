//go:build model

package model

import (
	"context"
	"encoding/binary"
	"unsafe"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Explore searches the world until its bounds are exhausted, ctx ends or something is found.
func (w *World) Explore(ctx context.Context, o search.Options) search.Result {
	return search.Explore(ctx, func() search.Player { return newWorker(w) }, o)
}

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	machine *reclaim.Machine
	visitor *search.Visitor
	s       *state
	looked  [maxReplicas]*reclaim.Replica
	buffer  []byte
	// clusterMoves: one of Kubernetes' controllers can do something.
	clusterMoves, inCluster bool
	// followed, if set, is the only move that is made; result is where it leads. listed is told of
	// the moves that are possible, and none is made.
	followed *move
	result   *state
	listed   func(move)
}

func newWorker(w *World) *worker { return &worker{World: w, machine: w.newMachine()} }

// First returns the state in which the world begins.
func (k *worker) First() []byte {
	s := k.first(k.machine)
	return s.encode(nil)
}

func (w *World) newMachine() *reclaim.Machine {
	names := make([]string, 0, maxPVs)
	for _, def := range w.PVs {
		names = append(names, def.Name)
	}
	return reclaim.NewMachine(reclaim.Rules{Driver: driver, Role: w.Role, ReclaimUnprotected: true}, names, w.vocabulary())
}

// look returns what a replica knows, to look at only.
func (k *worker) look(s *state, i int) *reclaim.Replica {
	if k.looked[i] == nil {
		k.looked[i], _ = k.machine.Decode(s.knows[i])
	}
	return k.looked[i]
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
		k.sidecar(s, i)
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

// if_ makes a user's move, if the budget has any left.
func (k *worker) if_(possible bool, left uint8, m move, do func(*scene)) {
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

// encode appends the state to b.
func (s *state) encode(b []byte) []byte {
	b = append(b, unsafe.Slice((*byte)(unsafe.Pointer(&s.world)), unsafe.Sizeof(s.world))...)
	for _, known := range s.knows {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(known)))
		b = append(b, known...)
	}
	return b
}

func decode(b []byte) (s state) {
	size := int(unsafe.Sizeof(s.world))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&s.world)), size), b)
	b = b[size:]
	for i := range s.knows {
		n := int(binary.LittleEndian.Uint16(b))
		if n > 0 {
			s.knows[i] = b[2 : 2+n : 2+n]
		}
		b = b[2+n:]
	}
	return s
}
