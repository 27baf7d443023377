package singlenode

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

var errNoAnswer = errors.New("no answer")

func TestLockPrecedesRemovalOfGate(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	w.pod("one")
	w.settle()
	w.expectCalls("lock data for one", "list pods", "ungate one")
	if w.lock() != "one" || w.gated("one") {
		t.Errorf("the lock has %q; gated: %t", w.lock(), w.gated("one"))
	}
	w.pod("one", onNode)
	w.pod("two")
	w.settle()
	w.expectCalls()
	if got := kubetest.Events(w.events); len(got) != 1 || !strings.Contains(got[0], "Normal ClaimInUse") ||
		!strings.Contains(got[0], "one") || !strings.Contains(got[0], "node a") {
		t.Errorf("Events %q", got)
	}

	w.pod("one", terminating)
	w.settle()
	w.expectCalls()
	if !w.gated("two") || w.lock() != "one" {
		t.Error("the lock is free while its pod is terminating")
	}
	w.endPod("one")
	w.settle()
	w.expectCalls("free data", "lock data for two", "list pods", "ungate two")
	if got := kubetest.Count(t, w.metrics.freed.WithLabelValues("HolderGone")); got != 1 {
		t.Errorf("%v locks are counted as freed", got)
	}
	if waiting := w.podReports.Waiting(); len(waiting) > 0 {
		t.Errorf("%v wait", waiting)
	}
	w.endPod("two")
	w.settle()
	w.expectCalls("free data")
	if o := w.claims["ns/data"]; len(o.Annotations)+len(o.Finalizers) > 0 {
		t.Errorf("a claim that nobody uses has %v, %v", o.Annotations, o.Finalizers)
	}
}

// The watch shows the lock before the removal of the gate.
func TestGateIsRemovedOnce(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	w.pod("one")
	w.sync()
	w.fail["ungate one"] = errNoAnswer
	w.reconcile(t.Context(), "ns/one")
	w.calls = nil
	delete(w.fail, "ungate one")
	w.settle()
	w.expectCalls("get claim data", "list pods", "ungate one")

	w.pod("one", func(o *v1.Pod) { o.UID = "uid-again" }) // which the watch shows in one event
	w.pod("one", func(o *v1.Pod) { o.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: objects.VolumeGate}} })
	w.claim("data", locked("one"), func(o *v1.PersistentVolumeClaim) {
		o.Annotations[singlenode.LockAnnotation] = "uid-again one"
	})
	w.sync()
	w.reconcile(t.Context(), "ns/one")
	w.expectCalls("get claim data", "list pods", "ungate one")
	for range 2 {
		w.reconcile(t.Context(), "ns/one") // the claim has changed
	}
	w.expectCalls()
	if waiting := w.podReports.Waiting(); len(waiting) > 0 {
		t.Errorf("%v wait", waiting)
	}
	w.settle()
	w.expectCalls()
	if left := w.observer.tracker.Ungated; len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// The tracker keeps no record of removals that the watch already shows, or of deleted pods.
func TestRecordOfRemovedGateEnds(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	w.pod("one")
	w.pod("two", ungated)
	w.sync()
	for key, uid := range map[string]types.UID{"ns/one": "uid-before", "ns/two": "uid-two", "ns/none": "uid-none"} {
		w.observer.removedGate(key, uid)
	}
	if known := w.observer.tracker.Ungated; len(known) > 0 {
		t.Errorf("%v is remembered", known)
	}
	w.observer.removedGate("ns/one", "uid-one")
	w.endPod("one")
	w.sync()
	if known := w.observer.tracker.Ungated; len(known) > 0 {
		t.Errorf("%v is left", known)
	}
}

