package search

import (
	"context"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

// Scene is a state that a move is changing.
type Scene[S any] interface {
	Break()
	// Settle does what happens at once after each move, and returns what the move has led to, and the promise that it
	// broke, empty for none.
	Settle() (to *S, wrong string)
}

// Plain is the Player of a world whose states are plain: they hold no pointers and no padding. M is a move, and C what
// it changes.
type Plain[S, M any, C Scene[S]] struct {
	Moves[M, C]
	// Begins returns the state in which the world begins, and Copy a copy of a state, to be changed.
	Begins func() S
	Copy   func(*S) C
	// Offer offers all moves of a state, those of the cluster by Cluster.
	Offer func(*S)
	// Rests reports whether a state in which nobody of the cluster can do anything is at rest, and says what is wrong with
	// it, empty for nothing.
	Rests func(*S) (wrong string, rests bool)
	// Code numbers a move.
	Code func(M) Move

	now     *S
	visitor *Visitor
	listed  func(M, *S)
	buffer  []byte
}

// Play searches a world until its bounds are exhausted, ctx ends or something is found.
func Play[P Player](ctx context.Context, player func() P, o Options) Result {
	return Explore(ctx, func() Player { return player() }, o)
}

// Encode returns a state as bytes, and Decode a state of them.
func (k *Plain[S, M, C]) Encode(s *S) []byte { return k.encode(nil, s) }

func (k *Plain[S, M, C]) encode(b []byte, s *S) []byte {
	var none memory.Knows
	return memory.Encode(b, s, &none)
}

// Decode returns the state that bytes are of.
func (k *Plain[S, M, C]) Decode(b []byte) (s S) {
	memory.Decode(b, &s)
	return s
}

// First returns the state in which the world begins.
func (k *Plain[S, M, C]) First() []byte {
	s := k.Begins()
	return k.Encode(&s)
}

// Visit makes every move that is possible in a state.
func (k *Plain[S, M, C]) Visit(code []byte, v *Visitor) {
	s := k.Decode(code)
	k.visitor = v
	k.offer(&s)
	if k.Busy {
		return
	}
	switch wrong, rests := k.Rests(&s); {
	case !rests:
	case wrong != "":
		v.Unsettled(wrong)
	default:
		v.Settled()
	}
}

// List calls each with every move that is possible in a state, and what it leads to. Nothing is searched.
func (k *Plain[S, M, C]) List(s *S, each func(M, *S)) {
	k.listed = each
	k.offer(s)
	k.listed = nil
}

func (k *Plain[S, M, C]) offer(s *S) {
	k.now, k.Busy, k.Make = s, false, k.make
	k.Offer(s)
}

func (k *Plain[S, M, C]) make(m M, step bool, do func(C)) {
	c := k.Copy(k.now)
	do(c)
	to, wrong := c.Settle()
	switch {
	case k.listed != nil:
		k.listed(m, to)
	case wrong != "":
		k.visitor.Broke(k.Code(m), wrong)
	default:
		k.buffer = k.encode(k.buffer[:0], to)
		k.visitor.Reached(k.Code(m), step, k.buffer)
	}
}
