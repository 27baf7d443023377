package singlenode

import (
	"slices"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Pod one has the lock of claim data, pod two waits for it, and the claim has a class, a PV and, for its node, a fence.
// Irrelevant changes wake no object.
func TestWakingChanges(t *testing.T) {
	both, waiting := []string{"claim ns/data", "pod ns/two"}, []string{"pod ns/two"}
	touched := func(w *world, o metav1.Object) { o.SetResourceVersion(w.version()) }
	for sentence, c := range map[string]struct {
		change func(w *world)
		want   []string
	}{
		"the class asks":        {func(w *world) { w.class(askingLabels) }, waiting},
		"the class is the same": {func(w *world) { w.class(nil) }, nil},
		"the class is gone":     {func(w *world) { delete(w.classes, "fast") }, waiting},
		"the PV asks":           {func(w *world) { w.volume("data", askingLabels) }, both},
		"the PV is the same":    {func(w *world) { w.volume("data", nil) }, nil},
		"the fence is in force": {func(w *world) {
			nodefence.Changes(w.observer.sawFence).Updated(nodefence.Fence{Node: "a"}, nodefence.Fence{Node: "a", InForce: true})
		}, both},
		"the fence is the same": {func(w *world) {
			nodefence.Changes(w.observer.sawFence).Updated(nodefence.Fence{Node: "a"}, nodefence.Fence{Node: "a"})
		}, nil},
		"the fence is of more volumes": {func(w *world) {
			nodefence.Changes(w.observer.sawFence).Updated(nodefence.Fence{Node: "a", InForce: true, Covers: 1},
				nodefence.Fence{Node: "a", InForce: true, Covers: 2})
		}, both},
		"the fence is gone": {func(w *world) { delete(w.fences, "a") }, both},
		"the node is created again": {func(w *world) {
			delete(w.nodes, "a")
			w.sync()
			w.woken.take()
			w.node(v1.ConditionTrue)
		}, both},
		"another node": {func(w *world) {
			w.observer.nodeChanged(objects.WatchedNode{Name: "b"}, objects.WatchedNode{})
		}, nil},
		"the namespace is the same": {func(w *world) { touched(w, w.namespaces["ns"]) }, nil},
		"another namespace": {func(w *world) {
			w.observer.namespaceChanged(namespace{Name: "other"}, namespace{})
		}, nil},
		"the namespace asks again": {func(w *world) {
			w.label("")
			w.sync()
			w.woken.take()
			w.label(singlenode.AllValue)
		}, waiting},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{Fences: true})
			w.class(nil)
			w.volume("data", nil)
			w.fences["a"] = &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: w.version()}}
			w.claim("data", locked("one"), bound)
			w.pod("one", onNode)
			w.pod("two")
			w.settle()
			w.woken.take()
			c.change(w)
			w.sync()
			if got := w.woken.take(); !slices.Equal(got, c.want) {
				t.Errorf("woken %q, want %q", got, c.want)
			}
		})
	}
}

// A PV or a StorageClass may be missing in a live read.
func TestMissingObjectsNeedLock(t *testing.T) {
	for name, c := range map[string]struct {
		gone func(w *world)
		want bool
	}{
		"both are there": {func(*world) {}, true},
		"no PV":          {func(w *world) { w.volumes = map[string]*v1.PersistentVolume{} }, false},
		"no class":       {func(w *world) { w.classes = map[string]*storagev1.StorageClass{} }, false},
	} {
		w := newWorld(t, Config{})
		w.class(nil)
		w.volume("data", nil)
		w.claim("data", bound, func(o *v1.PersistentVolumeClaim) { class := "fast"; o.Spec.StorageClassName = &class })
		w.sync()
		c.gone(w)
		got, err := w.Controller.readClaim(t.Context(), singlenode.Ask{Namespace: "ns", Name: "data",
			Mode: singlenode.ModeSelected})
		if err != nil || got.Unasked != c.want {
			t.Errorf("%s: unasked %t, %v", name, got.Unasked, err)
		}
	}
}

func TestUnmountGraceStartsAnewAfterOutage(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.pod("one", onNode, completed)
	w.settle()
	w.clock.Step(time.Hour)
	for _, ready := range []v1.ConditionStatus{v1.ConditionUnknown, v1.ConditionTrue} {
		w.node(ready)
		w.sync() // without any work between the two
	}
	w.settle()
	w.expectFreedAfterGrace(t)
}

// expectFreedAfterGrace expects the lock of pod one to stay for the whole grace from now on, and to be freed then.
func (w *world) expectFreedAfterGrace(t *testing.T) {
	t.Helper()
	if w.expectCalls(); w.lock() != "one" {
		t.Errorf("the lock has %q", w.lock())
	}
	w.clock.Step(podsafety.DefaultUnmountGrace)
	w.reconcileLock(t.Context(), "ns/data")
	if w.expectCalls("get pod one", "free data"); w.lock() != "" {
		t.Errorf("after the grace, the lock has %q", w.lock())
	}
}

// A standby replica counts the metrics of locks, which records that a pod has completed.
func TestUnmountGraceStartsAnewAfterOutageSeenInStandby(t *testing.T) {
	w := newWorld(t, Config{})
	w.woken.idle = true
	w.claim("data", locked("one"))
	w.pod("one", onNode, completed)
	w.sync()
	w.observer.observeLock("ns/data")
	w.clock.Step(time.Hour)
	for _, ready := range []v1.ConditionStatus{v1.ConditionUnknown, v1.ConditionTrue} {
		w.node(ready)
		w.sync()
	}
	w.woken.idle = false
	w.reconcileLock(t.Context(), "ns/data")
	w.expectFreedAfterGrace(t)
}

func TestUnmountGraceStartsAfterFence(t *testing.T) {
	w := newWorld(t, Config{Fences: true})
	shut, open := nodefence.Fence{Node: "a", KeepsVolumes: true}, nodefence.Fence{Node: "a"}
	storage := func() podsafety.Storage { return w.observer.user(singlenode.Pod{UID: "uid", Node: "a"}).Storage }
	changes := nodefence.Changes(w.observer.sawFence)
	if changes.Added(open); storage() != (podsafety.Storage{}) {
		t.Errorf("%+v", storage())
	}
	if changes.Updated(open, shut); storage() != (podsafety.Storage{Fenced: true}) {
		t.Errorf("%+v", storage())
	}
	if changes.Deleted(shut, false); storage().Fenced || storage().Since.IsZero() {
		t.Errorf("%+v", storage())
	}
}
