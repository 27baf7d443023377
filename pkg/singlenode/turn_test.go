package singlenode

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

// Each handover of a lock is one write of one pod, however many pods wait for it.
func TestHandoversCostTheSameForAnyNumberOfPods(t *testing.T) {
	for _, n := range []int{10, 50, 200} {
		w := newWorld(t, Config{})
		w.claim("data", locked("holder"))
		w.pod("holder", onNode)
		for i := range n {
			w.pod(fmt.Sprintf("pod-%04d", n-i)) // the oldest has the last name
			w.clock.Step(time.Second)
		}
		w.settle()
		kubetest.Events(w.events)
		w.calls = nil
		holder, calls, locks := "holder", 0, 0
		for i := range n {
			w.endPod(holder)
			w.settle()
			if holder = fmt.Sprintf("pod-%04d", n-i); w.lock() != holder || w.gated(holder) {
				t.Fatalf("handover %d of %d: the lock has %q, want %q", i, n, w.lock(), holder)
			}
			for _, call := range w.calls {
				if strings.HasPrefix(call, "lock ") {
					locks++
				}
			}
			calls += len(w.calls)
			w.calls = nil
			kubetest.Events(w.events)
		}
		t.Logf("%d pods: %d calls, %d of them to take the lock", n, calls, locks)
		// The lock is freed and taken, the pods listed, and the gate removed.
		if locks != n || calls != 4*n {
			t.Errorf("%d pods: %d calls, %d of them to take the lock", n, calls, locks)
		}
		if ends := len(w.observer.tracker.Ends); ends > 0 {
			t.Errorf("%d pods: %d records of ended pods", n, ends)
		}
	}
}

// Pod one had the lock of claim data. Pod two is the oldest waiting pod.
func newTurn(t *testing.T) *world {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.pod("one", onNode)
	w.pod("two")
	w.clock.Step(time.Second)
	w.pod("three")
	w.pod("four")
	w.settle()
	return w
}

func TestTurnOfOldestPodEndsAfterOneSecond(t *testing.T) {
	w := newTurn(t)
	w.fail["lock data for two"] = errNoAnswer
	w.endPod("one")
	w.settle()
	w.expectCalls("free data", "lock data for two")
	if got := w.reconcileLock(t.Context(), "ns/data"); got != controller.After(turnFor) {
		t.Errorf("the claim is looked at again after %+v", got)
	}
	w.clock.Step(turnFor - 1)
	if w.reconcileLock(t.Context(), "ns/data"); len(w.woken.take()) > 0 {
		t.Error("the turn has ended early")
	}
	w.clock.Step(1)
	if got := w.reconcileLock(t.Context(), "ns/data"); got != controller.Done() {
		t.Errorf("after the turn: %+v", got)
	}
	if got := w.woken.take(); !slices.Equal(got, []string{"pod ns/four", "pod ns/three", "pod ns/two"}) {
		t.Errorf("after the turn, woken %q", got)
	}
	if w.reconcileLock(t.Context(), "ns/data"); len(w.woken.take()) > 0 {
		t.Error("a turn ends twice")
	}
	w.reconcile(t.Context(), "ns/three")
	w.settle()
	if w.lock() != "three" || len(w.observer.freed) > 0 {
		t.Errorf("the lock has %q; turns: %v", w.lock(), w.observer.freed)
	}
}

// Pods that are in the queue when the lock becomes free, as after it was given to its last holder, do not try to take
// it before the oldest.
func TestQueuedPodTakesNoLockInTurnOfAnother(t *testing.T) {
	w := newTurn(t)
	w.claim("data", free)
	w.sync()
	w.woken.take()
	w.calls = nil
	for _, key := range []string{"ns/three", "ns/four"} {
		if got := w.reconcile(t.Context(), key); got != controller.Done() {
			t.Errorf("%s in the turn of ns/two: %+v", key, got)
		}
	}
	w.expectCalls()
	w.pod("two", queued)
	w.sync()
	if w.reconcile(t.Context(), "ns/four"); w.lock() != "four" {
		t.Errorf("the oldest that can take the lock is four, and the lock has %q; calls %q", w.lock(), w.calls)
	}
}

