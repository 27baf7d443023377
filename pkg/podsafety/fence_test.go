package podsafety

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

var errNoAnswer = errors.New("no answer")

// fenced is a NodeFence of node a with a proof of this coverage.
func fenced(covers v1alpha1.Coverage, alter ...func(*v1alpha1.NodeFence)) *v1alpha1.NodeFence {
	o := &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "fence",
		Finalizers: []string{"csi-reclaimer.io/fence"}}}
	o.Status.Attempts = []v1alpha1.Attempt{{Number: 1, Agent: "agent", TerminatingPods: []types.UID{"uid"}}}
	o.Status.Proof = &v1alpha1.Proof{Attempt: 1, Agent: "agent", Covers: covers, BootID: "boot",
		Volumes: []v1alpha1.CoveredVolumes{{Driver: "disk.csi.example.com", Volumes: v1alpha1.VolumesMatching,
			VolumeAttributes: map[string]v1alpha1.AttributeValue{"clusterID": "one"}}}}
	o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionFenced, Status: metav1.ConditionTrue}}
	for _, change := range alter {
		change(o)
	}
	return o
}

func ended(o *v1alpha1.NodeFence) { o.Spec.Unfence = v1alpha1.UnfenceNow }

// showFence creates a NodeFence, and makes the watch show it.
func (w *world) showFence(o *v1alpha1.NodeFence) {
	w.Helper()
	w.fences[o.Name], w.observer.fences = o, cached[nodefence.Fence]{o.Name: nodefence.FenceOf(o)}
}

func TestFenceInForceReleasesPods(t *testing.T) {
	const off, reboot, volumes = v1alpha1.CoversUntilUnfenced, v1alpha1.CoversReboot, v1alpha1.CoversVolumes
	returned := func(w *world) { w.nodes["a"] = objects.Node{Found: true, Ready: objects.ReadyTrue} }
	booted := func(w *world) {
		w.nodes["a"] = objects.Node{Found: true, Ready: objects.ReadyUnknown, BootID: "boot-2"}
	}
	later := func(o *v1alpha1.NodeFence) { o.Status.Attempts[0].TerminatingPods = nil }
	for name, c := range map[string]struct {
		fence *v1alpha1.NodeFence
		alter func(*world)
		calls []string
	}{
		"until unfenced": {fenced(off), nil,
			[]string{"get pod", "get fence", "get node", removed + "1"}},
		"until unfenced, and the pod was deleted later": {fenced(off, later), nil,
			[]string{"get pod", "get fence", "get node", removed + "1"}},
		"the machine was powered on, and the pod deleted later": {fenced(off, later), booted,
			[]string{"get pod", "get fence", "get node"}},
		"a reboot": {fenced(reboot), nil,
			[]string{"get pod", "get fence", "get node", removed + "1"}},
		"a reboot before the deletion": {fenced(reboot, later), nil, []string{"get pod", "get fence", "get node"}},
		"volumes":                      {fenced(volumes), nil, []string{"get pod", "get fence", "get node"}},
		"the node is Ready":            {fenced(off), returned, []string{"get pod", "get fence", "get node"}},
		"ended, as the watch shows it": {fenced(off, ended), nil, nil},
		"ended, and the watch lags": {fenced(off), func(w *world) { ended(w.fences["a"]) },
			[]string{"get pod", "get fence", "get node"}},
		"the API server does not answer": {fenced(off), func(w *world) { w.fail["get fence"] = errNoAnswer },
			[]string{"get pod", "get fence"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{Fences: true})
			w.away()
			w.show(held(terminating))
			w.showFence(c.fence)
			if c.alter != nil {
				c.alter(w)
			}
			w.calls = nil
			w.reconcile(t.Context(), "ns/db")
			w.expectCalls(c.calls...)
		})
	}
}

