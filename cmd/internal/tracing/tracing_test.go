package tracing

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"google.golang.org/grpc"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/otelcollector"
)

func TestMain(m *testing.M) { os.Exit(goroutines.Run(m)) }

func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	var o Options
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Flags(fs, "traces")
	must.OK(t, fs.Parse(args))
	return &o
}

func TestValidate(t *testing.T) {
	for endpoint, right := range map[string]bool{
		"": true, "localhost:4317": true, "http://collector.monitoring:4317": true, "https://collector:4317/": true,
		"http://[::1]:4317": true, "https://collector": true,
		"grpc://collector:4317": false, "unix:///run/otel.sock": false, "http://": false, "http://:4317": false,
		"http://collector:4317/v1/traces": false,
		"http://me:secret@collector:4317": false, "http://collector:4317?a=b": false, "http://a b": false,
	} {
		if err := parse(t, "--tracing-endpoint="+endpoint).Validate(); (err == nil) != right {
			t.Errorf("%q: %v", endpoint, err)
		}
	}
	for rate, right := range map[string]bool{"0": true, "1000000": true, "-1": false, "1000001": false} {
		if err := parse(t, "--tracing-sampling-rate-per-million="+rate).Validate(); (err == nil) != right {
			t.Errorf("a rate of %s: %v", rate, err)
		}
	}
}

func TestNoTracesByDefault(t *testing.T) {
	provider, stop, err := parse(t).Start(t.Context(), "program", "v1")
	if provider != nil || err != nil {
		t.Errorf("%v, %v", provider, err)
	}
	stop()
}

func TestStopSendsLastSpans(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=me")
	at := otelcollector.Start(t)
	for rate, want := range map[int]int{all: 1, 0: 0} {
		before := len(at.Spans())
		o := parse(t, "--tracing-endpoint="+at.URL, fmt.Sprintf("--tracing-sampling-rate-per-million=%d", rate))
		o.flush = time.Minute // for the slowest machine
		provider, stop, err := o.Start(t.Context(), "program", "v1")
		if err != nil {
			t.Fatal(err)
		}
		_, span := provider.Tracer("").Start(t.Context(), "work")
		span.End()
		stop()
		if got := len(at.Spans()) - before; got != want {
			t.Errorf("%d spans came at a rate of %d", got, rate)
		}
	}
	if s := at.Service(); s["service.name"] != "program" || s["service.version"] != "v1" || s["k8s.pod.name"] != "me" {
		t.Errorf("they come from %v", s)
	}
}

// More spans are ended than the queue can hold (2048), and no batch of 512 is ever answered. If the work waited for
// batches, it would take sendFor for each of fifteen, as would an end that waited for the last one. The
// bubble's time advances only while every goroutine waits, so work that takes no time has not waited.
func TestUnreachableCollectorDelaysNoWork(t *testing.T) {
	for name, dial := range map[string]func() (net.Conn, error){
		"takes connections and says nothing": silent,
		"is not there":                       func() (net.Conn, error) { return nil, syscall.ECONNREFUSED },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testCollectorAway(t, dial) })
		})
	}
}

// silent returns a connection to a server that reads and never answers.
func silent() (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		_, _ = io.Copy(io.Discard, server)
		_ = server.Close()
	}()
	return client, nil
}

func testCollectorAway(t *testing.T, dial func() (net.Conn, error)) {
	dials := 0
	var mu sync.Mutex
	counted := grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		dials++
		return dial()
	})
	provider, stop, err := parse(t, "--tracing-endpoint=127.0.0.1:4317").Start(t.Context(), "program", "v1",
		otlptracegrpc.WithDialOption(counted))
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for range 10_000 {
		_, span := provider.Tracer("").Start(t.Context(), "work")
		span.End()
	}
	if waited := time.Since(begun); waited > 0 {
		t.Errorf("10,000 spans waited %v for the collector", waited)
	}
	begun = time.Now()
	stop()
	if took := time.Since(begun); took > flushFor {
		t.Errorf("the end took %v, want at most %v", took, flushFor)
	}
	mu.Lock()
	defer mu.Unlock()
	if dials == 0 {
		t.Error("the collector was not asked")
	}
}
