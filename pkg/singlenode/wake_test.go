package singlenode

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/goroutines"
)

// In the namespace, pod one has the lock of claim data, and pods two and three wait for it.
func TestWakingChangesOfPodsAndClaims(t *testing.T) {
	all := []string{"claim ns/data", "pod ns/three", "pod ns/two"}
	waiting := []string{"pod ns/three", "pod ns/two"}
	for sentence, c := range map[string]struct {
		change func(w *world)
		want   []string
	}{
		"nothing": {func(*world) {}, nil},
		"the status of the holder": {func(w *world) {
			w.pod("one", func(o *v1.Pod) { o.Status.Message = "it runs" })
		}, nil},
		"the holder is being deleted":        {func(w *world) { w.pod("one", terminating) }, all},
		"the holder has completed":           {func(w *world) { w.pod("one", completed) }, all},
		"the holder is gone":                 {func(w *world) { w.endPod("one") }, []string{"claim ns/data"}},
		"another has the name of the holder": {func(w *world) { w.pod("one", func(o *v1.Pod) { o.UID = "2" }) }, all},
		"a pod that waits":                   {func(w *world) { w.pod("two", terminating) }, []string{"pod ns/two"}},
		"a queue has kept a pod that waits":  {func(w *world) { w.pod("two", queued) }, []string{"pod ns/two"}},
		"the holder fits no node": {func(w *world) {
			w.pod("one", ungated, func(o *v1.Pod) {
				o.Spec.NodeName, o.Status.Conditions = "", []v1.PodCondition{{Type: v1.PodScheduled,
					Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable}}
			})
		}, all},
		"a pod that waits is gone":       {func(w *world) { w.endPod("two") }, nil},
		"a pod without the lock runs":    {func(w *world) { w.pod("old", onNode) }, all},
		"a pod that waits lost its gate": {func(w *world) { w.pod("two", ungated) }, all[:2]},
		"one more pod waits":             {func(w *world) { w.pod("four") }, []string{"pod ns/four"}},
		"a pod with another claim":       {func(w *world) { w.pod("four", uses("other")) }, []string{"pod ns/four"}},
		"a pod without claims":           {func(w *world) { w.pod("four", uses(), ungated) }, nil},
		"the lock is free": {func(w *world) { w.claim("data", free) },
			[]string{"claim ns/data", "pod ns/three"}},
		"the claim is being deleted":          {func(w *world) { w.claim("data", condemned) }, all},
		"the claim is gone":                   {func(w *world) { delete(w.claims, "ns/data") }, all},
		"the claim is bound":                  {func(w *world) { w.claim("data", bound) }, all},
		"the claim asks":                      {func(w *world) { w.claim("data", asking) }, all},
		"the resourceVersion of the claim":    {func(w *world) { w.claim("data") }, nil},
		"its PV":                              {func(w *world) { w.volume("data", nil) }, all},
		"another PV":                          {func(w *world) { w.volume("other", nil) }, nil},
		"a StorageClass":                      {func(w *world) { w.class(nil) }, waiting},
		"the namespace asks for less":         {func(w *world) { w.label(singlenode.SelectedValue) }, waiting},
		"the namespace asks for nothing":      {func(w *world) { w.label("") }, waiting},
		"the node of the holder is not Ready": {func(w *world) { w.node(v1.ConditionUnknown) }, all},
		"the node is as it was":               {func(w *world) { w.node(v1.ConditionTrue) }, nil},
		"the node is gone":                    {func(w *world) { delete(w.nodes, "a") }, all},
		"the status of a pod that waits": {func(w *world) {
			w.pod("two", func(o *v1.Pod) { o.Status.Message = "it waits" })
		}, nil},
		"another, of another claim, has the name of the holder": {func(w *world) {
			w.pod("one", uses("other"), func(o *v1.Pod) { o.UID = "2" })
		}, []string{"claim ns/data"}},
		"a pod without the lock is bound to a node": {func(w *world) {
			w.pod("old", ungated)
			w.sync()
			w.woken.take()
			w.pod("old", onNode)
		}, all},
		"a pod without the lock is gone": {func(w *world) {
			w.pod("old", onNode)
			w.sync()
			w.woken.take()
			w.endPod("old")
		}, all},
		"a pod of a claim without a lock": {func(w *world) {
			w.claim("free")
			w.pod("four", uses("free"), onNode)
		}, nil},
		"the PV of a claim without a lock": {func(w *world) {
			w.claim("free")
			w.pod("four", uses("free"))
			w.sync()
			w.woken.take()
			w.volume("free", nil)
		}, []string{"pod ns/four"}},
		"the node is fenced": {func(w *world) {
			w.fences["a"] = &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: w.version()}}
		}, all},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{Fences: true})
			w.claim("data", locked("one"))
			w.pod("one", onNode)
			w.pod("two")
			w.pod("three")
			w.settle()
			c.change(w)
			w.sync()
			if got := w.woken.take(); !slices.Equal(got, c.want) {
				t.Errorf("woken %q, want %q", got, c.want)
			}
			w.woken.idle = true
			for _, change := range []func(w *world){func(w *world) { w.pod("one", terminating) },
				func(w *world) { w.claim("data", bound) }, func(w *world) { w.node(v1.ConditionFalse) },
				func(w *world) { w.volume("data", askingLabels) }, func(w *world) { w.class(askingLabels) },
				func(w *world) { w.label(singlenode.SelectedValue) }, func(w *world) { w.endPod("one") }} {
				change(w)
				w.sync()
			}
			if got := w.woken.take(); len(got) > 0 {
				t.Errorf("a replica that does not lead wakes %q", got)
			}
		})
	}
}

