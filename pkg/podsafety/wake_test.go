package podsafety

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// recording records the objects that events enqueue, as "pod ns/db".
type recording struct{ all []string }

// take returns the objects enqueued since the last call.
func (r *recording) take() []string {
	all := r.all
	r.all = nil
	slices.Sort(all)
	return all
}

// recordWoken makes the world, as if it worked, record the objects that events enqueue.
func (w *world) recordWoken() *recording {
	r, to := &recording{}, &w.observer.wake
	enqueue := func(kind string) func(string) { return func(key string) { r.all = append(r.all, kind+" "+key) } }
	to.pod, to.claim, to.namespace, to.node = enqueue("pod"), enqueue("claim"), enqueue("namespace"), enqueue("node")
	to.working = func() bool { return true }
	return r
}

func noClaim(o *v1.Pod) { o.Spec.Volumes = nil }

func next(o *v1.Pod) { o.UID = "next" }

func TestWakingChangesOfPods(t *testing.T) {
	t.Parallel()
	marks := Config{NodeCondition: true}
	for sentence, c := range map[string]struct {
		cfg  Config
		pod  *v1.Pod
		away bool
		want string
	}{
		"a held pod runs":                       {pod: held()},
		"it is terminating at first sight":      {pod: held(terminating), want: "pod ns/db"},
		"a pod is to be held":                   {pod: held(unheld), want: "pod ns/db"},
		"a pod without claims is not":           {pod: held(unheld, noClaim)},
		"a pod has the condition of before":     {pod: held(marked), want: "node a"},
		"a pod on a reachable node":             {cfg: marks, pod: held()},
		"a marked pod on a reachable node":      {cfg: marks, pod: held(marked), want: "node a"},
		"a pod on an unreachable node":          {cfg: marks, pod: held(), away: true, want: "node a"},
		"a marked pod on an unreachable node":   {cfg: marks, pod: held(marked), away: true},
		"a pod on an unreachable node, no mark": {pod: held(), away: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.cfg)
			if c.away {
				w.away()
			}
			woken := w.recordWoken()
			if w.show(c.pod); strings.Join(woken.take(), ", ") != c.want {
				t.Errorf("want %q", c.want)
			}
		})
	}
}

func TestWakingChangesOfNamespacesAndNodes(t *testing.T) {
	t.Parallel()
	enforce, warn := namespace{Name: "ns", Mode: podsafety.ModeEnforce}, namespace{Name: "ns", Mode: podsafety.ModeWarn}
	off, down := namespace{Name: "ns"}, objects.WatchedNode{Name: "a"}
	ready := objects.WatchedNode{Name: "a", Seen: objects.NodeReady}
	added := func(n namespace) func(*observer) {
		return func(o *observer) { o.namespaceChanged(namespace{}, n) }
	}
	updated := func(before, now namespace) func(*observer) {
		return func(o *observer) { o.namespaceChanged(before, now) }
	}
	newNode := func(o *observer) { o.nodeChanged(objects.WatchedNode{}, ready) }
	gone := func(o *observer) { o.nodeChanged(down, objects.WatchedNode{}) }
	node := func(before, now objects.WatchedNode) func(*observer) {
		return func(o *observer) { o.nodeChanged(before, now) }
	}
	marks := Config{NodeCondition: true}
	for sentence, c := range map[string]struct {
		cfg     Config
		happens func(*observer)
		want    []string
	}{
		"it enforces":                {marks, added(enforce), []string{"namespace ns"}},
		"it warns":                   {marks, added(warn), []string{"namespace ns"}},
		"it warns, no marks":         {Config{}, added(warn), nil},
		"it is off":                  {marks, added(off), nil},
		"it warns no more":           {marks, updated(warn, off), nil},
		"it enforces, no marks":      {Config{}, added(enforce), []string{"namespace ns"}},
		"it begins to enforce":       {Config{}, updated(off, enforce), []string{"namespace ns"}},
		"it enforces as before":      {marks, updated(enforce, enforce), nil},
		"the node is new":            {marks, newNode, []string{"node a", "pod ns/db"}},
		"the node is down, no marks": {Config{}, node(ready, down), []string{"pod ns/db"}},
		"the node is as before":      {marks, node(down, down), nil},
		"the node is gone":           {marks, gone, []string{"node a", "pod ns/db"}},
		"the node is gone, no marks": {Config{}, gone, []string{"pod ns/db"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.cfg)
			w.show(held(terminating))
			w.observer.nodeChanged(objects.WatchedNode{}, objects.WatchedNode{Name: "b", Unreachable: true})
			woken := w.recordWoken()
			if c.happens(w.observer); !slices.Equal(woken.take(), c.want) {
				t.Errorf("want %q", c.want)
			}
		})
	}
}

