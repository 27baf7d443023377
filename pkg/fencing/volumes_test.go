package fencing

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

// storage is an agent that keeps a node from volumes.
func storage() v1alpha1.Agent {
	return v1alpha1.Agent{Name: "net", Covers: v1alpha1.CoversVolumes, Timeout: metav1.Duration{Duration: time.Minute},
		NetworkFence: &v1alpha1.NetworkFenceAgent{Driver: "driver", NetworkFenceClassName: "c", Volumes: v1alpha1.VolumesAll}}
}

// cutOff is a world with a node that is fenced from volumes, and that runs.
func cutOff(t *testing.T) *world {
	t.Helper()
	w := requested(t, Config{}, storage())
	w.again(3)
	w.runs["net"] = fencing.RunSucceeded
	w.again(4)
	if w.wantPhase("a", v1alpha1.PhaseFenced); !w.shunned() {
		t.Fatal("new pods may join a node without its volumes")
	}
	w.node("a", v1.ConditionTrue)
	w.leases["a"]++
	if w.again(2); !w.shunned() {
		t.Fatal("new pods may join a node that runs, without its volumes")
	}
	return w
}

// The taint of a node that is fenced from volumes goes with its boot, with another machine, and with its fence.
func TestNodeOfFencedVolumesGetsNoPods(t *testing.T) {
	patch := func(w *world, change func(*v1alpha1.NodeFence)) {
		o := w.fences["a"].DeepCopy()
		change(o)
		o.ResourceVersion = w.version()
		w.fences["a"] = o
	}
	info := func(w *world, change func(*v1.NodeSystemInfo)) {
		w.node("a", v1.ConditionTrue, func(o *v1.Node) { change(&o.Status.NodeInfo) })
		w.leases["a"]++
	}
	undone := func(w *world) {
		w.again(4)
		if !w.shunned() {
			w.Error("new pods may join the node before it reaches its volumes")
		}
		w.runs["undo net"] = fencing.RunSucceeded
	}
	for name, end := range map[string]func(*world){
		"a boot": func(w *world) { info(w, func(i *v1.NodeSystemInfo) { i.BootID = "boot-2" }) },
		"another machine": func(w *world) {
			info(w, func(i *v1.NodeSystemInfo) { i.BootID, i.MachineID = "boot-2", "id2" })
		},
		"a person": func(w *world) {
			patch(w, func(o *v1alpha1.NodeFence) { o.Spec.Unfence = v1alpha1.UnfenceNow })
			undone(w)
		},
		"a person, who has undone it": func(w *world) {
			patch(w, func(o *v1alpha1.NodeFence) { o.Spec.Unfence = v1alpha1.UnfenceAbandon })
		},
		"the release of finalizers": func(w *world) {
			w.discovery = nil
			if done, err := w.releaseAll(w.Context(), false); err != nil || done.Nodes != 1 {
				w.Errorf("%+v, %v", done, err)
			}
			delete(w.fences, "a")
		},
		"the removal of the finalizer": func(w *world) {
			patch(w, func(o *v1alpha1.NodeFence) {
				o.DeletionTimestamp, o.Finalizers = ptr.To(metav1.NewTime(w.clock.Now())), []string{"example.com/other"}
			})
		},
		"its NodeFence, while no process runs": func(w *world) {
			delete(w.fences, "a")
			w.restart(Config{})
			fences, _ := w.observer.first()
			if !slices.Equal(fences, []string{"a"}) {
				w.Errorf("begins with %q", fences)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := cutOff(t)
			w.node("a", v1.ConditionTrue, func(o *v1.Node) { // a person also wants the pods to leave
				o.Spec.Taints = append(o.Spec.Taints, v1.Taint{Key: o.Spec.Taints[0].Key, Effect: v1.TaintEffectNoExecute})
			})
			if w.again(2); len(w.nodes["a"].Spec.Taints) != 2 {
				t.Errorf("the taint of a person is gone before the fence: %+v", w.nodes["a"].Spec.Taints)
			}
			end(w)
			if w.again(4); len(w.nodes["a"].Spec.Taints) > 0 {
				t.Errorf("new pods stay away: %+v", w.nodes["a"].Spec.Taints)
			}
		})
	}
	w := cutOff(t)
	patch(w, func(o *v1alpha1.NodeFence) { o.DeletionTimestamp = ptr.To(metav1.NewTime(w.clock.Now())) })
	w.node("a", v1.ConditionTrue, func(o *v1.Node) { o.Spec.Taints = nil })
	if w.again(4); !w.shunned() {
		t.Error("the fence was deleted before a boot, the taint was removed by hand, and new pods may join the node")
	}
}

// After the removal of volume-guard, a person undoes the work of the agents. A later installation, and a leader after a
// failed removal, neither believes the proof nor undoes a fence whose node runs.
func TestReleasedFenceIsNoEvidence(t *testing.T) {
	w := cutOff(t)
	w.discovery = nil
	believed := func() bool { return fencing.Evidence(fencing.FenceOf(w.fences["a"]), "pod").InForce }
	if !believed() {
		t.Fatal("it is no evidence before")
	}
	if done, err := w.releaseAll(t.Context(), false); err != nil || done.Fences != 1 || believed() {
		t.Errorf("%+v, %v, is evidence: %t", done, err, believed())
	}
	w.took()
	w.restart(Config{})
	w.again(5)
	if took := w.took(); believed() || w.shunned() || slices.Contains(took, "start undo net") ||
		len(w.fences["a"].Finalizers) != 1 {
		t.Errorf("%q: %+v", took, w.fences["a"].Status)
	}
	w.reboot()
	w.again(3)
	w.runs["undo net"] = fencing.RunSucceeded
	w.again(6)
	w.wantPhase("a", v1alpha1.PhaseReturned)
}

