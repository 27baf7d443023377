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

// The names follow OpenTelemetry's semantic conventions for RPCs (1.41).
const (
	traceSystem = attribute.Key("rpc.system.name")
	traceMethod = attribute.Key("rpc.method")
	traceCode   = attribute.Key("rpc.response.status_code")
)

// beginSpan makes a call a span of the trace in ctx, which a tracing driver continues. Outside a trace it does
// nothing. end takes the presentable error, or nil.
//
// csi-lib-utils' own option (connection.WithOtelTracing) is not used: it copies the driver's unfiltered message into
// the span, with any secrets that the driver repeats. It also knows only the global TracerProvider, and starts a
// trace for every Probe.
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