// The end of the holder is several events, and the watch of claims may lag behind that of pods.
func TestLockIsFreedOnce(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.sync()
	w.reconcileLock(t.Context(), "ns/data")
	w.expectCalls("get pod one", "free data")
	w.reconcileLock(t.Context(), "ns/data")
	w.expectCalls()
	w.claim("data", locked("one")) // which the watch shows in one event
	w.sync()
	w.reconcileLock(t.Context(), "ns/data")
	w.expectCalls("get pod one", "free data")
	w.sync()
	if left := w.observer.outdated; len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// The observer keeps no record of freed locks that the watch already shows, or of deleted claims.
func TestRecordOfFreedLockEnds(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.sync()
	c, _ := w.claimCache.Get("ns/data")
	earlier, other, gone := c.Claim, c.Claim, c.Claim
	earlier.ResourceVersion, other.UID, gone.Name = "0", "other", "gone"
	for _, c := range []singlenode.Claim{earlier, other, gone} {
		w.observer.freedLock(c)
	}
	if known := w.observer.outdated; len(known) > 0 {
		t.Errorf("%v is remembered", known)
	}
	w.observer.freedLock(c.Claim)
	delete(w.claims, "ns/data")
	w.sync()
	if known := w.observer.outdated; len(known) > 0 {
		t.Errorf("%v is left", known)
	}
}

// One pod after the other gets the lock, and each gets it once.
func TestPodsGetLockInTurn(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	names := []string{"a", "b", "c", "d"}
	for _, name := range names {
		w.pod(name)
	}
	for range names {
		w.settle()
		var free []string
		for _, name := range names {
			if _, exists := w.pods["ns/"+name]; exists && !w.gated(name) {
				free = append(free, name)
			}
		}
		if len(free) != 1 || w.lock() != free[0] {
			t.Fatalf("%q run; the lock has %q", free, w.lock())
		}
		w.endPod(free[0])
	}
	w.settle()
	if w.lock() != "" {
		t.Errorf("the lock has %q", w.lock())
	}
}

// The gate stays while a live read differs from the watch.
func TestLiveReadKeepsGate(t *testing.T) {
	for sentence, c := range map[string]struct {
		live func(w *world)
		// reason is the reported reason, "" for none.
		reason string
	}{
		"another pod runs without the lock": {func(w *world) { w.pod("old", onNode) }, "Warning UsedWithoutLock"},
		"another pod took the lock":         {func(w *world) { w.claim("data", locked("other")) }, ""},
		"the claim was created again": {func(w *world) {
			w.claim("data", func(o *v1.PersistentVolumeClaim) { o.UID = "2" })
		}, ""},
		"the claim is gone": {func(w *world) { delete(w.claims, "ns/data") }, ""},
		"the claim is being deleted": {func(w *world) {
			w.claim("data", func(o *v1.PersistentVolumeClaim) { o.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} })
		}, ""},
		"the pods cannot be listed":   {func(w *world) { w.fail["list pods"] = errNoAnswer }, "Warning APIReadFailed"},
		"the claim cannot be changed": {func(w *world) { w.fail["lock"] = errNoAnswer }, "Warning APIWriteFailed"},
		"the gate cannot be removed":  {func(w *world) { w.fail["ungate"] = errNoAnswer }, "Warning APIWriteFailed"},
		"the pod was created again": {func(w *world) {
			w.pod("one", func(o *v1.Pod) { o.UID = "2" })
		}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.claim("data")
			w.pod("one")
			w.sync()
			c.live(w)
			w.reconcile(t.Context(), "ns/one")
			if !w.gated("one") {
				t.Error("the gate is gone")
			}
			if got := strings.Join(kubetest.EventReasons(w.events), ", "); got != c.reason {
				t.Errorf("Events %q, want %q", got, c.reason)
			}
		})
	}
}

// The watch may lag.
func TestNamespaceIsReadBeforeGateGoes(t *testing.T) {
	begin := func() *world {
		w := newWorld(t, Config{})
		w.label("")
		w.sync()
		w.claim("data")
		w.pod("one")
		w.pod("two", onNode)
		w.sync()
		return w
	}
	w := begin()
	w.settle()
	w.expectCalls("get namespace", "ungate one")

	w = begin()
	w.fail["get namespace"] = errNoAnswer
	w.reconcile(t.Context(), "ns/one")
	w.expectCalls("get namespace")

	w = begin()
	w.label(singlenode.AllValue) // the watch does not show it
	w.reconcile(t.Context(), "ns/one")
	if !w.gated("one") || w.lock() != "one" {
		t.Errorf("gated %t, the lock has %q", w.gated("one"), w.lock())
	}
	if got := kubetest.EventReasons(w.events); !slices.Equal(got, []string{"Warning UsedWithoutLock"}) {
		t.Errorf("Events %q", got)
	}
}

// A claim from before its namespace asked for locks may exist without being in the cache.
func TestClaimMissingInCache(t *testing.T) {
	w := newWorld(t, Config{})
	w.label("")
	w.claim("data")
	w.sync()
	w.label(singlenode.AllValue)
	w.sync()
	if _, found := w.claimCache.Get("ns/data"); found {
		t.Fatal("the watch shows the claim")
	}
	w.pod("one")
	w.settle()
	w.expectCalls("get claim data", "lock data for one", "list pods", "ungate one")

	// A missing claim is read once, and nothing else is done until it exists.
	w.pod("two", uses("other"))
	w.clock.Step(settlingFor)
	w.settle()
	w.expectCalls("get claim other")
	if got := kubetest.EventReasons(w.events); !slices.Equal(got, []string{"Normal ClaimMissing"}) {
		t.Errorf("Events %q", got)
	}
	w.claim("other")
	w.settle()
	w.expectCalls("lock other for two", "list pods", "ungate two")

	w.pod("three", uses("another"))
	w.fail["get claim"] = errNoAnswer
	w.sync()
	if got := w.reconcile(t.Context(), "ns/three"); got != controller.Retries(w.cfg.Settings).Retry() {
		t.Errorf("after a failure: %+v", got)
	}
	if got := kubetest.EventReasons(w.events); !slices.Equal(got, []string{"Warning APIReadFailed"}) {
		t.Errorf("Events %q", got)
	}
}

