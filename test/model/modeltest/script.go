package modeltest

import (
	"strings"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Script plays moves, one after the other.
type Script[S any, M interface{ Is(...search.Verb) bool }, C search.Transition[S]] struct {
	T   *testing.T
	Now S

	player *search.Plain[S, M, C]
	moves  []string
}

// NewScript returns a Script that begins with the initial state of a world.
func NewScript[S any, M interface{ Is(...search.Verb) bool }, C search.Transition[S]](
	t *testing.T, k *search.Plain[S, M, C],
) Script[S, M, C] {
	return Script[S, M, C]{T: t, Now: k.Begins(), player: k}
}

// Choose makes the first move whose option is wanted, and reports whether there is one.
func (s *Script[S, M, C]) Choose(wanted func(search.Option[S, M]) bool) bool {
	s.T.Helper()
	for o := range s.player.List(&s.Now) {
		if !wanted(o) {
			continue
		}
		s.moves = append(s.moves, s.player.Describe(o.Move))
		if o.Wrong != "" {
			s.T.Errorf("%s\n%s", o.Wrong, s)
		}
		s.Now = *o.To
		return true
	}
	return false
}

// First makes the first move of one of these verbs, and reports whether there is one.
func (s *Script[S, M, C]) First(verbs ...search.Verb) bool {
	s.T.Helper()
	return s.Choose(func(o search.Option[S, M]) bool { return o.Move.Is(verbs...) })
}

// Then makes the first wanted move, which must be possible. what describes it.
func (s *Script[S, M, C]) Then(what search.Verb, wanted func(M) bool) {
	s.T.Helper()
	if !s.Choose(func(o search.Option[S, M]) bool { return wanted(o.Move) }) {
		s.T.Fatalf("it cannot be that %s, after\n%s", what, s)
	}
}

// InTurn makes a move of each verb, for the first object for which it is possible. Each must be possible.
func (s *Script[S, M, C]) InTurn(verbs ...search.Verb) {
	s.T.Helper()
	for _, v := range verbs {
		s.Then(v, func(m M) bool { return m.Is(v) })
	}
}

// All makes moves of these verbs until there is none.
func (s *Script[S, M, C]) All(verbs ...search.Verb) {
	s.T.Helper()
	s.AllOptions(func(o search.Option[S, M]) bool { return o.Move.Is(verbs...) })
}

// AllOptions makes moves whose options are wanted until there is none.
func (s *Script[S, M, C]) AllOptions(wanted func(search.Option[S, M]) bool) {
	s.T.Helper()
	for range 300 {
		if !s.Choose(wanted) {
			return
		}
	}
	s.T.Fatalf("there is no end of work\n%s", s)
}

// String returns a sentence for each move so far.
func (s *Script[S, M, C]) String() string { return strings.Join(s.moves, "\n") }
