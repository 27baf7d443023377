package reclaim

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/spans"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	tracerName = "github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	// maxTraces bounds the traces that are open at once, a kilobyte or two each, since none ends while a driver is away
	// for a day. Further reclaims go without a trace.
	maxTraces = 1000
)

// traces holds one OpenTelemetry trace for each reclaim that is under way: from the moment when the watch showed that
// a volume is to be deleted, over all waits and tries, until our finalizer is off the PV or the volume is kept after
// all. Each step that makes a call is a child span; a wait is an event, so that waiting for a day costs one. No
// decision depends on traces.
//
// A nil *traces creates none, and any is safe for concurrent use.
type traces struct {
	tracer trace.Tracer
	driver string

	mu sync.Mutex
	// leading is set during this replica's term as leader; only then are traces created.
	leading bool
	// open holds the spans that have not ended, by the name of the PV and its UID.
	open  map[string]map[types.UID]trace.Span
	count int
}

// newTraces returns nil without a provider.
func newTraces(provider trace.TracerProvider, driver string) *traces {
	if provider == nil {
		return nil
	}
	return &traces{tracer: provider.Tracer(tracerName), driver: driver, open: map[string]map[types.UID]trace.Span{}}
}

// lead begins and ends the term in which traces are created, and ends the open traces with it.
func (t *traces) lead(leading bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.leading = leading
	var cut []trace.Span
	if !leading {
		for name, family := range t.open {
			for uid := range family {
				cut = append(cut, t.take(name, uid))
			}
		}
	}
	t.mu.Unlock()
	for _, span := range cut {
		span.SetAttributes(spans.Interrupted.Bool(true))
		span.End()
	}
}

// begin opens the trace of a PV whose volume became deletable, unless one is open.
func (t *traces) begin(pv volume.PV) {
	if t != nil {
		t.add(pv, false)
	}
}

// traced is reconcile, after which the traces of PVs that are gone end.
func (r *Controller) traced(ctx context.Context, name string) controller.Result {
	defer r.traces.end(name, func(uid types.UID) bool { return !r.tracks(uid) })
	return r.reconcile(ctx, name)
}

// enter returns ctx inside the trace of a session's PV, if any, and opens the trace if the session reclaims. The first
// step is the one that the session begins with. Call leave when the session has ended.
func (t *traces) enter(ctx context.Context, s *reclaim.Session, first reclaim.Step) context.Context {
	if t == nil {
		return ctx
	}
	pv := s.Facts.PV
	if first.Result == reclaim.Asks && s.Ask.Action != reclaim.RemoveFinalizer {
		t.add(pv, true)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if span := t.open[pv.Name][pv.UID]; span != nil {
		return trace.ContextWithSpan(ctx, span)
	}
	return ctx
}

// leave ends the trace of a session's PV, unless the reclaim is still under way.
func (t *traces) leave(s *reclaim.Session) {
	t.end(s.Facts.PV.Name, func(uid types.UID) bool { return uid == s.Facts.PV.UID && !s.Facts.Underway() })
}

func (t *traces) add(pv volume.PV, resumed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.leading || t.count >= maxTraces || t.open[pv.Name][pv.UID] != nil {
		return
	}
	_, span := t.tracer.Start(context.Background(), "Reclaim", trace.WithAttributes(
		spans.PV.String(pv.Name), spans.PVUID.String(string(pv.UID)), spans.Driver.String(t.driver),
		spans.Handle.String(spans.Text(pv.Handle)),
		spans.Namespace.String(pv.Claim.Namespace), spans.Claim.String(pv.Claim.Name), spans.Resumed.Bool(resumed)))
	if t.open[pv.Name] == nil {
		t.open[pv.Name] = map[types.UID]trace.Span{}
	}
	t.open[pv.Name][pv.UID] = span
	t.count++
}

// end ends the traces of former and present PVs of this name for which over is true.
func (t *traces) end(name string, over func(types.UID) bool) {
	if t == nil {
		return
	}
	// Outside the lock, because a provider may send each span as it ends.
	for _, span := range t.takeAll(name, over) {
		span.End()
	}
}

func (t *traces) takeAll(name string, over func(types.UID) bool) (ended []trace.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid := range t.open[name] {
		if over(uid) {
			ended = append(ended, t.take(name, uid))
		}
	}
	return ended
}

func (t *traces) take(name string, uid types.UID) trace.Span {
	span := t.open[name][uid]
	delete(t.open[name], uid)
	if len(t.open[name]) == 0 {
		delete(t.open, name)
	}
	t.count--
	return span
}

// call makes an Ask a child span of the trace in ctx, if any, and notes its reason in the trace.
func (t *traces) call(ctx context.Context, c reclaim.Ask, ask func(context.Context) answer) (a answer) {
	if t == nil {
		return ask(ctx)
	}
	traceReason(ctx, c.Reason)
	_ = spans.Step(ctx, t.tracer, c.Action, string(c.Reason), func(ctx context.Context) error {
		a = ask(ctx)
		return a.err
	})
	return a
}

// traceReason notes the latest reason in the trace in ctx, if any.
func traceReason(ctx context.Context, reason Reason) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(spans.Reason.String(string(reason)))
	}
}

// traceWait adds an event to the trace in ctx, if any, with the reason why the PV waits.
func traceWait(ctx context.Context, reason Reason) {
	trace.SpanFromContext(ctx).AddEvent(string(reason))
}
