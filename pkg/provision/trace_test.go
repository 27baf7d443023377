package provision

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// tries returns the traces of tries that have ended, in their order, each as its attributes and its steps.
func tries(t *testing.T, spans *tracetest.SpanRecorder) (all []tried) {
	t.Helper()
	for _, root := range spans.Ended() {
		if root.Parent().IsValid() {
			continue
		}
		one := tried{about: map[string]string{}, failed: root.Status().Code == codes.Error}
		for _, a := range root.Attributes() {
			one.about[string(a.Key)] = a.Value.String()
		}
		for _, step := range spans.Ended() {
			if step.Parent().SpanID() == root.SpanContext().SpanID() {
				one.steps = append(one.steps, step.Name())
				if step.Status().Code == codes.Error {
					one.brokenAt = step.Name()
				}
			}
		}
		all = append(all, one)
	}
	return all
}

// traced returns a world, and what records the spans of a provider.
func traced(t *testing.T) (*world, *tracetest.SpanRecorder, *sdktrace.TracerProvider) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	return newWorld(t), spans, sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
}

type tried struct {
	about    map[string]string
	failed   bool
	steps    []string
	brokenAt string
}

func TestTryHasOneTrace(t *testing.T) {
	w, spans, provider := traced(t)
	p := w.start(Config{TracerProvider: provider})
	w.makeClaim()
	w.wait("it is provisioned", w.provisioned)
	p.stop()
	all := tries(t, spans)
	if len(all) != 1 {
		t.Fatalf("%d traces, want one: %+v", len(all), all)
	}
	want := map[string]string{
		"k8s.persistentvolume.name": "pvc-u1", "k8s.persistentvolumeclaim.name": "data",
		"k8s.persistentvolumeclaim.uid": "u1", "k8s.namespace.name": "ns", "csi.driver.name": driverName,
		"csi.volume.handle": "vol-pvc-u1", "csi_reclaimer.reason": "VolumeStored", "csi_reclaimer.resumed": "false",
	}
	if fmt.Sprint(all[0].about) != fmt.Sprint(want) || all[0].failed {
		t.Errorf("failed %v, with %v\nwant %v", all[0].failed, all[0].about, want)
	}
	steps := []string{"BuildRequest", "Prepare", "OpenEntry", "CreateVolume", "StorePV", "CloseEntry"}
	if !slices.Equal(all[0].steps, steps) {
		t.Errorf("steps %q\nwant  %q", all[0].steps, steps)
	}
}

func TestTraceOfFailedTry(t *testing.T) {
	for class, reason := range map[errclass.Class]string{errclass.Refused: "ProvisioningFailed",
		errclass.Uncertain: "ProvisioningOutcomeUnknown"} {
		t.Run(class.String(), func(t *testing.T) {
			w, spans, provider := traced(t)
			w.failing(false, first(1, class))
			p := w.start(Config{TracerProvider: provider})
			w.makeClaim()
			w.wait("it is provisioned", w.provisioned)
			p.stop()
			all := tries(t, spans)
			if len(all) < 2 {
				t.Fatalf("%d traces, want one of each try", len(all))
			}
			if first := all[0]; !first.failed || first.brokenAt != "CreateVolume" ||
				first.about["csi_reclaimer.reason"] != reason {
				t.Errorf("the first is %+v", first)
			}
			resumed := fmt.Sprint(class == errclass.Uncertain)
			if last := all[len(all)-1]; last.failed || last.about["csi_reclaimer.resumed"] != resumed {
				t.Errorf("the last is %+v, want resumed %s", last, resumed)
			}
		})
	}
}

func TestTraceOfPanickingTry(t *testing.T) {
	w, spans, provider := traced(t)
	w.failing(false, func() error { panic("a driver's mistake") })
	w.start(Config{TracerProvider: provider})
	w.makeClaim()
	w.wait("the trace of the try has ended", func() bool { return len(tries(t, spans)) > 0 })
	if first := tries(t, spans)[0]; first.about["k8s.persistentvolumeclaim.name"] != "data" {
		t.Errorf("the trace has no claim: %+v", first)
	}
}

// The span of the embedding program may last as long as the program.
func TestTraceIsNoPartOfProgramSpan(t *testing.T) {
	w, spans, provider := traced(t)
	ctx, program := provider.Tracer("").Start(t.Context(), "program")
	defer program.End()
	p := w.make(Config{TracerProvider: provider})
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() { defer close(ended); _ = p.provisioner.Run(ctx) }()
	w.makeClaim()
	w.wait("it is provisioned", w.provisioned)
	stop()
	<-ended
	p.log.removals.Wait()
	if all := tries(t, spans); len(all) != 1 || all[0].about["k8s.persistentvolume.name"] != "pvc-u1" {
		t.Errorf("traces %+v", all)
	}
}
