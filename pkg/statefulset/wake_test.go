package statefulset

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

// lacking returns a world with a set that lacks the pod and the claim of ordinal 1.
func lacking(t *testing.T, cfg Config) *world {
	t.Helper()
	w := newWorld(t, cfg)
	w.set("db", replicas(2))
	w.pod("db", 0)
	w.claim("data-db-0")
	w.settle()
	w.calls = nil
	return w
}

func (w *world) reconcileDB() controller.Result { return w.reconcileSet(w.Context(), "ns/db") }

func TestSetWithoutPodIsWoken(t *testing.T) {
	w := lacking(t, Config{})
	if got := w.reconcileDB(); got != controller.After(statefulset.Quiet) {
		t.Errorf("due again %+v", got)
	}
	w.clock.Step(statefulset.Quiet - time.Second)
	w.pod("db", 0, func(o *v1.Pod) { o.Status.Conditions[0].Status = v1.ConditionFalse })
	w.pod("db", 0, func(o *v1.Pod) { o.Status.Conditions[0].Status = v1.ConditionTrue })
	w.set("db", func(o *appsv1.StatefulSet) { o.Status.ReadyReplicas = 1 })
	w.settle()
	if got := w.reconcileDB(); got != controller.After(statefulset.Quiet) {
		t.Errorf("a change does not begin the quiet again: due %+v", got)
	}
	w.expectCalls()
	w.clock.Step(statefulset.Quiet)
	w.reconcileDB()
	w.expectCalls("patch set db woken=true")
	if got := kubetest.EventReasons(w.events); !slices.Equal(got, []string{"Normal Woken"}) ||
		kubetest.Count(t, w.metrics.woken) != 1 {
		t.Errorf("Events %q", got)
	}
	for range 2 { // before the watch shows the write, and after
		if got := w.reconcileDB(); got != controller.After(2*statefulset.Quiet) {
			t.Errorf("due again %+v", got)
		}
		w.settle()
	}
	w.pod("db", 1)
	w.claim("data-db-1")
	w.settle()
	w.expectCalls("get set", "patch claim data-db-1 db/set-db/1/Delete/claim-data-db-1 []", "patch set db woken=false")
	if events := kubetest.EventReasons(w.events); len(events) > 0 || kubetest.Count(t, w.metrics.woken) != 1 {
		t.Errorf("Events %q", events)
	}
	if len(w.observer.tracker.Sets) != 0 || len(w.setReports.Waiting()) != 0 {
		t.Errorf("of a set that is complete it is known: %v, %v", w.observer.tracker.Sets, w.setReports.Waiting())
	}
}

func TestFailedWakeIsRetried(t *testing.T) {
	w := lacking(t, Config{})
	w.clock.Step(statefulset.Quiet)
	w.fail["patch set"] = errors.New("no answer")
	if got := w.reconcileDB(); got != controller.Retries(w.cfg.Settings).Retry() {
		t.Errorf("due again %+v", got)
	}
	if got := w.setReports.Waiting()[statefulset.ReasonAPIWriteFailed]; got != 1 ||
		kubetest.Count(t, w.metrics.woken) != 0 {
		t.Errorf("waiting %v", w.setReports.Waiting())
	}
	if got := kubetest.Events(w.events); len(got) != 1 || !strings.Contains(got[0], "no answer") {
		t.Errorf("Events %q", got)
	}
	w = lacking(t, Config{})
	w.clock.Step(statefulset.Quiet)
	w.fail["patch set"] = kube.ErrGone
	if got := w.reconcileDB(); got != controller.Done() {
		t.Errorf("a set that is gone is due again %+v", got)
	}
	if got := kubetest.Events(w.events); len(got) != 0 {
		t.Errorf("Events %q", got)
	}
	w.fail = nil
	w.reconcileDB()
	if got := w.sets["ns/db"].Annotations[statefulset.WokenAnnotation]; kubetest.Count(t, w.metrics.woken) != 1 ||
		got != w.clock.Now().UTC().Format(time.RFC3339) {
		t.Errorf("the set was not woken: %q", got)
	}
}

func TestReportsOnSet(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(w *world)
		want   []string
	}{
		"a policy by the field": {func(*world) {}, nil},
		"an annotation that is no JSON": {func(w *world) { w.set("db", annotated("Delete")) },
			[]string{"Warning InvalidClaimRetention"}},
		"an annotation beside the field": {func(w *world) {
			w.set("db", ignored)
		}, []string{"Warning ClaimRetentionIgnored"}},
		"an annotation beside a field that retains": {func(w *world) { w.set("db", retains, ignored) },
			[]string{"Warning ClaimRetentionIgnored"}},
		"no templates": {func(w *world) { w.set("db", annotated(bothDelete), template()) },
			[]string{"Normal NoVolumeClaimTemplates"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.set("db", replicas(0))
			c.change(w)
			w.settle()
			got := kubetest.EventReasons(w.events)
			slices.Sort(got)
			if got = slices.Compact(got); !slices.Equal(got, c.want) {
				t.Errorf("Events %q, want %q", got, c.want)
			}
		})
	}
}

func ignored(o *appsv1.StatefulSet) {
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, statefulset.PolicyAnnotation, bothDelete)
}
