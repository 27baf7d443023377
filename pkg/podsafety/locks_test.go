package podsafety

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

func TestNodeUnreachableCondition(t *testing.T) {
	w := newWorld(t, Config{NodeCondition: true})
	w.namespaceCache["warns"] = namespace{Name: "warns", Mode: podsafety.ModeWarn}
	in := func(namespace, name string) func(*v1.Pod) {
		return func(o *v1.Pod) { o.Namespace, o.Name, o.UID = namespace, name, types.UID(name) }
	}
	for _, o := range []*v1.Pod{held(), held(unheld, in("warns", "warned")), held(unheld, in("silent", "silent")),
		held(in("silent", "held")), held(in("ns", "elsewhere"), func(o *v1.Pod) { o.Spec.NodeName = "b" })} {
		w.show(o)
	}
	w.mark(t.Context(), "a")
	w.expectCalls()
	w.away()
	w.mark(t.Context(), "a")
	w.expectCalls("list pods", "condition db remove=false", "condition held remove=false",
		"condition warned remove=false")
	for _, o := range w.live {
		w.watch(o)
	}
	w.mark(t.Context(), "a")
	w.expectCalls("list pods")
	delete(w.nodeCache, "a")
	w.mark(t.Context(), "a")
	w.expectCalls()
	w.nodeCache["a"] = objects.WatchedNode{Name: "a", Seen: objects.NodeReady}
	w.mark(t.Context(), "a")
	slices.Sort(w.calls) // the pods of a node have no order
	w.expectCalls("condition db remove=true", "condition held remove=true", "condition warned remove=true")
}

// TestNodeUnreachableConditionOff expects the condition of an earlier process to leave each pod, also on a node that is
// unreachable or gone, and no condition to be set.
func TestNodeUnreachableConditionOff(t *testing.T) {
	t.Parallel()
	onGone := func(o *v1.Pod) { o.Name, o.Spec.NodeName = "gone", "b" }
	for _, dryRun := range []bool{false, true} {
		w := newWorld(t, Config{NodeCondition: dryRun, Settings: controllers.Settings{DryRun: dryRun}})
		w.away()
		for _, o := range []*v1.Pod{held(marked), held(marked, unheld, onGone),
			held(func(o *v1.Pod) { o.Name = "unmarked" })} {
			w.show(o)
		}
		_, _, nodes := w.observer.first()
		slices.Sort(nodes)
		for _, name := range nodes {
			w.mark(t.Context(), name)
		}
		if dryRun {
			w.expectCalls()
			continue
		}
		w.expectCalls("condition db remove=true", "condition gone remove=true")
	}
}

// TestNodeUnreachableConditionOffLeavesUnmarkedPods: an outage costs nothing where no pod has the condition.
func TestNodeUnreachableConditionOffLeavesUnmarkedPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.away()
	woken := w.recordWoken()
	plain, withCondition := podOf(held()), podOf(held(marked))
	w.observer.podChanged(nil, plain)
	w.observer.nodeChanged(objects.WatchedNode{}, w.nodeCache["a"])
	if _, _, nodes := w.observer.first(); len(nodes)+len(woken.all) > 0 {
		t.Errorf("enqueued %q at the start, and %q", nodes, woken.all)
	}
	w.observer.podChanged(plain, withCondition)
	if got := woken.take(); !slices.Equal(got, []string{"node a"}) {
		t.Errorf("enqueued %q", got)
	}
}

func TestLockLifecycle(t *testing.T) {
	w := newWorld(t, Config{VolumeLocks: true})
	w.pvs["pv-data"] = false
	w.show(held(terminating))
	lock := func() { w.lock(t.Context(), "a") }
	lock()
	w.expectCalls() // its node is there
	w.away()
	lock()
	w.expectCalls("get volume", "create lock")
	lock()
	w.expectCalls() // once
	if got, want := w.locked["a"].volumes, (map[string]holder{"pv-data": {"ns", "db", "uid"}}); !maps.Equal(got, want) {
		t.Errorf("the lock has %v", got)
	}
	w.nodeCache["a"] = objects.WatchedNode{Name: "a", Seen: objects.NodeReady}
	lock()
	w.expectCalls() // it stays until the pod is released

	// The watch shows the end of the pod, and a live read does not.
	w.unwatch("ns/db")
	lock()
	w.expectCalls("get pod")
	w.fail["get pod"] = errors.New("refused")
	lock()
	w.expectCalls("get pod")
	if kubetest.Count(t, w.metrics.lockErrors) != 1 {
		t.Error("the failure is not counted")
	}
	w.fail = nil
	delete(w.live, "ns/db")
	lock()
	w.expectCalls("get pod", "delete lock")
	if len(w.locked) != 0 || w.volumeLocks.count() != 0 {
		t.Errorf("locks %v", w.locked)
	}
}

