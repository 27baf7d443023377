// Package spans has the common parts of the controllers' OpenTelemetry spans: the attributes, the limit of texts, and
// the child span of a step. It takes the API alone, never the SDK and never OpenTelemetry's globals.
package spans

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
)

// The attributes of spans.
const (
	PV        = attribute.Key("k8s.persistentvolume.name")
	PVUID     = attribute.Key("k8s.persistentvolume.uid")
	Claim     = attribute.Key("k8s.persistentvolumeclaim.name")
	ClaimUID  = attribute.Key("k8s.persistentvolumeclaim.uid")
	Namespace = attribute.Key("k8s.namespace.name")
	Driver    = attribute.Key("csi.driver.name")
	Handle    = attribute.Key("csi.volume.handle")
	Reason    = attribute.Key("csi_reclaimer.reason")
	// Resumed marks a trace of work that was begun before, by another process or in an earlier trace.
	Resumed = attribute.Key("csi_reclaimer.resumed")
	// Interrupted marks a trace that ends with the process or its lease, while the next leader begins another.
	Interrupted = attribute.Key("csi_reclaimer.interrupted")
)

// Text returns a text that is short enough for a span.
func Text(of string) string { return text.Truncate(of, 256) }

// Step carries out a step as a child of the span in ctx, with the name of the action. Without a tracer or a span it
// only carries out the step.
func Step(ctx context.Context, tracer trace.Tracer, action fmt.Stringer, reason string,
	do func(context.Context) error) error {
	if tracer == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return do(ctx)
	}
	ctx, span := tracer.Start(ctx, action.String(), trace.WithAttributes(Reason.String(reason)))
	// Called directly by defer, End would record the text of a panic, which may have secrets.
	defer func() { span.End() }()
	err := do(ctx)
	Fail(span, err)
	return err
}

// Fail marks a span as failed if err is an error.
func Fail(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, Text(err.Error()))
	}
}

// Without returns ctx without the span of the embedding program, which may last as long as the program and is not ours
// to write to.
func Without(ctx context.Context) context.Context { return trace.ContextWithSpan(ctx, nil) }