// Only the collection of orphans works on a running pod.
func TestDuePods(t *testing.T) {
	t.Parallel()
	collect := Config{DeleteOrphans: true}
	on := func(node string) func(*v1.Pod) { return func(o *v1.Pod) { o.Spec.NodeName = node } }
	for sentence, c := range map[string]struct {
		cfg  Config
		pod  *v1.Pod
		want bool
	}{
		"terminating":             {Config{}, held(terminating), true},
		"released":                {Config{}, held(terminating, unheld, marked), false},
		"running":                 {collect, held(), false},
		"running on no node":      {collect, held(on("")), false},
		"running on a gone node":  {collect, held(on("gone")), true},
		"and no orphan is":        {Config{}, held(on("gone")), false},
		"not held on a gone node": {collect, held(on("gone"), unheld, marked), false},
	} {
		if got := newWorld(t, c.cfg).observer.due(podOf(c.pod)); got != c.want {
			t.Errorf("%s: %t", sentence, got)
		}
	}
}

// The replica that begins to lead works on these objects.
func TestInitialWork(t *testing.T) {
	t.Parallel()
	for _, marks := range []bool{true, false} {
		w := newWorld(t, Config{NodeCondition: marks})
		w.namespaceCache["warns"] = namespace{Name: "warns", Mode: podsafety.ModeWarn}
		w.nodeCache["b"] = objects.WatchedNode{Name: "b", Unreachable: true}
		w.show(held(terminating))
		w.show(held(func(o *v1.Pod) { o.Name = "runs" }))
		w.show(held(marked, func(o *v1.Pod) { o.Name, o.Spec.NodeName = "marked", "c" }))
		pods, namespaces, nodes := w.observer.first()
		slices.Sort(nodes)
		want := []string{"c"}
		if marks {
			want = []string{"b", "c"}
		}
		if !slices.Equal(pods, []string{"ns/db"}) || !slices.Equal(namespaces, []string{"ns"}) ||
			!slices.Equal(nodes, want) {
			t.Errorf("marks %t: pods %q, namespaces %q, nodes %q", marks, pods, namespaces, nodes)
		}
	}
}

func TestWaitingPodsAreIndexed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	w.show(held())
	w.show(held(terminating))
	nodes, pods := w.observer.waitingAll()
	if on := w.observer.waitingOn("a"); len(on) != 1 || !slices.Equal(nodes, []string{"a"}) || !pods["uid"] ||
		len(pods) != 1 {
		t.Errorf("%v; nodes %q, pods %v", on, nodes, pods)
	}
	w.show(held(next)) // another pod has the name
	if on := w.observer.waitingOn("a"); len(on) > 0 {
		t.Errorf("left: %v", on)
	}
	w.unwatch("ns/db")
	w.observer.leftOutChanged(nil, nil)
}

