package provision

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// first returns a function that fails this number of calls with one class.
func first(calls int, c errclass.Class) func() error {
	return func() error {
		if calls--; calls < 0 {
			return nil
		}
		return class(c)()
	}
}

// outcomes are the metrics of provisioning: the numbers of successes, of failed tries, and of recorded durations.
type outcomes struct{ succeeded, failed, durations int }

func outcomesOf(t *testing.T, from prometheus.Gatherer) (got outcomes) {
	t.Helper()
	families := must.Get(from.Gather())(t)
	sum := func(family *dto.MetricFamily) (n int) {
		for _, m := range family.GetMetric() {
			n += int(m.GetCounter().GetValue()) + int(m.GetHistogram().GetSampleCount())
		}
		return n
	}
	for _, family := range families {
		switch family.GetName() {
		case "controller_persistentvolumeclaim_provision_total":
			got.succeeded = sum(family)
		case "controller_persistentvolumeclaim_provision_failed_total":
			got.failed = sum(family)
		case "controller_persistentvolumeclaim_provision_duration_seconds":
			got.durations = sum(family)
		}
	}
	return got
}

// told is an EventRecorder that keeps two texts for each Event: "kind namespace/name", and "type reason message".
type told struct {
	record.FakeRecorder
	mu     sync.Mutex
	events []struct{ on, text string }
}

func (r *told) Event(on runtime.Object, kind, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var object string
	if ref, ok := on.(*v1.ObjectReference); ok {
		object = ref.Kind + " " + ref.Namespace + "/" + ref.Name
	}
	r.events = append(r.events, struct{ on, text string }{object, kind + " " + reason + " " + message})
}

// with returns the Events whose reason begins so; all of them for "".
func (r *told) with(reason string) (found []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, event := range r.events {
		if strings.Contains(event.text, " "+reason) {
			found = append(found, event.text)
		}
	}
	return found
}

// on reports whether an object with this beginning has an Event with all of these texts.
func (r *told) on(object string, texts ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.events, func(event struct{ on, text string }) bool {
		lacks := func(text string) bool { return !strings.Contains(event.text, text) }
		return strings.HasPrefix(event.on, object) && !slices.ContainsFunc(texts, lacks)
	})
}

// TestSuccessIsCountedOnce covers successes after various failures. In the end there is one volume, which has its PV.
// Only an unfit volume is deleted.
func TestSuccessIsCountedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		fails   func(*world)
		want    outcomes
		deleted int
	}{
		"the first call":      {func(*world) {}, outcomes{1, 0, 1}, 0},
		"after a lost answer": {func(w *world) { w.failing(true, first(1, errclass.Uncertain)) }, outcomes{1, 1, 1}, 0},
		"after three of them": {func(w *world) { w.failing(true, first(3, errclass.Uncertain)) }, outcomes{1, 3, 1}, 0},
		"after a refusal":     {func(w *world) { w.failing(false, first(1, errclass.Refused)) }, outcomes{1, 1, 1}, 0},
		"after the answer to the PV's creation was lost": {func(w *world) {
			w.client.PrependReactor("create", "persistentvolumes", lose(w))
		}, outcomes{1, 1, 1}, 0},
		"after a volume that was not as requested": {func(w *world) { w.orders.spoil = first(1, errclass.Unfit) },
			outcomes{1, 1, 1}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, registry, events := newWorld(t), prometheus.NewRegistry(), &told{}
			c.fails(w)
			p := w.start(Config{Metrics: registry, Events: events})
			w.makeClaim()
			w.wait("it is provisioned", w.provisioned)
			// The change offers the claim once more.
			w.update(func(claim *v1.PersistentVolumeClaim) { metav1.SetMetaDataLabel(&claim.ObjectMeta, "changed", "true") })
			w.wait("the change was seen", func() bool {
				claim := p.provisioner.claims.WholeByUID("u1")
				return claim != nil && claim.Labels["changed"] == "true"
			})
			p.stop()
			if got := outcomesOf(t, registry); got != c.want {
				t.Errorf("counted %+v, want %+v", got, c.want)
			}
			if len(w.onDisk()) != 1 || !w.knownVolumes() || w.count("delete volume") != c.deleted {
				t.Errorf("volumes %v, records %q", w.onDisk(), w.recorded())
			}
			want := []string{"Normal ProvisioningSucceeded Successfully provisioned volume pvc-u1"}
			if got := events.with("ProvisioningSucceeded"); !slices.Equal(got, want) {
				t.Errorf("Events %q, want %q", got, want)
			}
		})
	}
}

