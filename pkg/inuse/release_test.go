package inuse

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

// instant is a clock on which waiting takes no time; passed, if set, is called after each wait.
type instant struct {
	*testclock.FakeClock
	passed func()
}

func (c *instant) After(d time.Duration) <-chan time.Time {
	after := c.FakeClock.After(d)
	c.Step(d)
	if c.passed != nil {
		c.passed()
	}
	return after
}

// stock is a kind whose objects a release lists, with a watch that never lags.
type stock struct {
	world
	g      *Guard
	others map[string]bool // held by another finalizer
	lists  int
	broken error
}

func (s *stock) List(context.Context) (all []Held, err error) {
	s.lists++
	for key, o := range s.objects {
		all = append(all, heldBy(o, s.used[key], s.others[key]))
	}
	slices.SortFunc(all, func(a, b Held) int { return strings.Compare(a.Name, b.Name) })
	return all, s.broken
}

func (s *stock) Patch(ctx context.Context, o Object, a Action) (Object, error) {
	after, err := s.world.Patch(ctx, o, a)
	if err == nil {
		s.set(o.Key(), after.Protected)
	}
	return after, err
}

// set has the watch show that the finalizer was added or removed.
func (s *stock) set(key string, on bool) {
	before := s.objects[key]
	now := before
	now.Protected = on
	if now.Terminating && !on {
		delete(s.objects, key)
		s.g.Deleted(before, true)
		return
	}
	s.objects[key] = now
	if before.Needs() { // otherwise it was not in the cache
		s.g.Updated(before, now)
	}
}

// newStock returns a cluster with these objects, and the clock of its Guard.
func newStock(t *testing.T, objects ...Object) (*stock, *instant) {
	t.Helper()
	clock := &instant{FakeClock: testclock.NewFakeClock(at(0))}
	s := &stock{world: world{objects: map[string]Object{}, used: map[string]bool{}}, others: map[string]bool{}}
	for _, o := range objects {
		s.objects[o.Key()] = o
	}
	s.g = releasing(t, s, clock)
	return s, clock
}