// A report ends with its pod, and not before.
func TestReportsOfPodsEnd(t *testing.T) {
	t.Parallel()
	for sentence, c := range map[string]struct {
		// now is nil for a pod that is gone.
		before, now *v1.Pod
		want        int
	}{
		"it is gone":                 {held(terminating, confirmed), nil, 0},
		"it is released":             {held(terminating, confirmed), held(terminating, confirmed, unheld), 0},
		"another has its name":       {held(terminating, confirmed), held(next), 0},
		"a candidate changes":        {held(unheld, marked), held(unheld, marked), 1},
		"a candidate is terminating": {held(unheld), held(unheld, terminating), 0},
		"a candidate is gone":        {held(unheld), nil, 0},
	} {
		w := newWorld(t, Config{})
		w.fail[added], w.fail[removed+"1"] = errors.New("no answer"), errors.New("no answer")
		w.working(func() { w.show(c.before) })
		w.reconcilePod()
		if waiting := w.recorder.Waiting(); len(waiting) != 1 {
			t.Errorf("%s: at first, %v waits", sentence, waiting)
		}
		switch _, cached := w.podCache["ns/db"]; {
		case c.now != nil:
			w.working(func() { w.watch(c.now) })
		case cached:
			w.unwatch("ns/db")
		default:
			w.observer.leftOutChanged(podOf(c.before), nil)
		}
		if waiting := w.recorder.Waiting(); len(waiting) != c.want || len(w.observer.candidates) != c.want {
			t.Errorf("%s: %v waits, candidates %v", sentence, waiting, w.observer.candidates)
		}
	}
}

// A replica that does not lead keeps no candidates, and a pod that is only marked has no work.
func TestNoWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{})
	if w.show(held(unheld)); len(w.observer.candidates) > 0 {
		t.Errorf("candidates %v", w.observer.candidates)
	}
	w.show(held(unheld, marked))
	if f, found := w.observer.observe("ns/db"); found {
		t.Errorf("%+v", f)
	}
}

// TestNamespaceWakesNodesOfItsPods: a namespace without pods on unreachable nodes costs no search of these nodes.
func TestNamespaceWakesNodesOfItsPods(t *testing.T) {
	for sentence, c := range map[string]struct {
		mode podsafety.Mode
		pod  *v1.Pod
		away bool
		want []string
	}{
		"it warns":              {podsafety.ModeWarn, held(unheld), true, []string{"node a"}},
		"it enforces":           {podsafety.ModeEnforce, held(), true, []string{"node a"}},
		"the pod is marked":     {podsafety.ModeWarn, held(unheld, marked), true, nil},
		"the node is reachable": {podsafety.ModeWarn, held(unheld), false, nil},
		"the namespace is off":  {podsafety.ModeOff, held(unheld), true, nil},
		"the pod is not bound":  {podsafety.ModeWarn, held(unheld, func(o *v1.Pod) { o.Spec.NodeName = "" }), true, nil},
	} {
		w := newWorld(t, Config{NodeCondition: true})
		if c.away {
			w.away()
		}
		woken := w.recordWoken()
		w.namespaceCache["ns"], w.live["ns/db"] = namespace{Name: "ns", Mode: c.mode}, c.pod
		if w.hold(t.Context(), "ns"); !slices.Equal(woken.take(), c.want) {
			t.Errorf("%s: want %q", sentence, c.want)
		}
	}
}

func TestHoldExistingPods(t *testing.T) {
	for sentence, c := range map[string]struct {
		pod  *v1.Pod
		mode podsafety.Mode
		want []string
	}{
		"with a claim":                     {held(unheld), podsafety.ModeEnforce, []string{"list pods", added}},
		"in a namespace that warns":        {held(unheld), podsafety.ModeWarn, []string{"list pods"}},
		"in a namespace without the label": {held(unheld), podsafety.ModeOff, nil},
		"without a claim": {held(unheld, func(o *v1.Pod) { o.Spec.Volumes = nil }), podsafety.ModeEnforce,
			[]string{"list pods"}},
		"that is terminating": {held(unheld, terminating), podsafety.ModeEnforce, []string{"list pods"}},
		"that is held":        {held(), podsafety.ModeEnforce, []string{"list pods"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.namespaceCache["ns"] = namespace{Name: "ns", Mode: c.mode}
			w.live["ns/db"] = c.pod
			w.working(func() {
				w.hold(t.Context(), "ns")
			})
			w.reconcilePod()
			w.expectCalls(c.want...)
			if len(w.observer.candidates) != 0 {
				t.Errorf("%v is kept", w.observer.candidates)
			}
		})
	}
}