// TestLabelsAreOfKnownValues covers a user who chooses an arbitrary source, and two classes, one of which exists.
func TestLabelsAreOfKnownValues(t *testing.T) {
	w, registry := newWorld(t), prometheus.NewRegistry()
	w.failing(false, first(1, errclass.Refused))
	p := w.start(Config{Metrics: registry})
	w.makeClaim(func(c *v1.PersistentVolumeClaim) {
		c.Annotations[v1.BetaStorageClassAnnotation] = "fast"
		c.Spec.StorageClassName = new("arbitrary")
		c.Spec.DataSource = &v1.TypedLocalObjectReference{APIGroup: new("x.test"), Kind: "Arbitrary", Name: "x"}
	})
	w.wait("it is provisioned", w.provisioned)
	p.stop()
	if got := outcomesOf(t, registry); got != (outcomes{1, 1, 1}) {
		t.Errorf("counted %+v", got)
	}
	for _, family := range must.Get(registry.Gather())(t) {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if strings.Contains(strings.ToLower(label.GetValue()), "arbitrary") {
					t.Errorf("%s has the label %s=%q", family.GetName(), label.GetName(), label.GetValue())
				}
			}
		}
	}
}

// TestNextProcessCountsItsOwnSuccesses checks that PVs of an earlier process are not counted.
func TestNextProcessCountsItsOwnSuccesses(t *testing.T) {
	w := newWorld(t)
	w.madeUnseen().stop()
	w.failing(false, nil)
	finishes, waits := prometheus.NewRegistry(), prometheus.NewRegistry()
	p := w.start(Config{Metrics: finishes, Quiet: time.Hour})
	w.wait("it has its PV", func() bool { return w.pv() != nil })
	w.makeClaim(named("next", "u2"))
	w.wait("both are counted", func() bool { return outcomesOf(t, finishes).succeeded == 2 })
	p.stop()
	if got := outcomesOf(t, finishes); got != (outcomes{2, 0, 2}) {
		t.Errorf("counted %+v", got)
	}
	w.start(Config{Metrics: waits})
	w.wait("the entry is closed", w.settled)
	if got := outcomesOf(t, waits); got != (outcomes{}) {
		t.Errorf("the process after it counted %+v", got)
	}
}

// TestDurationBeginsWithTheFirstCall covers a volume that a later process finishes.
func TestDurationBeginsWithTheFirstCall(t *testing.T) {
	r, log := observing(t, Config{}, claimsOf{claimAt("1")}, pvsOf{})
	clock, registry := testclock.NewFakeClock(time.Unix(1e9, 0)), prometheus.NewRegistry()
	r.cfg.Clock = clock
	must.OK(t, r.metrics.register(registry))
	entry := log.entries["pvc-u1"]
	entry.Begun = clock.Now().Add(-time.Minute)
	r.track.entry = entry
	r.succeeded() // of an earlier process
	r.track.close()
	r.track.since = clock.Now().Add(-time.Second)
	r.succeeded()
	r.succeeded()
	families, found := must.Get(registry.Gather())(t), false
	for _, family := range families {
		if family.GetName() != "controller_persistentvolumeclaim_provision_duration_seconds" {
			continue
		}
		found = true
		if h := family.GetMetric()[0].GetHistogram(); h.GetSampleSum() != 61 || h.GetSampleCount() != 2 {
			t.Errorf("%v seconds of %d volumes, want 61 of 2", h.GetSampleSum(), h.GetSampleCount())
		}
	}
	if !found {
		t.Error("no duration is served")
	}
}

// TestStartIsAnnouncedAfterASecond checks that no start is announced once the outcome is known.
func TestStartIsAnnouncedAfterASecond(t *testing.T) {
	clock, did := testclock.NewFakeClock(time.Unix(1e9, 0)), make(chan struct{})
	end := later(clock, time.Second, func() { close(did) })
	clock.Step(time.Second)
	<-did
	end()
	end = later(clock, time.Second, func() { t.Error("it is announced after its end") })
	end()
	for clock.HasWaiters() {
		<-time.After(time.Millisecond)
	}
	clock.Step(time.Hour)
}

// TestMissingSelectedNodeIsAFailure: the node is read before the driver is called.
func TestMissingSelectedNodeIsAFailure(t *testing.T) {
	w, registry, events := newWorld(t), prometheus.NewRegistry(), &told{}
	p := w.start(Config{Metrics: registry, Events: events})
	w.makeClaim(selecting("gone"))
	w.wait("it is given back", func() bool { return w.selectedNode() == "" })
	w.wait("the claim is provisioned without", w.provisioned)
	p.stop()
	if got := outcomesOf(t, registry); got.succeeded != 1 || got.failed < 1 {
		t.Errorf("counted %+v", got)
	}
	if got := events.with("ProvisioningFailed"); len(got) == 0 || !strings.Contains(got[0], "failed to get target node") {
		t.Errorf("Events %q", got)
	}
}

