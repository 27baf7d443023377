package singlenode

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

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
	o := newObserver(singlenode.Rules{}, testclock.NewFakeClock(time.Now()), nil)
	const uid = types.UID("web-uid")
	gated := &pod{namespace: "ns", name: "web", uid: uid, all: &objects.Pod{UID: uid, Gated: true}}
	o.pods, o.namespaces = laggingPods{o, gated}, noNamespaces{}
	o.tracker.RemovedGate(gated.uid)
	facts, found := o.observe("ns/web")
	if !found || facts.Pod.Gated {
		t.Errorf("found %v, gated %v, want a pod without a gate", found, facts.Pod.Gated)
	}
}

type noNamespaces struct{}

func (noNamespaces) Get(string) (n namespace, found bool) { return n, false }
func (noNamespaces) Each(func(namespace))                 {}
