package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// word is a reason whose name gives its severity.
type word string

func (w word) About() reasons.About {
	about := map[word]reasons.About{
		"Quiet": {Severity: reasons.Counted, Sentence: "It waits."},
		"InUse": {Severity: reasons.Normal, Sentence: "It is in use."},
		"Lost":  {Severity: reasons.Warning, Sentence: "It is lost.", OnClaim: true},
		"Waits": {Severity: reasons.Normal, Sentence: "It is asked again.", DetailFirst: true},
		"Freed": {Severity: reasons.Normal, Sentence: "It is deleted.", OnSet: true},
	}
	return about[w]
}

// seen is a recorder of Events as "kind/name type reason message".
type seen struct {
	Discard
	events []string
}

func (s *seen) Event(o runtime.Object, kind, reason, message string) {
	if ref, ok := o.(*v1.ObjectReference); ok {
		s.events = append(s.events, strings.Join([]string{ref.Kind + "/" + ref.Name, kind, reason, message}, " "))
	}
}

func (s *seen) want(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(s.events, want) {
		t.Errorf("Events %q, want %q", s.events, want)
	}
	s.events = nil
}

var errNoAnswer = errors.New("no answer")

func TestOneEventPerChangeOfReason(t *testing.T) {
	s := &seen{}
	r := NewRecorder(Config[word]{Events: s})
	pv := PV("pv-1", "u1", "7", volume.ClaimRef{Namespace: "ns", Name: "data", UID: "c1"})
	report := func(reason word, detail string) { r.Report(t.Context(), pv, reason, detail) }

	report("InUse", "By pod a.")
	report("InUse", "By pod b.")
	s.want(t, "PersistentVolume/pv-1 Normal InUse It is in use. By pod a.")
	report("Quiet", "")
	report("AtRest", "")
	s.want(t)
	report("InUse", "It is in use.")
	s.want(t, "PersistentVolume/pv-1 Normal InUse It is in use.")
	r.Forget("u1")
	report("InUse", "")
	s.want(t, "PersistentVolume/pv-1 Normal InUse It is in use.")
	r.Event(t.Context(), pv, "InUse", "")
	s.want(t, "PersistentVolume/pv-1 Normal InUse It is in use.")
}

func TestEventOnStatefulSetOfClaim(t *testing.T) {
	s := &seen{}
	r := NewRecorder(Config[word]{Events: s})
	claim := Object{ObjectReference: Claim("ns", "data-db-1", "c1"), Set: Set("ns", "db", "s1")}
	for range 2 {
		r.Report(t.Context(), claim, "Freed", "It is ordinal 1.")
	}
	s.want(t, "PersistentVolumeClaim/data-db-1 Normal Freed It is deleted. It is ordinal 1.",
		"StatefulSet/db Normal Freed Claim data-db-1: It is deleted. It is ordinal 1.")
	r.Report(t.Context(), claim, "InUse", "")
	s.want(t, "PersistentVolumeClaim/data-db-1 Normal InUse It is in use.")
	claim.Set = v1.ObjectReference{}
	r.Report(t.Context(), claim, "Freed", "")
	s.want(t, "PersistentVolumeClaim/data-db-1 Normal Freed It is deleted.")
}

func TestReportsWithDifferentKeysOnOneLease(t *testing.T) {
	s := &seen{}
	r := NewRecorder(Config[word]{Events: s})
	about := func(what string) Object {
		o := Lease(types.NamespacedName{Namespace: "ns", Name: "log-1"})
		o.Key, o.Prefix = types.UID(what), "Claim ns/"+what+": "
		return o
	}
	for range 2 {
		r.Report(t.Context(), about("a"), "Waits", "no answer")
		r.Report(t.Context(), about("b"), "Lost", "")
	}
	s.want(t, "Lease/log-1 Normal Waits Claim ns/a: no answer. It is asked again.",
		"Lease/log-1 Warning Lost Claim ns/b: It is lost.")
	long := about("c")
	for _, prefix := range []int{0, MaxMessage - 30, MaxMessage, 2 * MaxMessage} {
		long.Prefix = strings.Repeat("p", prefix)
		for _, reason := range []word{"Waits", "Lost"} {
			r.Event(t.Context(), long, reason, strings.Repeat("d", 2*MaxMessage))
			if n := len(s.events[len(s.events)-1]); n > MaxMessage+len("Lease/log-1 Warning Waits ") {
				t.Errorf("an Event with a prefix of %d bytes has %d", prefix, n)
			}
		}
	}
}