func TestQueuedPodTakesLockAfterTurnOfAnother(t *testing.T) {
	w := newTurn(t)
	w.claim("data", free)
	w.sync()
	w.clock.Step(turnFor)
	if w.reconcile(t.Context(), "ns/three"); w.lock() != "three" {
		t.Errorf("the turn of two is over, and the lock has %q; calls %q", w.lock(), w.calls)
	}
}

// Each of these pods is older than the next one, and cannot take the lock, so that no pod waits for it.
func TestPodThatCannotTakeLockHasNoTurn(t *testing.T) {
	for sentence, change := range map[string]func(*v1.Pod){
		"is kept by a queue": queued,
		"is being deleted":   terminating,
		"is not held":        func(o *v1.Pod) { o.Finalizers = nil },
		"lacks a claim":      uses("data", "missing"),
	} {
		w := newTurn(t)
		w.pod("two", change)
		w.settle()
		w.calls = nil
		w.endPod("one")
		w.settle()
		if w.lock() != "four" {
			t.Errorf("the oldest pod %s: the lock has %q; calls %q", sentence, w.lock(), w.calls)
		}
	}
}

// Changes during a turn wake the pods that they concern, and a turn ends with the claim.
func TestChangesDuringTurn(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(w *world)
		want   []string
		turns  int
	}{
		"another pod changes":         {func(w *world) { w.pod("four", queued) }, []string{"pod ns/four"}, 1},
		"a pod without the lock runs": {func(w *world) { w.pod("old", onNode) }, []string{"pod ns/two"}, 1},
		"the claim is bound": {func(w *world) { w.claim("data", bound) },
			[]string{"claim ns/data", "pod ns/two"}, 1},
		"the oldest pod is gone": {func(w *world) { w.endPod("two") }, nil, 1},
		"no pod can take the lock": {func(w *world) { w.claim("data", condemned) },
			[]string{"claim ns/data", "pod ns/four", "pod ns/three", "pod ns/two"}, 1},
		"a pod takes the lock": {func(w *world) { w.claim("data", locked("four")) },
			[]string{"claim ns/data", "pod ns/four", "pod ns/three", "pod ns/two"}, 0},
		"the claim is gone": {func(w *world) { delete(w.claims, "ns/data") },
			[]string{"pod ns/four", "pod ns/three", "pod ns/two"}, 0},
		"the claim is another": {func(w *world) { w.claim("data", func(o *v1.PersistentVolumeClaim) { o.UID = "2" }) },
			[]string{"pod ns/four", "pod ns/three", "pod ns/two"}, 0},
	} {
		w := newTurn(t)
		w.claim("data", free)
		w.sync()
		if got := w.woken.take(); !slices.Equal(got, []string{"claim ns/data", "pod ns/two"}) {
			t.Fatalf("the lock is free: woken %q", got)
		}
		c.change(w)
		w.sync()
		if got := w.woken.take(); !slices.Equal(got, c.want) || len(w.observer.freed) != c.turns {
			t.Errorf("%s: woken %q, want %q; turns: %v", sentence, got, c.want, w.observer.freed)
		}
	}
}

// A pod that waits alone needs no turn, and a replica that does not lead gives none.
func TestNoTurn(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.pod("one", onNode)
	w.pod("two")
	w.settle()
	w.claim("data", free)
	w.sync()
	if got := w.woken.take(); len(w.observer.freed) > 0 || !slices.Equal(got, []string{"pod ns/two"}) {
		t.Errorf("turns: %v, woken %q", w.observer.freed, got)
	}
	w = newTurn(t)
	w.claim("data", free)
	w.sync()
	w.clock.Step(turnFor)
	w.reconcileLock(t.Context(), "ns/data")
	w.claim("data", bound) // its lock has been free since before
	if w.sync(); len(w.observer.freed) > 0 {
		t.Errorf("turns after the turn: %v", w.observer.freed)
	}
	w = newTurn(t)
	w.woken.idle = true
	w.claim("data", free)
	if w.sync(); len(w.observer.freed) > 0 {
		t.Errorf("turns: %v", w.observer.freed)
	}
}
