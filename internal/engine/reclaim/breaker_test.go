package reclaim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"
)

func TestBreaker(t *testing.T) {
	clock := testclock.NewFakeClock(now())
	newBreaker := func() *Breaker { b := NewBreaker(3, time.Minute); return &b }
	uid := func(i int) types.UID { return types.UID(fmt.Sprint(i)) }
	released := func() *Breaker {
		b := newBreaker()
		b.Lead(true)
		b.Learn("lease", false, clock.Now())
		return b
	}
	count := func(b *Breaker, volumes int) *Breaker {
		for i := range volumes {
			b.Count(uid(i), clock.Now())
		}
		return b
	}
	t.Run("is not known before the Lease was read", func(t *testing.T) {
		b := newBreaker()
		if b.State != BrakeUnknown {
			t.Errorf("state %v before this replica leads", b.State)
		}
		b.Lead(true)
		if b.State != BrakeUnknown {
			t.Errorf("state %v", b.State)
		}
	})
	t.Run("is pulled by the first excess volume", func(t *testing.T) {
		b := released()
		for i := range 3 {
			b.Count(uid(i), clock.Now())
			b.Count(uid(i), clock.Now()) // the same volume again does not count
		}
		if b.State != BrakeOff {
			t.Fatal("pulled too early")
		}
		b.Count(uid(3), clock.Now())
		if b.State != BrakeOn {
			t.Fatal("not pulled")
		}
	})
	t.Run("counts deletions in the window", func(t *testing.T) {
		b := released()
		for i := range 12 {
			b.Count(uid(i), clock.Now())
			clock.Step(21 * time.Second)
		}
		if b.State != BrakeOff {
			t.Error("pulled by volumes that were due over minutes")
		}
	})
	t.Run("counts a volume from the first time that it is deletable", func(t *testing.T) {
		b := released()
		b.Count(uid(0), clock.Now())
		clock.Step(50 * time.Second)
		b.Count(uid(0), clock.Now())
		clock.Step(20 * time.Second)
		for i := range 3 {
			b.Count(uid(1+i), clock.Now())
		}
		if b.State != BrakeOff {
			t.Error("pulled by three volumes within the window")
		}
	})
	t.Run("stays on when the Lease could not be told yet", func(t *testing.T) {
		b := count(released(), 4)
		if write, _ := b.Learn("lease", false, clock.Now()); !write || b.State != BrakeOn {
			t.Errorf("write %v, state %v", write, b.State)
		}
	})
	t.Run("goes off when a person takes it off, and does not count the same again", func(t *testing.T) {
		b := count(released(), 4)
		b.Wrote("lease")
		b.Learn("lease", true, clock.Now())
		if _, changed := b.Learn("lease", false, clock.Now()); !changed || b.State != BrakeOff {
			t.Fatalf("changed %v, state %v", changed, b.State)
		}
		b.Count(uid(5), clock.Now())
		if b.State != BrakeOff {
			t.Error("pulled by one")
		}
	})
	t.Run("stays on when its Lease is deleted or made anew", func(t *testing.T) {
		for _, lease := range []types.UID{"", "another"} {
			b := released()
			b.Learn("lease", true, clock.Now())
			if write, changed := b.Learn(lease, false, clock.Now()); !write || changed || b.State != BrakeOn {
				t.Errorf("Lease %q: write %v, changed %v, state %v", lease, write, changed, b.State)
			}
			if write, _ := b.Learn("another", false, clock.Now()); !write || b.State != BrakeOn {
				t.Errorf("Lease %q, not written yet: write %v, state %v", lease, write, b.State)
			}
			b.Wrote("another")
			if write, changed := b.Learn("another", false, clock.Now()); write || !changed || b.State != BrakeOff {
				t.Errorf("a person resumed: write %v, changed %v, state %v", write, changed, b.State)
			}
		}
	})
	t.Run("stays on in a dry run, which writes no Lease", func(t *testing.T) {
		b := count(released(), 4)
		b.Wrote("")
		for _, lease := range []types.UID{"", "lease"} {
			if write, changed := b.Learn(lease, false, clock.Now()); write || changed || b.State != BrakeOn {
				t.Errorf("Lease %q: write %v, changed %v, state %v", lease, write, changed, b.State)
			}
		}
	})
	t.Run("is on after a restart, for the Lease says so", func(t *testing.T) {
		b := newBreaker()
		b.Lead(true)
		if write, changed := b.Learn("lease", true, clock.Now()); write || !changed || b.State != BrakeOn {
			t.Errorf("write %v, changed %v, state %v", write, changed, b.State)
		}
		if _, changed := b.Learn("lease", true, clock.Now()); changed {
			t.Error("the second read of the Lease changes it")
		}
	})
	t.Run("is pulled by volumes due before this replica led", func(t *testing.T) {
		b := count(newBreaker(), 4)
		b.Lead(true)
		if write, _ := b.Learn("lease", false, clock.Now()); !write || b.State != BrakeOn {
			t.Errorf("write %v, state %v", write, b.State)
		}
	})
}

// Each volume of a mass deletion is judged, so the brake visits only the volumes that it drops, from the oldest on. A
// search of all would find the old ones behind the recent one.
func TestBreakerSearchesNoVolumes(t *testing.T) {
	t.Parallel()
	for _, n := range []int{100, 1_000, 5_000} {
		b := NewBreaker(3, time.Minute)
		b.Recent = []becameDue{{"recent", now()}}
		for i := range n {
			b.Recent = append(b.Recent, becameDue{types.UID(fmt.Sprint(i)), now().Add(-time.Hour)})
		}
		if b.judge(now()); len(b.Recent) != n+1 {
			t.Errorf("%d volumes: %d were found behind one that is recent", n, n+1-len(b.Recent))
		}
		b.Recent[0].at = now().Add(-2 * time.Hour)
		if b.judge(now()); len(b.Recent) != 0 {
			t.Errorf("%d volumes: %d are left that became deletable long ago", n, len(b.Recent))
		}
	}
}

// The brake counts as a search of all volumes would, in any order of their times.
func TestBreakerCountsAsSearchWould(t *testing.T) {
	t.Parallel()
	const limit, window = 5, time.Minute
	dice, at := rand.New(rand.NewPCG(seed(t), 2)), now()
	b, want := NewBreaker(limit, window), map[types.UID]time.Time{}
	for step := range 20_000 {
		at = at.Add(time.Duration(dice.IntN(30)-8) * time.Second)
		uid := types.UID(fmt.Sprint(dice.IntN(40)))
		switch dice.IntN(100) {
		case 0:
			b.forget()
			clear(want)
		case 1, 2, 3:
			b.recount([]types.UID{uid, "again"}, at)
			want[uid], want["again"] = at, at
			b.judge(at)
		default:
			b.Count(uid, at)
			if _, counted := want[uid]; !counted {
				want[uid] = at
			}
		}
		if len(want) > limit {
			maps.DeleteFunc(want, func(_ types.UID, since time.Time) bool { return at.Sub(since) > window })
		}
		got := map[types.UID]time.Time{}
		for _, one := range b.Recent {
			got[one.pv] = one.at
		}
		if !maps.Equal(got, want) || len(b.Recent) != len(want) || len(b.counted) != len(want) {
			t.Fatalf("step %d: counted %v, of which %d are known, want %v", step, b.Recent, len(b.counted), want)
		}
	}
}