// unwatch makes the watch show that a pod is gone.
func (w *world) unwatch(key string) {
	last := w.podCache[key]
	delete(w.podCache, key)
	w.observer.podChanged(last, nil)
}

// TestNodeHasOneLock expects the volumes of all pods in it. A volume of two pods stays until neither is held.
func TestNodeHasOneLock(t *testing.T) {
	w := newWorld(t, Config{VolumeLocks: true})
	w.pvs["pv-data"], w.pvs["pv-logs"] = false, false
	named := func(name, claim string) func(*v1.Pod) {
		return func(o *v1.Pod) {
			o.Name, o.UID = name, types.UID(name)
			o.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = claim
		}
	}
	w.show(held(terminating))
	w.show(held(terminating, named("second", "data")))
	w.show(held(terminating, named("other", "logs")))
	w.away()
	lock := func() { w.lock(t.Context(), "a") }
	lock()
	w.expectCalls("get volume", "get volume", "create lock") // two pods share a claim
	w.unwatch("ns/db")
	delete(w.live, "ns/db")
	lock()
	w.expectCalls("get pod", "update lock")
	want := map[string]holder{"pv-data": {"ns", "second", "second"}, "pv-logs": {"ns", "other", "other"}}
	if got := w.locked["a"].volumes; !maps.Equal(got, want) {
		t.Errorf("the lock has %v", got)
	}
	w.unwatch("ns/other")
	delete(w.live, "ns/other")
	lock()
	w.expectCalls("get pod", "update lock")
	if got := w.locked["a"].volumes; len(got) != 1 || got["pv-data"].name != "second" {
		t.Errorf("the lock has %v", got)
	}
}

// TestLockPassesToPodOnReturnedNode expects a volume of two pods to stay locked until neither is held, although the
// node is back when the first one ends.
func TestLockPassesToPodOnReturnedNode(t *testing.T) {
	w := newWorld(t, Config{VolumeLocks: true})
	w.pvs["pv-data"], w.pvs["pv-logs"] = false, false
	w.show(held(terminating))
	w.away()
	lock := func() controller.Result { return w.lock(t.Context(), "a") }
	lock()
	w.expectCalls("get volume", "create lock")
	w.nodeCache["a"] = objects.WatchedNode{Name: "a", Seen: objects.NodeReady}
	w.show(held(terminating, func(o *v1.Pod) {
		o.Name, o.UID = "second", "second"
		logs := *o.Spec.Volumes[0].DeepCopy()
		logs.PersistentVolumeClaim.ClaimName = "logs"
		o.Spec.Volumes = append(o.Spec.Volumes, logs)
	}))
	lock()
	w.expectCalls() // it takes nothing, and loses nothing

	w.unwatch("ns/db")
	delete(w.live, "ns/db")
	w.fail["get volume"] = errors.New("refused")
	if got := lock(); got == controller.Done() || len(w.locked["a"].volumes) != 1 {
		t.Errorf("while the volumes of the second pod are unknown: %v, locked %v", got, w.locked)
	}
	w.fail = map[string]error{}
	w.calls = nil
	lock()
	w.expectCalls("get pod", "get volume", "get volume", "update lock")
	want := map[string]holder{"pv-data": {"ns", "second", "second"}}
	if got := w.locked["a"].volumes; !maps.Equal(got, want) {
		t.Errorf("the lock has %v", got)
	}
	w.unwatch("ns/second")
	delete(w.live, "ns/second")
	lock()
	w.expectCalls("get pod", "delete lock")
}

