package singlenode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

// release runs a release with a clock that advances by each wait.
func (w *world) release(ctx context.Context) (Released, error) {
	w.cfg.Clock = kubetest.EagerClock{FakeClock: w.clock}
	return w.Release(ctx)
}

func TestReleaseRemovesGatesAndLocks(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.claim("own", locked("three"))
	w.claim("half", func(o *v1.PersistentVolumeClaim) { o.Finalizers = []string{singlenode.Finalizer} })
	w.claim("many")
	w.pod("one", onNode)
	w.pod("two")
	w.pod("three", uses("own", "many")) // it waits for old, which has no lock
	w.pod("old", uses("own"), onNode)
	w.pod("reader", uses("many"), onNode)
	w.pod("four", uses("many"))
	w.pod("done", uses("data"), onNode, completed)
	w.claim("idle", locked("five"))
	w.pod("five", uses("idle"))
	w.pod("six", uses("idle"))
	w.pod("seven", uses("idle"), terminating)
	once := sync.OnceFunc(func() { w.pod("late", uses("late")) }) // before the end of the admission is observed
	w.hook = func(call string) {
		if call == "ungate two" {
			once()
		}
	}
	got, err := w.release(t.Context())
	if err != nil || got.Pods != 7 || got.Claims != 4 || len(got.Left) > 0 || !slices.Equal(got.Unproven, []string{
		"ns/six, which waited for pod five", "ns/three, which waited for pod old on node a",
		"ns/two, which waited for pod one on node a"}) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, name := range []string{"two", "three", "four", "five", "six", "seven", "late"} {
		if w.gated(name) {
			t.Errorf("pod %s has the gate", name)
		}
	}
	for name, o := range w.claims {
		if len(o.Finalizers)+len(o.Annotations) > 0 {
			t.Errorf("claim %s has %v, %v", name, o.Finalizers, o.Annotations)
		}
	}
	w.calls = nil
	if got, err := w.release(t.Context()); err != nil || got.Pods+got.Claims > 0 {
		t.Errorf("again: %+v, %v", got, err)
	}
	if slices.ContainsFunc(w.calls, func(c string) bool { return !strings.HasPrefix(c, "list") }) {
		t.Errorf("calls %q", w.calls)
	}
}

func TestReleaseFails(t *testing.T) {
	for sentence, c := range map[string]struct {
		alter func(w *world)
		err   error
		left  []string
		// pods and claims are the numbers of released objects.
		pods, claims int
	}{
		"the pods cannot be listed":   {func(w *world) { w.fail["list pods"] = errNoAnswer }, errNoAnswer, nil, 0, 1},
		"the claims cannot be listed": {func(w *world) { w.fail["list claims"] = errNoAnswer }, errNoAnswer, nil, 0, 0},
		"the claims cannot be listed for their locks": {func(w *world) {
			w.endPod("two")
			w.endPod("three")
			w.fail["list claims"] = errNoAnswer
		}, errNoAnswer, nil, 0, 0},
		"a gate cannot be removed": {func(w *world) { w.fail["ungate two"] = errNoAnswer }, errNoAnswer,
			[]string{"pod ns/two"}, 1, 1},
		"a policy restores a gate": {func(w *world) { w.fail["ungate two"] = kube.ErrUndone }, kube.ErrUndone,
			[]string{"pod ns/two"}, 1, 1},
		"a lock cannot be freed": {func(w *world) { w.fail["free"] = errNoAnswer }, errNoAnswer,
			[]string{"claim ns/data"}, 2, 0},
		"a pod is gone meanwhile":   {func(w *world) { w.fail["ungate two"] = kube.ErrGone }, ErrRestored, nil, 1, 1},
		"a claim is gone meanwhile": {func(w *world) { w.fail["free"] = kube.ErrGone }, nil, nil, 2, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.claim("data", locked("one"))
			w.pod("two")
			w.pod("three")
			c.alter(w)
			got, err := w.release(t.Context())
			if !errors.Is(err, c.err) || got.Pods != c.pods || got.Claims != c.claims || !slices.Equal(got.Left, c.left) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestReleaseStopsWithContext(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	ctx, cancel := context.WithCancel(t.Context())
	w.hook = func(string) { cancel() }
	if got, err := w.release(ctx); !errors.Is(err, context.Canceled) || got.Claims > 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if slices.Contains(w.calls, "list claims") {
		t.Errorf("calls %q", w.calls)
	}
}

// Each pod that got the gate restarts the wait, regardless of their number.
func TestReleaseWaitsUntilNoPodGetsGate(t *testing.T) {
	w := newWorld(t, Config{})
	const quiet, tries, late = 5, 30, 8
	began, lists := w.clock.Now(), 0
	w.hook = func(call string) {
		if call != "list pods" {
			return
		}
		// One comes in each pause, until the tries are almost used up.
		if lists%(quiet-1) == 0 && lists/(quiet-1) < late {
			w.pod(fmt.Sprint("late-", lists))
			began = w.clock.Now()
		}
		lists++
	}
	got, err := w.release(t.Context())
	if err != nil || got.Pods != late || lists <= tries {
		t.Errorf("%+v after %d lists, %v", got, lists, err)
	}
	if took := w.clock.Now().Sub(began); took < quiet*time.Second {
		t.Errorf("it ends %v after the last pod got the gate", took)
	}
}

// API servers apply the policies that keep gates and locks for some seconds after their deletion.
func TestReleaseOutlastsPolicies(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.pod("two")
	refused := apierrors.NewForbidden(v1.Resource("pods"), "two", nil)
	w.fail["ungate two"], w.fail["free"] = refused, refused
	lists := 0
	w.hook = func(call string) {
		if call != "list pods" {
			return
		}
		if lists++; lists == 4 {
			clear(w.fail)
		}
	}
	if got, err := w.release(t.Context()); err != nil || got.Pods != 1 || got.Claims != 1 || len(got.Left) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A canceled release does not count the remaining objects as released.
func TestCanceledReleaseReturnsError(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	ctx, cancel := context.WithCancel(t.Context())
	began := w.clock.Now()
	w.hook = func(call string) {
		if call == "list pods" && w.clock.Now().Sub(began) >= 5*time.Second {
			cancel() // the last list of pods
		}
	}
	if got, err := w.release(ctx); err == nil && w.lock() != "" {
		t.Errorf("the lock has %q after %+v", w.lock(), got)
	}
}

// Such a pod does not run without its gate.
func TestReleaseOmitsEndedPodsFromUnproven(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.pod("one", onNode)
	w.pod("two", func(o *v1.Pod) { o.Status.Phase = v1.PodFailed })
	w.pod("three", terminating)
	if got, err := w.release(t.Context()); err != nil || got.Pods != 2 || len(got.Unproven) > 0 {
		t.Errorf("%+v, %v", got, err)
	}
}
