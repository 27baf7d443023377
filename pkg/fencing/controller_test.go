package fencing

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// requested is a world with an unreachable node, and a NodeFence for it.
func requested(t *testing.T, cfg Config, agents ...v1alpha1.Agent) *world {
	t.Helper()
	w := newWorld(t, cfg)
	w.node("a", v1.ConditionUnknown)
	if len(agents) == 0 {
		agents = []v1alpha1.Agent{agent("off")}
	}
	w.ask("a", agents...)
	w.sync()
	return w
}

// again works on the fence for some rounds, as the queue does.
func (w *world) again(rounds int) {
	w.Helper()
	for range rounds {
		w.sync()
		w.reconcile(w.Context(), "a")
		w.clock.Step(time.Second)
	}
	w.sync()
}

// reboot brings the node back with another boot ID.
func (w *world) reboot() {
	w.node("a", v1.ConditionTrue, func(o *v1.Node) { o.Status.NodeInfo.BootID = "boot-2" })
	w.leases["a"]++
}

func TestFenceLifecycle(t *testing.T) {
	metrics := prometheus.NewRegistry()
	undone := agent("off")
	undone.Job.Undo = true
	w := requested(t, Config{Settings: controllers.Settings{Metrics: metrics}, KeepReturned: time.Minute}, undone)
	w.again(3)
	w.wantPhase("a", v1alpha1.PhaseFencing)
	if w.tainted() || !slices.Contains(w.took(), "start off") {
		t.Fatal("tainted, or not started")
	}
	w.runs["off"] = fencing.RunSucceeded
	w.again(4)
	w.wantPhase("a", v1alpha1.PhaseReleased)
	if !w.tainted() {
		t.Error("the node is not tainted")
	}
	w.reboot()
	w.again(3)
	w.wantPhase("a", v1alpha1.PhaseUnfencing)
	if !slices.Contains(w.took(), "start undo off") || w.tainted() {
		t.Error("the agent does not undo the fence, or a node that runs again is tainted")
	}
	w.runs["undo off"] = fencing.RunSucceeded
	w.again(4)
	w.wantPhase("a", v1alpha1.PhaseReturned)
	if w.tainted() {
		t.Error("the node is tainted")
	}
	for name, want := range map[string]float64{
		"csi_reclaimer_node_fences{Returned}": 1, "csi_reclaimer_node_fences{Released}": 0,
		"csi_reclaimer_fence_attempts_total{job,Proven}": 1, "csi_reclaimer_fence_attempts_total{job,Failed}": 0,
		"csi_reclaimer_fence_release_seconds{}": 1,
	} {
		if got := figures(t, metrics)[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	w.clock.Step(2 * time.Minute)
	w.again(3)
	w.wantPhase("a", "none")
	w.wantEvents("Requested", "Fencing", "Fenced", "Released", "Unfencing", "NodeRebooted")
}

// The machine ID and the system UUID each distinguish machines.
func TestReplacedMachineEndsNoFence(t *testing.T) {
	w := requested(t, Config{})
	w.runs["off"] = fencing.RunSucceeded
	w.again(6)
	w.wantPhase("a", v1alpha1.PhaseReleased)
	w.leases["a"]++
	for _, other := range []v1.NodeSystemInfo{{BootID: "boot-2", MachineID: "id2", SystemUUID: "uuid"},
		{BootID: "boot-2", MachineID: "id", SystemUUID: "uuid2"}} {
		w.node("a", v1.ConditionTrue, func(o *v1.Node) { o.Status.NodeInfo = other })
		w.again(4)
		if w.tainted() {
			t.Error("another machine is tainted")
		}
	}
	w.wantPhase("a", v1alpha1.PhaseFenced)
	w.node("a", v1.ConditionTrue, func(o *v1.Node) { o.Status.NodeInfo.SystemUUID = "uuid" })
	w.again(4)
	w.wantPhase("a", v1alpha1.PhaseReturned)
}

// The state of a machine is unknown after its Node was deleted, so its agent does not undo the fence by itself.
func TestFenceOfDeletedNodeUsesUpNoLimit(t *testing.T) {
	undone := agent("off")
	undone.Job.Undo = true
	w := requested(t, Config{}, undone)
	w.runs["off"] = fencing.RunSucceeded
	w.again(6)
	vacant := func() bool { return fencing.FenceOf(w.fences["a"]).Vacant() }
	if delete(w.nodes, "a"); vacant() {
		t.Fatal("it counts no more, and its Node is there")
	}
	w.again(2)
	if !vacant() {
		t.Errorf("it counts: %+v", w.fences["a"].Status.Conditions)
	}
	w.wantPhase("a", v1alpha1.PhaseFenced)
	if w.node("a", v1.ConditionUnknown); slices.Contains(w.took(), "start undo off") {
		t.Error("the agent undoes the fence")
	}
	if w.again(3); vacant() {
		t.Error("its Node is there again, and it does not count")
	}
}

// figures returns all metrics, by their names and label values. The figure of a histogram is its number of
// observations.
func figures(t *testing.T, of prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families := must.Get(of.Gather())(t)
	all := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, label := range m.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			all[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetGauge().GetValue() + m.GetCounter().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// reasons returns the reasons of the Events since it was last called.
func (w *world) reasons() (all []string) {
	w.Helper()
	for len(w.events.Events) > 0 {
		var kind, reason string
		if _, err := fmt.Sscan(<-w.events.Events, &kind, &reason); err != nil {
			w.Fatal(err)
		}
		all = append(all, reason)
	}
	return all
}

// wantEvents checks the reasons of the Events, each of which is on the NodeFence and on the Node.
func (w *world) wantEvents(want ...string) {
	w.Helper()
	var twice []string
	for _, reason := range want {
		twice = append(twice, reason, reason)
	}
	if got := w.reasons(); !slices.Equal(got, twice) {
		w.Errorf("Events %q, want %q", got, twice)
	}
}

// killed plays the life of a fence once for each of its writes. The process ends at that write, either before the write
// or before its answer, and another one continues. round works on the fence some times.
func killed(t *testing.T, agent v1alpha1.Agent, play func(w *world, round func(times int))) {
	t.Helper()
	for _, lost := range []bool{false, true} {
		for broken := 1; ; broken++ {
			w := requested(t, Config{}, agent)
			w.broken, w.lost = broken, lost
			play(w, func(times int) {
				for range times {
					w.again(1)
					if w.writes == w.broken {
						w.restart(Config{})
					}
				}
			})
			if t.Failed() {
				t.Fatalf("write %d, lost %t", broken, lost)
			}
			if w.writes < broken {
				break
			}
		}
	}
}

func TestKilledAtEachWrite(t *testing.T) {
	undone := agent("off")
	undone.Job.Undo = true
	killed(t, undone, func(w *world, round func(int)) {
		round(4)
		w.runs["off"] = fencing.RunSucceeded
		round(6)
		if w.wantPhase("a", v1alpha1.PhaseReleased); !w.tainted() {
			t.Error("not tainted")
		}
		w.reboot()
		round(5)
		w.runs["undo off"] = fencing.RunSucceeded
		round(6)
		if w.wantPhase("a", v1alpha1.PhaseReturned); w.tainted() || len(w.fences["a"].Status.Attempts) != 1 {
			t.Errorf("tainted, or %d attempts", len(w.fences["a"].Status.Attempts))
		}
	})
}

// TestTwoLeaders lets another process work on the fence at each call of the first.
func TestTwoLeaders(t *testing.T) {
	w := requested(t, Config{})
	other := must.Get(newController(Config{Settings: controllers.Settings{Clock: w.clock}}, w, w))(t)
	other.observer.fences, other.observer.nodes, other.observer.policies = w.fenceCache, w.nodeCache, w.policyCache
	nested := false
	w.hook = func(string) {
		if !nested {
			nested = true
			other.reconcile(t.Context(), "a")
			nested = false
		}
	}
	w.again(4)
	w.wantPhase("a", v1alpha1.PhaseFencing)
	w.runs["off"] = fencing.RunSucceeded
	w.again(6)
	w.wantPhase("a", v1alpha1.PhaseReleased)
	if n := len(w.fences["a"].Status.Attempts); n != 1 {
		t.Errorf("%d attempts", n)
	}
	w.reboot()
	w.again(6)
	w.wantPhase("a", v1alpha1.PhaseReturned)
	if w.tainted() {
		t.Error("the node is tainted")
	}
}

// A leftover taint is removed, and the taint of a fence in force stays.
func TestLeftoverTaintIsRemoved(t *testing.T) {
	tainted := func(o *v1.Node) { o.Spec.Taints, _ = withTaint(nil, fencing.OutOfService) }
	w := newWorld(t, Config{})
	w.node("a", v1.ConditionUnknown, tainted)
	if w.again(1); w.tainted() {
		t.Error("the taint stays")
	}
	if got := w.reasons(); !slices.Equal(got, []string{"TaintRemains"}) {
		t.Errorf("Events %q", got)
	}

	w = requested(t, Config{})
	w.again(3)
	w.runs["off"] = fencing.RunSucceeded
	w.again(4)
	delete(w.fenceCache.Records, "a") // the watch lags
	w.reconcile(t.Context(), "a")
	if !w.tainted() {
		t.Error("the taint of a fence in force is removed")
	}
}

// newTainted has a node with a taint but without a NodeFence, of which the removal fails.
func newTainted(t *testing.T) *world {
	w := newWorld(t, Config{})
	w.node("a", v1.ConditionUnknown, func(o *v1.Node) { o.Spec.Taints, _ = withTaint(nil, fencing.OutOfService) })
	w.fail["get node"] = errNoAnswer
	w.again(1)
	if waiting := w.reports.Waiting(); waiting[fencing.ReasonAPIReadFailed] != 1 {
		t.Fatalf("waiting after a failed call: %v", waiting)
	}
	return w
}

// The report of a failed removal ends with the taint, also if another program removes the taint.
func TestTaintRemovedByOthersEndsReport(t *testing.T) {
	w := newTainted(t)
	w.node("a", v1.ConditionUnknown, func(o *v1.Node) { o.Spec.Taints = nil })
	w.sync()
	w.reconcile(t.Context(), "a")
	if waiting := w.reports.Waiting(); len(waiting) > 0 {
		t.Errorf("waiting without a taint: %v", waiting)
	}
}

// The reports of a NodeFence follow, under its UID.
func TestNodeFenceEndsReportOfNode(t *testing.T) {
	w := newTainted(t)
	w.ask("a", agent("power"))
	w.again(1)
	if waiting := w.reports.Waiting(); waiting[fencing.ReasonAPIReadFailed] > 1 || len(waiting) > 1 {
		t.Errorf("the node counts twice: %v", waiting)
	}
}

func TestUnstartableAgentTimesOut(t *testing.T) {
	w := requested(t, Config{}, agent("first"), agent("second"))
	w.fail["start first"] = errNoAnswer
	w.again(5)
	w.wantPhase("a", v1alpha1.PhaseFencing)
	w.clock.Step(time.Minute)
	w.again(5)
	if s := w.fences["a"].Status; len(s.Attempts) != 2 || s.Attempts[0].Result != v1alpha1.ResultTimedOut ||
		!strings.Contains(s.Attempts[0].Message, errNoAnswer.Error()) || w.runs["second"] != fencing.Running {
		t.Errorf("%+v", s.Attempts)
	}
}

// annotate makes a node health check give up the fence, or withdraw that.
func (w *world) annotate(givenUp bool) {
	o := w.fences["a"].DeepCopy()
	o.Annotations, o.ResourceVersion = nil, w.version()
	if givenUp {
		o.Annotations = map[string]string{v1alpha1.AnnotationTimedOut: "2026-01-02T03:04:05Z"}
	}
	w.fences["a"] = o
}

// wantSucceeded checks the condition that a node health check reads.
func (w *world) wantSucceeded(status metav1.ConditionStatus, reason fencing.Reason) {
	w.Helper()
	c := meta.FindStatusCondition(w.fences["a"].Status.Conditions, v1alpha1.ConditionSucceeded)
	if c == nil || c.Status != status || c.Reason != string(reason) {
		w.Fatalf("%+v, want %s because %s", c, status, reason)
	}
}

func TestNodeHealthCheckGivesUp(t *testing.T) {
	w := requested(t, Config{}, agent("first"), agent("second"))
	w.again(3)
	w.wantSucceeded(metav1.ConditionUnknown, fencing.ReasonFencing)
	w.annotate(true)
	w.again(5)
	w.wantSucceeded(metav1.ConditionFalse, fencing.ReasonHealthCheckGaveUp)
	w.clock.Step(time.Hour)
	w.again(5)
	calls := w.took()
	if !slices.Contains(calls, "stop first") || slices.Contains(calls, "start second") || w.tainted() {
		t.Errorf("%q", calls)
	}
	w.annotate(false)
	w.again(5)
	w.wantSucceeded(metav1.ConditionUnknown, fencing.ReasonFencing)
	w.runs["second"] = fencing.RunSucceeded
	w.again(5)
	w.wantSucceeded(metav1.ConditionTrue, fencing.ReasonFenced)
	w.annotate(true)
	w.again(5)
	w.wantPhase("a", v1alpha1.PhaseReleased)
	w.wantSucceeded(metav1.ConditionTrue, fencing.ReasonFenced)
	w.wantEvents("Requested", "Fencing", "AgentCanceled", "HealthCheckGaveUp", "Fencing", "Fenced", "Released")
}

func TestDryRunMakesNoWrites(t *testing.T) {
	w := requested(t, Config{Settings: controllers.Settings{DryRun: true}})
	w.again(5)
	if w.writes > 0 || len(w.fences["a"].Finalizers) > 0 {
		t.Errorf("calls %q", w.calls)
	}
}

func TestRelease(t *testing.T) {
	w := requested(t, Config{})
	w.discovery = nil
	w.again(3)
	w.runs["off"] = fencing.RunSucceeded
	w.again(4)
	w.node("b", v1.ConditionTrue, func(o *v1.Node) {
		o.Spec.Taints = []v1.Taint{{Key: v1.TaintNodeOutOfService, Value: "theirs", Effect: v1.TaintEffectNoExecute}}
	})
	w.fail["taint false"] = errNoAnswer
	done, err := w.releaseAll(t.Context(), false)
	if err == nil || !slices.Equal(done.Left, []string{"Node a"}) {
		t.Errorf("%+v, %v", done, err)
	}
	delete(w.fail, "taint false")
	done, err = w.releaseAll(t.Context(), false)
	if err != nil || done.Nodes != 1 || !slices.Equal(done.Active, []string{"a (Released)"}) {
		t.Errorf("%+v, %v", done, err)
	}
	if len(w.fences["a"].Finalizers) > 0 || w.tainted() || len(w.nodes["b"].Spec.Taints) != 1 ||
		!meta.IsStatusConditionTrue(w.fences["a"].Status.Conditions, v1alpha1.ConditionFenced) {
		t.Errorf("%+v", w.fences["a"])
	}
	w.calls = nil
	if _, err := w.releaseAll(t.Context(), true); err != nil || slices.Contains(w.took(), "list fences") {
		t.Errorf("without the kinds: %v", err)
	}
}

func TestWithTaint(t *testing.T) {
	const key = v1.TaintNodeOutOfService
	other := v1.Taint{Key: "other", Effect: v1.TaintEffectNoExecute}
	theirs := func(effect v1.TaintEffect) v1.Taint { return v1.Taint{Key: key, Value: "theirs", Effect: effect} }
	ours := func(effect v1.TaintEffect) v1.Taint {
		return v1.Taint{Key: key, Value: "csi-reclaimer", Effect: effect}
	}
	const execute, schedule = v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule
	fenced := v1.Taint{Key: "csi-reclaimer.io/volumes-fenced", Effect: schedule}
	for name, c := range map[string]struct{ before, with, without []v1.Taint }{
		"none":              {nil, []v1.Taint{ours(execute)}, nil},
		"others":            {[]v1.Taint{other}, []v1.Taint{other, ours(execute)}, []v1.Taint{other}},
		"it is there":       {[]v1.Taint{ours(execute), other}, []v1.Taint{other, ours(execute)}, []v1.Taint{other}},
		"of fenced volumes": {[]v1.Taint{fenced, other}, []v1.Taint{other, ours(execute)}, []v1.Taint{other}},
		"with another effect": {[]v1.Taint{{Key: fenced.Key, Value: "person", Effect: execute}, other, fenced},
			[]v1.Taint{other, ours(execute)}, []v1.Taint{other}},
		"of others": {[]v1.Taint{theirs(execute)}, []v1.Taint{theirs(execute), ours(schedule)},
			[]v1.Taint{theirs(execute)}},
		"of others, no effect is left": {[]v1.Taint{theirs(execute), theirs(schedule)}, nil,
			[]v1.Taint{theirs(execute), theirs(schedule)}},
	} {
		with, err := withTaint(c.before, fencing.OutOfService)
		if !slices.Equal(with, c.with) || (err != nil) != (c.with == nil) {
			t.Errorf("%s: %v, %v", name, with, err)
		}
		with, err = withTaint(c.before, fencing.VolumesFenced)
		if !slices.Equal(with, append(slices.Clone(c.without), fenced)) || err != nil {
			t.Errorf("%s, of volumes: %v, %v", name, with, err)
		}
		if without, err := withTaint(c.before, fencing.NoTaint); !slices.Equal(without, c.without) || err != nil {
			t.Errorf("%s, removed: %v, %v", name, without, err)
		}
	}
}