// TestEmptyLock expects a lock from which a person has removed the last volume to be filled, or deleted.
func TestEmptyLock(t *testing.T) {
	for _, waits := range []bool{true, false} {
		w := newWorld(t, Config{VolumeLocks: true})
		w.pvs["pv-data"] = false
		w.away()
		if waits {
			w.show(held(terminating))
		}
		w.locked["a"] = volumeLock{node: "a", object: "lock-of-a", version: "1", volumes: map[string]holder{}}
		must.OK(t, w.volumeLocks.refresh(t.Context()))
		w.lock(t.Context(), "a")
		if l, exists := w.locked["a"]; exists != waits || waits && len(l.volumes) != 1 {
			t.Errorf("a pod waits: %t; locked %v", waits, w.locked)
		}
	}
}

func TestLockNamesPodsByVolume(t *testing.T) {
	t.Parallel()
	want := volumeLock{node: "a", object: "lock-of-a", version: "1",
		volumes: map[string]holder{"pv-data": {"ns", "db", "uid"}, "pv-logs": {"other", "web.1", "uid-2"}}}
	metadata, _, _ := unstructured.NestedMap(volumeLock{node: "a"}.unstructured().Object, "metadata")
	if !reflect.DeepEqual(metadata, map[string]any{"name": "a", "labels": map[string]any{kube.NoBackup: "true"}}) {
		t.Errorf("a new object has metadata %v", metadata)
	}
	o := want.unstructured()
	if got := lockOf(o); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	// Releases read the objects of each other. The API server prunes every field that the schema does not have.
	got, _, _ := unstructured.NestedMap(o.Object, "spec", "volumes", "pv-data")
	if !maps.Equal(got, map[string]any{"namespace": "ns", "pod": "db", "uid": "uid"}) {
		t.Errorf("the object names %v", got)
	}
}

// TestLockOfUnreadablePodStays expects the volume to stay locked, because its pod is unknown and not absent.
func TestLockOfUnreadablePodStays(t *testing.T) {
	t.Parallel()
	for _, value := range []any{map[string]any{}, map[string]any{"pod": "db", "uid": "uid"},
		map[string]any{"namespace": "ns", "uid": "uid"}, map[string]any{"namespace": "ns", "pod": "db"}, "ns/db/uid"} {
		w := newWorld(t, Config{VolumeLocks: true})
		w.away()
		o := volumeLock{node: "a", object: "lock-of-a", version: "1"}.unstructured()
		must.OK(t, unstructured.SetNestedField(o.Object, value, "spec", "volumes", "pv-data"))
		w.locked["a"] = lockOf(o)
		must.OK(t, w.volumeLocks.refresh(t.Context()))
		w.calls = nil
		if got := w.lock(t.Context(), "a"); got == controller.Done() || len(w.locked["a"].volumes) != 1 {
			t.Errorf("%v: %v, locked %v", value, got, w.locked)
		}
		w.expectCalls()
	}
}

// TestLocksOfEarlierProcessAreRemoved switches VolumeLocks off while one is in force, whose pod is held. This needs no
// permission to read its volume. A dry run changes nothing.
func TestLocksOfEarlierProcessAreRemoved(t *testing.T) {
	noKind := apierrors.NewNotFound(schema.GroupResource{Group: lockGroup, Resource: lockResource}, "")
	for sentence, c := range map[string]struct {
		cfg    Config
		err    error
		locks  int
		errors float64
	}{
		"without locks":            {Config{}, nil, 0, 0},
		"with locks":               {Config{VolumeLocks: true}, nil, 1, 0},
		"a dry run":                {Config{VolumeLocks: true, Settings: controllers.Settings{DryRun: true}}, nil, 1, 0},
		"without the kind":         {Config{}, noKind, 1, 0},
		"the kind is missing":      {Config{VolumeLocks: true}, noKind, 1, 2}, // for the sweep and for the node
		"no answer, without locks": {Config{}, errNoAnswer, 1, 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, c.cfg)
				w.away()
				w.show(held(terminating))
				w.showFence(fenced(v1alpha1.CoversVolumes))
				w.locked["a"] = volumeLock{node: "a", object: "lock-of-a",
					volumes: map[string]holder{"pv-data": {"ns", "db", "uid"}}}
				w.fail["list locks"], w.volumeLocks.listed = c.err, false
				if !c.cfg.VolumeLocks {
					w.fail["get volume"] = errNoAnswer
				}
				w.play(t)
				if got := kubetest.Count(t, w.metrics.lockErrors); len(w.locked) != c.locks || got != c.errors {
					t.Errorf("locked %v, errors %v", w.locked, got)
				}
			})
		})
	}
}

