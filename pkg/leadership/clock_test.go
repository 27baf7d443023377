package leadership

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// replica competes for a Lease of a fake API server, with a clock that the test sets.
type replica struct {
	clock *Clock
	lock  resourcelock.Interface
	time  time.Duration
}

func newReplicas(t *testing.T, names ...string) []*replica {
	t.Helper()
	client := fake.NewClientset()
	var all []*replica
	for _, name := range names {
		r := &replica{time: time.Hour}
		r.clock = newClock(func() time.Duration { return r.time })
		lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "ns", "disk", client.CoreV1(), client.CoordinationV1(),
			resourcelock.ResourceLockConfig{Identity: name})
		if err != nil {
			t.Fatal(err)
		}
		r.lock = r.clock.Lock(lock)
		all = append(all, r)
	}
	return all
}

// leaderRecord returns the record of a replica with this name that holds a Lease of 15 seconds, or, without a name,
// that releases it.
func leaderRecord(holder string) resourcelock.LeaderElectionRecord {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15, AcquireTime: now,
		RenewTime: now}
}

func (r *replica) take(t *testing.T, holder string) {
	t.Helper()
	if _, _, err := r.lock.Get(t.Context()); err != nil {
		must.OK(t, r.lock.Create(t.Context(), leaderRecord(holder)))
		return
	}
	must.OK(t, r.lock.Update(t.Context(), leaderRecord(holder)))
}

// stored returns the lock without the clock.
func (r *replica) stored(t *testing.T) resourcelock.Interface {
	t.Helper()
	inner, ok := r.lock.(observed)
	if !ok {
		t.Fatalf("the lock is a %T", r.lock)
	}
	return inner.Interface
}

func (r *replica) left(t *testing.T, want time.Duration) {
	t.Helper()
	if got := r.clock.Left(); got != want {
		t.Errorf("left: %v, want %v", got, want)
	}
}

func TestLeftCountsFromRenewalRequest(t *testing.T) {
	a := newReplicas(t, "a")[0]
	a.left(t, 0)
	a.take(t, "a")
	a.left(t, 15*time.Second)
	a.time += 5 * time.Second
	a.left(t, 10*time.Second)
	a.take(t, "a")
	a.left(t, 15*time.Second)
	a.time += 20 * time.Second
	a.left(t, -5*time.Second)
}

// A second renewal within one second of the wall clock leaves the record unchanged for the other replicas.
func TestRenewalsWithinOneSecondEndTogether(t *testing.T) {
	replicas := newReplicas(t, "a", "b")
	a, b := replicas[0], replicas[1]
	renew := leaderRecord("a")
	var seen [][]byte
	for n, late := range []time.Duration{100 * time.Millisecond, 900 * time.Millisecond} {
		record := renew
		record.RenewTime = metav1.NewTime(renew.RenewTime.Add(late))
		a.time = time.Hour + late
		write := a.lock.Create
		if n > 0 {
			write = a.lock.Update
		}
		must.OK(t, write(t.Context(), record))
		_, raw, err := b.lock.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, raw)
	}
	if !bytes.Equal(seen[0], seen[1]) {
		t.Errorf("others see the second renewal: %s, then %s", seen[0], seen[1])
	}
	a.time = time.Hour + 15*time.Second
	a.left(t, 0)
}

// slow is a lock whose writes take effect before their answer, which may be an error.
type slow struct {
	resourcelock.Interface
	answer func() error
}

func (s slow) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return errors.Join(s.Interface.Update(ctx, record), s.answer())
}

func TestLateAnswerDoesNotExtendLease(t *testing.T) {
	a := newReplicas(t, "a")[0]
	a.take(t, "a")
	a.lock = a.clock.Lock(slow{a.stored(t), func() error { a.time += 9 * time.Second; return nil }})
	a.take(t, "a")
	a.left(t, 6*time.Second)
}

func TestUnansweredRenewalDoesNotCount(t *testing.T) {
	a := newReplicas(t, "a")[0]
	a.take(t, "a")
	a.time += 5 * time.Second
	a.lock = a.clock.Lock(slow{a.stored(t), func() error { return errors.New("no answer") }})
	if err := a.lock.Update(t.Context(), leaderRecord("a")); err == nil {
		t.Fatal("no error")
	}
	a.left(t, 10*time.Second)
	if err := a.lock.Update(t.Context(), leaderRecord("")); err == nil {
		t.Fatal("no error")
	}
	a.left(t, 0) // another replica may have seen the release
}

func TestAnotherHolderEndsTerm(t *testing.T) {
	for sentence, holder := range map[string]string{"another leads": "b", "another has led": ""} {
		t.Run(sentence, func(t *testing.T) {
			both := newReplicas(t, "a", "b")
			a, b := both[0], both[1]
			a.take(t, "a")
			b.take(t, "b")
			if holder == "" {
				b.take(t, "")
			}
			a.time += 5 * time.Second
			if _, _, err := a.lock.Get(t.Context()); !errors.Is(err, ErrExpired) {
				t.Errorf("Get = %v, want %v: the election would take the Lease back", err, ErrExpired)
			}
			if err := a.lock.Update(t.Context(), leaderRecord("a")); !errors.Is(err, ErrExpired) {
				t.Errorf("Update = %v, want %v: it would take the Lease back", err, ErrExpired)
			}
			a.left(t, 0)
			select {
			case <-a.clock.Lost():
			default:
				t.Error("Lost is not closed")
			}
			if text := a.clock.String(); !strings.Contains(text, "renewed 5s ago") || holder != "" &&
				!strings.Contains(text, "held by b now") {
				t.Errorf("says %q", text)
			}
			a.clock.renew(a.time, time.Minute)
			a.left(t, 0)
		})
	}
}