// A holder wakes its lock, and the pods that wait for it, since it may be deleted before its gate goes.
func TestGatedHolderWakesItsLock(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(w *world)
		want   []string
	}{
		"is being deleted": {func(w *world) { w.pod("one", terminating) },
			[]string{"claim ns/data", "pod ns/one", "pod ns/two"}},
		"is gone": {func(w *world) { w.endPod("one") }, []string{"claim ns/data"}},
	} {
		w := newWorld(t, Config{})
		w.claim("data", locked("one"))
		w.pod("one")
		w.pod("two")
		w.sync()
		w.woken.take()
		c.change(w)
		w.sync()
		if got := w.woken.take(); !slices.Equal(got, c.want) {
			t.Errorf("it %s: woken %q, want %q", sentence, got, c.want)
		}
	}
}

func free(o *v1.PersistentVolumeClaim) { o.Annotations, o.Finalizers = nil, nil }

func condemned(o *v1.PersistentVolumeClaim) {
	o.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
}

var askingLabels = map[string]string{singlenode.Label: singlenode.SelectValue}

func asking(o *v1.PersistentVolumeClaim) { o.Labels = askingLabels }

// The pod has run since before its namespace asked for locks.
func TestUncachedPodWakesItsLock(t *testing.T) {
	w := newWorld(t, Config{})
	w.label("")
	w.sync()
	w.claim("data", locked("one"))
	w.pod("one", onNode)
	w.pod("other", onNode, uses("other"))
	w.sync()
	if len(w.podCache.Records) > 0 {
		t.Errorf("kept: %v", w.podCache.Records)
	}
	w.woken.take()
	w.pod("one", terminating)
	w.pod("other", terminating)
	w.sync()
	if got := w.woken.take(); !slices.Equal(got, []string{"claim ns/data"}) {
		t.Errorf("woken %q", got)
	}
	record := recordPod(w.observer)
	last, _, err := record(w.pods["ns/one"], false)
	if err != nil || last == nil {
		t.Fatalf("%v, %v", last, err)
	}
	w.observer.leftOutChanged(last, nil)
	if got := w.woken.take(); !slices.Equal(got, []string{"claim ns/data"}) {
		t.Errorf("woken %q", got)
	}
	last, _, err = record(w.pods["ns/other"], false)
	if err != nil || last != nil {
		t.Fatalf("a pod that nothing waits for has record %v, %v", last, err)
	}
	w.observer.leftOutChanged(nil, last)
	w.observer.leftOutChanged(last, nil)
	if got := w.woken.take(); len(got) > 0 {
		t.Errorf("woken %q", got)
	}
}