func TestVolumesWithoutLocks(t *testing.T) {
	for sentence, c := range map[string]struct {
		alter func(w *world)
		calls []string
	}{
		"a volume for several nodes":            {func(w *world) { w.pvs["pv-data"] = true }, []string{"get volume"}},
		"a claim that may yet be bound to a PV": {func(*world) {}, []string{"get volume", "get volume"}},
	} {
		w := newWorld(t, Config{VolumeLocks: true})
		w.show(held(terminating))
		w.away()
		c.alter(w)
		w.lock(t.Context(), "a")
		w.lock(t.Context(), "a")
		if !slices.Equal(w.calls, c.calls) {
			t.Errorf("%s: %q", sentence, w.calls)
		}
		w.unwatch("ns/db")
		nodes, pods := w.observer.waitingAll()
		if w.volumeLocks.keep(pods); len(nodes)+len(w.volumeLocks.volumes)+len(w.observer.waiting.All()) != 0 {
			t.Errorf("%s: a pod that is gone is remembered", sentence)
		}
	}
}

func TestFailedLockIsRetried(t *testing.T) {
	for _, call := range []string{"get volume", "create lock"} {
		w := newWorld(t, Config{VolumeLocks: true})
		w.pvs["pv-data"] = false
		w.show(held(terminating))
		w.away()
		w.fail[call] = errors.New("refused")
		if got := w.lock(t.Context(), "a"); got == controller.Done() {
			t.Errorf("%s: nobody tries again", call)
		}
		w.fail = nil
		w.lock(t.Context(), "a")
		if len(w.locked) != 1 {
			t.Errorf("%s: %d locks", call, len(w.locked))
		}
	}
}

// TestLockDespiteErrorsOfOtherPod expects a lock for known volumes, even if the volumes of another pod cannot be read.
func TestLockDespiteErrorsOfOtherPod(t *testing.T) {
	w := newWorld(t, Config{VolumeLocks: true})
	w.pvs["pv-data"] = false
	w.show(held(terminating))
	w.show(held(terminating, func(o *v1.Pod) { o.Name, o.UID = "broken", "broken" }))
	w.volumeLocks.note("uid", "data", volume{name: "pv-data"})
	w.away()
	w.fail["get volume"] = errors.New("refused")
	if got := w.lock(t.Context(), "a"); got == controller.Done() || len(w.locked["a"].volumes) != 1 {
		t.Errorf("%v, locked %v", got, w.locked)
	}
}

// TestLockOfAnotherWriter expects the lock of an earlier leader to be read before the first write, and a changed lock
// to be read again, without losing any of their volumes.
func TestLockOfAnotherWriter(t *testing.T) {
	for sentence, c := range map[string]struct {
		begin  func(w *world)
		atOnce bool
	}{
		"of an earlier leader": {func(w *world) { w.volumeLocks.listed = false }, true},
		"changed meanwhile":    {func(w *world) { w.lock(t.Context(), "a") }, false},
	} {
		w := newWorld(t, Config{VolumeLocks: true})
		w.pvs["pv-data"], w.pvs["pv-logs"] = false, false
		w.show(held(terminating))
		w.away()
		c.begin(w)
		w.live["ns/lost"] = held(terminating, func(o *v1.Pod) { o.Name, o.UID = "lost", "lost" }) // no watch shows it yet
		w.locked["a"] = volumeLock{node: "a", object: "other", version: "7",
			volumes: map[string]holder{"pv-of-lost": {"ns", "lost", "lost"}}}
		w.show(held(terminating, func(o *v1.Pod) {
			o.Name, o.UID = "later", "later"
			o.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "logs"
		}))
		if got := w.lock(t.Context(), "a"); (got == controller.Done()) != c.atOnce {
			t.Errorf("%s: the result of the first try is %v", sentence, got)
		}
		w.lock(t.Context(), "a")
		var got []string
		for volume, by := range w.locked["a"].volumes {
			got = append(got, volume+" by "+by.name)
		}
		slices.Sort(got)
		if want := []string{"pv-data by db", "pv-logs by later", "pv-of-lost by lost"}; !slices.Equal(got, want) {
			t.Errorf("%s: locked %q, want %q", sentence, got, want)
		}
	}
}

