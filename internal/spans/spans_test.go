package spans

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// The text of a panic may show the arguments of a call, which include Secrets.
func TestPanicLeavesNoTextInSpan(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("")
	func() {
		defer func() { _ = recover() }()
		ctx, root := tracer.Start(t.Context(), "root")
		defer func() { root.End() }()
		_ = Step(ctx, tracer, bytes.NewBufferString("CreateVolume"), "", func(context.Context) error { panic("password") })
	}()
	ended := recorder.Ended()
	if len(ended) != 2 || ended[0].Name() != "CreateVolume" {
		t.Fatalf("%d spans have ended, want the step and its parent", len(ended))
	}
	for _, event := range ended[0].Events() {
		for _, a := range event.Attributes {
			if strings.Contains(a.Value.String(), "password") {
				t.Errorf("the span shows the panic: %s %v", event.Name, a)
			}
		}
	}
}
