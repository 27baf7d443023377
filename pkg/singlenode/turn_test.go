package singlenode

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
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

// turnNow returns the name of the pod that has its turn to take the lock of claim data, "all" for all, empty for none.
func (w *world) turnNow() string {
	t, found := w.observer.turn("ns/data")
	if found && t.pod == lastTurn {
		return "all"
	}
	return strings.TrimPrefix(t.pod.key, "ns/")
}

// free delivers claim data without a lock, and returns the enqueued objects.
func (w *world) free() []string {
	w.claim("data", free)
	w.sync()
	return w.woken.take()
}

func TestTurnPassesFromPodToPodOnceTriesFail(t *testing.T) {
	w := newTurn(t)
	w.fail["lock data for two"] = errNoAnswer
	w.endPod("one")
	w.settle()
	w.expectCalls("free data", "lock data for two", "lock data for four", "list pods", "ungate four")
	if len(w.observer.turns) > 0 {
		t.Errorf("turns: %v", w.observer.turns)
	}

	w = newTurn(t)
	for _, pod := range []string{"two", "three", "four"} {
		w.fail["lock data for "+pod] = errNoAnswer
	}
	w.endPod("one")
	w.settle()
	w.expectCalls("free data", "lock data for two", "lock data for four", "lock data for three",
		// Without a turn, all are woken.
		"lock data for four", "lock data for three", "lock data for two")
	if got := w.turnNow(); got != "all" {
		t.Errorf("the turn of %q", got)
	}
	clear(w.pods)
	if w.sync(); len(w.observer.turns) > 0 {
		t.Errorf("turns without pods: %v", w.observer.turns)
	}
}

// A pod that has had its turn may try again, also in the turn of the next one.
func TestPodTriesAgainInTurnOfNextOne(t *testing.T) {
	w := newTurn(t)
	w.free()
	w.fail["lock data for two"] = errNoAnswer
	w.reconcile(t.Context(), "ns/two")
	if got := w.woken.take(); !slices.Equal(got, []string{"pod ns/four"}) {
		t.Fatalf("the try of two has failed: woken %q", got)
	}
	delete(w.fail, "lock data for two")
	if w.reconcile(t.Context(), "ns/two"); w.lock() != "two" {
		t.Errorf("the lock has %q; calls %q", w.lock(), w.calls)
	}
}

// A conflict does not show that the pod cannot take the lock. The pod tries again, unless another pod has the lock.
func TestConflictPassesNoTurn(t *testing.T) {
	w := newTurn(t)
	w.free()
	w.fail["lock data for two"] = kube.ErrChanged
	if w.reconcile(t.Context(), "ns/two"); w.woken.take() != nil {
		t.Error("another pod is woken")
	}
	if w.reconcile(t.Context(), "ns/four"); w.lock() != "" {
		t.Errorf("in the turn of two, the lock has %q", w.lock())
	}
}

// The session of pod two began while another pod had the lock.
func TestTryFromBeforeTurnPassesNone(t *testing.T) {
	w := newTurn(t)
	w.pod("two", uses("missing", "data"))
	w.settle()
	w.hook = func(call string) {
		if call == "get claim missing" {
			w.hook = nil
			w.claim("missing")
			w.sync() // else the oldest pod would not be able to take the lock
			w.free()
		}
	}
	w.reconcile(t.Context(), "ns/two")
	if w.hook != nil || w.turnNow() != "two" {
		t.Errorf("the turn of %q; calls %q", w.turnNow(), w.calls)
	}
}

