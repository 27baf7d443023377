package tracing

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/otelcollector"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	var o Options
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.Flags(fs, "traces")
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &o
}

func TestWhichEndpointsAreTaken(t *testing.T) {
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

func TestNothingIsTracedUnlessAsked(t *testing.T) {
	provider, stop, err := parse(t).Start(t.Context(), "program", "v1")
	if provider != nil || err != nil {
		t.Errorf("%v, %v", provider, err)
	}
	stop()
}

func TestTheLastSpansAreSentAtTheEnd(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=me")
	at := otelcollector.Start(t)
	for rate, want := range map[int]int{all: 1, 0: 0} {
		before := len(at.Spans())
		provider, stop, err := parse(t, "--tracing-endpoint="+at.URL, fmt.Sprintf("--tracing-sampling-rate-per-million=%d",
			rate)).Start(t.Context(), "program", "v1")
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

// TestACollectorThatIsAwaySlowsNothingDown has more work traced than the queue has room for (2048 spans), and no
// batch of which (512) is ever answered. Work that waited for batches would take sendFor for each of fifteen, and an
// end that waited for the last one tryFor.
func TestACollectorThatIsAwaySlowsNothingDown(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := gone.Addr().String()
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	for what, endpoint := range map[string]string{"takes connections and says nothing": silent.Addr().String(),
		"is not there": nobody} {
		t.Run(what, func(t *testing.T) {
			begun := time.Now()
			provider, stop, err := parse(t, "--tracing-endpoint="+endpoint).Start(t.Context(), "program", "v1")
			if err != nil {
				t.Fatal(err)
			}
			for range 10_000 {
				_, span := provider.Tracer("").Start(t.Context(), "work")
				span.End()
			}
			if took := time.Since(begun); took > 4*sendFor {
				t.Errorf("10,000 spans took %v", took)
			}
			begun = time.Now()
			stop()
			if took := time.Since(begun); took > tryFor/2 {
				t.Errorf("the end took %v", took)
			}
		})
	}
}
