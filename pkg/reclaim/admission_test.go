package reclaim

import (
	"context"
	"errors"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// bindable returns a PV that was just bound to its claim, without a finalizer.
func bindable() volume.PV {
	pv := released().PV
	pv.Phase, pv.HasFinalizer, pv.HasCompanionFinalizer = volume.PhaseBound, false, false
	return pv
}

// The leader counts from the events of the watch, not from the first list.
func TestLeaderCountsMissedAdmissions(t *testing.T) {
	asked := Config{AdmissionPolicy: func(context.Context) (time.Time, bool, error) { return time.Time{}, false, nil }}
	for sentence, c := range map[string]struct {
		cfg   Config
		leads bool
		want  int
	}{
		"it leads":         {asked, true, 1},
		"it waits to lead": {asked, false, 0},
		"not asked":        {Config{}, true, 0},
	} {
		w, r := newWorldWith(t, c.cfg)
		r.lead(c.leads)
		pv := bindable()
		pv.Claim.UID = ""
		w.store(r, pv)
		w.store(r, bindable()) // bound
		got := 0
		if r.admissions != nil {
			got, _, _ = r.admissions.take()
		}
		if got != c.want {
			t.Errorf("%s: %d, want %d", sentence, got, c.want)
		}
		other := bindable()
		other.Name, other.UID = "first", "first"
		if w.store(r, other); r.admissions != nil {
			if n, _, _ := r.admissions.take(); n != 0 {
				t.Errorf("%s: the first list counts", sentence)
			}
		}
	}
}

// All missed PVs are counted, and the first is reported.
func TestIneffectiveAdmissionPolicyReportedOnce(t *testing.T) {
	registry, events := prometheus.NewRegistry(), record.NewFakeRecorder(10)
	const settles = time.Minute // the default
	_, r := newWorldWith(t, Config{Events: events, Metrics: registry})
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex // a timer orders nothing for the race detector
		var stands time.Time
		var found bool
		var failed error
		reads := 0
		// Channels and clock belong to the bubble of synctest.
		r.cfg.Clock, r.admissions = clock.RealClock{}, newAdmissions()
		r.cfg.AdmissionPolicy = func(context.Context) (time.Time, bool, error) {
			mu.Lock()
			defer mu.Unlock()
			reads++
			return stands, found, failed
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); r.watchAdmission(ctx) }()
		step := func(sentence string, missed int, wait time.Duration, wantReads int, wantCount float64) {
			t.Helper()
			for range missed {
				r.admissions.note(bindable(), time.Now())
			}
			time.Sleep(wait)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if count := valueOf(t, registry, "csi_reclaimer_admission_policy_missed_total"); reads != wantReads ||
				count != wantCount {
				t.Errorf("%s: read %d times and counted %v, want %d and %v", sentence, reads, count, wantReads, wantCount)
			}
		}
		step("none is missed", 0, time.Hour, 0, 0)
		step("there is no policy", 1, 0, 1, 0)
		step("nor a moment later", 3, settles-time.Second, 1, 0)
		set := func(at time.Time, is bool, err error) {
			mu.Lock()
			defer mu.Unlock()
			stands, found, failed = at, is, err
		}
		set(time.Time{}, true, errors.New("may not be read"))
		step("it may not be read", 0, 2*time.Second, 2, 0)
		set(time.Now(), true, nil)
		step("it may be read a minute later", 0, settles, 2, 0)
		set(time.Now().Add(-settles+time.Second), true, nil)
		step("it is too young", 1, 0, 3, 0)
		time.Sleep(time.Minute)
		step("it has stood for long enough", 1, 0, 4, 1)
		step("many are missed at once", 100, policyEvery-time.Second, 4, 1)
		step("they are counted together", 0, 2*time.Second, 5, 101)
		if len(events.Events) != 1 {
			t.Fatalf("%d Events", len(events.Events))
		}
		if reported := <-events.Events; !strings.Contains(reported, string(reclaim.ReasonAdmissionPolicyIneffective)) ||
			!strings.Contains(reported, "1 PVs so far") {
			t.Errorf("reported %q", reported)
		}
		set(time.Time{}, false, nil)
		if missed, known := r.missed(ctx, time.Now()); missed || known {
			t.Errorf("without a policy: missed %t, known %t", missed, known)
		}
		r.cfg.AdmissionPolicy = func(context.Context) (time.Time, bool, error) { panic("a fault of the vendor") }
		if missed, known := r.missed(ctx, time.Now()); missed || known {
			t.Errorf("after a panic: missed %t, known %t", missed, known)
		}
		cancel()
		<-ended
	})
}

// valueOf returns the value of a counter without labels of its own.
func valueOf(t *testing.T, from prometheus.Gatherer, name string) float64 {
	t.Helper()
	families := must.Get(from.Gather())(t)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
