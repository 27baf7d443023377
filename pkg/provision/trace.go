package provision

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/internal/spans"
)

const tracerName = "github.com/csi-reclaimer/csi-reclaimer/pkg/provision"

// beginTrace begins the trace of a try, unless no traces are wanted. end takes the outcome of the try. A wait between
// two tries has no span, because an entry can wait for days.
func (w *run) beginTrace(ctx context.Context) (_ context.Context, end func(provision.Decision, error)) {
	if w.tracer == nil {
		return ctx, func(provision.Decision, error) {}
	}
	ctx, span := w.tracer.Start(ctx, "Provision", trace.WithAttributes(
		spans.PV.String(w.name), spans.Driver.String(w.names[0]), spans.Namespace.String(w.claimKey.namespace),
		spans.Claim.String(w.claimKey.name), spans.ClaimUID.String(string(w.claimKey.uid)), spans.Resumed.Bool(w.resumed)))
	return ctx, func(d provision.Decision, err error) {
		reason := d.Reason
		if err != nil {
			reason = reasonOf(err)
		}
		span.SetAttributes(spans.Reason.String(string(reason)))
		if handle := cmp.Or(w.handle, w.track.record.Handle); handle != "" {
			span.SetAttributes(spans.Handle.String(spans.Text(handle)))
		}
		spans.Fail(span, err)
		span.End()
	}
}