// The watch of namespaces may lag, so the pod has an effect even without a lock.
func TestUncachedPodWakesWaitingPods(t *testing.T) {
	w := newWorld(t, Config{})
	w.label("")
	w.pod("two")
	w.sync()
	w.woken.take()
	w.pod("old", onNode)
	w.sync()
	if _, kept := w.podCache.Get("ns/old"); kept {
		t.Fatal("the pod is kept")
	}
	if got := w.woken.take(); !slices.Equal(got, []string{"pod ns/two"}) {
		t.Errorf("woken %q", got)
	}
}

// The replica that begins to lead works on these objects.
func TestInitialWork(t *testing.T) {
	w := newWorld(t, Config{})
	w.woken.idle = true
	w.claim("data", locked("one"))
	w.claim("half", func(o *v1.PersistentVolumeClaim) { o.Finalizers = []string{singlenode.Finalizer} })
	w.claim("bare", func(o *v1.PersistentVolumeClaim) { locked("one")(o); o.Finalizers = nil })
	w.claim("free")
	w.pod("one", onNode)
	w.pod("two")
	w.settle()
	pods, claims := w.observer.first()
	slices.Sort(claims)
	if !slices.Equal(pods, []string{"ns/two"}) || !slices.Equal(claims, []string{"ns/bare", "ns/data", "ns/half"}) {
		t.Errorf("pods %q, claims %q", pods, claims)
	}
}

// Memory must not grow with the number of deleted objects.
func TestDeletedObjectsAreForgotten(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	for i := range 5 {
		w.pod(fmt.Sprint("pod-", i))
	}
	w.pod("done", onNode, completed)
	w.pod("twice", uses("data", "data"))
	w.settle()
	if len(w.observer.tracker.Ended) != 1 || len(w.observer.gated["ns/data"]) != 6 {
		t.Errorf("%v has ended; %v wait", w.observer.tracker.Ended, w.observer.gated)
	}
	clear(w.pods)
	w.settle()
	clear(w.claims)
	w.settle()
	o := w.observer
	gated, pods := o.gatedIn.All(), o.podsOn.All()
	if len(o.tracker.Ended)+len(o.gated)+len(gated)+len(pods)+len(o.turns) > 0 {
		t.Errorf("left: %v, %v, %v, %v, %v", o.tracker.Ended, o.gated, gated, pods, o.turns)
	}
	if pods, claims := w.podReports.Waiting(), w.claimReports.Waiting(); len(pods)+len(claims) > 0 {
		t.Errorf("%v, %v wait", pods, claims)
	}
}

// searched is a watch cache of pods that counts the searches of all pods.
type searched struct {
	kube.Lister[*pod]
	times int
}

func (s *searched) Each(visit func(*pod)) {
	s.times++
	s.Lister.Each(visit)
}

// A change of one node costs as much as the pods on it, and not as the pods of the cluster.
func TestChangedNodeCostsNoSearchOfAllPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Fences: true})
	w.claim("data", locked("one"))
	w.pod("one", onNode)
	w.claim("other", locked("two"))
	w.pod("two", uses("other"), ungated, func(o *v1.Pod) { o.Spec.NodeName = "b" })
	w.settle()
	pods := &searched{Lister: w.observer.pods}
	w.observer.pods = pods
	for sentence, change := range map[string]func(){
		"node": func() {
			w.observer.nodeChanged(objects.WatchedNode{Name: "a", Seen: objects.NodeReady},
				objects.WatchedNode{Name: "a", Seen: objects.NodeNotReady})
		},
		"fence": func() { w.observer.sawFence(nodefence.Fence{Node: "a", InForce: true}) },
	} {
		w.woken.take()
		change()
		if got := w.woken.take(); !slices.Equal(got, []string{"claim ns/data"}) || pods.times > 0 {
			t.Errorf("a changed %s enqueues %q, and searches all pods %d times", sentence, got, pods.times)
		}
	}
}

