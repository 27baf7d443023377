package modeltest

import (
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Script plays moves, one after the other.
type Script[S, M any] struct {
	T   *testing.T
	Now S

	player   Player[S, M]
	describe func(M) string
	moves    []string
}

// NewScript returns a Script that begins with the initial state of a world. describe returns the sentence of a move.
func NewScript[S, M any](t *testing.T, k Player[S, M], describe func(M) string) Script[S, M] {
	return Script[S, M]{T: t, Now: k.Decode(k.First()), player: k, describe: describe}
}

// First makes the first wanted move, and reports whether there is one.
func (s *Script[S, M]) First(wanted func(M) bool) bool {
	return s.Choose(func(o search.Option[S, M]) bool { return wanted(o.Move) })
}

// Choose makes the first move whose option is wanted, and reports whether there is one.
func (s *Script[S, M]) Choose(wanted func(search.Option[S, M]) bool) bool {
	s.T.Helper()
	for o := range s.player.List(&s.Now) {
		if !wanted(o) {
			continue
		}
		s.moves = append(s.moves, s.describe(o.Move))
		if o.Wrong != "" {
			s.T.Errorf("%s\n%s", o.Wrong, s)
		}
		s.Now = *o.To
		return true
	}
	return false
}

// Then makes the first wanted move, which must be possible. what describes it.
func (s *Script[S, M]) Then(what string, wanted func(M) bool) {
	s.T.Helper()
	if !s.First(wanted) {
		s.T.Fatalf("it cannot be that %s, after\n%s", what, s)
	}
}

// All makes wanted moves until there is none.
func (s *Script[S, M]) All(wanted func(M) bool) {
	s.T.Helper()
	s.AllOptions(func(o search.Option[S, M]) bool { return wanted(o.Move) })
}

// AllOptions makes moves whose options are wanted until there is none.
func (s *Script[S, M]) AllOptions(wanted func(search.Option[S, M]) bool) {
	s.T.Helper()
	for range 300 {
		if !s.Choose(wanted) {
			return
		}
	}
	s.T.Fatalf("there is no end of work\n%s", s)
}

// String returns a sentence for each move so far.
func (s *Script[S, M]) String() string { return strings.Join(s.moves, "\n") }