// releasing returns a Guard of a kind for a release.
func releasing(t *testing.T, kind Kind, clock *instant) *Guard {
	t.Helper()
	g, err := New("Thing", kind, Config{Mode: ModeFull, Patience: patience,
		Settings: controllers.Settings{Workers: 1, Clock: clock}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	return g
}

func TestReleaseWithoutAnotherController(t *testing.T) {
	s, clock := newStock(t, named("a", false, true), named("b", false, true), named("c", true, true),
		named("d", false, false))
	s.used["ns/a"] = true
	got, err := s.g.Release(t.Context())
	if err != nil || got.Objects != 3 || got.Others || len(got.Left) > 0 {
		t.Errorf("released %+v, %v", got, err)
	}
	s.expect(t, "RemoveFinalizer a", "RemoveFinalizer b", "RemoveFinalizer c")
	if waited := clock.Since(at(0)); waited < patience {
		t.Errorf("others had %v", waited)
	}
}

// If no object has a need, the release creates one by removing the finalizer from one object.
func TestReleaseWitness(t *testing.T) {
	used := func(s *stock) { s.used["ns/a"], s.used["ns/c"] = true, true }
	t.Run("not put back", func(t *testing.T) {
		s, clock := newStock(t, named("a", false, true), named("b", false, true), named("c", false, true))
		used(s)
		clock.passed = func() {
			if clock.Since(at(0)) < patience {
				s.expect(t, "RemoveFinalizer b")
			}
		}
		got, err := s.g.Release(t.Context())
		if err != nil || got.Objects != 3 || len(got.Left) > 0 {
			t.Errorf("released %+v, %v", got, err)
		}
		s.expect(t, "RemoveFinalizer b", "RemoveFinalizer a", "RemoveFinalizer c")
	})
	t.Run("put back", func(t *testing.T) {
		s, clock := newStock(t, named("a", false, true), named("b", false, true), named("c", false, true))
		used(s)
		clock.passed = func() {
			if !s.objects["ns/b"].Protected {
				s.set("ns/b", true)
			}
		}
		got, err := s.g.Release(t.Context())
		if err != nil || got.Objects != 0 || !got.Others || len(got.Left) != 3 {
			t.Errorf("released %+v, %v", got, err)
		}
		s.expect(t, "RemoveFinalizer b")
	})
	t.Run("it is gone before it shows", func(t *testing.T) {
		s, clock := newStock(t, named("a", false, true), named("b", false, true), named("c", false, true))
		used(s)
		clock.passed = func() { delete(s.objects, "ns/b") }
		got, err := s.g.Release(t.Context())
		if !errors.Is(err, ErrUnproven) || got.Objects != 1 || len(got.Left) != 2 {
			t.Errorf("released %+v, %v", got, err)
		}
		s.expect(t, "RemoveFinalizer b")
	})
	t.Run("another one of its name is there", func(t *testing.T) {
		s, clock := newStock(t, named("a", false, true), named("b", false, true))
		used(s)
		clock.passed = func() {
			o := named("b", false, false)
			o.UID = types.UID(clock.Now().String())
			s.objects["ns/b"] = o
		}
		if got, err := s.g.Release(t.Context()); !errors.Is(err, ErrUnproven) || got.Objects != 1 {
			t.Errorf("released %+v, %v", got, err)
		}
		s.expect(t, "RemoveFinalizer b")
	})
	t.Run("all are in use", func(t *testing.T) {
		s, _ := newStock(t, named("a", false, true), named("c", false, true))
		used(s)
		got, err := s.g.Release(t.Context())
		if !errors.Is(err, ErrUnproven) || got.Objects != 0 || !slices.Equal(got.Left,
			[]string{"ns/a: LeftToBuiltIn", "ns/c: LeftToBuiltIn"}) {
			t.Errorf("released %+v, %v", got, err)
		}
		s.expect(t)
	})
	t.Run("it changes meanwhile", func(t *testing.T) {
		s, _ := newStock(t, named("a", false, true), named("b", false, true))
		used(s)
		s.fail = fmt.Errorf("patch: %w", kube.ErrChanged)
		s.wrote = func(Object) {
			if len(s.diary) > 1 {
				s.fail = nil
			}
		}
		if got, err := s.g.Release(t.Context()); err != nil || got.Objects != 2 {
			t.Errorf("released %+v, %v", got, err)
		}
		s.expect(t, "RemoveFinalizer b", "RemoveFinalizer b", "RemoveFinalizer a")
	})
	t.Run("it cannot be written", func(t *testing.T) {
		s, _ := newStock(t, named("a", false, true), named("b", false, true))
		used(s)
		s.undo = true
		if got, err := s.g.Release(t.Context()); !errors.Is(err, kube.ErrUndone) || got.Objects != 0 {
			t.Errorf("released %+v, %v", got, err)
		}
		s.expect(t, "RemoveFinalizer b")
	})
	t.Run("none carries it", func(t *testing.T) {
		s, clock := newStock(t, named("a", false, false))
		if got, err := s.g.Release(t.Context()); err != nil || got.Objects != 0 || clock.Since(at(0)) > 0 {
			t.Errorf("released %+v, %v after %v", got, err, clock.Since(at(0)))
		}
	})
}

func TestReleaseStopsWhenOthersAreSeen(t *testing.T) {
	for sentence, since := range map[string]time.Duration{"while it looks": 0,
		"after the proof": patience} {
		t.Run(sentence, func(t *testing.T) {
			s, clock := newStock(t, named("a", false, true), named("bare", false, false), named("going", true, true))
			s.used["ns/going"] = true
			clock.passed = func() {
				if _, there := s.objects["ns/going"]; there && clock.Since(at(0)) > since {
					s.set("ns/going", false)
				}
			}
			got, err := s.g.Release(t.Context())
			if err != nil || !got.Others {
				t.Errorf("released %+v, %v", got, err)
			}
			if since == 0 {
				s.expect(t)
			}
		})
	}
}

// The last write alone does not end a release.
func TestReleaseChecksRemovedFinalizers(t *testing.T) {
	s, clock := newStock(t, named("a", false, true), named("bare", false, false))
	clock.passed = func() {
		if len(s.diary) > 0 {
			s.set("ns/a", true)
		}
	}
	if got, err := s.g.Release(t.Context()); err != nil || !got.Others || len(got.Left) != 1 {
		t.Errorf("released %+v, %v", got, err)
	}
	s.expect(t, "RemoveFinalizer a")
}

// After the wait, the object is left, with its reason.
func TestReleaseWaitsForTerminatingInUse(t *testing.T) {
	for sentence, ends := range map[string]bool{"its use ends": true, "its use continues": false} {
		t.Run(sentence, func(t *testing.T) {
			s, clock := newStock(t, named("a", true, true), named("bare", false, false))
			s.used["ns/a"] = true
			clock.passed = func() {
				if since := clock.Since(at(0)); ends && since > 2*patience {
					s.used["ns/a"] = false
				}
			}
			got, err := s.g.Release(t.Context())
			if ends {
				if err != nil || got.Objects != 1 || len(got.Left) > 0 {
					t.Errorf("released %+v, %v", got, err)
				}
				return
			}
			s.expect(t)
			if !errors.Is(err, ErrInHand) || !slices.Equal(got.Left, []string{"ns/a: InUse"}) {
				t.Errorf("released %+v, %v", got, err)
			}
			if waited := clock.Since(at(0)); waited < 3*patience || waited > 4*patience {
				t.Errorf("waited for %v", waited)
			}
		})
	}
}

// A release ends only when no object has the finalizer.
func TestReleaseContinuesAfterFailure(t *testing.T) {
	for sentence, fail := range map[string]error{"it has changed": fmt.Errorf("patch: %w", kube.ErrChanged),
		"the API server does not answer": errors.New("timeout")} {
		t.Run(sentence, func(t *testing.T) {
			s, _ := newStock(t, named("a", false, true), named("b", false, true), named("bare", false, false))
			s.fail = fail
			s.wrote = func(o Object) {
				if o.Name == "b" {
					s.fail = nil
				}
			}
			got, err := s.g.Release(t.Context())
			if err != nil || got.Objects != 2 || len(got.Left) > 0 {
				t.Errorf("released %+v, %v", got, err)
			}
			s.expect(t, "RemoveFinalizer a", "RemoveFinalizer b", "RemoveFinalizer a")
		})
	}
	t.Run("for ever", func(t *testing.T) {
		s, _ := newStock(t, named("a", false, true), named("bare", false, false))
		s.fail = errors.New("forbidden")
		got, err := s.g.Release(t.Context())
		if !errors.Is(err, ErrInHand) || got.Objects != 0 || !slices.Equal(got.Left, []string{"ns/a: forbidden"}) {
			t.Errorf("released %+v, %v", got, err)
		}
	})
	t.Run("it is gone", func(t *testing.T) {
		s, _ := newStock(t, named("a", false, true), named("bare", false, false))
		s.fail = fmt.Errorf("patch: %w", kube.ErrGone)
		s.wrote = func(o Object) { delete(s.objects, o.Key()) }
		if got, err := s.g.Release(t.Context()); err != nil || len(got.Left) > 0 {
			t.Errorf("released %+v, %v", got, err)
		}
	})
	t.Run("a list", func(t *testing.T) {
		s, _ := newStock(t, named("a", false, true), named("bare", false, false))
		s.broken = errors.New("expired")
		if _, err := s.g.Release(t.Context()); !errors.Is(err, s.broken) {
			t.Error(err)
		}
		s.expect(t)
	})
}

func TestReleaseNeedsModeFull(t *testing.T) {
	s, _ := newStock(t, named("a", false, true), named("bare", false, false))
	s.g.cfg.Mode = ModeOff
	if _, err := s.g.Release(t.Context()); err == nil {
		t.Error("released where nothing is to be protected")
	}
	// Earlier evidence counts for nothing, because no Guard ran for a while.
	s, _ = newStock(t, named("a", false, true))
	s.used["ns/a"] = true
	s.g.tracker.alone()
	if got, err := s.g.Release(t.Context()); !errors.Is(err, ErrUnproven) {
		t.Errorf("released %+v, %v", got, err)
	}
	s, clock := newStock(t, named("a", false, true), named("bare", false, false))
	ctx, cancel := context.WithCancel(t.Context())
	clock.passed = cancel
	if _, err := s.g.Release(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	s.expect(t)
}

// A cancelled release starts no more writes. The single worker starts the third only after the first has written.
func TestCancelledReleaseStartsNoWrites(t *testing.T) {
	s, _ := newStock(t, named("a", false, true), named("b", false, true), named("c", false, true),
		named("bare", false, false))
	ctx, cancel := context.WithCancel(t.Context())
	s.wrote = func(Object) { cancel() }
	if _, err := s.g.Release(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if slices.Contains(s.diary, "RemoveFinalizer c") || len(s.diary) == 0 {
		t.Errorf("diary: %q", s.diary)
	}
}
