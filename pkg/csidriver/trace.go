package csidriver

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

const tracerName = "github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"

// The names are those of OpenTelemetry's semantic conventions for RPCs (1.41).
const (
	traceSystem = attribute.Key("rpc.system.name")
	traceMethod = attribute.Key("rpc.method")
	traceCode   = attribute.Key("rpc.response.status_code")
)

// beginSpan has a call be a span of the trace that ctx is in, which a driver that traces continues with. A call
// outside of a trace begins none. end takes the error as it may be shown to people.
//
// csi-lib-utils' own option for this (connection.WithOtelTracing) is not used: it puts the driver's message
// into the span as it came, with the secrets that a driver may repeat, it knows the global TracerProvider
// only, and it makes a trace of every Probe.
func (d *Driver) beginSpan(ctx context.Context, method string) (_ context.Context, end func(error)) {
	if d.cfg.TracerProvider == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, func(error) {}
	}
	ctx, span := d.cfg.TracerProvider.Tracer(tracerName).Start(ctx, method, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(traceSystem.String("grpc"), traceMethod.String(method)))
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	for key, value := range carrier {
		ctx = metadata.AppendToOutgoingContext(ctx, key, value)
	}
	return ctx, func(err error) {
		s := status.Convert(err)
		span.SetAttributes(traceCode.String(s.Code().String()))
		if err != nil {
			span.SetStatus(codes.Error, s.Message())
		}
		span.End()
	}
}