// The claim of an ephemeral volume is created after its pod, once the claim of an earlier pod with the same name is
// gone, and is not reported until then.
func TestClaimAboutToBeCreated(t *testing.T) {
	w := newWorld(t, Config{})
	w.pod("one", func(o *v1.Pod) {
		o.Spec.Volumes = []v1.Volume{{Name: "tmp", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}}
	})
	w.sync()
	if got := w.reconcile(t.Context(), "ns/one"); got != controller.After(settlingFor) {
		t.Errorf("worked on again: %+v", got)
	}
	w.clock.Step(settlingFor / 2)
	if got := w.reconcile(t.Context(), "ns/one"); got != controller.After(settlingFor/2) {
		t.Errorf("worked on again: %+v", got)
	}
	if got := kubetest.Events(w.events); len(got) > 0 {
		t.Errorf("Events %q", got)
	}
	owned := func(o *v1.PersistentVolumeClaim) {
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "one", UID: "uid-one",
			Controller: ptr.To(true)}}
	}
	for _, of := range []func(*v1.PersistentVolumeClaim){condemned, func(*v1.PersistentVolumeClaim) {}} {
		w.claim("one-tmp", of) // of an earlier pod of the name, perhaps
		w.settle()
		if got := kubetest.Events(w.events); len(got) > 0 {
			t.Errorf("Events %q", got)
		}
		delete(w.claims, "ns/one-tmp")
	}
	w.claim("one-tmp")
	w.clock.Step(settlingFor / 2)
	w.reconcile(t.Context(), "ns/one")
	if got := kubetest.EventReasons(w.events); !slices.Equal(got, []string{"Warning ClaimOfOtherPod"}) || !w.gated("one") {
		t.Errorf("Events %q", got)
	}
	w.claim("one-tmp", owned)
	w.settle()
	if w.gated("one") {
		t.Error("the pod waits")
	}
}

// The watch may miss the end of such a pod, so the wait is bounded.
func TestRecheckOfPodMissingInCache(t *testing.T) {
	w := newWorld(t, Config{})
	w.label("")
	w.pod("one", onNode)
	w.sync()
	w.claim("data", locked("one"))
	w.sync()
	if got := w.reconcileLock(t.Context(), "ns/data"); got != controller.After(time.Minute) {
		t.Errorf("worked on again: %+v", got)
	}
	w.expectCalls("get pod one")

	w.label(singlenode.AllValue)
	w.claim("other")
	w.pod("old", uses("other"), onNode)
	w.sync()
	delete(w.podCache.Records, "ns/old") // it was left out before the namespace asked
	w.pod("two", uses("other"))
	w.sync()
	if got := w.reconcile(t.Context(), "ns/two"); got != controller.After(time.Minute) {
		t.Errorf("worked on again: %+v", got)
	}
	w.expectCalls("lock other for two", "list pods")
}

// A list that others wait for begins later than its request.
func TestSlowListCountsFromItsBegin(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	w.pod("one")
	w.sync()
	slow := session.LiveFor
	w.hook = func(call string) {
		if call == "list pods" {
			w.clock.Step(slow)
		}
	}
	w.reconcile(t.Context(), "ns/one")
	w.expectCalls("lock data for one", "list pods", "ungate one")

	w.pod("two", uses("other"))
	w.claim("other")
	w.sync()
	slow++
	w.reconcile(t.Context(), "ns/two")
	if got := kubetest.EventReasons(w.events); !w.gated("two") || !slices.Equal(got, []string{"Warning APIReadFailed"}) {
		t.Errorf("Events %q after calls %q", got, w.calls)
	}
}

func TestMetricsOfGatesAndLocks(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	w.pod("one")
	w.clock.Step(7 * time.Second)
	w.settle()
	var got []string
	for _, m := range collected(t, newInventory(w.Controller)) {
		got = append(got, fmt.Sprintf("%s %v", m.GetLabel()[0].GetValue(), m.GetGauge().GetValue()))
	}
	if !slices.Equal(got, []string{"HolderWaits 1"}) {
		t.Errorf("locks by state: %q", got)
	}
	h := collected(t, w.metrics.gated)[0].GetHistogram()
	if h.GetSampleCount() != 1 || h.GetSampleSum() != 7 {
		t.Errorf("%d pods had a gate for %v s", h.GetSampleCount(), h.GetSampleSum())
	}
}

func TestPanicOfMetricsIsContained(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.sync()
	// It cannot look for the pod that has the lock.
	broken := newInventory(&Controller{cfg: w.cfg, observer: &observer{claims: w.observer.claims}})
	if all := collected(t, broken); len(all) != 0 {
		t.Errorf("%d metrics of a part of the locks", len(all))
	}
}

func TestNoWorkOnDeletedObjects(t *testing.T) {
	w := newWorld(t, Config{})
	w.reconcile(t.Context(), "ns/none")
	w.reconcileLock(t.Context(), "ns/none")
	w.expectCalls()
}
