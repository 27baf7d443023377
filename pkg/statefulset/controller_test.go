package statefulset

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
)

func TestClaimWithPodIsMarked(t *testing.T) {
	w := newWorld(t, Config{})
	w.set("db", replicas(2))
	w.pod("db", 0)
	w.claim("data-db-0")
	w.claim("data-db-1")
	w.settle()
	w.expectCalls("get set", "patch claim data-db-0 db/set-db/0/Delete/claim-data-db-0 []")
	w.set("db", retains)
	w.settle()
	w.expectCalls("get set", "patch claim data-db-0  []")
	if events := kubetest.EventReasons(w.events); len(events) > 0 {
		t.Errorf("Events %q", events)
	}
}

func TestCondemnedClaimIsDeletedAfterGrace(t *testing.T) {
	w := condemned(t, Config{})
	w.clock.Step(-time.Second)
	if got := w.reconcileClaim(); got != controller.After(time.Second) {
		t.Errorf("due again %+v", got)
	}
	w.expectCalls()
	if got := w.claimReports.Waiting()[statefulset.ReasonScaleDownGrace]; got != 1 {
		t.Errorf("waiting %v", w.claimReports.Waiting())
	}
	w.clock.Step(time.Second)
	w.reconcileClaim()
	w.expectCalls("get claim", "get pod", "get set", "delete claim data-db-1")
	if got := kubetest.EventReasons(w.events); !slices.Equal(got, []string{"Normal ScaledDown", "Normal ScaledDown"}) {
		t.Errorf("Events %q, want one on the claim and one on the set", got)
	}
	if kubetest.Count(t, w.metrics.claimsDeleted) != 1 || len(w.claimReports.Waiting()) != 0 {
		t.Errorf("%v deletions, waiting %v", kubetest.Count(t, w.metrics.claimsDeleted), w.claimReports.Waiting())
	}
	w.settle()
	w.expectCalls()
	if w.deleted("data-db-0") {
		t.Error("the claim of a replica in range is deleted")
	}
}

// Each change happens after the last event of the watches, or together with it.
func TestCondemnedClaimIsKept(t *testing.T) {
	refused := errors.New("refused")
	for sentence, change := range map[string]func(w *world){
		"the set is scaled up again":            func(w *world) { w.set("db", replicas(2)) },
		"the policy is Retain":                  func(w *world) { w.set("db", retains) },
		"the set is gone":                       func(w *world) { delete(w.sets, "ns/db") },
		"another set has its name":              func(w *world) { w.set("db", func(o *appsv1.StatefulSet) { o.UID = "2" }) },
		"the set is being deleted":              func(w *world) { w.set("db", terminatingSet) },
		"the set has another template":          func(w *world) { w.set("db", template("logs")) },
		"the set cannot be read":                func(w *world) { w.fail["get set"] = refused },
		"the pod is there":                      func(w *world) { w.pod("db", 1) },
		"the pod cannot be read":                func(w *world) { w.fail["get pod"] = refused },
		"the claim is held":                     func(w *world) { w.claim("data-db-1", held) },
		"the claim is not marked":               func(w *world) { w.claim("data-db-1", unmarked) },
		"the claim was retained before":         func(w *world) { w.claim("data-db-1", marked("db/set-db/1/Retain")) },
		"the claim has the mark of another set": func(w *world) { w.claim("data-db-1", marked("db/other/1/Delete")) },
		"another controller owns the claim": func(w *world) {
			w.claim("data-db-1", owned(metav1.OwnerReference{Kind: "Backup", Name: "b", UID: "b", Controller: ptr.To(true)}))
		},
		"something else owns the claim": func(w *world) {
			w.claim("data-db-1", owned(metav1.OwnerReference{Kind: "ConfigMap", Name: "c", UID: "c"}))
		},
		"another claim has its name": func(w *world) {
			w.claim("data-db-1", func(o *v1.PersistentVolumeClaim) { o.UID = "2" })
		},
		"the claim was restored, with its annotations": func(w *world) {
			w.claim("data-db-1", func(o *v1.PersistentVolumeClaim) { o.UID = "2" })
			w.sync()
		},
		"the claim gets the annotations of a backup": func(w *world) {
			w.claim("data-db-1", copied("db/set-db/1/Delete/before"))
		},
		"the claim is being deleted":             func(w *world) { w.claim("data-db-1", terminatingClaim) },
		"the claim is gone":                      func(w *world) { delete(w.live, "ns/data-db-1") },
		"the claim cannot be read":               func(w *world) { w.fail["get claim"] = refused },
		"the claim changes before it is deleted": func(w *world) { w.fail["delete claim"] = kube.ErrChanged },
		"the claim is gone before it is deleted": func(w *world) { w.fail["delete claim"] = kube.ErrGone },
		"the API server refuses to delete it":    func(w *world) { w.fail["delete claim"] = refused },
		"another pod uses it":                    func(w *world) { w.use("job", "data-db-1"); w.sync() },
		"a pod with a part of its name uses it":  func(w *world) { w.use("1", "data-db-1"); w.sync() },
		"the watch shows that it was scaled up":  func(w *world) { w.set("db", replicas(2)); w.sync() },
		"the watch shows that the policy turned": func(w *world) { w.set("db", retains); w.sync() },
		"the watch shows a pod of the replica":   func(w *world) { w.pod("db", 1); w.sync() },
		"the watch shows a foreign pod of the name": func(w *world) {
			w.pod("db", 1, func(o *v1.Pod) { o.OwnerReferences = nil })
			w.sync()
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := condemned(t, Config{})
			change(w)
			o := w.live["ns/data-db-1"]
			before := o != nil && o.DeletionTimestamp == nil
			w.reconcileClaim()
			if after := w.live["ns/data-db-1"]; before && (after == nil || after.DeletionTimestamp != nil) {
				t.Errorf("the claim was deleted; calls %q", w.calls)
			}
			if kubetest.Count(t, w.metrics.claimsDeleted) != 0 {
				t.Error("a deletion is counted")
			}
			if got := kubetest.EventReasons(w.events); slices.Contains(got, "Normal ScaledDown") {
				t.Errorf("Events %q", got)
			}
		})
	}
}