func TestVolumeFenceLiftsLock(t *testing.T) {
	w := newWorld(t, Config{VolumeLocks: true, Fences: true})
	w.pvs["pv-data"] = false
	w.away()
	w.show(held(terminating))
	w.calls = nil
	lock := func() { w.lock(t.Context(), "a") }
	lock()
	w.expectCalls("get volume", "create lock")

	for _, other := range []func(*v1alpha1.CoveredVolumes){
		func(v *v1alpha1.CoveredVolumes) { v.Driver = "other" },
		func(v *v1alpha1.CoveredVolumes) { v.VolumeAttributes["clusterID"] = "two" },
	} {
		w.showFence(fenced(v1alpha1.CoversVolumes, func(o *v1alpha1.NodeFence) { other(&o.Status.Proof.Volumes[0]) }))
		lock()
		w.expectCalls("get fence", "get node")
	}
	w.nodes["a"] = objects.Node{Found: true, Ready: objects.ReadyUnknown, BootID: "boot-2"}
	w.showFence(fenced(v1alpha1.CoversVolumes, func(o *v1alpha1.NodeFence) { o.Status.Attempts[0].TerminatingPods = nil }))
	lock()
	w.expectCalls("get fence", "get node")
	if len(w.locked) != 1 {
		t.Error("the fence of another boot has lifted the lock")
	}
	w.showFence(fenced(v1alpha1.CoversVolumes))
	w.fail["get fence"] = errNoAnswer
	lock()
	w.expectCalls("get fence")
	delete(w.fail, "get fence")
	lock()
	w.expectCalls("get fence", "get node", "get fence", "get node", "delete lock")
	lock()
	w.expectCalls("get fence", "get node")

	w.showFence(fenced(v1alpha1.CoversVolumes, ended))
	lock()
	w.expectCalls("create lock")
	if len(w.locked) != 1 {
		t.Errorf("%d locks", len(w.locked))
	}
}

func TestFenceChangesWakePods(t *testing.T) {
	w := newWorld(t, Config{Fences: true})
	w.away()
	w.show(held(terminating))
	w.show(held(func(o *v1.Pod) { o.Name, o.UID = "runs", "other" }))
	woken := w.recordWoken()
	now, before := nodefence.Fence{Node: "a", InForce: true, Attempt: 1}, nodefence.Fence{Node: "a"}
	later := now
	later.Attempt = 2 // the proof of another reboot, which covers other pods
	changes := nodefence.Changes(w.observer.sawFence)
	for _, change := range []func(){
		func() { changes.Added(now) }, func() { changes.Updated(before, now) }, func() { changes.Updated(now, later) },
		func() { changes.Deleted(now, true) },
	} {
		change()
		if got := woken.take(); !slices.Equal(got, []string{"pod ns/db"}) {
			t.Errorf("woken: %q", got)
		}
	}
	changes.Updated(now, now)
	changes.Added(nodefence.Fence{Node: "b", InForce: true})
	if got := woken.take(); len(got) != 0 {
		t.Errorf("woken: %q", got)
	}
}

// searched is a watch cache that counts the searches of all its objects.
type searched[R any] struct {
	kube.Lister[R]
	times int
}

func (s *searched[R]) Each(visit func(R)) {
	s.times++
	s.Lister.Each(visit)
}

// A change of one node costs as much as the pods on it, and not as the pods of the cluster.
func TestChangedNodeCostsNoSearchOfAllPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Fences: true, NodeCondition: true})
	w.show(held(terminating, marked))
	w.show(held(terminating, marked, func(o *v1.Pod) { o.Name, o.Spec.NodeName = "other", "b" }))
	pods := &searched[*pod]{Lister: w.observer.pods}
	w.observer.pods = pods
	woken := w.recordWoken()
	for sentence, change := range map[string]func(){
		"node": func() {
			w.observer.nodeChanged(objects.WatchedNode{Name: "a", Seen: objects.NodeReady},
				objects.WatchedNode{Name: "a", Seen: objects.NodeNotReady})
		},
		"fence": func() { w.observer.sawFence(nodefence.Fence{Node: "a", InForce: true}) },
	} {
		change()
		got := slices.DeleteFunc(woken.take(), func(what string) bool { return what == "node a" })
		if !slices.Equal(got, []string{"pod ns/db"}) || pods.times > 0 {
			t.Errorf("a changed %s enqueues %q, and searches all pods %d times", sentence, got, pods.times)
		}
	}
	if w.mark(t.Context(), "a"); pods.times > 0 {
		t.Errorf("the end of the condition searches all pods %d times", pods.times)
	}
	w.expectCalls("condition db remove=true")
	w.observer.podChanged(w.podCache["ns/db"], nil)
	if left := w.observer.podsOn.In("a"); len(left) > 0 {
		t.Errorf("the index has %d pods that are gone", len(left))
	}
}

// A change of the node at the same time wakes the pod.
func TestPodIsFoundDuringItsUpdate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.show(held())
	p := w.podCache["ns/db"]
	goroutines.Hold(t, "one pod is on the node", func() bool { return len(w.observer.podsOn.In("a")) == 1 },
		func() { w.observer.podChanged(p, p) })
}

