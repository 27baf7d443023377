package singlenode

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/must"
)

// newWaitingWorld returns a world in which pod two waits for pod one, whose node is not Ready. Both the pod and the
// claim are reported.
func newWaitingWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, Config{})
	w.node(v1.ConditionUnknown)
	w.claim("data", locked("one"))
	w.pod("one", onNode)
	w.pod("two")
	w.settle()
	got := kubetest.EventReasons(w.events)
	slices.Sort(got)
	if !slices.Equal(got, []string{"Normal ClaimInUse", "Warning HolderUnreachable"}) {
		t.Fatalf("Events %q", got)
	}
	w.expectWaiting(1, 1)
	return w
}

// expectWaiting checks the metrics of waiting pods and claims.
func (w *world) expectWaiting(pods, claims int) {
	w.Helper()
	sum := func(waiting map[singlenode.Reason]int) (all int) {
		for _, n := range waiting {
			all += n
		}
		return all
	}
	if p, c := w.podReports.Waiting(), w.claimReports.Waiting(); sum(p) != pods || sum(c) != claims {
		w.Errorf("pods %v, claims %v wait; want %d and %d", p, c, pods, claims)
	}
}

// The report is not repeated when others change the pod or the claim.
func TestUnchangedStateIsReportedOnce(t *testing.T) {
	w := newWaitingWorld(t)
	w.pod("two")
	w.claim("data")
	w.sync()
	w.reconcile(t.Context(), "ns/two")
	w.reconcileLock(t.Context(), "ns/data")
	if got := kubetest.Events(w.events); len(got) > 0 {
		t.Errorf("again: %q", got)
	}
	w.expectWaiting(1, 1)
}

// Only the watch shows these changes.
func TestWaitingMetricAfterExternalChange(t *testing.T) {
	for sentence, c := range map[string]struct {
		change       func(w *world)
		pods, claims int
	}{
		"the pod lost its gate":          {func(w *world) { w.pod("two", ungated) }, 0, 1},
		"the pod is gone":                {func(w *world) { w.endPod("two") }, 0, 1},
		"the lock is gone":               {func(w *world) { w.claim("data", free) }, 1, 0},
		"the claim is gone":              {func(w *world) { delete(w.claims, "ns/data") }, 1, 0},
		"the pod was created again":      {func(w *world) { w.pod("two", func(o *v1.Pod) { o.UID = "2" }) }, 0, 1},
		"the claim was created again":    {func(w *world) { w.claim("data", createdAgain) }, 1, 0},
		"the pod is not as it was":       {func(w *world) { w.pod("two", terminating) }, 1, 1},
		"the claim is being deleted now": {func(w *world) { w.claim("data", condemned) }, 1, 1},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWaitingWorld(t)
			c.change(w)
			w.sync()
			w.expectWaiting(c.pods, c.claims)
		})
	}
}

func createdAgain(o *v1.PersistentVolumeClaim) { o.UID = "2" }

// The watch shows the change before the work is reported.
func TestWaitingMetricAfterChangeDuringWork(t *testing.T) {
	for sentence, change := range map[string]func(w *world){
		"the pod lost its gate":       func(w *world) { w.pod("two", ungated) },
		"the pod is gone":             func(w *world) { w.endPod("two") },
		"the pod was created again":   func(w *world) { w.pod("two", func(o *v1.Pod) { o.UID = "2" }) },
		"the lock is gone":            func(w *world) { w.claim("data", free) },
		"the claim is gone":           func(w *world) { delete(w.claims, "ns/data") },
		"the claim was created again": func(w *world) { w.claim("data", createdAgain) },
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.claim("data", locked("one"))
			w.claim("other")
			w.pod("two", uses("other"))
			w.sync()
			w.fail["list pods"], w.fail["get pod"] = errNoAnswer, errNoAnswer
			ofPod := strings.HasPrefix(sentence, "the pod")
			w.hook = func(call string) {
				if call == "list pods" && ofPod || call == "get pod one" && !ofPod {
					change(w)
					w.sync()
				}
			}
			if ofPod {
				w.reconcile(t.Context(), "ns/two")
			} else {
				w.reconcileLock(t.Context(), "ns/data")
			}
			w.expectWaiting(0, 0)
		})
	}
}

// The write of the gate shows the end of the pod before the watch does.
func TestWaitingMetricAfterEndOfPod(t *testing.T) {
	w := newWaitingWorld(t)
	w.claim("data", free)
	w.endPod("one")
	w.sync()
	w.fail["ungate"] = kube.ErrGone
	w.reconcile(t.Context(), "ns/two")
	w.expectWaiting(0, 0)
	if got := kubetest.EventReasons(w.events); len(got) > 0 {
		t.Errorf("Events %q", got)
	}
}

func TestPodThatEndsWhileItsClaimIsRead(t *testing.T) {
	w := newWorld(t, Config{})
	w.pod("one", uses("missing"))
	w.sync()
	w.hook = func(string) {
		w.hook = nil
		w.endPod("one")
		w.sync()
	}
	w.reconcile(t.Context(), "ns/one")
	w.expectWaiting(0, 0)
}

