package reclaim

import (
	"errors"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
)

// left is a Lease whose remaining time the test sets.
type left struct{ nanoseconds atomic.Int64 }

func (l *left) Left() time.Duration { return time.Duration(l.nanoseconds.Load()) }

func (l *left) set(d time.Duration) *left { l.nanoseconds.Store(int64(d)); return l }

func held() *left { return new(left).set(time.Hour) }

func TestNoCallsAfterLeaseExpiry(t *testing.T) {
	term := held()
	w, r := newWorldWith(t, Config{Lease: term})
	term.set(0)
	for action := reclaim.AddFinalizer; action <= reclaim.FinalizePV; action++ {
		if a := r.ask(t.Context(), reclaim.Ask{Decision: reclaim.Decision{Action: action}, PV: w.pv},
			nil); !errors.Is(a.err, leadership.ErrExpired) {
			t.Errorf("%v: %v", action, a.err)
		}
	}
	if err := r.syncBrake(t.Context()); !errors.Is(err, leadership.ErrExpired) {
		t.Errorf("look at the brake: %v", err)
	}
	if _, err := r.releaseOne(t.Context(), w.pv); !errors.Is(err, leadership.ErrExpired) {
		t.Errorf("release: %v", err)
	}
	w.expect(t)
}

// TestLeaseExpiryDuringSession ends the Lease while each call of a deletion is answered: no call and no report
// follows.
func TestLeaseExpiryDuringSession(t *testing.T) {
	calm, r := newWorldWith(t, Config{Lease: held()})
	r.reconcile(t.Context(), "pv")
	if len(calm.diary) < 4 {
		t.Fatalf("a deletion is %q", calm.diary)
	}
	for i, last := range calm.diary {
		for _, fails := range []error{nil, errors.New("no answer")} {
			term, events := held(), record.NewFakeRecorder(10)
			w, r := newWorldWith(t, Config{Lease: term, Events: events})
			w.fail[last] = fails
			w.at(last, func() { term.set(0) })
			next := r.reconcile(t.Context(), "pv")
			w.expect(t, calm.diary[:i+1]...)
			if len(events.Events) > 0 {
				t.Errorf("after %q: %s", last, <-events.Events)
			}
			if next.Backoff.Max == 0 && last != calm.diary[len(calm.diary)-1] {
				t.Errorf("after %q the PV is not reconciled again", last)
			}
		}
	}
}

// A former leader sees its successor's writes and does not report them.
func TestNoEventsAfterLeaseExpiry(t *testing.T) {
	for sentence, expired := range map[string]bool{"while it leads": false, "after its lease": true} {
		t.Run(sentence, func(t *testing.T) {
			term, events, metrics := held(), record.NewFakeRecorder(10), prometheus.NewRegistry()
			w, r := newWorldWith(t, Config{Lease: term, Events: events, Metrics: metrics})
			if expired {
				term.set(0)
			}
			pv := w.pv
			pv.Terminating, pv.ResourceVersion = true, "11"
			w.store(r, pv)
			pv.HasFinalizer, pv.ResourceVersion = false, "12"
			w.store(r, pv)
			r.reconcile(t.Context(), "pv")
			w.end(r)
			r.reconcile(t.Context(), "pv")
			if got := len(events.Events); got != 0 && expired || got == 0 && !expired {
				t.Errorf("%d Events", got)
			}
			if waits := r.recorder.Waiting(); len(waits) > 0 && expired {
				t.Errorf("counts %v", waits)
			}
			w.expect(t)
		})
	}
}

func TestMetricsAfterLeaseExpiry(t *testing.T) {
	term, metrics := held(), prometheus.NewRegistry()
	w, r := newWorldWith(t, Config{Lease: term, Metrics: metrics})
	r.engine.Tracker.Contested = true
	r.recorder.Report(t.Context(), object(w.pv), reclaim.ReasonHeld, "")
	for _, test := range []struct {
		left    time.Duration
		want    float64
		waiting bool
	}{{time.Hour, 1, true}, {0, 0, false}} {
		term.set(test.left)
		families := must.Get(metrics.Gather())(t)
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

// TestRunEndsWithLease needs no API server: the watches never sync.
func TestRunEndsWithLease(t *testing.T) {
	w, r := newWorldWith(t, Config{Lease: new(left)})
	if err := r.Run(t.Context()); !errors.Is(err, leadership.ErrExpired) {
		t.Errorf("Run = %v, want %v", err, leadership.ErrExpired)
	}
	w.expect(t)
}

func TestSessionChecksLeaseAfterEachAnswer(t *testing.T) {
	term := held()
	_, r := newWorldWith(t, Config{Lease: term})
	facts, found := r.engine.Facts(reclaim.Item{Name: "pv"}, r.moment("pv"))
	if !found || !facts.Leading {
		t.Fatalf("found %v, leading %v", found, facts.Leading)
	}
	session, step := r.engine.Begin(facts, r.moment("pv"))
	if step.Result != reclaim.Asks {
		t.Fatalf("asks nothing: %+v", step)
	}
	term.set(0)
	step = r.answer(session, reclaim.Reply{Outcome: reclaim.OK})
	if step.Result == reclaim.Asks || step.Decision.Reason != reclaim.ReasonNotLeading {
		t.Errorf("after the lease ran out: %+v", step)
	}
}