// A claim restored from a backup, or applied from the output of kubectl get, is another claim with the same
// annotations. It is kept as long as it has had no pod, and has the rights of any other claim once it has one.
func TestRestoredClaimIsKeptUntilItHasPod(t *testing.T) {
	w := condemned(t, Config{})
	w.reconcileClaim()
	w.expectCalls("get claim", "get pod", "get set", "delete claim data-db-1")
	delete(w.live, "ns/data-db-1")
	w.settle()
	w.claim("data-db-1", func(o *v1.PersistentVolumeClaim) { o.UID = "restored" },
		copied("db/set-db/1/Delete/claim-data-db-1"))
	w.settle()
	w.expectCalls("get set", "patch claim data-db-1  []")
	w.clock.Step(time.Hour)
	w.reconcileClaim()
	w.expectCalls()
	if w.deleted("data-db-1") {
		t.Fatal("the restored claim is deleted")
	}
	w.set("db", replicas(2))
	w.pod("db", 1)
	w.settle()
	w.expectCalls("get set", "patch claim data-db-1 db/set-db/1/Delete/restored []")
}

func unmarked(o *v1.PersistentVolumeClaim)         { o.Annotations = nil }
func terminatingClaim(o *v1.PersistentVolumeClaim) { o.DeletionTimestamp = ptr.To(metav1.Now()) }
func terminatingPod(o *v1.Pod)                     { o.DeletionTimestamp = ptr.To(metav1.Now()) }

// marked gives a claim a mark of its own, copied a mark of another claim.
func marked(value string) func(*v1.PersistentVolumeClaim) {
	return func(o *v1.PersistentVolumeClaim) { copied(value + "/" + string(o.UID))(o) }
}

func copied(value string) func(*v1.PersistentVolumeClaim) {
	return func(o *v1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, statefulset.MarkAnnotation, value)
	}
}

func terminatingSet(o *appsv1.StatefulSet) { o.DeletionTimestamp = ptr.To(metav1.Now()) }