func TestReportEach(t *testing.T) {
	s := &seen{}
	r := NewRecorder(Config[word]{Events: s})
	lease := Lease(types.NamespacedName{Namespace: "ns", Name: "driver"})
	r.ReportEach(t.Context(), lease, "InUse", "1")
	r.ReportEach(t.Context(), lease, "InUse", "2")
	r.ReportEach(t.Context(), lease, "InUse", "2")
	s.want(t, "Lease/driver Normal InUse It is in use. 1", "Lease/driver Normal InUse It is in use. 2")
	r.ReportFailure(t.Context(), lease, "Lost", errNoAnswer, false)
	r.ReportFailure(t.Context(), lease, "Lost", errors.New("no route"), false)
	s.want(t, "Lease/driver Warning Lost It is lost. no answer")
	r.ReportFailure(t.Context(), lease, "Lost", errNoAnswer, true)
	r.ReportFailure(t.Context(), lease, "Lost", errNoAnswer, true)
	s.want(t, "Lease/driver Warning Lost It is lost. no answer")
}

// A detail that changes often, such as the holder of a claim, has Events and is counted, without a log line for each.
func TestRepeatedReasonIsLoggedOnce(t *testing.T) {
	const objects, details = 100, 10
	for level, want := range map[int]int{0: objects, 2: objects * details} {
		var written bytes.Buffer
		ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&written),
			textlogger.Verbosity(level))))
		counter := NewCounter(prometheus.CounterOpts{Name: "reports"}, []word{"InUse"})
		s := &seen{}
		r := NewRecorder(Config[word]{Events: s, Counter: counter})
		for i := range objects {
			name := fmt.Sprint("pod-", i)
			pod := Pod("ns", name, types.UID(name), "1")
			r.Count(pod, "InUse")
			for holder := range details {
				r.ReportEach(ctx, pod, "InUse", fmt.Sprint("By ", holder))
			}
		}
		var counted dto.Metric
		must.OK(t, counter.WithLabelValues("InUse").Write(&counted))
		if lines := strings.Count(written.String(), "It is in use."); lines != want {
			t.Errorf("-v=%d: %d lines, want %d", level, lines, want)
		}
		if n := counted.GetCounter().GetValue(); n != objects*details || len(s.events) != objects*details {
			t.Errorf("%v reports, %d Events", n, len(s.events))
		}
		written.Reset()
		r.ReportFailure(ctx, PV("pv", "u", "", volume.ClaimRef{}), "Lost", errNoAnswer, true)
		r.ReportFailure(ctx, PV("pv", "u", "", volume.ClaimRef{}), "Lost", errors.New("no route"), true)
		if lines := strings.Count(written.String(), "It is lost."); lines != 2 {
			t.Errorf("-v=%d: %d lines of failures, want each", level, lines)
		}
	}
}

func TestReportAside(t *testing.T) {
	s := &seen{}
	r := NewRecorder(Config[word]{Events: s})
	pv := PV("pv-1", "u1", "7", volume.ClaimRef{Namespace: "ns", Name: "data", UID: "c1"})
	r.ReportAside(t.Context(), pv, "Lost", "")
	r.Report(t.Context(), pv, "AtRest", "")
	r.ReportAside(t.Context(), pv, "Lost", "")
	s.want(t, "PersistentVolume/pv-1 Warning Lost It is lost.", "PersistentVolumeClaim/data Warning Lost It is lost.")
	r.Event(t.Context(), PV("pv-2", "u2", "", volume.ClaimRef{}), "Lost", "")
	s.want(t, "PersistentVolume/pv-2 Warning Lost It is lost.")
}

func TestNoReportsWithoutLeadership(t *testing.T) {
	s, leads := &seen{}, false
	r := NewRecorder(Config[word]{Events: s, Leads: func() bool { return leads }})
	pv := PV("pv-1", "u1", "7", volume.ClaimRef{})
	r.Report(t.Context(), pv, "InUse", "")
	r.ReportAside(t.Context(), pv, "Lost", "")
	r.ReportFailure(t.Context(), pv, "Lost", errNoAnswer, true)
	s.want(t)
	leads = true
	r.Report(t.Context(), pv, "InUse", "")
	s.want(t, "PersistentVolume/pv-1 Normal InUse It is in use.")
	if r.Waiting()["InUse"] != 1 {
		t.Errorf("%v wait", r.Waiting())
	}
	leads = false
	if n := len(r.Waiting()); n > 0 {
		t.Errorf("%d reasons are counted by a replica that does not lead", n)
	}
}

func TestMessageFitsIntoEvent(t *testing.T) {
	s := &seen{}
	r := NewRecorder(Config[word]{Events: s})
	pv := PV("pv-1", "u1", "7", volume.ClaimRef{})
	r.Report(t.Context(), pv, "InUse", strings.Repeat("x", 2*MaxMessage))
	r.ReportFailure(t.Context(), pv, "Lost", errors.New(strings.Repeat("x", 2*MaxMessage)), true)
	r.ReportFailure(t.Context(), pv, "Waits", errors.New(strings.Repeat("x", 2*MaxMessage)), true)
	if last := s.events[len(s.events)-1]; !strings.HasSuffix(last, "x…. It is asked again.") {
		t.Errorf("the sentence is cut: %q", last)
	}
	for _, event := range s.events {
		if len(event) > MaxMessage+100 {
			t.Errorf("an Event of %d bytes", len(event))
		}
	}
}