// Alerts are about the age of a state.
func TestMetricOfAgeOfLocks(t *testing.T) {
	w := newWaitingWorld(t)
	registry := prometheus.NewPedanticRegistry()
	must.OK(t, w.register(registry))
	w.clock.Step(time.Hour)
	w.reconcileLock(t.Context(), "ns/data") // the same state
	var got []string
	for _, family := range must.Get(registry.Gather())(t) {
		if family.GetName() == "csi_reclaimer_claim_locks_oldest_seconds" {
			for _, m := range family.GetMetric() {
				label, seconds := m.GetLabel()[0], m.GetGauge().GetValue()
				got = append(got, fmt.Sprintf("%s %s %v", label.GetName(), label.GetValue(), seconds))
			}
		}
	}
	if !slices.Equal(got, []string{"state HolderUnreachable 3600"}) {
		t.Errorf("ages: %q", got)
	}
}

// The work begins again at once, and the pod waits for the same reason.
func TestWaitingMetricAfterConflict(t *testing.T) {
	w := newWaitingWorld(t)
	w.claim("data", free)
	w.sync()
	w.fail["lock"] = kube.ErrChanged
	w.reconcile(t.Context(), "ns/two")
	w.expectWaiting(1, 0)
}

// Only a person may know about the processes on a machine without a Node.
func TestHolderWithoutNodeIsReported(t *testing.T) {
	w := newWorld(t, Config{})
	delete(w.nodes, "a")
	w.claim("data", locked("one"))
	w.pod("one", onNode)
	w.settle()
	if got := kubetest.EventReasons(w.events); !slices.Equal(got, []string{"Warning HolderUnreachable"}) {
		t.Errorf("Events %q", got)
	}
}

// People read the metric of the reason.
func TestWaitingMetricAfterFreedLock(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", func(o *v1.PersistentVolumeClaim) {
		locked("one")(o)
		o.Annotations[singlenode.LockAnnotation] = "damaged"
	})
	w.sync()
	w.reconcileLock(t.Context(), "ns/data")
	if got := kubetest.EventReasons(w.events); !slices.Equal(got, []string{"Warning LockDamaged"}) ||
		len(w.claims["ns/data"].Annotations) > 0 {
		t.Errorf("Events %q, annotations %v", got, w.claims["ns/data"].Annotations)
	}
	w.expectWaiting(0, 0)
}

// A dry run reports each write that it omits.
func TestDryRunMakesNoWrites(t *testing.T) {
	w := newWorld(t, Config{Settings: controllers.Settings{DryRun: true}})
	w.claim("data")
	w.claim("left", locked("gone"))
	w.pod("one")
	w.sync()
	var log bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log))))
	w.reconcile(ctx, "ns/one")
	w.reconcileLock(ctx, "ns/left")
	for _, want := range []string{"Would do TakeLock", "Would do FreeLock"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, log.String())
		}
	}
	w.expectCalls("get pod gone")
	if got := kubetest.Events(w.events); len(got) > 0 {
		t.Errorf("Events %q", got)
	}
	if w.podReports.Waiting()["DryRun"] != 1 || w.claimReports.Waiting()["DryRun"] != 1 {
		t.Errorf("%v, %v wait", w.podReports.Waiting(), w.claimReports.Waiting())
	}
}

// The report names the purpose of the reads.
func TestSlowReadsAreReported(t *testing.T) {
	w := newWorld(t, Config{})
	w.claim("data", locked("one"))
	w.claim("other")
	w.pod("two", uses("other"))
	w.sync()
	w.hook = func(string) { w.clock.Step(session.LiveFor + 1) }
	w.reconcile(t.Context(), "ns/two")
	w.reconcileLock(t.Context(), "ns/data")
	got := kubetest.Events(w.events)
	if len(got) != 2 || !strings.Contains(got[0], `find the users of the claims of pod "ns/two"`) ||
		!strings.Contains(got[1], `find the holder of the lock of claim "ns/data"`) {
		t.Errorf("Events %q", got)
	}
}

// references records the objects of Events.
type references struct {
	record.EventRecorder
	all []v1.ObjectReference
}

func (r *references) Event(object runtime.Object, _, _, _ string) {
	r.all = append(r.all, *object.(*v1.ObjectReference))
}

// kubectl describe finds Events by the UID.
func TestObjectsOfEvents(t *testing.T) {
	w := newWorld(t, Config{})
	var got references
	cfg := w.cfg
	cfg.Events = &got
	again := must.Get(newController(cfg, w))(t)
	again.observer, w.Controller = w.observer, again
	w.node(v1.ConditionUnknown)
	w.claim("data", locked("one"))
	w.pod("one", onNode)
	w.pod("two")
	w.sync()
	w.reconcile(t.Context(), "ns/two")
	w.reconcileLock(t.Context(), "ns/data")
	if want := []v1.ObjectReference{
		{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: "two", UID: "uid-two",
			ResourceVersion: w.pods["ns/two"].ResourceVersion},
		{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: "ns", Name: "data", UID: "claim-data"},
	}; !slices.Equal(got.all, want) {
		t.Errorf("Events about %+v", got.all)
	}
}