// The claim of pods one and two needs no lock any more, and each of them has another claim that does.
func TestTurnsEndWithNeedOfLock(t *testing.T) {
	w := newWorld(t, Config{})
	w.label(singlenode.SelectedValue)
	asks := func(o *v1.PersistentVolumeClaim) {
		o.Labels = map[string]string{singlenode.Label: singlenode.SelectValue}
	}
	w.claim("data", asks, bound)
	w.volume("data", nil)
	for _, pod := range []string{"one", "two", "three"} {
		w.claim(pod, asks)
		w.pod(pod, uses("data", pod))
		w.clock.Step(time.Second)
	}
	w.sync()
	w.fail["lock data"] = errNoAnswer
	w.reconcile(t.Context(), "ns/two")
	if got := w.turnNow(); got != "one" {
		t.Fatalf("the turn of %q", got)
	}
	w.claim("data", func(o *v1.PersistentVolumeClaim) { o.Labels = nil })
	w.sync()
	if w.reconcile(t.Context(), "ns/one"); w.turnNow() != "all" {
		t.Errorf("the turn of %q", w.turnNow())
	}
}

// A status write of the only pod that waits keeps the turn, whose end wakes the pod.
func TestUnchangedPodKeepsTurn(t *testing.T) {
	w := newTurn(t)
	w.free()
	w.pod("two", ungated)
	w.pod("four", ungated)
	w.sync()
	before, _ := w.observer.turn("ns/data")
	w.pod("three", func(o *v1.Pod) { o.Status.Message = "it waits" })
	w.sync()
	if now, found := w.observer.turn("ns/data"); !found || now != before {
		t.Errorf("the turn was %+v, and is %+v", before, now)
	}
}

// ticks is a clock that calls a function at each look.
type ticks func()

func (f ticks) Now() time.Time { f(); return time.Unix(1_800_000_000, 0) }

// The lock is taken while the oldest pod is sought.
func TestTakenLockBeginsNoTurn(t *testing.T) {
	w := newTurn(t)
	w.claim("data", free)
	w.claimCache.Records["ns/data"] = claimOf(w.claims["ns/data"])
	w.claim("data", locked("four"))
	w.observer.clock = ticks(func() { w.claimCache.Records["ns/data"] = claimOf(w.claims["ns/data"]) })
	if w.observer.beginTurn("ns/data") || w.turnNow() != "" {
		t.Errorf("the turn of %q", w.turnNow())
	}
}

// Each of these pods has a claim of its own, and all share one that needs no lock.
func TestSharedClaimWithoutLockNeedsNoTurns(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("shared", func(o *v1.PersistentVolumeClaim) { o.Spec.AccessModes[0] = v1.ReadWriteMany })
	for _, pod := range []string{"one", "two", "three"} {
		w.claim(pod)
		w.pod(pod, uses("shared", pod))
	}
	w.sync()
	w.woken.take()
	for _, pod := range []string{"three", "two", "one"} {
		if w.reconcile(t.Context(), "ns/"+pod); w.gated(pod) {
			t.Errorf("pod %s waits; calls %q", pod, w.calls)
		}
	}
}

// Pod two needs another lock, too, of which an older pod has its turn.
func TestPodThatWaitsForOtherTurnPassesItsOwn(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.claim("cache", locked("one"))
	w.pod("one", onNode, uses("data", "cache"))
	w.pod("zero", uses("cache"))
	w.clock.Step(time.Second)
	w.pod("two", uses("data", "cache"))
	w.clock.Step(time.Second)
	w.pod("three")
	w.settle()
	w.claim("cache", free)
	w.sync()
	w.free()
	if got := w.turnNow(); got != "two" {
		t.Fatalf("the first turn of %q", got)
	}
	w.reconcile(t.Context(), "ns/two")
	if w.turnNow() != "three" || w.lock() != "" {
		t.Errorf("the turn of %q; the lock has %q", w.turnNow(), w.lock())
	}
}

// The lock was taken and freed again in the meantime.
func TestFormerTurnIsNotPassed(t *testing.T) {
	w := newTurn(t)
	w.free()
	former, _ := w.observer.turn("ns/data")
	w.claim("data", locked("four"))
	w.sync()
	w.clock.Step(time.Second)
	w.free()
	w.observer.passTurn("ns/data", former)
	if now, found := w.observer.turn("ns/data"); !found || now.pod != former.pod || w.woken.take() != nil {
		t.Errorf("the turn: %+v, or a pod is woken", now)
	}
}

