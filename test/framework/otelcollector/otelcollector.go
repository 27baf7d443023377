// Package otelcollector is an OpenTelemetry collector for tests: it takes spans by OTLP over gRPC, on a real
// port, and keeps them.
package otelcollector

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Collector keeps the spans that it receives. It is safe for concurrent use.
type Collector struct {
	collectorpb.UnimplementedTraceServiceServer

	// URL is the address to which programs send.
	URL string

	mu sync.Mutex
	// more is closed when something comes.
	more    chan struct{}
	spans   []Span
	service map[string]string
}

// Span is a received span.
type Span struct {
	*tracepb.Span
	// Attributes are the span's attributes, as text.
	Attributes map[string]string
}

// Start serves a collector until the test ends.
func Start(t testing.TB) *Collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Collector{URL: "http://" + listener.Addr().String(), more: make(chan struct{})}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return c
}

// Export takes spans.
func (c *Collector) Export(_ context.Context,
	r *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range r.GetResourceSpans() {
		c.service = texts(of.GetResource().GetAttributes())
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.spans = append(c.spans, Span{span, texts(span.GetAttributes())})
			}
		}
	}
	close(c.more)
	c.more = make(chan struct{})
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

func texts(attributes []*commonpb.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		switch v := a.GetValue().GetValue().(type) {
		case *commonpb.AnyValue_StringValue:
			all[a.GetKey()] = v.StringValue
		case *commonpb.AnyValue_BoolValue:
			all[a.GetKey()] = strconv.FormatBool(v.BoolValue)
		default:
			all[a.GetKey()] = a.GetValue().String()
		}
	}
	return all
}

// Service returns the resource attributes of the last sender.
func (c *Collector) Service() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.service
}

// Spans returns the spans received so far.
func (c *Collector) Spans() []Span {
	spans, _ := c.now()
	return spans
}

func (c *Collector) now() ([]Span, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans), c.more
}

// Wait waits for a span that wanted accepts, and returns it with all spans received by then. The test fails if none
// comes within the time.
func (c *Collector) Wait(t testing.TB, within time.Duration, wanted func(Span) bool) (_ Span, all []Span) {
	t.Helper()
	late := time.After(within)
	for {
		spans, more := c.now()
		if i := slices.IndexFunc(spans, wanted); i >= 0 {
			return spans[i], spans
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("the span was not sent within %v; these were: %v", within, spans)
		}
	}
}
