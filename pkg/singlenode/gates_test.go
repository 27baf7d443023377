package singlenode

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

// Two pods of a queue wait for one claim. The queue admits one of them, and keeps the other until the first has ended.
func TestLockGoesToAdmittedPod(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	w.pod("first", queued)
	w.pod("second", queued)
	w.settle()
	w.expectCalls()
	if got := kubetest.EventReasons(w.events); !slices.Equal(got, []string{"Normal OtherSchedulingGates",
		"Normal OtherSchedulingGates"}) {
		t.Errorf("Events %q", got)
	}
	w.pod("second", admitted)
	w.settle()
	w.expectCalls("lock data for second", "list pods", "ungate second")
	if w.lock() != "second" || !w.gated("first") {
		t.Errorf("the lock has %q; the first pod is gated: %t", w.lock(), w.gated("first"))
	}
}

// The pod is reported, because other pods wait for it.
func TestLockOfUnschedulablePod(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	w.pod("one")
	w.settle()
	w.pod("one", ungated, func(o *v1.Pod) {
		o.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse,
			Reason: v1.PodReasonUnschedulable}}
	})
	w.settle()
	if got := kubetest.EventReasons(w.events); !slices.Equal(got, []string{"Warning HolderUnschedulable"}) {
		t.Errorf("Events %q", got)
	}
	w.pod("one", onNode)
	w.settle()
	if waiting := w.claimReports.Waiting(); len(waiting) > 0 {
		t.Errorf("%v wait", waiting)
	}
}

// Nothing else reports such a pod, which may be kept by any program.
func TestLockOfPodThatIsNotHeld(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.pod("one", onNode, terminating, func(o *v1.Pod) {
		var grace int64
		o.DeletionGracePeriodSeconds, o.Finalizers = &grace, []string{"example.com/keep"}
	})
	w.settle()
	if got := kubetest.Events(w.events); len(got) > 0 {
		t.Errorf("Events %q", got)
	}
	w.clock.Step(time.Minute)
	w.reconcileLock(t.Context(), "ns/data")
	if got := kubetest.Events(w.events); len(got) != 1 || !strings.HasPrefix(got[0], "Warning HolderStays") ||
		!strings.Contains(got[0], "example.com/keep.") {
		t.Errorf("Events %q", got)
	}
	w.expectCalls()
	w.claim("data", func(o *v1.PersistentVolumeClaim) { o.DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} })
	w.settle()
	if w.expectCalls("get pod one", "free data"); w.claims["ns/data"] != nil {
		t.Error("the claim stays")
	}
}

// The gate of one pod goes because no lock is needed. Another pod takes the lock as soon as one is needed, and waits
// until it is known whether the first pod still has its gate.
func TestLabelRemovedAndSetAgain(t *testing.T) {
	for sentence, c := range map[string]struct {
		// landed and fails describe the request that removes the gate, while the other pod takes the lock.
		landed bool
		fails  error
		// waits reports that the other pod waits for the pod whose gate may go.
		waits bool
	}{
		"the request lands later":            {false, errNoAnswer, true},
		"the request has landed":             {true, nil, true},
		"the request lands, and no answer":   {true, errNoAnswer, true},
		"the request was refused by its pod": {false, kube.ErrGone, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.claim("data")
			w.pod("first")
			w.label("")
			w.sync()
			w.hook = func(call string) {
				if call != "ungate first" {
					return
				}
				w.hook = nil
				if c.landed {
					w.pod("first", ungated)
				}
				w.label(singlenode.AllValue)
				w.pod("second")
				w.sync()
				w.reconcile(t.Context(), "ns/second")
				if !w.gated("second") {
					t.Error("both pods run")
				}
			}
			if c.fails != nil {
				w.fail["ungate first"] = c.fails
			}
			w.reconcile(t.Context(), "ns/first")
			delete(w.fail, "ungate first")
			w.label(singlenode.AllValue)
			w.sync()
			w.reconcile(t.Context(), "ns/second")
			if got := w.gated("second"); got != c.waits {
				t.Errorf("the second pod waits: %t, want %t", got, c.waits)
			}
			if c.landed {
				return
			}
			w.clock.Step(lateFor)
			w.reconcile(t.Context(), "ns/second")
			if w.gated("second") {
				t.Error("the second pod waits, though the request cannot land any more")
			}
		})
	}
}

// Such a pod is not listed as a user, because it loses its gate with the lock alone.
func TestPodWithLockIsNoUser(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data")
	w.pod("one")
	w.sync()
	w.hook = func(call string) {
		if w.ungating.may("uid-one", w.clock.Now()) {
			t.Errorf("%s: the pod may lose its gate without a lock", call)
		}
	}
	w.reconcile(t.Context(), "ns/one")
	w.expectCalls("lock data for one", "list pods", "ungate one")
}

// The record ends with the session, so that others wait no longer than needed.
func TestPodIsUserOnlyWhileItsGateMayGo(t *testing.T) {
	for sentence, prepare := range map[string]func(w *world){
		"the namespace was read twice": func(w *world) {
			w.hook = func(string) {
				w.hook = nil
				w.clock.Step(session.LiveFor + 1)
			}
		},
		"the namespace could not be read": func(w *world) { w.fail["get namespace"] = errNoAnswer },
	} {
		w := newWorld(t, Config{})
		w.label("")
		w.pod("one")
		w.sync()
		prepare(w)
		w.reconcile(t.Context(), "ns/one")
		if w.ungating.may("uid-one", w.clock.Now()) {
			t.Errorf("%s: the pod may lose its gate yet, after %q", sentence, w.calls)
		}
	}
}

func queued(o *v1.Pod) {
	o.Spec.SchedulingGates = append(o.Spec.SchedulingGates, v1.PodSchedulingGate{Name: "queue.example.com/x"})
}

func admitted(o *v1.Pod) { o.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: objects.VolumeGate}} }

// laggingPods returns a pod with its gate. As soon as the pod was read, the watch shows the write that removed the
// gate, unless the observer is locked.
type laggingPods struct {
	o   *observer
	pod *pod
}

func (l laggingPods) Each(visit func(*pod)) { visit(l.pod) }

func (l laggingPods) Get(string) (*pod, bool) {
	if l.o.mu.TryLock() {
		l.o.tracker.ShowedNoGate(l.pod.uid)
		l.o.mu.Unlock()
	}
	return l.pod, true
}

// The observer reads a pod and the writes of this process at the same moment.
func TestRemovedGateIsNotRemovedAgain(t *testing.T) {
	o := newObserver(singlenode.Rules{}, testclock.NewFakeClock(time.Now()), wake{})
	const uid = types.UID("web-uid")
	gated := &pod{namespace: "ns", name: "web", uid: uid, all: &objects.Pod{UID: uid, Gated: true}}
	o.pods, o.namespaces = laggingPods{o, gated}, noNamespaces{}
	o.tracker.RemovedGate(gated.uid)
	_, facts, found := o.observe("ns/web")
	if !found || facts.Pod.Gated {
		t.Errorf("found %v, gated %v, want a pod without a gate", found, facts.Pod.Gated)
	}
}

type noNamespaces struct{}

func (noNamespaces) Get(string) (n namespace, found bool) { return n, false }
func (noNamespaces) Each(func(namespace))                 {}
