package podsafety

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

func unbound(o *v1.Pod) { o.Spec.NodeName = "" }

func started(o *v1.Pod) {
	o.Status = v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{Name: "c",
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}}
}

// refused is a pod that its kubelet refused, and reports to have no container of.
func refused(o *v1.Pod) {
	o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate,
		Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:phase":{}}}`)}}
	o.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "NodePorts", ContainerStatuses: []v1.ContainerStatus{{Name: "c",
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "ContainerStatusUnknown"}}}}}
}

func TestStartsOfPods(t *testing.T) {
	t.Parallel()
	created := func(w *world, o *v1.Pod) *pod {
		p := podOf(o)
		w.observer.podHandler().Created(p)
		return p
	}
	for name, c := range map[string]struct {
		watch func(w *world)
		want  int
	}{
		"created with a node":    {func(w *world) { created(w, held()) }, 1},
		"first seen with a node": {func(w *world) { w.observer.podChanged(nil, podOf(held())) }, 0},
		"seen without a node": {func(w *world) {
			p := podOf(held(unbound))
			w.observer.podChanged(nil, p)
			w.observer.podChanged(p, podOf(held()))
		}, 1},
		"started": {func(w *world) { w.observer.podChanged(created(w, held()), podOf(held(started))) }, 0},
		"started, and deleted": {func(w *world) {
			w.observer.podChanged(created(w, held()), podOf(held(started, terminating)))
		}, 0},
		"refused": {func(w *world) {
			w.observer.podChanged(created(w, held()), podOf(held(refused, terminating)))
		}, 1},
		"first seen started": {func(w *world) { w.observer.podChanged(nil, podOf(held(started))) }, 0},
		"not held":           {func(w *world) { created(w, held(unheld, marked)) }, 0},
		"gone":               {func(w *world) { w.observer.podChanged(created(w, held()), nil) }, 0},
		"replaced":           {func(w *world) { w.observer.podChanged(created(w, held()), podOf(held(next))) }, 0},
	} {
		w := newWorld(t, Config{})
		w.observer.tracker.Complete = w.clock.Now()
		if c.watch(w); len(w.observer.tracker.Unread) != c.want {
			t.Errorf("%s: %v", name, w.observer.tracker.Unread)
		}
	}
}

func TestCreatedPodIsFollowed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	if w.observer.podCreated(podOf(held())); len(w.observer.podsOn.In("a")) != 1 || len(w.observer.waitingOn("a")) != 0 {
		t.Errorf("on the node: %v, waiting: %v", w.observer.podsOn.In("a"), w.observer.waitingOn("a"))
	}
}

// Pods count as created after a node was seen once the watch has caught up with a list that was sent later.
func TestOrderOfPodsAndNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	reached := false
	w.observer.podsReached = func(version string) bool { return reached && version == "7" }
	expect := func(what string, got, want listed, complete time.Time, calls ...string) {
		t.Helper()
		if got != want || !w.observer.tracker.Complete.Equal(complete) {
			t.Errorf("%s: waits for %+v, and pods are complete since %v", what, got, w.observer.tracker.Complete)
		}
		w.expectCalls(calls...)
	}
	expect("no node is seen", w.order(t.Context(), listed{}), listed{}, time.Time{})
	w.observer.nodeChanged(objects.WatchedNode{}, objects.WatchedNode{Name: "a", Seen: objects.NodeReady,
		Machine: objects.Machine{MachineID: "m"}})
	w.clock.Step(time.Second)
	w.fail["list one pod"] = errors.New("no answer")
	expect("the list fails", w.order(t.Context(), listed{}), listed{}, time.Time{}, "list one pod")
	delete(w.fail, "list one pod")
	sent := w.clock.Now()
	last := w.order(t.Context(), listed{})
	expect("the watch lags", last, listed{"7", sent}, time.Time{}, "list one pod")
	w.clock.Step(time.Minute)
	expect("it still lags", w.order(t.Context(), last), last, time.Time{})
	w.clock.Step(forgetList)
	sent = w.clock.Now()
	last = w.order(t.Context(), last)
	expect("it never reaches that version", last, listed{"7", sent}, time.Time{}, "list one pod")
	reached = true
	expect("it has caught up", w.order(t.Context(), last), listed{}, sent)
	expect("no other node is seen", w.order(t.Context(), listed{}), listed{}, sent)
}

// A leader lists the pods once, and then waits until the watch has reached that version.
func TestLeaderFollowsOrderOfPodsAndNodes(t *testing.T) {
	w := newWorld(t, Config{})
	reached := false
	w.observer.podsReached = func(string) bool { return reached }
	w.observer.nodeChanged(objects.WatchedNode{}, objects.WatchedNode{Name: "a", Seen: objects.NodeReady,
		Machine: objects.Machine{MachineID: "m"}})
	w.clock.Step(time.Second)
	sent := w.clock.Now()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go w.orderStarts(ctx)
		synctest.Wait()
		reached = true
		w.clock.Step(startsEvery)
		synctest.Wait()
		w.expectCalls("list one pod")
	})
	if got := w.observer.tracker.Complete; !got.Equal(sent) {
		t.Errorf("pods are complete since %v, want %v", got, sent)
	}
}

func TestRefusedPodWaitsForHeartbeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	now := objects.WatchedNode{Name: "a", Seen: objects.NodeReady, Machine: objects.Machine{MachineID: "m"}}
	w.observer.nodeChanged(objects.WatchedNode{}, now)
	w.nodes["a"] = objects.Node{Found: true, Ready: objects.ReadyTrue, Machine: now.Machine, Heartbeat: 7}
	w.clock.Step(time.Second)
	w.observer.tracker.Complete = w.clock.Now()
	w.show(held(unbound))
	w.show(held(refused, terminating))
	for range 2 {
		if got := w.reconcilePod(); got != controller.After(30*time.Second) {
			t.Errorf("due again %+v", got)
		}
		w.expectCalls("get pod", "get node")
		w.clock.Step(podsafety.DefaultUnmountGrace)
	}
	w.nodes["a"] = objects.Node{Found: true, Ready: objects.ReadyTrue, Machine: now.Machine, Heartbeat: 8}
	w.reconcilePod()
	w.expectCalls("get pod", "get node", removed+"1")
	if got := kubetest.Count(t, w.metrics.released.WithLabelValues("Refused")); got != 1 {
		t.Errorf("%v releases are counted", got)
	}
}
