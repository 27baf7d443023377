package reclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	span "github.com/csi-reclaimer/csi-reclaimer/internal/spans"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"
)

// newTracedWorld returns a world whose PV has just been released while the Controller watched, and the recorded spans.
func newTracedWorld(t *testing.T) (*world, *Controller, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	w, r := newWorldWith(t, Config{TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))})
	w.change(r, "11", bound)
	w.change(r, "12", func(pv *volume.PV) { pv.Phase = volume.PhaseReleased })
	w.pv = *w.stored["pv"]
	return w, r, spans
}

// root returns the attributes and events of the only trace, and whether it has ended.
func root(t *testing.T, spans *tracetest.SpanRecorder) (about map[string]string, events []string, ended bool) {
	t.Helper()
	about = map[string]string{}
	var roots int
	for _, s := range spans.Started() {
		if s.Parent().IsValid() {
			continue
		}
		roots++
		for _, a := range s.Attributes() {
			about[string(a.Key)] = a.Value.String()
		}
		for _, e := range s.Events() {
			events = append(events, e.Name)
		}
		ended = !s.EndTime().IsZero()
	}
	if roots != 1 {
		t.Fatalf("%d traces, want one", roots)
	}
	return about, events, ended
}

// steps returns the names of the ended child spans, in that order.
func steps(spans *tracetest.SpanRecorder) (names []string) {
	for _, s := range spans.Ended() {
		if s.Parent().IsValid() {
			names = append(names, s.Name())
		}
	}
	return names
}

func TestReclaimHasOneTrace(t *testing.T) {
	w, r, spans := newTracedWorld(t)
	var within trace.SpanContext
	r.deleter = deleterFunc(func(ctx context.Context) error {
		within = trace.SpanContextFromContext(ctx)
		return w.did("delete volume")
	})
	w.fail["delete volume"] = errors.New("broken")
	for range 2 {
		r.traced(t.Context(), "pv")
	}
	if _, events, ended := root(t, spans); ended || !slices.Equal(events, []string{"VolumeFailedDelete"}) {
		t.Errorf("after two tries that failed: ended %v, with %q", ended, events)
	}
	delete(w.fail, "delete volume")
	r.traced(t.Context(), "pv")
	about, _, ended := root(t, spans)
	want := map[string]string{
		"k8s.persistentvolume.name": "pv", "k8s.persistentvolume.uid": "pv-uid", "k8s.namespace.name": "ns",
		"k8s.persistentvolumeclaim.name": "claim",
		"csi.driver.name":                driver, "csi.volume.handle": "vol-1", "csi_reclaimer.reason": "VolumeDeleted",
		"csi_reclaimer.resumed": "false",
	}
	if !ended || fmt.Sprint(about) != fmt.Sprint(want) {
		t.Errorf("ended %v, with %v\nwant %v", ended, about, want)
	}
	try := []string{"ReadSecrets", "ReadClaim", "ReadPV", "DeleteVolume"}
	if got, want := steps(spans), slices.Concat(try, try, try, []string{"DeletePV", "FinalizePV"}); !slices.Equal(got,
		want) {
		t.Errorf("steps %q\nwant  %q", got, want)
	}
	for _, s := range spans.Ended() {
		if s.SpanContext().TraceID() != within.TraceID() {
			t.Errorf("%s is of another trace than what the Deleter got", s.Name())
		}
		if broke := s.Status().Description == "broken"; broke != (s.Name() == "DeleteVolume" &&
			s.SpanContext().SpanID() != within.SpanID()) {
			t.Errorf("%s says %+v", s.Name(), s.Status())
		}
	}
	// The events of our own writes, and finalizers of others, begin no other trace.
	w.change(r, "13", func(pv *volume.PV) { pv.Terminating, pv.HasFinalizer = true, false })
	r.traced(t.Context(), "pv")
	w.end(r)
	r.traced(t.Context(), "pv")
	root(t, spans)
}

type deleterFunc func(context.Context) error

func (f deleterFunc) DeleteVolume(ctx context.Context, _ string, _ map[string]string) error {
	return f(ctx)
}