func template(names ...string) func(*appsv1.StatefulSet) {
	return func(o *appsv1.StatefulSet) {
		o.Spec.VolumeClaimTemplates = nil
		for _, name := range names {
			o.Spec.VolumeClaimTemplates = append(o.Spec.VolumeClaimTemplates,
				v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
	}
}

// Template "data" of "a-db" and template "data-a" of "db" give the same name.
func TestCollidingNamesDeleteNoClaim(t *testing.T) {
	w := newWorld(t, Config{})
	w.set("a-db", replicas(2))
	w.pod("a-db", 1)
	w.claim("data-a-db-1")
	w.settle()
	w.endPod("a-db-1")
	w.set("a-db", replicas(1))
	w.settle()
	w.set("db", replicas(2), template("data-a"))
	w.settle()
	w.clock.Step(statefulset.DefaultGrace)
	w.reconcile(t.Context(), "ns/data-a-db-1")
	if w.deleted("data-a-db-1") {
		t.Error("a claim with the name of two sets is deleted")
	}
	events := kubetest.EventReasons(w.events)
	for _, about := range []string{"ns/a-db", "ns/db"} {
		f, _ := w.observer.observeSet(about)
		if !f.Shared {
			t.Errorf("%s shares no name", about)
		}
	}
	if count := len(slices.DeleteFunc(events, func(e string) bool { return e != "Warning NamesCollide" })); count != 3 {
		t.Errorf("%d Events, want one on the claim and one on each set", count)
	}
	delete(w.sets, "ns/db")
	w.settle()
	if f, _ := w.observer.observeSet("ns/a-db"); f.Shared || w.setReports.Waiting()[statefulset.ReasonNamesCollide] != 0 {
		t.Errorf("the names of a set that is gone collide: waiting %v", w.setReports.Waiting())
	}
	w.set("a-db", template("data", "data"))
	w.sync()
	if f, _ := w.observer.observeSet("ns/a-db"); f.Shared {
		t.Error("two templates of one set collide")
	}
}

func TestScaleUpWithinGraceKeepsClaim(t *testing.T) {
	w := condemned(t, Config{})
	w.set("db", replicas(2))
	w.settle()
	w.set("db", replicas(1))
	w.settle()
	w.clock.Step(statefulset.DefaultGrace - time.Second)
	if got := w.reconcileClaim(); got != controller.After(time.Second) {
		t.Errorf("due again %+v: the grace period did not begin again", got)
	}
	if w.deleted("data-db-1") {
		t.Error("the claim is deleted")
	}
}

func TestGraceOfSetOverridesConfig(t *testing.T) {
	w := condemned(t, Config{Grace: time.Hour})
	if got := w.reconcileClaim(); got != controller.After(time.Hour-statefulset.DefaultGrace) {
		t.Errorf("due again %+v", got)
	}
	w.set("db", func(o *appsv1.StatefulSet) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, statefulset.GraceAnnotation, "5s")
	})
	w.settle()
	if !w.deleted("data-db-1") {
		t.Error("the claim stays beyond the grace period of its set")
	}
}

func TestLaterPolicyDeletesNoRetainedClaim(t *testing.T) {
	w := newWorld(t, Config{})
	w.set("db", replicas(2), retains)
	w.pod("db", 1)
	w.claim("data-db-1")
	w.settle()
	w.endPod("db-1")
	w.set("db", replicas(1))
	w.settle()
	w.set("db", func(o *appsv1.StatefulSet) {
		o.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	})
	w.settle()
	w.clock.Step(time.Hour)
	w.reconcileClaim()
	if w.deleted("data-db-1") {
		t.Error("a claim that was retained is deleted")
	}
	w.expectCalls()
}

const bothDelete = `{"whenDeleted":"Delete","whenScaled":"Delete"}`

