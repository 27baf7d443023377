package singlenode

import (
	"context"
	"slices"
	"testing"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

// The replica ends, or loses leadership.
func TestCanceledWorkMakesNoReport(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.claim("other")
	w.pod("two", uses("other"))
	w.sync()
	ctx, cancel := context.WithCancel(t.Context())
	w.hook = func(string) { cancel() }
	w.fail["list"], w.fail["lock"], w.fail["get"] = context.Canceled, context.Canceled, context.Canceled
	for _, got := range []controller.Result{w.reconcile(ctx, "ns/two"), w.reconcileLock(ctx, "ns/data")} {
		if got != controller.Done() {
			t.Errorf("worked on again: %+v", got)
		}
	}
	if got := kubetest.Events(w.events); len(got) > 0 {
		t.Errorf("Events %q", got)
	}
	w.expectWaiting(0, 0)
}

// The call waits for a slot, and is not made once its context ends.
func TestCanceledWorkMakesNoCall(t *testing.T) {
	w := newWorld(t, Config{Settings: controllers.Settings{Workers: 1}})
	w.claim("data", locked("one"))
	w.sync()
	w.slots <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.reconcileLock(ctx, "ns/data")
	if pods, err := w.listUsers(ctx, "ns"); err == nil {
		t.Errorf("listed %v", pods)
	}
	w.expectCalls()
	<-w.slots
}

// The only slot is free again after each call, even after a failed one.
func TestCallsReleaseTheirSlot(t *testing.T) {
	w := newWorld(t, Config{Settings: controllers.Settings{Workers: 1}})
	w.claim("data")
	w.pod("one")
	w.settle()
	w.fail["list"] = errNoAnswer
	w.claim("other")
	w.pod("two", uses("other"))
	w.settle()
	if n := len(w.slots); n > 0 {
		t.Errorf("%d calls have not ended", n)
	}
}

// A list returns the pods that may write to one of the claims.
func TestListReturnsUsersOfClaims(t *testing.T) {
	w := newWorld(t, Config{})
	w.pod("waits")
	w.pod("runs", onNode)
	w.pod("of-another", onNode, uses("other"))
	w.pod("of-both", onNode, uses("other", "data"))
	w.pod("of-none", onNode, uses())
	all, err := w.listUsers(t.Context(), "ns")
	names := func(pods []singlenode.Pod) (all []string) {
		for _, p := range pods {
			all = append(all, p.Name)
		}
		return all
	}
	if got := names(all); err != nil || !slices.Equal(got, []string{"of-another", "of-both", "runs"}) {
		t.Errorf("the list has %q, %v", got, err)
	}
	reply, err := w.Controller.call(t.Context(), singlenode.Ask{Action: singlenode.ListPods, Namespace: "ns",
		Claims: []string{"data"}})
	var users []singlenode.Pod
	for _, u := range reply.Users {
		users = append(users, u.Pod)
	}
	if got := names(users); err != nil || !slices.Equal(got, []string{"of-both", "runs"}) {
		t.Errorf("the claim is used by %q, %v", got, err)
	}
}

// The session itself has read the claim just now.
func TestMissingClaimIsReadOnce(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.pod("one")
	w.sync()
	delete(w.claims, "ns/data")
	w.reconcile(t.Context(), "ns/one")
	w.expectCalls("get claim data")
}

// The missing claim is read, and both are locked in the order of their names.
func TestOneOfTwoClaimsMissingInCache(t *testing.T) {
	w := newWorld(t, Config{})
	w.label("")
	w.claim("other")
	w.sync()
	w.label(singlenode.AllValue)
	w.claim("data")
	w.pod("one", uses("other", "data"))
	w.settle()
	w.expectCalls("get claim other", "lock data for one", "lock other for one", "list pods", "ungate one")
}

// The cached state of its claims counts, and is not read again.
func TestNamespaceBeginsToAsk(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	w.sync()
	w.label("")
	w.pod("one")
	w.sync()
	w.label(singlenode.AllValue)
	w.reconcile(t.Context(), "ns/one")
	w.expectCalls("get namespace", "lock data for one", "list pods", "ungate one")
}

// Only the pod that lost the gate counts, and no other pod with its name. The watch may show the end of the pod before
// the answer to the write.
func TestGateMetricCountsOnlyUngatedPod(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(w *world)
		want   uint64
	}{
		"the pod's":                    {func(*world) {}, 1},
		"none of a pod that is gone":   {func(w *world) { w.endPod("data") }, 0},
		"none of a pod of another UID": {func(w *world) { w.pod("data", func(o *v1.Pod) { o.UID = "2" }) }, 0},
	} {
		w := newWorld(t, Config{})
		w.pod("data")
		c.change(w)
		w.sync()
		for _, ask := range []singlenode.Ask{
			{Action: singlenode.TakeLock, Namespace: "ns", Name: "data", UID: "claim-data"},
			{Action: singlenode.RemoveGate, Namespace: "ns", Name: "data", UID: "uid-data"},
		} {
			w.wrote(t.Context(), &singlenode.Session{}, ask, "LocksAcquired")
		}
		if got := collected(t, w.metrics.gated)[0].GetHistogram().GetSampleCount(); got != c.want {
			t.Errorf("%s: %d", sentence, got)
		}
	}
}

// Such a pod causes no calls.
func TestUnheldPodWaits(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	w.pod("one", func(o *v1.Pod) { o.Finalizers = nil })
	w.settle()
	w.expectCalls()
	if got := kubetest.EventReasons(w.events); !w.gated("one") || !slices.Equal(got, []string{"Warning NotHeld"}) {
		t.Errorf("gated: %t, Events %q", w.gated("one"), got)
	}
}

// The pod may have lost its gate since it was enqueued.
func TestUngatedPodIsLeftAlone(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	w.pod("one", ungated, func(o *v1.Pod) { o.Spec.NodeName = "a" })
	w.sync()
	if got := w.reconcile(t.Context(), "ns/one"); got != controller.Done() {
		t.Errorf("worked on again: %+v", got)
	}
	if got := w.reconcileLock(t.Context(), "ns/data"); got != controller.Done() {
		t.Errorf("a claim without a lock is worked on again: %+v", got)
	}
	w.expectCalls()
}
