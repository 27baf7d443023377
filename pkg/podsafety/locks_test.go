package podsafety

import (
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/podhold"
)

func TestMarks(t *testing.T) {
	w := newWorld(t, Config{NodeCondition: true})
	w.namespaceCache["warns"] = namespace{"warns", podhold.ModeWarn}
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
	w.nodeCache["a"] = node{name: "a", seen: podhold.NodeReady}
	w.mark(t.Context(), "a")
	w.expectCalls("condition db remove=true", "condition held remove=true", "condition warned remove=true")
}

func TestLocks(t *testing.T) {
	w := newWorld(t, Config{VolumeLocks: true})
	w.pvs["pv-data"] = false
	o := held(terminating)
	w.show(o)
	key := "ns/db"
	lock := func() { w.lock(t.Context(), key) }
	lock()
	w.expectCalls() // its node is there
	w.away()
	lock()
	w.expectCalls("get volume", "create lock")
	lock()
	w.expectCalls() // once
	name := lockName("uid", "pv-data")
	if l := w.locked[name]; l.node != "a" || l.volume != "pv-data" || l.holder != "uid" || l.podKey() != key {
		t.Errorf("the lock is %+v", l)
	}
	w.nodeCache["a"] = node{name: "a", seen: podhold.NodeReady}
	lock()
	w.expectCalls() // it stays until the pod is released

	// The watch shows the pod's end; a live read does not.
	delete(w.podCache, key)
	lock()
	w.expectCalls("get pod")
	w.fail["get pod"] = errors.New("refused")
	lock()
	w.expectCalls("get pod")
	if value(w.metrics.lockErrors) != 1 {
		t.Error("the failure is not counted")
	}
	w.fail = nil
	delete(w.live, key)
	lock()
	w.expectCalls("get pod", "delete lock")
	if len(w.locked) != 0 || w.guard.count() != 0 {
		t.Errorf("locks %v", w.locked)
	}
}

func TestVolumesWithoutLocks(t *testing.T) {
	for sentence, alter := range map[string]func(w *world){
		"one that several nodes may attach": func(w *world) { w.pvs["pv-data"] = true },
		"a claim that is not bound":         func(*world) {},
	} {
		w := newWorld(t, Config{VolumeLocks: true})
		w.show(held(terminating))
		w.away()
		alter(w)
		w.lock(t.Context(), "ns/db")
		w.lock(t.Context(), "ns/db")
		if !slices.Equal(w.calls, []string{"get volume"}) {
			t.Errorf("%s: %q", sentence, w.calls)
		}
		podChanges{w.observer}.Deleted(w.podCache["ns/db"], true)
		if len(w.guard.complete) != 0 {
			t.Errorf("%s: a pod that is gone is remembered", sentence)
		}
	}
}

func TestALockThatFailedIsTriedAgain(t *testing.T) {
	for _, call := range []string{"get volume", "create lock"} {
		w := newWorld(t, Config{VolumeLocks: true})
		w.pvs["pv-data"] = false
		w.show(held(terminating))
		w.away()
		w.fail[call] = errors.New("refused")
		if got := w.lock(t.Context(), "ns/db"); got == controller.Done() {
			t.Errorf("%s: nobody tries again", call)
		}
		w.fail = nil
		w.lock(t.Context(), "ns/db")
		if len(w.locked) != 1 {
			t.Errorf("%s: %d locks", call, len(w.locked))
		}
	}
}

func TestASweepFindsWhatIsMissing(t *testing.T) {
	g := newAttachGuard(nil)
	l := volumeLock{name: "l", namespace: "ns", pod: "db", holder: "uid"}
	g.locks["l"] = l
	g.finish("uid", []string{"l"})
	if keys := g.refresh([]volumeLock{l}, g.names()); !slices.Equal(keys, []string{"ns/db"}) || !g.finished("uid") {
		t.Errorf("keys %q", keys)
	}
	g.refresh(nil, map[string]bool{}) // it was created during the list
	if g.count() != 1 || !g.finished("uid") {
		t.Error("a lock that was created during the list is forgotten")
	}
	g.refresh(nil, g.names())
	if g.count() != 0 || g.finished("uid") {
		t.Error("a lock that somebody deleted is not missed")
	}
}
