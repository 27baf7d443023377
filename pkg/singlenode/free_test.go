package singlenode

import (
	"slices"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

func TestLiveReadFreesLock(t *testing.T) {
	for sentence, c := range map[string]struct {
		// watch is the state in the watch cache, live the true state.
		watch, live func(w *world)
		calls       []string
		freed       bool
	}{
		"the pod is gone": {nil, nil, []string{"get pod one", "free data"}, true},
		"another has its name": {nil, func(w *world) { w.pod("one", func(o *v1.Pod) { o.UID = "2" }) },
			[]string{"get pod one", "free data"}, true},
		"it is there after all": {nil, func(w *world) { w.pod("one", onNode) }, []string{"get pod one"}, false},
		"it cannot be read":     {nil, func(w *world) { w.fail["get pod"] = errNoAnswer }, []string{"get pod one"}, false},
		"its end was watched":   {watched(func(w *world) { w.endPod("one") }), nil, []string{"free data"}, true},
		"and the start of another of its name": {watched(func(w *world) {
			w.pod("one", func(o *v1.Pod) { o.UID = "2" })
		}), nil, []string{"free data"}, true},
		"its end was watched, and the claim has changed": {watched(func(w *world) { w.endPod("one") }),
			func(w *world) { w.claim("data") }, []string{"free data"}, false},
		"its end was watched long ago": {watched(func(w *world) { w.endPod("one") }),
			func(w *world) { w.clock.Step(session.LiveFor + 1) }, []string{"get pod one", "free data"}, true},
		"its end was watched before the claim": {watched(func(w *world) {
			w.endPod("one")
			w.sync()
			w.claim("data", locked("one"))
		}), nil, []string{"get pod one", "free data"}, true},
		"the end of another pod with its name was watched": {func(w *world) {
			w.pod("one", func(o *v1.Pod) { o.UID = "2" })
			w.sync()
			w.endPod("one")
		}, func(w *world) { w.pod("one", onNode) }, []string{"get pod one"}, false},
		"a new list lacks it": {watched(func(w *world) {
			last, _ := w.podCache.Get("ns/one")
			delete(w.podCache.Records, "ns/one")
			w.observer.podHandler().Deleted(last, false)
		}), func(w *world) { w.pod("one", onNode) }, []string{"get pod one"}, false},
		"it runs":           {func(w *world) { w.pod("one", onNode) }, nil, nil, false},
		"it waits":          {func(w *world) { w.pod("one") }, nil, nil, false},
		"it is terminating": {func(w *world) { w.pod("one", onNode, terminating) }, nil, nil, false},
		"it runs, and the watch lags": {func(w *world) { w.pod("one", onNode) }, func(w *world) { w.endPod("one") }, nil,
			false},
		"the claim has changed": {nil, func(w *world) { w.claim("data") }, []string{"get pod one", "free data"}, false},
		"the write fails": {nil, func(w *world) { w.fail["free"] = errNoAnswer }, []string{"get pod one", "free data"},
			false},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.claim("data", locked("one"))
			if c.watch != nil {
				c.watch(w)
			}
			w.sync()
			if c.live != nil {
				c.live(w)
			}
			w.reconcileLock(t.Context(), "ns/data")
			w.expectCalls(c.calls...)
			if freed := w.lock() == ""; freed != c.freed {
				t.Errorf("freed: %t", freed)
			}
		})
	}
}

// watched has the watch show the pod before a change.
func watched(change func(*world)) func(*world) {
	return func(w *world) {
		w.pod("one", onNode)
		w.sync()
		change(w)
	}
}

// Many pods end that have no lock, so their ends are not recorded.
func TestEndOfPodWithoutLockIsNotRecorded(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.claim("other")
	w.pod("one", onNode)
	w.pod("two", onNode)
	w.pod("three", onNode, uses("other"))
	w.sync()
	w.endPod("two")
	w.endPod("three")
	w.sync()
	if ends := w.observer.tracker.Ends; len(ends) > 0 {
		t.Errorf("records %v", ends)
	}
}