// TestLastAnswerIsReportedWhileInDoubt: most drivers answer Internal even if their user has to correct the cause.
func TestLastAnswerIsReportedWhileInDoubt(t *testing.T) {
	w, events, calls := newWorld(t), &told{}, 0
	w.failing(false, func() error {
		if calls++; calls == 1 {
			return errclass.Mark(errclass.Uncertain, errors.New("context deadline exceeded"))
		}
		return errclass.Mark(errclass.Uncertain, errors.New("quota exceeded"))
	})
	w.start(Config{Events: events})
	w.makeClaim()
	w.wait("the driver was asked again and again", func() bool { return w.count("create volume") > 5 })
	got := append(events.with("ProvisioningFailed"), events.with("ProvisioningOutcomeUnknown")...)
	if len(got) != 2 || !strings.HasPrefix(got[0], "Warning ProvisioningOutcomeUnknown context deadline exceeded. ") ||
		!strings.HasPrefix(got[1], "Warning ProvisioningOutcomeUnknown quota exceeded. ") {
		t.Errorf("Events %q", got)
	}
}

// TestEventIsRepeatedBeforeItExpires checks that the number of calls to the driver does not matter.
func TestEventIsRepeatedBeforeItExpires(t *testing.T) {
	r, _ := observing(t, Config{}, claimsOf{claimAt("1")}, pvsOf{})
	clock, to := testclock.NewFakeClock(time.Unix(1e9, 0)), &told{}
	r.cfg.Clock = clock
	r.recorder = events.NewRecorder(events.Config[Reason]{Events: to, Pace: pace, Clock: clock})
	r.observe()
	for range 120 / 5 {
		clock.Step(5 * time.Minute)
		r.fail(t.Context(), reasons.Because(provision.ReasonOutcomeUnknown, errLost))
	}
	if n := len(to.with("ProvisioningOutcomeUnknown")); n != 6 {
		t.Errorf("%d Events in two hours, want 6", n)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if r.fail(ended, errors.New("context canceled")); len(to.with("APIReadFailed")) > 0 {
		t.Error("the end of the process is reported as a failure")
	}
}

// TestFailedReadIsNotSlow: the node is read before the driver is called.
func TestFailedReadIsNotSlow(t *testing.T) {
	w := newWorld(t)
	p := w.make(Config{}).waitsLong().start()
	w.makeClaim(selecting("gone"))
	w.wait("it waits", func() bool { return p.provisioner.tracker.due("pvc-u1", time.Now()) > 0 })
	if last := p.provisioner.tracker.retryOf("pvc-u1"); last.slow || !last.unbuilt || last.count != 1 {
		t.Errorf("known of it is %+v", last)
	}
}

func TestLogMetrics(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	stats := inflight.Stats{Open: 1, Adding: 2, Removing: 3, Unreadable: 4, ReadOnly: 5, Elsewhere: 6, Fill: 0.7,
		Oldest: now.Add(-8 * time.Second)}
	registry := prometheus.NewRegistry()
	m := newMetrics("disk", func() int64 { return 11 }, func() inflight.Stats { return stats },
		func() time.Time { return now })
	must.OK(t, m.register(registry))
	gauges := func() map[string]float64 {
		t.Helper()
		families := must.Get(registry.Gather())(t)
		served := map[string]float64{}
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				if metric.GetGauge() != nil && metric.GetLabel()[0].GetValue() == "disk" {
					served[family.GetName()] = metric.GetGauge().GetValue()
				}
			}
		}
		return served
	}
	want := map[string]float64{"provisions_in_progress": 11, "in_flight_entries": 1, "in_flight_oldest_seconds": 8,
		"in_flight_fill_ratio": 0.7, "in_flight_unreadable_entries": 4, "in_flight_unreadable_leases": 5,
		"in_flight_elsewhere_entries": 6}
	got := gauges()
	for name, value := range want {
		if got["csi_reclaimer_"+name] != value {
			t.Errorf("%s: %v, want %v", name, got["csi_reclaimer_"+name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d gauges, want %d: %v", len(got), len(want), got)
	}
	stats = inflight.Stats{}
	if age := gauges()["csi_reclaimer_in_flight_oldest_seconds"]; age != 0 {
		t.Errorf("an empty log has an entry that is %v seconds old", age)
	}
}
