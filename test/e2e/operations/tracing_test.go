//go:build unix

package operations

import (
	"net"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/otelcollector"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/suite"
)

// TestReclaimIsOneTrace kills the sidecar in the middle of the reclaim that it reports to a collector.
func TestReclaimIsOneTrace(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	spans := otelcollector.Start(t)
	// A sidecar that does not provision watches no claims, so it reads each of them.
	args := append(fixture.FastRetries(), "--tracing-endpoint="+spans.URL, "--provision=false")
	car := env.StartSidecar(args...)
	whole, cut := env.MakeVolume(objects.Spec{}), env.MakeVolume(objects.Spec{})
	env.WaitProtected(whole)
	env.WaitProtected(cut)
	root := func(vol *objects.Volume) func(otelcollector.Span) bool {
		return func(span otelcollector.Span) bool {
			return span.GetName() == "Reclaim" && span.Attributes["k8s.persistentvolume.name"] == vol.Name
		}
	}

	env.Must(whole.DeletePV(env.Ctx))
	env.Must(whole.DeleteClaim(env.Ctx))
	env.Must(whole.WaitGone(env.WithTimeout()))
	trace, all := spans.Wait(t, fixture.WaitTimeout, root(whole))
	if trace.Attributes["csi.volume.handle"] != whole.Handle ||
		trace.Attributes["csi_reclaimer.reason"] != "VolumeDeleted" {
		t.Errorf("the trace is of %v", trace.Attributes)
	}
	env.expectSteps(trace, all, "ReadSecrets", "ReadClaim", "ReadPV", "csi.v1.Controller/DeleteVolume", "DeleteVolume",
		"FinalizePV")

	env.Must(env.MockDriver.SetFaults(env.Ctx,
		faults.Plan{Rules: []faults.Rule{{Method: "DeleteVolume", Volume: cut.Handle, Action: faults.Fail,
			Code: "Internal"}}}))
	env.Must(cut.DeleteClaim(env.Ctx))
	env.WaitDeleteCalls(cut, 1)
	env.Must(car.Terminate())
	interrupted, _ := spans.Wait(t, fixture.WaitTimeout, root(cut))
	if interrupted.Attributes["csi_reclaimer.interrupted"] != "true" {
		t.Errorf("the trace that ends with the process says %v", interrupted.Attributes)
	}
	env.Must(env.MockDriver.SetFaults(env.Ctx, faults.Plan{}))
	env.StartSidecar(args...)
	env.Must(cut.WaitGone(env.WithTimeout()))
	spans.Wait(t, fixture.WaitTimeout, func(span otelcollector.Span) bool {
		return root(cut)(span) && span.Attributes["csi_reclaimer.interrupted"] == "" &&
			span.Attributes["csi_reclaimer.resumed"] == "true"
	})
}

// expectSteps looks whether these spans, and no others, are in the trace, all within its time.
func (env *environment) expectSteps(trace otelcollector.Span, all []otelcollector.Span, names ...string) {
	env.T.Helper()
	left := map[string]int{}
	for _, name := range names {
		left[name]++
	}
	for _, span := range all {
		if string(span.GetTraceId()) != string(trace.GetTraceId()) || len(span.GetParentSpanId()) == 0 {
			continue
		}
		left[span.GetName()]--
		if span.GetStartTimeUnixNano() < trace.GetStartTimeUnixNano() ||
			span.GetEndTimeUnixNano() > trace.GetEndTimeUnixNano() {
			env.T.Errorf("%s is not within its trace", span.GetName())
		}
	}
	for name, n := range left {
		if n != 0 {
			env.T.Errorf("%s: %d too few in the trace", name, n)
		}
	}
}

// TestUnresponsiveCollectorDelaysNoDeletion sends spans to a port that accepts connections and answers nothing.
func TestUnresponsiveCollectorDelaysNoDeletion(t *testing.T) {
	suite.Deep(t, suite.WaitsForClock)
	fixture.NewestOnly(t, fixture.AboutProgram)
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	env := newEnvironment(t)
	car := env.StartSidecar(append(fixture.FastRetries(), "--tracing-endpoint="+silent.Addr().String(),
		"--shutdown-grace=1s")...)
	vol := env.MakeVolume(objects.Spec{})
	env.WaitProtected(vol)
	env.Must(vol.DeleteClaim(env.Ctx))
	env.Must(vol.WaitGone(env.WithTimeout()))
	env.ExpectDeleted(vol, 1)
	env.Must(car.Terminate())
}