// The unmount of a pod begins anew if its node is another machine, which may have mounted nothing.
func TestOtherMachineOfReadyNodeIsAnObstacle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	was := objects.WatchedNode{Name: "b", Seen: objects.NodeReady, Machine: objects.Machine{MachineID: "one"}, BootID: "1"}
	w.observer.nodeChanged(objects.WatchedNode{}, was)
	w.woken.take()
	for _, change := range []func(*objects.WatchedNode){
		func(n *objects.WatchedNode) { n.Machine.MachineID = "two" }, func(n *objects.WatchedNode) { n.BootID = "2" },
	} {
		w.clock.Step(time.Hour)
		now := was
		change(&now)
		w.observer.nodeChanged(was, now)
		if got := w.observer.tracker.Storages["b"].Since; !got.Equal(w.clock.Now()) || len(w.woken.take()) > 0 {
			t.Errorf("from %+v to %+v: since %v", was, now, got)
		}
		was = now
	}
}

// Such an update enqueues nothing, so a change of the pod's node or namespace at the same time must find the pod.
func TestUnchangedPodIsFoundDuringItsUpdate(t *testing.T) {
	t.Parallel()
	o := newObserver(singlenode.Rules{}, nil, wake{working: func() bool { return false }})
	p := &pod{namespace: "ns", name: "db", node: "a", all: &objects.Pod{Gated: true}}
	o.podChanged(nil, p)
	goroutines.Hold(t, "one pod is on the node, and one gated pod in the namespace",
		func() bool { return len(o.podsOn.In("a")) == 1 && len(o.gatedIn.In("ns")) == 1 },
		func() { o.podChanged(p, p) })
}

// Another pod has its name before the watch shows the end of the first.
func TestReplacedPodIsForgotten(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.pod("one", onNode)
	w.pod("two")
	w.claim("more", locked("done"))
	w.pod("done", onNode, completed, uses("more"))
	w.settle()
	if len(w.observer.tracker.Ended) != 1 || len(w.podReports.Waiting()) != 1 {
		t.Fatalf("%v has ended, %v wait", w.observer.tracker.Ended, w.podReports.Waiting())
	}
	for _, name := range []string{"two", "done"} {
		w.pod(name, func(o *v1.Pod) { o.UID = "2" }, onNode)
	}
	w.sync()
	if len(w.observer.tracker.Ended)+len(w.podReports.Waiting())+len(w.observer.gatedIn.All()) > 0 {
		t.Errorf("%v has ended, %v wait", w.observer.tracker.Ended, w.podReports.Waiting())
	}
}

// slowly is a cache that is filled when its channel is closed.
type slowly struct {
	ran, filled chan struct{}
}

func (s slowly) Run(ctx context.Context) { close(s.ran); <-ctx.Done() }

func (s slowly) Sync() cache.DoneChecker { return s }

func (s slowly) Name() string { return "slowly" }

func (s slowly) Done() <-chan struct{} { return s.filled }

// The namespaces decide which pods are kept.
func TestPodsAreListedAfterNamespaces(t *testing.T) { synctest.Test(t, testPodsAfterNamespaces) }

func testPodsAfterNamespaces(t *testing.T) {
	namespaces := slowly{make(chan struct{}), make(chan struct{})}
	pods := slowly{make(chan struct{}), make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { after{pods, namespaces}.Run(ctx); close(done) }()
	synctest.Wait()
	select {
	case <-pods.ran:
		t.Error("the pods are read before the namespaces are")
	default:
	}
	close(namespaces.filled)
	<-pods.ran
	cancel()
	<-done
	after{slowly{}, slowly{}}.Run(ctx) // it has ended before the namespaces were read
	var _ controller.Cache = after{}
}