// The trace of a reclaim ends no matter how the reclaim does.
func TestTraceAlwaysEnds(t *testing.T) {
	cases := map[string]struct {
		then   func(*world, *Controller)
		reason string
		cut    bool
	}{
		"the policy is turned": {func(w *world, r *Controller) {
			w.change(r, "13", retain)
		}, "PolicyKeepsVolume", false},
		"a live read shows that it is": {func(w *world, _ *Controller) { w.pv.Policy = volume.PolicyRetain },
			"PolicyKeepsVolume", false},
		"it is held": {func(w *world, r *Controller) {
			w.change(r, "13",
				hold)
		}, "Held", false},
		"the finalizer is removed": {func(w *world, r *Controller) {
			w.change(r, "13", terminate)
			w.change(r, "14", strip)
			w.end(r)
		}, "ReclaimAbandoned", false},
		"the PV is gone at once": {func(w *world, r *Controller) {
			w.pvFound = false
			r.traced(context.Background(),
				"pv")
			w.end(r)
		}, "ReclaimAbandoned", false},
		"the driver deletes it": {func(w *world, _ *Controller) { delete(w.fail, "delete volume") }, "VolumeDeleted", false},
		"the PV went while it was deleted": {func(w *world, r *Controller) {
			delete(w.fail, "delete volume")
			w.at("release", func() { w.end(r) })
		}, "VolumeDeleted", false},
		"the lease ends": {func(_ *world, r *Controller) { r.lead(false) }, "Reclaim", true},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			w, r, spans := newTracedWorld(t)
			w.fail["delete volume"] = errors.New("broken")
			r.traced(t.Context(), "pv")
			if _, _, ended := root(t, spans); ended {
				t.Fatal("ended before")
			}
			c.then(w, r)
			if !c.cut {
				r.traced(t.Context(), "pv")
			}
			about, _, ended := root(t, spans)
			if _, cut := about[string(span.Interrupted)]; !ended || about[string(span.Reason)] != c.reason || cut != c.cut {
				t.Errorf("ended %v, with %v", ended, about)
			}
			if len(r.traces.open) != 0 || r.traces.count != 0 {
				t.Errorf("kept: %v", r.traces.open)
			}
		})
	}
}

func TestNewLeaderResumesTraceAtFirstCall(t *testing.T) {
	w, r, spans := newTracedWorld(t)
	r.lead(false)
	r.lead(true)
	w.list, w.stored["pv"].WasAttached = page[map[string]int]{complete: true, content: map[string]int{"pv": 1}}, true
	r.traced(t.Context(), "pv")
	ended := spans.Ended()
	if len(ended) != 2 || ended[1].Name() != "ListAttachments" ||
		ended[0].SpanContext().TraceID() == ended[1].SpanContext().TraceID() {
		t.Fatalf("of two leaders the second has no trace of its own: %v", ended)
	}
	resumed := spans.Started()[1]
	if !slices.Contains(resumed.Attributes(), span.Resumed.Bool(true)) || len(resumed.Events()) != 1 ||
		resumed.Events()[0].Name != "Attached" {
		t.Errorf("%v, %v", resumed.Attributes(), resumed.Events())
	}
}

func TestStandbyReplicaCreatesNoTraces(t *testing.T) {
	w, r, spans := newTracedWorld(t)
	r.lead(false)
	w.change(r, "13", bound)
	w.change(r, "14", func(pv *volume.PV) { pv.Phase = volume.PhaseReleased })
	root(t, spans) // the trace of its term as leader
}

func TestOpenTracesAreBounded(t *testing.T) {
	w, r, spans := newTracedWorld(t)
	for i := range maxTraces {
		r.traces.begin(volume.PV{Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i))})
	}
	if n := len(spans.Started()); n != maxTraces || r.traces.count != maxTraces {
		t.Errorf("%d traces, counted as %d", n, r.traces.count)
	}
	// A reclaim without a trace is carried out, and the end of other traces makes room.
	other := w.pv
	other.Name, other.UID, other.Handle = "other", "other-uid", "vol-2"
	w.join(r, other)
	r.traced(t.Context(), "other")
	w.expect(t, "read claim", "read other", "delete volume", "delete PV", "release")
	r.traced(t.Context(), "pv")
	if r.traces.begin(other); r.traces.count != maxTraces {
		t.Errorf("%d traces are open, want that the last took the place of one that ended", r.traces.count)
	}
}

// TestNoTracesWithoutProvider also checks that the program's own span, in whose context Run may be, gets no
// attributes.
func TestNoTracesWithoutProvider(t *testing.T) {
	w, r := newWorld(t)
	spans := tracetest.NewSpanRecorder()
	if _, dry := newWorldWith(t, Config{DryRun: true, TracerProvider: sdktrace.NewTracerProvider()}); r.traces != nil ||
		dry.traces != nil {
		t.Error("traces are kept for nobody, or of what is not done")
	}
	ctx, own := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("").Start(t.Context(), "program")
	defer own.End()
	r.traced(span.Without(ctx), "pv")
	w.expect(t, reclaims()...)
	if about, _, _ := root(t, spans); len(about) != 0 {
		t.Errorf("the caller's own span says %v", about)
	}
}