// The test follows a replica by its owner references.
func TestPolicyFromAnnotation(t *testing.T) {
	w := newWorld(t, Config{})
	w.set("db", replicas(2), annotated(bothDelete))
	w.pod("db", 1)
	w.claim("data-db-1")
	w.settle()
	w.expectCalls("get set", "patch claim data-db-1 db/set-db/1/Delete/claim-data-db-1 [StatefulSet/db]")
	w.set("db", replicas(1))
	w.settle()
	w.expectCalls("get pod", "get set", "patch claim data-db-1 db/set-db/1/Delete/claim-data-db-1 [Pod/db-1]")
	for _, ref := range w.live["ns/data-db-1"].OwnerReferences {
		if ref.Controller != nil || ref.BlockOwnerDeletion != nil {
			t.Errorf("owner %+v", ref)
		}
	}
	w.pod("db", 1, terminatingPod)
	w.settle()
	w.expectCalls("get claim", "get pod", "get set", "delete claim data-db-1")
	kubetest.EventReasons(w.events)

	// The StatefulSet controller creates the pod again before it notices that the claim is being deleted.
	w.endPod("db-1")
	w.set("db", replicas(2))
	w.pod("db", 1, func(o *v1.Pod) { o.UID = "next" })
	w.settle()
	w.expectCalls("get claim", "get pod", "get set", "delete pod db-1")
	if got := kubetest.EventReasons(w.events); !slices.Equal(got, []string{"Warning PodUsesOldClaim",
		"Warning PodUsesOldClaim"}) {
		t.Errorf("Events %q, want one on the claim and one on the set", got)
	}
	if kubetest.Count(t, w.metrics.podsDeleted) != 1 {
		t.Error("the deletion of the pod is not counted")
	}
}

func TestPodWithTerminatingClaimIsKept(t *testing.T) {
	old := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "db-1", UID: "old"}
	own := old
	own.UID = "pod-db-1"
	terminating := func(o *v1.PersistentVolumeClaim) {
		o.DeletionTimestamp = ptr.To(metav1.Now())
		marked("db/set-db/1/Delete")(o)
		owned(old)(o)
	}
	for sentence, c := range map[string]struct {
		change func(w *world)
		kept   bool
	}{
		"nothing does":                  {func(*world) {}, false},
		"the claim belongs to this pod": {func(w *world) { w.claim("data-db-1", owned(own)) }, true},
		"another deleted the claim":     {func(w *world) { w.claim("data-db-1", owned()) }, true},
		"the claim is a new one": {func(w *world) {
			w.claim("data-db-1", func(o *v1.PersistentVolumeClaim) { o.DeletionTimestamp = nil; o.UID = "2" })
		}, true},
		"the pod is another": {
			func(w *world) { w.pod("db", 1, func(o *v1.Pod) { o.UID = "2"; o.OwnerReferences = nil }) }, true,
		},
		"the pod is gone": {func(w *world) { w.endPod("db-1") }, true},
		"the set retains": {
			func(w *world) { w.set("db", annotated(`{"whenDeleted":"Delete"}`)) }, true,
		},
		"the set is scaled down again":           {func(w *world) { w.set("db", replicas(1)) }, true},
		"Kubernetes has the policy":              {func(w *world) { w.set("db", byField) }, true},
		"the API server does not show the set":   {func(w *world) { w.fail["get set"] = errors.New("refused") }, true},
		"the API server does not show the pod":   {func(w *world) { w.fail["get pod"] = errors.New("refused") }, true},
		"the API server does not show the claim": {func(w *world) { w.fail["get claim"] = errors.New("refused") }, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.set("db", replicas(2), annotated(bothDelete))
			w.pod("db", 1)
			w.claim("data-db-1", terminating)
			w.sync()
			c.change(w)
			w.reconcileClaim()
			if kept := !slices.Contains(w.calls, "delete pod db-1"); kept != c.kept {
				t.Errorf("kept %t; calls %q", kept, w.calls)
			}
		})
	}
}

// byField gives a set the field, as from an API server that has it.
func byField(o *appsv1.StatefulSet) {
	o.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		WhenScaled:  appsv1.DeletePersistentVolumeClaimRetentionPolicyType}
}

