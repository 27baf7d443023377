package podsafety

import (
	"context"
	"errors"
	"testing"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

func TestCandidateIsDroppedByUID(t *testing.T) {
	w := newWorld(t, Config{})
	w.observer.candidates["ns/db"] = podOf(held(unheld)).facts()
	w.observer.drop("ns/db", "uid-of-before")
	if len(w.observer.candidates) != 1 {
		t.Error("a pod that was offered meanwhile is dropped")
	}
	w.observer.drop("ns/db", "uid")
	if len(w.observer.candidates) != 0 {
		t.Error("the pod is not dropped")
	}
}

// ending is a world in which the watch shows the end of a pod while it is read.
type ending struct {
	*world
	now func()
}

func (e ending) readPod(ctx context.Context, ns, name string) (objects.Pod, bool, error) {
	defer e.now()
	return e.world.readPod(ctx, ns, name)
}

// A pod that is gone or released before the last answer of its session is not counted as held for ever.
func TestLateReportIsDropped(t *testing.T) {
	t.Parallel()
	for sentence, end := range map[string]func(*world, *pod){
		"gone": func(w *world, p *pod) {
			delete(w.podCache, p.key())
			w.observer.podChanged(p, nil)
		},
		"released": func(w *world, _ *pod) { w.watch(held(unheld, terminating, marked)) },
		"replaced": func(w *world, _ *pod) { w.watch(held(func(o *v1.Pod) { o.UID = "next" })) },
	} {
		for failure, err := range map[string]error{"": nil, "unread": errors.New("no answer")} {
			w := newWorld(t, Config{})
			w.nodeCache["a"] = objects.WatchedNode{Name: "a", Seen: objects.NodeTainted}
			w.show(held(terminating))
			w.fail["get pod"], w.fail["get node"] = err, err
			p := w.podCache["ns/db"]
			w.cluster = ending{w, func() { end(w, p) }}
			w.reconcilePod()
			if waiting := w.recorder.Waiting(); len(w.calls) == 0 || len(waiting) != 0 || len(w.observer.tracker.Sights) != 0 {
				t.Errorf("%s %s: %v waits, and %v is remembered", sentence, failure, waiting, w.observer.tracker.Sights)
			}
		}
	}
}

// In a dry run, each event of a pod that is not held would repeat its report if the first one were dropped.
func TestDryRunReportsCandidateOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Settings: controllers.Settings{DryRun: true}})
	for range 2 {
		w.working(func() { w.show(held(unheld)) })
		w.reconcilePod()
		if waiting := w.recorder.Waiting(); len(waiting) != 1 {
			t.Errorf("%v waits", waiting)
		}
	}
	if got := kubetest.Count(t, w.metrics.reports.WithLabelValues(string(podsafety.ReasonDryRun))); got != 1 {
		t.Errorf("%v reports", got)
	}
	w.observer.leftOutChanged(podOf(w.live["ns/db"]), nil)
	if waiting := w.recorder.Waiting(); len(waiting) != 0 {
		t.Errorf("%v waits after its end", waiting)
	}
}

// A namespace may stop to ask for the hold of pods that a dry run only reports.
func TestDryRunForgetsCandidateOfNamespaceThatLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{Settings: controllers.Settings{DryRun: true}})
	w.working(func() { w.show(held(unheld)) })
	if got := w.reconcilePod(); got != controller.Every(candidateEvery) {
		t.Errorf("%+v", got)
	}
	delete(w.namespaceCache, "ns")
	w.reconcilePod()
	if waiting := w.recorder.Waiting(); len(waiting) != 0 || len(w.observer.candidates) != 0 {
		t.Errorf("%v waits, and %v is a candidate", waiting, w.observer.candidates)
	}
}