// At the start, each namespace with the label would go through all nodes.
func TestChangedNamespaceCostsNoSearchOfAllNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{NodeCondition: true})
	woken := w.recordWoken()
	nodes := &searched[objects.WatchedNode]{Lister: w.observer.nodes}
	w.observer.nodes = nodes
	ready, away := objects.WatchedNode{Name: "a"}, objects.WatchedNode{Name: "a", Unreachable: true}
	for step, c := range []struct{ before, now objects.WatchedNode }{
		{objects.WatchedNode{}, ready}, {ready, away}, {away, ready}, {objects.WatchedNode{}, away},
		{away, objects.WatchedNode{}},
	} {
		w.observer.nodeChanged(c.before, c.now)
		woken.take()
		w.observer.namespaceChanged(namespace{}, w.namespaceCache["ns"])
		if got := woken.take(); !slices.Equal(got, []string{"namespace ns"}) || nodes.times > 0 {
			t.Errorf("step %d: enqueues %q, and searches all nodes %d times", step, got, nodes.times)
		}
	}
}

func TestVolumeFenceStopsUnmountWait(t *testing.T) {
	w := newWorld(t, Config{Fences: true})
	w.show(held(terminating))
	shut, open := nodefence.Fence{Node: "a", KeepsVolumes: true}, nodefence.Fence{Node: "a"}
	changes := nodefence.Changes(w.observer.sawFence)
	for step, c := range []struct {
		change func()
		want   podsafety.Storage
	}{
		{func() { changes.Added(open) }, podsafety.Storage{}},
		{func() { changes.Updated(open, shut) }, podsafety.Storage{Fenced: true}},
		{func() { changes.Updated(shut, open) }, podsafety.Storage{Since: w.clock.Now()}},
		{func() { changes.Added(shut) }, podsafety.Storage{Fenced: true, Since: w.clock.Now()}},
		{func() { changes.Deleted(shut, false) }, podsafety.Storage{Since: w.clock.Now()}},
	} {
		c.change()
		if f, found := w.observer.observe("ns/db"); !found || f.Storage != c.want {
			t.Errorf("step %d: %+v", step, f.Storage)
		}
	}
}

// A kubelet that was cut off may have unmounted nothing before its return.
func TestUnmountWaitStartsAnewAfterOutage(t *testing.T) {
	w := newWorld(t, Config{})
	w.show(held(terminating, finished))
	w.clock.Step(time.Hour)
	for _, seen := range []objects.NodeSeen{objects.NodeNotReady, objects.NodeReady} { // without any work between the two
		before := w.nodeCache["a"]
		now := objects.WatchedNode{Name: "a", Seen: seen}
		w.nodeCache["a"] = now
		w.observer.nodeChanged(before, now)
	}
	if got := w.reconcilePod(); got != controller.After(podsafety.DefaultUnmountGrace) {
		t.Errorf("after the outage: %+v", got)
	}
	w.expectCalls()
	w.clock.Step(podsafety.DefaultUnmountGrace)
	w.reconcilePod()
	w.expectCalls(removed + "1")
}

// NodeFences hinder an unmount also where they are no evidence, because nothing carries them out.
func TestFencesAreReadOnlyIfEnabled(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		cfg      Config
		verbs    []string
		evidence bool
	}{
		{Config{}, nil, false},
		{Config{WatchFences: true}, []string{"list", "watch"}, false},
		{Config{Fences: true}, []string{"get", "list", "watch"}, true},
	} {
		var verbs []string
		for _, p := range test.cfg.permissions() {
			if p.Resource == "nodefences" {
				verbs = append(verbs, p.Verb)
			}
		}
		c := must.Get(New(&rest.Config{Host: "http://127.0.0.1:1"}, test.cfg))(t)
		_, none := c.observer.fences.(nodefence.None)
		watched := strings.Contains(fmt.Sprint(c.WaitSynced(gone)), "nodefences")
		if !slices.Equal(verbs, test.verbs) || none == test.evidence || watched != (len(verbs) > 0) {
			t.Errorf("%+v: permissions %q, no evidence %t, watched %t", test.cfg, verbs, none, watched)
		}
	}
}

// Without evidence, a fence is only an obstacle: the finalizer stays until it is gone, however long that takes.
func TestFenceWithoutEvidenceHindersUnmount(t *testing.T) {
	w := newWorld(t, Config{WatchFences: true})
	w.observer.fences = nodefence.None{}
	w.show(held(terminating, finished))
	changes := nodefence.Changes(w.observer.sawFence)
	changes.Added(nodefence.Fence{Node: "a", InForce: true, KeepsVolumes: true})
	for range 3 {
		w.reconcilePod()
		w.clock.Step(time.Hour)
	}
	w.expectCalls()
	changes.Deleted(nodefence.Fence{Node: "a"}, true)
	w.reconcilePod()
	w.expectCalls()
	w.clock.Step(podsafety.DefaultUnmountGrace)
	w.reconcilePod()
	w.expectCalls(removed + "1")
}