// A leftover taint is removed with any effect, since it has the prefix of this project.
func TestLeftoverTaintOfVolumesIsRemoved(t *testing.T) {
	for _, effect := range []v1.TaintEffect{v1.TaintEffectNoExecute, v1.TaintEffectNoSchedule,
		v1.TaintEffectPreferNoSchedule} {
		w := newWorld(t, Config{})
		w.node("a", v1.ConditionTrue, func(o *v1.Node) {
			o.Spec.Taints = []v1.Taint{{Key: objects.VolumesFencedTaint, Effect: effect}}
		})
		if w.again(1); len(w.nodes["a"].Spec.Taints) > 0 {
			t.Errorf("%s: the taint stays", effect)
		}
	}
}

// A write that another program changes must not succeed, because the next session would repeat it at once.
func TestHasTaint(t *testing.T) {
	ours := v1.Taint{Key: v1.TaintNodeOutOfService, Value: objects.OwnTaintValue, Effect: v1.TaintEffectNoExecute}
	fenced := v1.Taint{Key: objects.VolumesFencedTaint, Effect: v1.TaintEffectNoSchedule}
	other := v1.Taint{Key: objects.VolumesFencedTaint, Effect: v1.TaintEffectNoExecute}
	for name, c := range map[string]struct {
		taints []v1.Taint
		want   []fencing.Taint
	}{
		"none":           {nil, []fencing.Taint{fencing.NoTaint}},
		"of others":      {[]v1.Taint{{Key: v1.TaintNodeOutOfService}}, []fencing.Taint{fencing.NoTaint}},
		"out of service": {[]v1.Taint{ours}, []fencing.Taint{fencing.OutOfService}},
		"volumes fenced": {[]v1.Taint{fenced}, []fencing.Taint{fencing.VolumesFenced}},
		"both":           {[]v1.Taint{fenced, ours}, []fencing.Taint{fencing.OutOfService}},
		"another effect": {[]v1.Taint{other}, nil},
		"each effect":    {[]v1.Taint{other, fenced}, []fencing.Taint{fencing.VolumesFenced}},
	} {
		for is := fencing.NoTaint; is <= fencing.VolumesFenced; is++ {
			if got := hasTaint(&v1.Node{Spec: v1.NodeSpec{Taints: c.taints}}, is); got != slices.Contains(c.want, is) {
				t.Errorf("%s: taint %d: %t", name, is, got)
			}
		}
	}
}

// A refused taint delays neither an agent nor the end of the fence, and hides no call for a person.
func TestAgentsArePolledWhileTaintIsRefused(t *testing.T) {
	metrics, second := prometheus.NewRegistry(), storage()
	second.Name = "net2"
	w := requested(t, Config{Settings: controllers.Settings{Metrics: metrics}}, storage(), second)
	w.fail["taint true"] = errNoAnswer
	w.again(3)
	w.runs["net"] = fencing.RunSucceeded
	retried := func(what string) {
		t.Helper()
		w.took()
		for range 12 {
			w.sync()
			result := w.reconcile(t.Context(), "a")
			if d := result.Backoff.Delay(20); d == 0 || d > 15*time.Second { // After is up to a quarter later
				t.Errorf("%s: the next session begins after %s", what, d)
			}
		}
		if w.sync(); !slices.Contains(w.took(), "taint true") {
			t.Errorf("%s: the taint is not tried", what)
		}
	}
	w.again(6)
	retried("an agent is at work")
	w.runs["net2"] = fencing.RunSucceeded
	if w.again(2); len(w.fences["a"].Status.Proof.Volumes) != 2 {
		t.Errorf("%+v", w.fences["a"].Status)
	}
	w.node("a", v1.ConditionTrue)
	w.leases["a"]++
	retried("the node runs")
	if got := figures(t, metrics); got["csi_reclaimer_fence_waiting_nodes{NeedsReboot}"] != 1 {
		t.Errorf("nobody is asked to reboot the node: %v", got)
	}
	w.reboot()
	w.again(4)
	w.wantPhase("a", v1alpha1.PhaseUnfencing)
}

func TestKilledAtTaintOfFencedVolumes(t *testing.T) {
	killed(t, storage(), func(w *world, round func(int)) {
		round(4)
		w.runs["net"] = fencing.RunSucceeded
		if round(6); !w.shunned() {
			t.Error("new pods may join")
		}
		w.reboot()
		if round(3); w.shunned() {
			t.Error("new pods stay away after a boot")
		}
		w.runs["undo net"] = fencing.RunSucceeded
		round(6)
		if w.wantPhase("a", v1alpha1.PhaseReturned); len(w.nodes["a"].Spec.Taints) > 0 {
			t.Errorf("%+v", w.nodes["a"].Spec.Taints)
		}
	})
}