func TestDetailFirst(t *testing.T) {
	s := &seen{}
	r := NewRecorder(Config[word]{Events: s})
	pv := PV("pv-1", "u1", "7", volume.ClaimRef{})
	r.Report(t.Context(), pv, "Waits", "no room")
	r.Report(t.Context(), pv, "InUse", "")
	r.Report(t.Context(), pv, "Waits", "")
	s.want(t, "PersistentVolume/pv-1 Normal Waits no room. It is asked again.",
		"PersistentVolume/pv-1 Normal InUse It is in use.", "PersistentVolume/pv-1 Normal Waits It is asked again.")
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	counter := NewCounter(prometheus.CounterOpts{Name: "reports_total", Help: "Reports."},
		[]word{"Quiet", "InUse", "Lost"})
	var observed []word
	clk := testclock.NewFakePassiveClock(time.Unix(1e9, 0))
	r := NewRecorder(Config[word]{Counter: counter, Clock: clk, Observe: func(_ context.Context, w word) {
		observed = append(observed, w)
	}})
	if err := Register(registry, counter, r.WaitingMetric("waiting", "Objects that wait.",
		prometheus.Labels{"kind": "PV"})); err != nil {
		t.Fatal(err)
	}
	for uid, reason := range map[types.UID]word{"u1": "Quiet", "u2": "InUse", "u3": "AtRest"} {
		r.Report(t.Context(), PV(string(uid), uid, "", volume.ClaimRef{}), reason, "")
	}
	// Another object waits for the same reason in turn.
	clk.SetTime(clk.Now().Add(time.Minute))
	r.Count(PV("u4", "u4", "", volume.ClaimRef{}), "InUse")
	r.Forget("u2")
	clk.SetTime(clk.Now().Add(time.Second))
	slices.Sort(observed)
	if !slices.Equal(observed, []word{"AtRest", "InUse", "Quiet"}) {
		t.Errorf("observed %v", observed)
	}
	families := must.Get(registry.Gather())(t)
	got := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "reason" {
					got[family.GetName()+" "+label.GetValue()] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	want := map[string]float64{"reports_total InUse": 1, "reports_total Lost": 0, "waiting InUse": 1, "waiting Quiet": 1,
		"waiting_oldest_seconds InUse": 1, "waiting_oldest_seconds Quiet": 61}
	if !maps.Equal(got, want) {
		t.Errorf("metrics %v, want %v", got, want)
	}
	if err := Register(registry, counter); err == nil {
		t.Error("a metric was registered twice")
	}
	if err := Register(nil, counter); err != nil {
		t.Error(err)
	}
}

// ended is a session that has ended.
type ended struct {
	end    session.End
	reason word
}

func (e ended) Ended() session.End { return e.end }
func (e ended) Reason() word       { return e.reason }
func (e ended) Would() string      { return "Would write." }

func TestReportEnd(t *testing.T) {
	const on = "PersistentVolume/pv-1 "
	for name, c := range map[string]struct {
		end    session.End
		reason word
		err    error
		each   bool
		event  string
		waits  int
	}{
		"a wait":                  {session.Waiting, "InUse", nil, false, "", 1},
		"a wait with each detail": {session.Waiting, "InUse", nil, true, "Normal InUse It is in use. By b.", 1},
		"a write":                 {session.Written, "InUse", nil, false, "Normal InUse It is in use. By b.", 0},
		"a failure":               {session.CallFailed, "Lost", errNoAnswer, true, "Warning Lost It is lost. no answer", 1},
		"a dry run":               {session.Skipped, "InUse", nil, false, "Normal InUse It is in use. Would write.", 1},
		"a conflict":              {session.Conflicted, "", nil, true, "", 1},
		"an object that is gone":  {session.ObjectGone, "", nil, true, "", 0},
	} {
		s := &seen{}
		r := NewRecorder(Config[word]{Events: s})
		pv := PV("pv-1", "u1", "7", volume.ClaimRef{})
		r.Report(t.Context(), pv, "InUse", "By a.")
		r.ReportEnd(t.Context(), pv, ended{c.end, c.reason}, "By b.", c.err, c.each)
		want := []string{on + "Normal InUse It is in use. By a."}
		if c.event != "" {
			want = append(want, on+c.event)
		}
		waits := 0
		for _, n := range r.Waiting() {
			waits += n
		}
		if !slices.Equal(s.events, want) || waits != c.waits {
			t.Errorf("%s: Events %q, %d waits, want %q, %d", name, s.events, waits, want, c.waits)
		}
	}
}