// TestRunningRecordTellsNoVolumes: the watch may show a pod as running that the lock of an earlier leader names.
func TestRunningRecordTellsNoVolumes(t *testing.T) {
	w := newWorld(t, Config{VolumeLocks: true})
	w.pvs["pv-data"] = false
	terminates := podOf(held(terminating)).facts()
	running := objects.Pod{Namespace: terminates.Namespace, Name: terminates.Name, UID: terminates.UID}
	for _, pod := range []objects.Pod{running, terminates} {
		volumes, err := w.newVolumeReads().volumesOf(t.Context(), pod)
		if err != nil || len(volumes) != len(pod.Claims) {
			t.Errorf("volumes of %+v: %v, %v", pod, volumes, err)
		}
	}
}

func TestRefreshFindsChangedLocks(t *testing.T) {
	w := newWorld(t, Config{VolumeLocks: true})
	l := volumeLock{node: "a", object: "lock-of-a", volumes: map[string]holder{"pv": {"ns", "db", "uid"}}}
	listed := func() int { _ = w.volumeLocks.refresh(t.Context()); return w.volumeLocks.count() }
	w.locked["a"] = l
	if listed() != 1 || !slices.Equal(w.volumeLocks.nodes(), []string{"a"}) {
		t.Errorf("nodes %q", w.volumeLocks.nodes())
	}
	delete(w.locked, "a")
	if listed() != 0 {
		t.Error("a lock that was deleted is not missed")
	}
	// The lock is written during the list.
	w.onList = func() { w.volumeLocks.wrote("a", l) }
	if listed() != 1 {
		t.Error("a lock that was created during the list is forgotten")
	}
	w.locked["a"], w.onList = l, func() { w.volumeLocks.wrote("a", volumeLock{}) }
	if listed() != 0 || len(w.volumeLocks.nodes()) > 0 {
		t.Error("a lock that was deleted during the list is back")
	}
}

func (w *world) list(context.Context) ([]volumeLock, error) {
	w.mu.Lock()
	locks := slices.Collect(maps.Values(w.locked))
	w.mu.Unlock()
	if w.onList != nil {
		w.onList()
	}
	return locks, w.call("list locks")
}

func (w *world) put(ctx context.Context, l volumeLock) (volumeLock, error) {
	what := "update lock"
	if l.object == "" {
		what = "create lock"
	}
	if err := w.send(ctx, what); err != nil {
		return volumeLock{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	stored, exists := w.locked[l.node]
	gr := schema.GroupResource{Group: lockGroup, Resource: lockResource}
	switch {
	case l.object == "" && exists:
		return volumeLock{}, apierrors.NewAlreadyExists(gr, l.node)
	case l.object != "" && !exists:
		return volumeLock{}, apierrors.NewNotFound(gr, l.node)
	case l.version != stored.version:
		return volumeLock{}, apierrors.NewConflict(gr, l.node, nil)
	}
	l.object, l.version = "lock-of-"+types.UID(l.node), l.version+"1"
	l.volumes = maps.Clone(l.volumes)
	w.locked[l.node] = l
	return l, nil
}

func (w *world) delete(ctx context.Context, l volumeLock) error {
	if err := w.send(ctx, "delete lock"); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.version != w.locked[l.node].version {
		return apierrors.NewConflict(schema.GroupResource{Group: lockGroup, Resource: lockResource}, l.node, nil)
	}
	delete(w.locked, l.node)
	return nil
}