func TestFirstOtherHolderIsNamed(t *testing.T) {
	a := newReplicas(t, "a")[0]
	a.take(t, "a")
	for _, holder := range []string{"b", "c", "a"} {
		if a.clock.see(leaderRecord(holder), "a") {
			t.Errorf("held by %s now, and not lost", holder)
		}
	}
	if text := a.clock.String(); !strings.Contains(text, "held by b now") {
		t.Errorf("the first other holder is not named: %s", text)
	}
	var none *Clock
	if none.Left() != math.MaxInt64 {
		t.Errorf("without an election %v are left", none.Left())
	}
}

// renewedBefore dates the renewal back.
func renewedBefore(d time.Duration) func(*resourcelock.LeaderElectionRecord) {
	return func(r *resourcelock.LeaderElectionRecord) { r.RenewTime.Time = r.RenewTime.Add(-d) }
}

// A restored etcd has an earlier state of the Lease.
func TestLeaseThatGoesBack(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*resourcelock.LeaderElectionRecord)
		back   bool
	}{
		"the same":              {func(*resourcelock.LeaderElectionRecord) {}, false},
		"a clock that was set":  {renewedBefore(time.Minute), false},
		"an earlier renewal":    {renewedBefore(time.Hour), true},
		"an earlier transition": {func(r *resourcelock.LeaderElectionRecord) { r.LeaderTransitions-- }, true},
		"a later transition, by a clock that is behind": {func(r *resourcelock.LeaderElectionRecord) {
			renewedBefore(time.Hour)(r)
			r.LeaderTransitions++
		}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			both := newReplicas(t, "a", "b")
			a, b := both[0], both[1]
			record := leaderRecord("a")
			record.LeaderTransitions = 5
			must.OK(t, a.lock.Create(t.Context(), record))
			if _, _, err := b.lock.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.change(&record)
			must.OK(t, a.stored(t).Update(t.Context(), record))
			for name, r := range map[string]*replica{"the leader": a, "the other one": b} {
				_, _, err := r.lock.Get(t.Context())
				lost := false
				select {
				case <-r.clock.Lost():
					lost = true
				default:
				}
				if errors.Is(err, ErrExpired) != c.back || lost != (c.back && r == a) || r.clock.wentBack() != c.back {
					t.Errorf("%s: Get = %v, lost %t, back %t", name, err, lost, r.clock.wentBack())
				}
				if c.back && !strings.Contains(r.clock.String(), "restore of etcd") {
					t.Errorf("%s says %q", name, r.clock)
				}
			}
		})
	}
}

// A Lease that was deleted begins anew.
func TestDeletedLeaseDoesNotGoBack(t *testing.T) {
	all := newReplicas(t, "a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	record := leaderRecord("a")
	record.LeaderTransitions = 5
	must.OK(t, a.lock.Create(t.Context(), record))
	if _, _, err := b.lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	stored, ok := a.stored(t).(*resourcelock.LeaseLock)
	if !ok {
		t.Fatalf("the stored lock is a %T", a.stored(t))
	}
	must.OK(t, stored.Client.Leases("ns").Delete(t.Context(), "disk", metav1.DeleteOptions{}))
	if _, _, err := b.lock.Get(t.Context()); err == nil {
		t.Fatal("the Lease is not deleted")
	}
	c.take(t, "c")
	if _, _, err := b.lock.Get(t.Context()); err != nil || b.clock.wentBack() {
		t.Errorf("a Lease that was made anew went back: %v", err)
	}
}

func TestStandbyReplicaCannotLoseLease(t *testing.T) {
	both := newReplicas(t, "a", "b")
	a, b := both[0], both[1]
	a.take(t, "a")
	for range 2 {
		if _, _, err := b.lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.left(t, 0)
	}
	a.take(t, "")
	a.left(t, 0)
	b.take(t, "b")
	b.left(t, 15*time.Second)
	// The replica that gave it up may take it again.
	if _, _, err := a.lock.Get(t.Context()); err != nil {
		t.Error(err)
	}
}

// A deleted Lease has two holders until the first one reads it again. So no object owns the Lease, because garbage
// collection would delete it under a running process.
func TestDeletedLeaseHasTwoHolders(t *testing.T) {
	both := newReplicas(t, "a", "b")
	a, b := both[0], both[1]
	a.take(t, "a")
	stored, ok := a.stored(t).(*resourcelock.LeaseLock)
	if !ok {
		t.Fatalf("the stored lock is a %T", a.stored(t))
	}
	must.OK(t, stored.Client.Leases("ns").Delete(t.Context(), "disk", metav1.DeleteOptions{}))
	b.take(t, "b")
	a.left(t, 15*time.Second)
	b.left(t, 15*time.Second)
	if _, _, err := a.lock.Get(t.Context()); !errors.Is(err, ErrExpired) {
		t.Errorf("Get = %v, want %v", err, ErrExpired)
	}
	a.left(t, 0)
}
