package csidriver

import (
	"slices"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestCallsAreSpans(t *testing.T) {
	socket := socketPath(t)
	driver := &fakeDriver{controller: true, deleteErr: status.Error(codes.Internal, "login with hunter22 failed")}
	serve(t, socket, driver)
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	d := must.Get(Connect(t.Context(), socket, Config{TracerProvider: provider}))(t)
	defer d.Close()

	_ = d.DeleteVolume(t.Context(), "vol-1", nil)
	if n := len(spans.Started()); n != 0 {
		t.Fatalf("%d spans of calls that are part of no trace", n)
	}
	ctx, reclaim := provider.Tracer("").Start(t.Context(), "reclaim")
	_ = d.DeleteVolume(ctx, "vol-1", map[string]string{"password": "hunter22"})
	reclaim.End()

	call := spans.Ended()[0]
	if call.Name() != "csi.v1.Controller/DeleteVolume" || call.Parent().SpanID() != reclaim.SpanContext().SpanID() {
		t.Errorf("%s is a child of %v", call.Name(), call.Parent())
	}
	if s := call.Status(); s.Code != otelcodes.Error || !strings.Contains(s.Description, "login with *** failed") {
		t.Errorf("it ended with %+v", s)
	}
	if !slices.Contains(call.Attributes(), attribute.String("rpc.response.status_code", "Internal")) {
		t.Errorf("it says %v", call.Attributes())
	}
	ctx, provision := provider.Tracer("").Start(t.Context(), "provision")
	_, _ = d.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "vol-2"}, nil)
	provision.End()
	created := spans.Ended()[2]
	if created.Name() != "csi.v1.Controller/CreateVolume" ||
		created.Parent().SpanID() != provision.SpanContext().SpanID() {
		t.Errorf("%s is a child of %v", created.Name(), created.Parent())
	}
	driver.mu.Lock()
	defer driver.mu.Unlock()
	want := "00-" + call.SpanContext().TraceID().String() + "-" + call.SpanContext().SpanID().String() + "-01"
	if got := driver.metadata.Get("traceparent"); !slices.Equal(got, []string{want}) {
		t.Errorf("the driver got the trace %q, want %q", got, want)
	}
}