func TestLockOfCompletedPod(t *testing.T) {
	w := newWorld(t, Config{UnmountGrace: time.Minute})
	w.claim("data", locked("one"))
	w.pod("one", onNode, completed)
	w.pod("two")
	w.settle()
	w.expectCalls()
	w.clock.Step(time.Minute - 1)
	if got := w.reconcileLock(t.Context(), "ns/data"); got != controller.After(1) {
		t.Errorf("worked on again: %+v", got)
	}
	w.clock.Step(1)
	w.reconcileLock(t.Context(), "ns/data")
	w.expectCalls("get pod one", "free data")
	w.settle()
	w.expectCalls("lock data for two", "list pods", "ungate two")
}

// fence adds a fence that keeps node a, in its run boot-1, from the volumes. The pods were terminating before it began.
func (w *world) fence(pods ...types.UID) {
	o := &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "fence", ResourceVersion: w.version(),
		Finalizers: []string{"csi-reclaimer.io/fence"}}}
	o.Status.Attempts = []v1alpha1.Attempt{{Number: 1, Agent: "agent", TerminatingPods: pods}}
	o.Status.Proof = &v1alpha1.Proof{Attempt: 1, Agent: "agent", Covers: v1alpha1.CoversVolumes,
		Volumes: []v1alpha1.CoveredVolumes{{Driver: "disk.csi.example.com", Volumes: v1alpha1.VolumesMatching,
			VolumeAttributes: map[string]v1alpha1.AttributeValue{"clusterID": "one"}}}, BootID: "boot-1"}
	o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFenced, Status: metav1.ConditionTrue}}
	w.fences["a"] = o
}

func TestFenceOfVolumeFreesLock(t *testing.T) {
	w := newWorld(t, Config{Fences: true})
	w.volume("data", nil)
	w.claim("data", locked("one"), bound)
	w.pod("one", onNode, terminating)
	w.node(v1.ConditionUnknown)
	w.pod("two")
	w.settle()
	w.expectCalls()
	got := kubetest.EventReasons(w.events)
	slices.Sort(got)
	if !slices.Equal(got, []string{"Normal ClaimInUse", "Warning HolderUnreachable"}) {
		t.Errorf("Events %q", got)
	}
	w.fence()
	w.fail["get fence"] = errNoAnswer
	w.settle()
	w.expectCalls("get pod one", "get fence")
	delete(w.fail, "get fence")
	w.fail["get node"] = errNoAnswer
	w.reconcileLock(t.Context(), "ns/data")
	w.expectCalls("get pod one", "get fence", "get node")
	delete(w.fail, "get node")
	w.reconcileLock(t.Context(), "ns/data")
	w.expectCalls("get pod one", "get fence", "get node", "free data")
	w.settle()
	w.expectCalls("lock data for two", "list pods", "get fence", "get node", "ungate two")
}

// One driver may serve several storage systems.
func TestFenceOfOtherStorageSystemKeepsLock(t *testing.T) {
	w := newWorld(t, Config{Fences: true})
	w.volume("data", nil)
	w.claim("data", locked("one"), bound)
	w.pod("one", onNode, terminating)
	w.node(v1.ConditionUnknown)
	w.fence()
	of := &w.fences["a"].Status.Proof.Volumes
	(*of)[0].VolumeAttributes["clusterID"] = "two"
	w.settle()
	w.expectCalls("get pod one", "get fence")
	*of = append(*of, v1alpha1.CoveredVolumes{Agent: "other", Driver: "disk.csi.example.com",
		Volumes:          v1alpha1.VolumesMatching,
		VolumeAttributes: map[string]v1alpha1.AttributeValue{"clusterID": "one"}})
	w.fences["a"].ResourceVersion = w.version()
	w.settle()
	w.expectCalls("get pod one", "get fence", "get node", "free data")
}

// The fence is about to end: the kubelet has restarted a pod that was not terminating.
func TestFenceOfEarlierRunKeepsLock(t *testing.T) {
	for name, c := range map[string]struct {
		terminating []types.UID
		calls       []string
	}{
		"the pod was deleted after it": {nil, []string{"get pod one", "get fence", "get node"}},
		"the pod was deleted before it": {[]types.UID{"uid-one"},
			[]string{"get pod one", "get fence", "get node", "free data"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{Fences: true})
			w.volume("data", nil)
			w.claim("data", locked("one"), bound)
			w.pod("one", onNode, terminating)
			w.node(v1.ConditionUnknown)
			w.nodes["a"].Status.NodeInfo.BootID = "boot-2"
			w.settle()
			w.expectCalls()
			w.fence(c.terminating...)
			w.settle()
			w.expectCalls(c.calls...)
		})
	}
}
