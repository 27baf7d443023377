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
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

// instant is a clock on which waiting takes no time; passed, if set, is called after each wait.
type instant struct {
	*testclock.FakeClock
	passed func()
}

func (c *instant) NewTimer(d time.Duration) clock.Timer {
	timer := c.FakeClock.NewTimer(d)
	c.Step(d)
	if c.passed != nil {
		c.passed()
	}
	return timer
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

func TestRelease(t *testing.T) {
	a, b, c := named("a", false, true), named("b", false, true), named("c", false, true)
	bare, going := named("bare", false, false), named("going", true, true)
	left := func(names ...string) (all []string) {
		for _, name := range names {
			all = append(all, "ns/"+name+": LeftToBuiltIn")
		}
		return all
	}
	// meanwhile has do happen after each wait; failing has writes fail, and calls do at each.
	meanwhile := func(do func(s *stock, passed time.Duration)) func(*stock, *instant) {
		return func(s *stock, clock *instant) { clock.passed = func() { do(s, clock.Since(at(0))) } }
	}
	failing := func(err error, do func(*stock, Object)) func(*stock, *instant) {
		return func(s *stock, _ *instant) { s.fail, s.wrote = err, func(o Object) { do(s, o) } }
	}
	untilB := func(s *stock, o Object) {
		if o.Name == "b" {
			s.fail = nil
		}
	}
	endsAfter := func(least time.Duration) func(*stock, *instant) {
		return meanwhile(func(s *stock, passed time.Duration) {
			if _, there := s.objects["ns/going"]; there && passed > least {
				s.set("ns/going", false)
			}
		})
	}
	timeout, forbidden, expired := errors.New("timeout"), errors.New("forbidden"), errors.New("expired")
	none := []string{}
	for sentence, r := range map[string]struct {
		objects []Object
		used    []string
		prepare func(*stock, *instant)
		want    Released
		err     error
		// diary has the writes, nil for any.
		diary []string
		// least and most bound the time that it takes, unless most is 0.
		least, most time.Duration
	}{
		"without another controller": {objects: []Object{a, b, named("c", true, true), bare}, used: []string{"a"},
			want: Released{Objects: 3}, diary: []string{"RemoveFinalizer a", "RemoveFinalizer b", "RemoveFinalizer c"},
			least: patience, most: time.Hour},
		"none has the finalizer": {objects: []Object{bare}, diary: none, most: 1},
		"evidence from before counts for nothing, because no Guard ran for a while": {objects: []Object{a},
			used: []string{"a"}, prepare: func(s *stock, _ *instant) { s.g.tracker.alone() }, want: Released{Left: left("a")},
			err: ErrUnproven, diary: none},

		// If no object has a need, the release creates one by removing the finalizer from one object.
		"a witness is not put back": {objects: []Object{a, b, c}, used: []string{"a", "c"},
			prepare: meanwhile(func(s *stock, passed time.Duration) {
				if passed < patience {
					s.expect(t, "RemoveFinalizer b")
				}
			}), want: Released{Objects: 3}, diary: []string{"RemoveFinalizer b", "RemoveFinalizer a", "RemoveFinalizer c"}},
		"a witness is put back": {objects: []Object{a, b, c}, used: []string{"a", "c"},
			prepare: meanwhile(func(s *stock, _ time.Duration) {
				if !s.objects["ns/b"].Protected {
					s.set("ns/b", true)
				}
			}), want: Released{Others: true, Left: left("a", "b", "c")}, diary: []string{"RemoveFinalizer b"}},
		"a witness is gone before it shows": {objects: []Object{a, b, c}, used: []string{"a", "c"},
			prepare: meanwhile(func(s *stock, _ time.Duration) { delete(s.objects, "ns/b") }),
			want:    Released{Objects: 1, Left: left("a", "c")}, err: ErrUnproven, diary: []string{"RemoveFinalizer b"}},
		"another object has the name of the witness": {objects: []Object{a, b}, used: []string{"a"},
			prepare: meanwhile(func(s *stock, passed time.Duration) {
				o := named("b", false, false)
				o.UID = types.UID(passed.String())
				s.objects["ns/b"] = o
			}), want: Released{Objects: 1, Left: left("a")}, err: ErrUnproven, diary: []string{"RemoveFinalizer b"}},
		"all are in use": {objects: []Object{a, c}, used: []string{"a", "c"}, want: Released{Left: left("a", "c")},
			err: ErrUnproven, diary: none},
		"a witness changes meanwhile": {objects: []Object{a, b}, used: []string{"a"},
			prepare: failing(fmt.Errorf("patch: %w", kube.ErrChanged), func(s *stock, _ Object) {
				if len(s.diary) > 1 {
					s.fail = nil
				}
			}), want: Released{Objects: 2}, diary: []string{"RemoveFinalizer b", "RemoveFinalizer b", "RemoveFinalizer a"}},
		"a witness cannot be written": {objects: []Object{a, b}, used: []string{"a"},
			prepare: func(s *stock, _ *instant) { s.undo = true }, err: kube.ErrUndone, diary: []string{"RemoveFinalizer b"}},

		"others are seen while it looks": {objects: []Object{a, bare, going}, used: []string{"going"},
			prepare: endsAfter(0), want: Released{Others: true, Left: left("a")}, diary: none},
		"others are seen after the proof": {objects: []Object{a, bare, going}, used: []string{"going"},
			prepare: endsAfter(patience), want: Released{Objects: 1, Others: true}},
		"others are seen after the last write, which does not end a release": {objects: []Object{a, bare},
			prepare: meanwhile(func(s *stock, _ time.Duration) {
				if len(s.diary) > 0 {
					s.set("ns/a", true)
				}
			}), want: Released{Objects: 1, Others: true, Left: left("a")}, diary: []string{"RemoveFinalizer a"}},

		// A terminating object in use is waited for, and then left with its reason.
		"a use ends": {objects: []Object{going, bare}, used: []string{"going"},
			prepare: meanwhile(func(s *stock, passed time.Duration) {
				if passed > 2*patience {
					s.used["ns/going"] = false
				}
			}), want: Released{Objects: 1}, diary: []string{"RemoveFinalizer going"}},
		"a use continues": {objects: []Object{going, bare}, used: []string{"going"},
			want: Released{Left: []string{"ns/going: InUse"}}, err: ErrInHand, diary: none,
			least: 3 * patience, most: 4 * patience},

		// A release ends only when no object has the finalizer.
		"an object changes": {objects: []Object{a, b, bare},
			prepare: failing(fmt.Errorf("patch: %w", kube.ErrChanged), untilB), want: Released{Objects: 2},
			diary: []string{"RemoveFinalizer a", "RemoveFinalizer b", "RemoveFinalizer a"}},
		"the API server does not answer": {objects: []Object{a, b, bare}, prepare: failing(timeout, untilB),
			want: Released{Objects: 2}, diary: []string{"RemoveFinalizer a", "RemoveFinalizer b", "RemoveFinalizer a"}},
		"an object cannot be written": {objects: []Object{a, bare}, prepare: failing(forbidden, func(*stock, Object) {}),
			want: Released{Left: []string{"ns/a: forbidden"}}, err: ErrInHand},
		"an object is gone": {objects: []Object{a, bare}, prepare: failing(fmt.Errorf("patch: %w", kube.ErrGone),
			func(s *stock, o Object) { delete(s.objects, o.Key()) }), want: Released{Objects: 1},
			diary: []string{"RemoveFinalizer a"}},
		"a list fails": {objects: []Object{a, bare}, prepare: func(s *stock, _ *instant) { s.broken = expired },
			err: expired, diary: none},
	} {
		t.Run(sentence, func(t *testing.T) {
			s, clock := newStock(t, r.objects...)
			for _, name := range r.used {
				s.used["ns/"+name] = true
			}
			if r.prepare != nil {
				r.prepare(s, clock)
			}
			got, err := s.g.Release(t.Context())
			if !errors.Is(err, r.err) || got.Objects != r.want.Objects || got.Others != r.want.Others ||
				!slices.Equal(got.Left, r.want.Left) {
				t.Errorf("released %+v, %v, want %+v, %v", got, err, r.want, r.err)
			}
			if r.diary != nil {
				s.expect(t, r.diary...)
			}
			if took := clock.Since(at(0)); r.most > 0 && (took < r.least || took > r.most) {
				t.Errorf("it took %v, want %v to %v", took, r.least, r.most)
			}
		})
	}
}

func TestReleaseNeedsModeFull(t *testing.T) {
	s, _ := newStock(t, named("a", false, true), named("bare", false, false))
	s.g.cfg.Mode = ModeOff
	if _, err := s.g.Release(t.Context()); err == nil {
		t.Error("released where nothing is to be protected")
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