// The oldest pod goes after it was found, and before it gets its turn.
func TestPodThatIsGoneGetsNoTurn(t *testing.T) {
	w := newTurn(t)
	w.free()
	o := w.observer
	two, _ := o.turn("ns/data")
	w.endPod("two")
	w.sync()
	w.woken.take()
	o.mu.Lock()
	o.setTurn("ns/data", two.pod)
	o.mu.Unlock()
	if got := w.turnNow(); got != "all" {
		t.Errorf("the turn of %q", got)
	}
}

// The pod that has its turn waits for a worker, or for an answer.
func TestTurnPassesAfterItsTime(t *testing.T) {
	w := newTurn(t)
	w.free()
	for _, next := range []string{"pod ns/four", "pod ns/three"} {
		for _, c := range []struct{ step, left time.Duration }{{0, turnFor}, {turnFor - 1, 1}} {
			w.clock.Step(c.step)
			if got := w.reconcileLock(t.Context(), "ns/data"); got != controller.After(c.left) || w.woken.take() != nil {
				t.Errorf("before %s: %v after the turn began: %+v, or a pod is woken", next, c.step, got)
			}
		}
		w.clock.Step(1)
		got := w.reconcileLock(t.Context(), "ns/data")
		if woken := w.woken.take(); got != controller.After(turnFor) || !slices.Equal(woken, []string{next}) {
			t.Errorf("the turn has passed: %+v, woken %q, want %q", got, woken, next)
		}
	}
	w.clock.Step(turnFor)
	got := w.reconcileLock(t.Context(), "ns/data")
	if woken := w.woken.take(); got != controller.Done() || len(woken) != 3 || w.turnNow() != "all" {
		t.Errorf("after the last turn: %+v, woken %q", got, woken)
	}
	w.clock.Step(turnFor)
	if got := w.reconcileLock(t.Context(), "ns/data"); got != controller.Done() || w.woken.take() != nil {
		t.Errorf("the turns end twice: %+v", got)
	}
	if w.reconcile(t.Context(), "ns/three"); w.lock() != "three" {
		t.Errorf("the lock has %q; calls %q", w.lock(), w.calls)
	}
}

// The watch does not show the lock yet when the session of the pod that took it ends.
func TestTakenLockPassesNoTurn(t *testing.T) {
	w := newTurn(t)
	w.free()
	if w.reconcile(t.Context(), "ns/two"); w.lock() != "two" || w.woken.take() != nil {
		t.Errorf("the lock has %q, or another pod is woken", w.lock())
	}
	if w.sync(); len(w.observer.turns) > 0 {
		t.Errorf("turns: %v", w.observer.turns)
	}
}

// Pods that are in the queue when the lock becomes free, as after it was given to its last holder, do not try to take
// it before the oldest.
func TestQueuedPodTakesNoLockInTurnOfAnother(t *testing.T) {
	w := newTurn(t)
	w.free()
	w.calls = nil
	for _, key := range []string{"ns/three", "ns/four"} {
		if got := w.reconcile(t.Context(), key); got != controller.Done() {
			t.Errorf("%s in the turn of ns/two: %+v", key, got)
		}
	}
	w.expectCalls()
	w.pod("two", queued)
	if w.settle(); w.lock() != "four" {
		t.Errorf("the oldest that can take the lock is four, and the lock has %q; calls %q", w.lock(), w.calls)
	}
}

// The cache of claims shows the free lock before the handler of its event has run.
func TestTurnBeginsWithFirstPod(t *testing.T) {
	w := newTurn(t)
	w.claim("data", free)
	w.claimCache.Records["ns/data"] = claimOf(w.claims["ns/data"])
	w.calls = nil
	w.reconcile(t.Context(), "ns/three")
	woken := w.woken.take()
	if w.expectCalls(); w.turnNow() != "two" || !slices.Equal(woken, []string{"claim ns/data", "pod ns/two"}) {
		t.Errorf("the turn of %q; woken %q", w.turnNow(), woken)
	}
}

