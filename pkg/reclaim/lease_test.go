package reclaim

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"
)

// left is a Lease with a rest that the test sets.
type left struct{ nanoseconds atomic.Int64 }

func (l *left) Left() time.Duration { return time.Duration(l.nanoseconds.Load()) }

func (l *left) set(d time.Duration) *left { l.nanoseconds.Store(int64(d)); return l }

func held() *left { return new(left).set(time.Hour) }

func TestNothingIsAskedPastTheLease(t *testing.T) {
	lease := held()
	w, r := newWorldWith(t, Config{Lease: lease})
	lease.set(0)
	for action := AddFinalizer; action <= ReleasePV; action++ {
		if a := r.ask(t.Context(), call{Decision: Decision{Action: action}, pv: w.pv}); !errors.Is(a.err, ErrLeaseExpired) {
			t.Errorf("%v: %v", action, a.err)
		}
	}
	if err := r.lookAtBrake(t.Context()); !errors.Is(err, ErrLeaseExpired) {
		t.Errorf("look at the brake: %v", err)
	}
	if err := r.releaseOne(t.Context(), w.pv); !errors.Is(err, ErrLeaseExpired) {
		t.Errorf("release: %v", err)
	}
	w.expect(t)
}

// TestALeaseThatEndsInARun ends it while each of the calls of a deletion is answered: nothing is asked after that, and
// nothing is reported.
func TestALeaseThatEndsInARun(t *testing.T) {
	calm, r := newWorldWith(t, Config{Lease: held()})
	r.reclaim(t.Context(), "pv")
	if len(calm.diary) < 4 {
		t.Fatalf("a deletion is %q", calm.diary)
	}
	for i, last := range calm.diary {
		for _, fails := range []error{nil, errors.New("no answer")} {
			lease, events := held(), record.NewFakeRecorder(10)
			w, r := newWorldWith(t, Config{Lease: lease, Events: events})
			w.fail[last] = fails
			w.before = func(what string) {
				if what == last {
					lease.set(0)
				}
			}
			next := r.reclaim(t.Context(), "pv")
			w.expect(t, calm.diary[:i+1]...)
			if len(events.Events) > 0 {
				t.Errorf("after %q: %s", last, <-events.Events)
			}
			if next.Backoff.Max == 0 && last != calm.diary[len(calm.diary)-1] {
				t.Errorf("after %q the PV is not looked at again", last)
			}
		}
	}
}

// TestALeaderThatLostItsLeaseSaysNothing has it see what its successor does.
func TestALeaderThatLostItsLeaseSaysNothing(t *testing.T) {
	for sentence, expired := range map[string]bool{"while it leads": false, "after its lease": true} {
		t.Run(sentence, func(t *testing.T) {
			lease, events, metrics := held(), record.NewFakeRecorder(10), prometheus.NewRegistry()
			w, r := newWorldWith(t, Config{Lease: lease, Events: events, Metrics: metrics})
			if expired {
				lease.set(0)
			}
			pv := w.pv
			pv.Terminating, pv.ResourceVersion = true, "11"
			w.store(r, pv)
			pv.HasFinalizer, pv.ResourceVersion = false, "12"
			w.store(r, pv)
			r.reclaim(t.Context(), "pv")
			w.end(r)
			r.reclaim(t.Context(), "pv")
			if got := len(events.Events); got != 0 && expired || got == 0 && !expired {
				t.Errorf("%d Events", got)
			}
			if waits := r.reports.Waiting(); len(waits) > 0 && expired {
				t.Errorf("counts %v", waits)
			}
			w.expect(t)
		})
	}
}

func TestMetricsOfALeaderThatLostItsLease(t *testing.T) {
	lease, metrics := held(), prometheus.NewRegistry()
	w, r := newWorldWith(t, Config{Lease: lease, Metrics: metrics})
	r.observer.notes.contested = true
	r.reports.now(t.Context(), w.pv, ReasonHeld, "")
	for _, test := range []struct {
		left    time.Duration
		want    float64
		waiting bool
	}{{time.Hour, 1, true}, {0, 0, false}} {
		lease.set(test.left)
		families, err := metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		waiting := false
		for _, family := range families {
			switch family.GetName() {
			case "csi_reclaimer_finalizers_contested":
				if got := family.GetMetric()[0].GetGauge().GetValue(); got != test.want {
					t.Errorf("with %v left, contested is %v", test.left, got)
				}
			case "csi_reclaimer_waiting_pvs":
				waiting = true
			}
		}
		if waiting != test.waiting {
			t.Errorf("with %v left, PVs that wait are counted: %v", test.left, waiting)
		}
	}
}

func TestWhileHeldEndsWithTheLease(t *testing.T) {
	clock := testclock.NewFakeClock(now())
	lease := held()
	ctx, stop := whileHeld(t.Context(), lease, clock)
	defer stop()
	lease.set(3 * time.Second) // one that is renewed, and then is not
	for range 3 {
		for !clock.HasWaiters() {
			if ctx.Err() != nil {
				t.Fatal("ended with the lease held")
			}
			time.Sleep(time.Millisecond)
		}
		if ctx.Err() != nil {
			t.Fatal("ended with the lease held")
		}
		lease.set(lease.Left() - time.Second)
		clock.Step(leaseCheck)
	}
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, ErrLeaseExpired) {
		t.Errorf("ended by %v", err)
	}
}

func TestWithoutElectionNothingEnds(t *testing.T) {
	ctx, stop := whileHeld(t.Context(), nil, testclock.NewFakeClock(now()))
	if ctx.Err() != nil {
		t.Error(context.Cause(ctx))
	}
	stop()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrLeaseExpired) {
		t.Errorf("ended by %v", err)
	}
}

// TestRunEndsWithItsLease needs no API server: the watches never sync.
func TestRunEndsWithItsLease(t *testing.T) {
	w, r := newWorldWith(t, Config{Lease: new(left)})
	if err := r.Run(t.Context()); !errors.Is(err, ErrLeaseExpired) {
		t.Errorf("Run = %v, want %v", err, ErrLeaseExpired)
	}
	w.expect(t)
}

func TestARunLooksAtTheLeaseAfterEachAnswer(t *testing.T) {
	lease := held()
	_, r := newWorldWith(t, Config{Lease: lease})
	facts, found := r.observer.observePV("pv")
	if !found || !facts.Leading {
		t.Fatalf("found %v, leading %v", found, facts.Leading)
	}
	w := &run{Reclaimer: r, facts: facts}
	lease.set(0)
	if !w.look() || w.facts.Leading {
		t.Errorf("leading %v after the lease ran out", w.facts.Leading)
	}
}
