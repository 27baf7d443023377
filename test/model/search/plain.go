package search

import (
	"iter"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

// Transition is a copy of a state, under change by a move.
type Transition[S any] interface {
	Break()
	// Settle makes the changes that follow a move at once, and returns the resulting state, and the promise that the move
	// broke, empty for none.
	Settle() (to *S, wrong string)
}

// Plain is the Player of a world whose states are plain: they hold no pointers and no padding, except for the knowledge
// of replicas. M is a move, and C the Transition of a state.
type Plain[S, M any, C Transition[S]] struct {
	Moves[M, C]
	// Begins returns the initial state of the world, and Copy a copy of a state for a change.
	Begins func() S
	Copy   func(*S) C
	// Offer offers all moves of a state, the moves of the cluster within Cluster.
	Offer func(*S)
	// Rests reports whether the state whose moves were just offered is at rest, and returns the promise that it breaks
	// there, empty for none. A state is not at rest while the cluster is busy.
	Rests func(*S) (wrong string, rests bool)
	// Describe returns the sentence of a move.
	Describe func(M) string
	// Write appends a state to bytes, and Read returns the state of bytes, for states with the knowledge of replicas.
	Write func([]byte, *S) []byte
	Read  func([]byte) S

	now    *S
	buffer []byte
}

// Option is a move that is possible in a state.
type Option[S, M any] struct {
	Move M
	// Step means that the move needs neither a user nor a fault.
	Step bool
	// To is the resulting state, and Wrong the promise that the move breaks, empty for none.
	To    *S
	Wrong string
}

// Encode returns a state as bytes, and Decode the state of bytes.
func (k *Plain[S, M, C]) Encode(s *S) []byte { return k.encode(nil, s) }

func (k *Plain[S, M, C]) encode(b []byte, s *S) []byte {
	if k.Write != nil {
		return k.Write(b, s)
	}
	return append(b, memory.Bytes(s)...)
}

// Decode returns the state of bytes.
func (k *Plain[S, M, C]) Decode(b []byte) (s S) {
	if k.Read != nil {
		return k.Read(b)
	}
	copy(memory.Bytes(&s), b)
	return s
}

// First returns the initial state of the world.
func (k *Plain[S, M, C]) First() []byte {
	s := k.Begins()
	return k.Encode(&s)
}

// Visit makes every possible move of a state.
func (k *Plain[S, M, C]) Visit(code []byte, v *Visitor) {
	s, next := k.Decode(code), Move(0)
	k.offer(&s, func(_ M, step bool, left *uint8, do func(C)) {
		move := next
		next++
		if to, wrong := k.change(left, do); wrong != "" {
			v.Broke(move, wrong)
		} else {
			k.buffer = k.encode(k.buffer[:0], to)
			v.Reached(move, step, k.buffer)
		}
	})
	switch wrong, rests := k.Rests(&s); {
	case !rests:
	case wrong != "":
		v.Unsettled(wrong)
	default:
		v.Settled()
	}
}

// List returns every possible move of a state, in the order of their numbers.
func (k *Plain[S, M, C]) List(s *S) iter.Seq[Option[S, M]] {
	return func(yield func(Option[S, M]) bool) {
		goesOn := true
		k.offer(s, func(m M, step bool, left *uint8, do func(C)) {
			if goesOn {
				to, wrong := k.change(left, do)
				goesOn = yield(Option[S, M]{m, step, to, wrong})
			}
		})
	}
}

func (k *Plain[S, M, C]) offer(s *S, receive func(m M, step bool, left *uint8, do func(C))) {
	k.now, k.Busy, k.Make = s, false, receive
	k.Offer(s)
}

func (k *Plain[S, M, C]) change(left *uint8, do func(C)) (to *S, wrong string) {
	c := k.copied(left)
	do(c)
	return c.Settle()
}

// copied returns a copy of the state, whose budget has one event less if left is a number in the budget.
func (k *Plain[S, M, C]) copied(left *uint8) C {
	if left == nil {
		return k.Copy(k.now)
	}
	*left--
	c := k.Copy(k.now)
	*left++
	return c
}

// Replay returns the moves of a history, and the resulting states.
func (k *Plain[S, M, C]) Replay(moves []Move) iter.Seq[Option[S, M]] {
	return func(yield func(Option[S, M]) bool) {
		now := k.Begins()
		for _, move := range moves {
			var made Option[S, M]
			for o := range k.List(&now) {
				if made = o; move == 0 {
					break
				}
				move--
			}
			if !yield(made) {
				return
			}
			now = *made.To
		}
	}
}

// Trace returns a sentence for each move of a history.
func (k *Plain[S, M, C]) Trace(moves []Move) (lines []string) {
	for o := range k.Replay(moves) {
		lines = append(lines, k.Describe(o.Move))
	}
	return lines
}