func TestDryRunMakesNoWrites(t *testing.T) {
	w := lacking(t, Config{Settings: controllers.Settings{DryRun: true}})
	w.pod("db", 2)
	w.claim("data-db-2", marked("db/set-db/2/Delete"))
	w.claim("data-db-3", marked("db/set-db/3/Delete"))
	w.settle()
	w.clock.Step(statefulset.DefaultGrace)
	w.reconcileDB()
	w.reconcile(t.Context(), "ns/data-db-3")
	for _, call := range w.calls {
		if !strings.HasPrefix(call, "get ") {
			t.Errorf("call %q", call)
		}
	}
	if calls := w.calls; len(calls) == 0 {
		t.Error("nothing was read: this test shows nothing")
	}
	if got := w.claimReports.Waiting()[statefulset.ReasonDryRun]; got == 0 {
		t.Errorf("waiting %v", w.claimReports.Waiting())
	}
	if got := w.setReports.Waiting()[statefulset.ReasonDryRun]; got != 1 || len(kubetest.EventReasons(w.events)) != 0 {
		t.Errorf("waiting %v", w.setReports.Waiting())
	}
}

func TestFailedCallIsRetried(t *testing.T) {
	for call, reason := range map[string]statefulset.Reason{
		"get set": statefulset.ReasonAPIReadFailed, "delete claim": statefulset.ReasonAPIWriteFailed,
	} {
		w := condemned(t, Config{})
		w.fail[call] = errors.New("no answer")
		if got := w.reconcileClaim(); got != controller.Retries(w.cfg.Settings).Retry() {
			t.Errorf("%s: due again %+v", call, got)
		}
		if got := w.claimReports.Waiting()[reason]; got != 1 {
			t.Errorf("%s: waiting %v", call, w.claimReports.Waiting())
		}
		if got := kubetest.Events(w.events); len(got) != 1 || !strings.Contains(got[0], "no answer") {
			t.Errorf("%s: Events %q", call, got)
		}
	}
	w := condemned(t, Config{})
	w.fail["delete claim"] = kube.ErrChanged
	if got := w.reconcileClaim(); got != controller.Soon() {
		t.Errorf("after a conflict due again %+v", got)
	}
}

func TestContestedMarkIsNotAddedForever(t *testing.T) {
	w := newWorld(t, Config{})
	w.set("db", replicas(1))
	w.pod("db", 0)
	w.claim("data-db-0")
	for range 10 {
		w.settle()
		w.claim("data-db-0", unmarked)
	}
	w.settle()
	if got := w.claimReports.Waiting()[statefulset.ReasonContested]; got != 1 || len(w.calls) > 10 {
		t.Errorf("waiting %v, calls %q", w.claimReports.Waiting(), w.calls)
	}
}

// Several workers process the claims of one set while the watches deliver changes, for the race detector.
func TestConcurrentWorkersOnOneSet(t *testing.T) {
	w := newWorld(t, Config{})
	const claims = 20
	w.set("db", replicas(claims))
	for n := range claims {
		w.pod("db", n)
		w.claim(fmt.Sprintf("data-db-%d", n))
	}
	w.sync()
	var workers sync.WaitGroup
	work := func() {
		for n := range claims {
			w.reconcile(t.Context(), fmt.Sprintf("ns/data-db-%d", n))
		}
		w.reconcileDB()
	}
	for range 2 {
		workers.Go(work)
	}
	w.sync()
	workers.Wait()
	w.settle()
	for n := range claims {
		if w.mark(fmt.Sprintf("data-db-%d", n)) == "" {
			t.Errorf("claim %d is not marked", n)
		}
		w.endPod(fmt.Sprintf("db-%d", n))
	}
	w.set("db", replicas(0))
	w.settle()
	w.clock.Step(statefulset.DefaultGrace)
	w.sync()
	for range 2 {
		workers.Go(work)
	}
	workers.Wait()
	for n := range claims {
		if !w.deleted(fmt.Sprintf("data-db-%d", n)) {
			t.Errorf("claim %d is there", n)
		}
	}
	if got := kubetest.Count(t, w.metrics.claimsDeleted); got != claims {
		t.Errorf("%v deletions", got)
	}
}

func TestConfig(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Error(err)
	}
	for _, wrong := range []Config{{Grace: -1}, {Settings: controllers.Settings{Workers: -1}}} {
		if wrong.Validate() == nil {
			t.Errorf("%+v is taken", wrong)
		}
	}
	if _, err := New(nil, Config{}); err == nil {
		t.Error("no cluster is taken")
	}
}
