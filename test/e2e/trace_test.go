//go:build unix

package e2e

import (
	"net"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/faults"
	"github.com/csi-reclaimer/csi-reclaimer/test/collector"
	"github.com/csi-reclaimer/csi-reclaimer/test/storage"
)

// TestAReclaimIsOneTrace has the sidecar tell a collector what it does, and be killed in the middle.
func TestAReclaimIsOneTrace(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	spans := collector.Start(t)
	args := append(eager(), "--tracing-endpoint="+spans.URL)
	car := s.sidecar(args...)
	whole, cut := s.make(storage.Spec{}), s.make(storage.Spec{})
	s.waitProtected(whole)
	s.waitProtected(cut)
	root := func(vol *storage.Volume) func(collector.Span) bool {
		return func(span collector.Span) bool {
			return span.GetName() == "Reclaim" && span.Attributes["k8s.persistentvolume.name"] == vol.Name
		}
	}

	s.must(whole.DeletePV(s.ctx))
	s.must(whole.DeleteClaim(s.ctx))
	s.must(whole.WaitGone(s.soon()))
	trace, all := spans.Wait(t, patience, root(whole))
	if trace.Attributes["csi.volume.handle"] != whole.Handle || trace.Attributes["csi_reclaimer.reason"] != "VolumeDeleted" {
		t.Errorf("the trace is of %v", trace.Attributes)
	}
	s.expectSteps(trace, all, "ReadSecrets", "ReadClaim", "ReadPV", "csi.v1.Controller/DeleteVolume", "DeleteVolume", "ReleasePV")

	s.must(s.driver.SetFaults(s.ctx, faults.Plan{Rules: []faults.Rule{{Method: "DeleteVolume", Volume: cut.Handle, Action: faults.Fail, Code: "Internal"}}}))
	s.must(cut.DeleteClaim(s.ctx))
	s.waitCalls(cut, 1)
	s.must(car.Terminate())
	interrupted, _ := spans.Wait(t, patience, root(cut))
	if interrupted.Attributes["csi_reclaimer.interrupted"] != "true" {
		t.Errorf("the trace that ends with the process says %v", interrupted.Attributes)
	}
	s.must(s.driver.SetFaults(s.ctx, faults.Plan{}))
	s.sidecar(args...)
	s.must(cut.WaitGone(s.soon()))
	spans.Wait(t, patience, func(span collector.Span) bool {
		return root(cut)(span) && span.Attributes["csi_reclaimer.interrupted"] == "" && span.Attributes["csi_reclaimer.resumed"] == "true"
	})
}

// expectSteps looks whether these spans, and no others, are in the trace, all within its time.
func (s *stage) expectSteps(trace collector.Span, all []collector.Span, names ...string) {
	s.t.Helper()
	left := map[string]int{}
	for _, name := range names {
		left[name]++
	}
	for _, span := range all {
		if string(span.GetTraceId()) != string(trace.GetTraceId()) || len(span.GetParentSpanId()) == 0 {
			continue
		}
		left[span.GetName()]--
		if span.GetStartTimeUnixNano() < trace.GetStartTimeUnixNano() || span.GetEndTimeUnixNano() > trace.GetEndTimeUnixNano() {
			s.t.Errorf("%s is not within its trace", span.GetName())
		}
	}
	for name, n := range left {
		if n != 0 {
			s.t.Errorf("%s: %d too few in the trace", name, n)
		}
	}
}

// TestACollectorThatSaysNothingHoldsUpNoDeletion has spans go to a port that takes connections and answers nothing.
func TestACollectorThatSaysNothingHoldsUpNoDeletion(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	s := newStage(t)
	car := s.sidecar(append(eager(), "--tracing-endpoint="+silent.Addr().String(), "--shutdown-grace=1s")...)
	vol := s.make(storage.Spec{})
	s.waitProtected(vol)
	s.must(vol.DeleteClaim(s.ctx))
	s.must(vol.WaitGone(s.soon()))
	s.expectDeleted(vol, 1)
	s.must(car.Terminate())
}
