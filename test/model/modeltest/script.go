package modeltest

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// Lister lists every move that is possible in a state, and what it leads to.
type Lister[S, M any] interface {
	List(s *S, each func(M, *S))
}

// Next makes one of the moves of a state, nil where none is possible.
func Next[S, M any](k Lister[S, M], s *S, random *rand.Rand) *S {
	var all []S
	k.List(s, func(_ M, to *S) { all = append(all, *to) })
	return Any(random, all)
}

// Script plays moves, one after the other.
type Script[S, M any] struct {
	T   *testing.T
	Now S

	worker   Lister[S, M]
	describe func(M) string
	moves    []string
}

// NewScript returns a Script that begins with a state. describe says a move in words.
func NewScript[S, M any](t *testing.T, worker Lister[S, M], begin S, describe func(M) string) Script[S, M] {
	return Script[S, M]{T: t, Now: begin, worker: worker, describe: describe}
}

// First makes the first move that is wanted, and reports whether there is one.
func (s *Script[S, M]) First(wanted func(M) bool) bool {
	found := false
	var to S
	s.worker.List(&s.Now, func(m M, next *S) {
		if !found && wanted(m) {
			found, to = true, *next
			s.moves = append(s.moves, s.describe(m))
		}
	})
	if found {
		s.Now = to
	}
	return found
}

// Then makes the first move that is wanted, which must be possible. what says it in words.
func (s *Script[S, M]) Then(what string, wanted func(M) bool) {
	s.T.Helper()
	if !s.First(wanted) {
		s.T.Fatalf("it cannot be that %s, after\n%s", what, s)
	}
}

// All makes moves that are wanted until there is none.
func (s *Script[S, M]) All(wanted func(M) bool) {
	s.T.Helper()
	for range 300 {
		if !s.First(wanted) {
			return
		}
	}
	s.T.Fatalf("there is no end of work\n%s", s)
}

// String returns what has happened, a sentence for each move.
func (s *Script[S, M]) String() string { return strings.Join(s.moves, "\n") }
