package statefulset

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

// Names are reused, and memory must not grow with the number of deleted objects.
func TestDeletedObjectsAreForgotten(t *testing.T) {
	w := condemned(t, Config{})
	w.set("db", replicas(3), func(o *appsv1.StatefulSet) { o.Spec.PodManagementPolicy = appsv1.ParallelPodManagement })
	w.claim("data-db-5", marked("db/set-db/5/Delete"))
	w.use("job", "data-db-5")
	w.settle()
	w.live, w.pods, w.sets = map[string]*v1.PersistentVolumeClaim{}, map[string]*v1.Pod{}, map[string]*appsv1.StatefulSet{}
	w.settle()
	x, known := w.observer.index, w.observer.tracker
	left := len(w.observer.changes) + len(w.observer.deleted.last) + len(w.observer.deleted.orphan)
	if len(known.Claims)+len(known.Sets)+len(x.sets)+len(x.claims)+len(x.users)+left > 0 {
		t.Errorf("left: %v, %v, %v, %v, %v", known.Claims, known.Sets, x.sets, x.claims, x.users)
	}
	if claims, sets := w.claimReports.Waiting(), w.setReports.Waiting(); len(claims)+len(sets) > 0 {
		t.Errorf("waiting %v, %v", claims, sets)
	}
}

// Work on deleted objects has no effect, and leaves no record of an object that goes during the work.
func TestWorkOnDeletedObjects(t *testing.T) {
	w := condemned(t, Config{})
	w.reconcile(t.Context(), "ns/none")
	w.reconcileSet(t.Context(), "ns/none")
	w.expectCalls()

	// The watch shows the end of both while a session works on each.
	w.hook = func() {
		if len(w.calls) == 1 { // the claim was read
			delete(w.live, "ns/data-db-1")
			w.sync()
		}
	}
	w.reconcileClaim()
	if left, known := w.observer.tracker.Claims["claim-data-db-1"]; known || len(w.calls) == 0 {
		t.Errorf("left: %v; calls %q", left, w.calls)
	}
	if waiting := w.claimReports.Waiting()[statefulset.ReasonScaleDownGrace]; waiting != 0 {
		t.Errorf("a claim that is gone waits")
	}
	w = lacking(t, Config{})
	w.clock.Step(statefulset.Quiet)
	w.hook = func() {
		set := w.sets["ns/db"]
		delete(w.sets, "ns/db")
		w.sync()
		w.sets["ns/db"] = set
	}
	w.reconcileDB()
	if len(w.observer.tracker.Sets) > 0 || len(w.calls) != 1 {
		t.Errorf("left: %v; calls %q", w.observer.tracker.Sets, w.calls)
	}
}

// The record of an object does not apply to the next one with its name.
func TestReplacedObjectsAreForgotten(t *testing.T) {
	w := condemned(t, Config{})
	w.claim("data-db-1", func(o *v1.PersistentVolumeClaim) { o.UID = "next" }, marked("db/set-db/1/Delete"))
	w.sync()
	if _, known := w.observer.tracker.Claims["claim-data-db-1"]; known {
		t.Error("the claim before is remembered")
	}
	if got := w.reconcileClaim(); got != controller.After(statefulset.DefaultGrace) || w.deleted("data-db-1") {
		t.Errorf("the grace period of the next claim did not begin: due again %+v", got)
	}
	facts, _ := w.observer.observe("ns/data-db-1")
	facts.Claim.UID, facts.Claim.Mark.Claim = "claim-data-db-1", "claim-data-db-1"
	w.observer.begin(facts, w.clock.Now()) // a session of the claim before
	if _, known := w.observer.tracker.Claims["claim-data-db-1"]; !known {
		t.Fatal("the session has recorded nothing: this test shows nothing")
	}
	w.observer.settleClaim("ns/data-db-1", facts.Claim)
	if _, known := w.observer.tracker.Claims["claim-data-db-1"]; known {
		t.Error("the claim before is remembered")
	}

	w = lacking(t, Config{})
	w.reconcileDB()
	set, _ := w.observer.observeSet("ns/db")
	w.set("db", func(o *appsv1.StatefulSet) { o.UID = "next" }, template("logs"))
	w.sync()
	if _, known := w.observer.tracker.Sets["set-db"]; known {
		t.Error("the set before is remembered")
	}
	w.observer.sight(set, w.clock.Now())
	w.observer.settleSet("ns/db", set.Set)
	if _, known := w.observer.tracker.Sets["set-db"]; known {
		t.Error("the set before is remembered")
	}
	if sets := w.observer.index.setsOf("ns", "data-db"); len(sets) > 0 {
		t.Errorf("the template of the set before is remembered: %q", sets)
	}
}

func TestWaitingMetricAfterChange(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(w *world)
		want   string
	}{
		"the claim is gone": {func(w *world) { delete(w.live, "ns/data-db-1") }, ""},
		"the claim changes": {func(w *world) { w.fail["delete claim"] = kube.ErrChanged }, "ScaleDownGrace"},
		"the policy turns":  {func(w *world) { w.set("db", retains); w.sync() }, ""},
		"the reads are slow": {func(w *world) { w.hook = func() { w.clock.Step(session.LiveFor + time.Second) } },
			"APIReadFailed"},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := condemned(t, Config{})
			c.change(w)
			w.reconcileClaim()
			var got string
			for reason := range w.claimReports.Waiting() {
				got += string(reason)
			}
			if got != c.want {
				t.Errorf("waiting for %q, want %q", got, c.want)
			}
			if message := kubetest.Events(w.events); c.want == "APIReadFailed" && (len(message) != 1 ||
				!strings.Contains(message[0], `read the state of claim "ns/data-db-1": reads take longer`)) {
				t.Errorf("Events %q", message)
			}
		})
	}
}

func TestCanceledWorkMakesNoReport(t *testing.T) {
	w := condemned(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	w.fail["get claim"] = context.Canceled
	w.hook = cancel
	if got := w.reconcile(ctx, "ns/data-db-1"); got != controller.Done() || len(kubetest.EventReasons(w.events)) > 0 {
		t.Errorf("due again %+v", got)
	}
}