// The facts about pod three are older than the watch cache.
func TestFactsFromBeforeTurn(t *testing.T) {
	w := newTurn(t)
	o := w.observer
	w.free()
	three, facts, _ := o.observe("ns/three")
	begun, _ := o.turn("ns/data")
	w.clock.Step(1)
	if o.beginTurn("ns/data") || !o.waitsForTurn(three, facts) {
		t.Error("turns begin twice, or the pod does not wait for the oldest")
	}
	if now, _ := o.turn("ns/data"); now != begun {
		t.Errorf("the turn is %+v, and was %+v", now, begun)
	}
	w.claim("data", locked("two"))
	w.sync()
	w.woken.take()
	if !o.waitsForTurn(three, facts) || o.beginTurn("ns/data") || w.turnNow() != "" || w.woken.take() != nil {
		t.Errorf("the lock is taken, and the pod does not wait, or there is a turn of %q", w.turnNow())
	}
	clear(w.claims)
	w.sync()
	if o.waitsForTurn(three, facts) {
		t.Error("the claim is gone, and the pod waits for its lock")
	}
}

// These pods and their claim exist before the program starts.
func TestPodsThatWaitAtStartHaveTurns(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	w.pod("two")
	w.clock.Step(time.Second)
	w.pod("four")
	w.pod("three")
	w.settle()
	w.expectCalls("lock data for two", "list pods", "ungate two")
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
		w.free()
		if turn := w.turnNow(); turn != "four" {
			t.Errorf("the oldest pod %s: the turn of %q", sentence, turn)
		}
		if w.reconcile(t.Context(), "ns/four"); w.lock() != "four" {
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
		"the oldest pod is gone": {func(w *world) { w.endPod("two") }, []string{"pod ns/four"}, 1},
		"no pod can take the lock": {func(w *world) { w.claim("data", condemned) },
			[]string{"claim ns/data", "pod ns/two"}, 1},
		"a pod takes the lock": {func(w *world) { w.claim("data", locked("four")) },
			[]string{"claim ns/data", "pod ns/four", "pod ns/three", "pod ns/two"}, 0},
		"the claim is gone": {func(w *world) { delete(w.claims, "ns/data") },
			[]string{"pod ns/four", "pod ns/three", "pod ns/two"}, 0},
		"the claim is another": {func(w *world) { w.claim("data", func(o *v1.PersistentVolumeClaim) { o.UID = "2" }) },
			[]string{"pod ns/four", "pod ns/three", "pod ns/two"}, 0},
	} {
		w := newTurn(t)
		if got := w.free(); !slices.Equal(got, []string{"claim ns/data", "pod ns/two"}) {
			t.Fatalf("the lock is free: woken %q", got)
		}
		c.change(w)
		w.sync()
		if got := w.woken.take(); !slices.Equal(got, c.want) || len(w.observer.turns) != c.turns {
			t.Errorf("%s: woken %q, want %q; turns: %v", sentence, got, c.want, w.observer.turns)
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
	if got := w.free(); len(w.observer.turns) > 0 || !slices.Equal(got, []string{"pod ns/two"}) {
		t.Errorf("turns: %v, woken %q", w.observer.turns, got)
	}
	w.reconcile(t.Context(), "ns/two")
	if w.lock() != "two" || len(w.observer.turns) > 0 {
		t.Errorf("the lock has %q; turns: %v", w.lock(), w.observer.turns)
	}
	w = newTurn(t)
	w.free()
	for range 3 {
		w.clock.Step(turnFor)
		w.reconcileLock(t.Context(), "ns/data")
	}
	w.claim("data", bound) // its lock has been free since before
	if w.sync(); w.turnNow() != "all" {
		t.Errorf("after the turns, the turn of %q", w.turnNow())
	}
	w.observer.noTurn("ns/data")
	w.claim("data", func(o *v1.PersistentVolumeClaim) { o.Annotations = map[string]string{"a": "b"} })
	if w.sync(); w.turnNow() != "" {
		t.Errorf("a change that wakes no pod begins the turn of %q", w.turnNow())
	}
	w = newTurn(t)
	w.woken.idle = true
	if w.free(); len(w.observer.turns) > 0 {
		t.Errorf("turns: %v", w.observer.turns)
	}
}
