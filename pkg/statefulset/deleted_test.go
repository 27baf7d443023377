package statefulset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
)

// takesClaims sets whenDeleted: Delete.
func takesClaims(o *appsv1.StatefulSet) {
	o.CreationTimestamp = metav1.Unix(1_700_000_000, 0)
	o.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
		WhenScaled:  appsv1.RetainPersistentVolumeClaimRetentionPolicyType}
}

// finalizers marks a set as terminating, kept by these finalizers.
func finalizers(names ...string) func(*appsv1.StatefulSet) {
	return func(o *appsv1.StatefulSet) {
		terminatingSet(o)
		o.Finalizers = names
	}
}

// createdBy sets the field manager that created a claim, one minute after the set.
func createdBy(manager string) func(*v1.PersistentVolumeClaim) {
	return func(o *v1.PersistentVolumeClaim) {
		o.CreationTimestamp = metav1.Unix(1_700_000_060, 0)
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager,
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:resources":{}}}`)}}
	}
}

var byKubernetes = createdBy("kube-controller-manager")

// deleteSet deletes set db and delivers the event.
func (w *world) deleteSet() {
	delete(w.sets, "ns/db")
	w.settle()
}

// leaving returns a world with set db and claim data-db-0, which Kubernetes has created without an owner.
func leaving(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, Config{})
	w.set("db", takesClaims)
	w.claim("data-db-0", byKubernetes)
	w.settle()
	return w
}

// reports returns the reasons of waiting claims after the settling time.
func (w *world) reports() (reasons []string) {
	w.Helper()
	w.reconcile(w.Context(), "ns/data-db-0")
	w.clock.Step(statefulset.Settling)
	w.reconcile(w.Context(), "ns/data-db-0")
	for reason := range w.claimReports.Waiting() {
		reasons = append(reasons, string(reason))
	}
	return reasons
}

func TestClaimLeftBehindIsReported(t *testing.T) {
	w := leaving(t)
	w.deleteSet()
	if got := w.reconcile(t.Context(), "ns/data-db-0"); got != controller.After(statefulset.Settling) {
		t.Errorf("due again %+v", got)
	}
	if events := w.recorded(); len(events) > 0 || len(w.claimReports.Waiting()) > 0 {
		t.Errorf("Events %q while Kubernetes may still delete it", events)
	}
	w.clock.Step(statefulset.Settling)
	if got := w.reconcile(t.Context(), "ns/data-db-0"); got != controller.Done() {
		t.Errorf("due again %+v", got)
	}
	events := w.messages()
	if len(events) != 1 || !strings.HasPrefix(events[0], "Warning OwnerReferenceMissing ") ||
		!strings.Contains(events[0], "kubectl delete pvc") || !strings.Contains(events[0], "StatefulSet db") {
		t.Errorf("Events %q", events)
	}
	if got := w.claimReports.Waiting()[statefulset.ReasonOwnerReferenceMissing]; got != 1 || w.deleted("data-db-0") {
		t.Errorf("waiting %v", w.claimReports.Waiting())
	}
	w.expectCalls()
	delete(w.live, "ns/data-db-0")
	w.settle()
	if len(w.claimReports.Waiting()) > 0 {
		t.Errorf("a claim that is gone waits: %v", w.claimReports.Waiting())
	}
}

func TestClaimsOfDeletedSets(t *testing.T) {
	for sentence, c := range map[string]struct {
		change   func(w *world)
		reported bool
	}{
		"the set is there": {func(*world) {}, false},
		"the set is gone":  {func(w *world) { w.deleteSet() }, true},
		"the claim comes after the end of the set": {func(w *world) {
			delete(w.live, "ns/data-db-0")
			w.deleteSet()
			w.claim("data-db-0", byKubernetes)
			w.sync()
			if !slices.Contains(w.woken.claims, "ns/data-db-0") {
				w.Error("the claim is not worked on")
			}
		}, true},
		"the claim was marked": {func(w *world) {
			w.set("db", byField)
			w.pod("db", 0)
			w.settle()
			if w.mark("data-db-0") == "" {
				w.Error("the claim is not marked")
			}
			w.endPod("db-0")
			w.deleteSet()
		}, true},
		"the set was in the foreground": {func(w *world) {
			w.set("db", finalizers("foregroundDeletion"))
			w.settle()
			w.deleteSet()
		}, true},
		"the set is deleted without its dependents": {func(w *world) {
			w.set("db", finalizers("orphan"))
			w.settle()
			w.deleteSet()
		}, false},
		"another finalizer kept that set for longer": {func(w *world) {
			w.set("db", finalizers("orphan", "example.com/mine"))
			w.settle()
			w.set("db", finalizers("example.com/mine"))
			w.settle()
			w.deleteSet()
		}, false},
		"the policy retains": {func(w *world) {
			w.set("db", byField, func(o *appsv1.StatefulSet) {
				o.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
			})
			w.settle()
			w.deleteSet()
		}, false},
		"the watch missed the end of the set": {func(w *world) {
			last := w.setCache.Records["ns/db"]
			delete(w.setCache.Records, "ns/db")
			delete(w.sets, "ns/db")
			setChanges{w.observer}.Deleted(last, false)
		}, false},
		"the set was created again": {func(w *world) {
			w.deleteSet()
			w.set("db", takesClaims, func(o *appsv1.StatefulSet) { o.UID = "next" })
			w.settle()
		}, false},
		"the next set was deleted without its dependents": {func(w *world) {
			w.deleteSet()
			w.set("db", takesClaims, finalizers("orphan"), func(o *appsv1.StatefulSet) { o.UID = "next" })
			w.settle()
			w.deleteSet()
		}, false},
		"another finalizer kept the next set, which was first seen without its dependents": {func(w *world) {
			w.deleteSet()
			w.set("db", takesClaims, finalizers("orphan", "example.com/mine"), func(o *appsv1.StatefulSet) { o.UID = "next" })
			w.settle()
			w.set("db", finalizers("example.com/mine"))
			w.settle()
			w.deleteSet()
		}, false},
		"the next set has other templates": {func(w *world) {
			w.deleteSet()
			w.set("db", takesClaims, template("logs"), func(o *appsv1.StatefulSet) { o.UID = "next" })
			w.settle()
		}, true},
		"the watch shows the next set alone": {func(w *world) {
			w.set("db", takesClaims, template("logs"), func(o *appsv1.StatefulSet) { o.UID = "next" })
			w.settle()
		}, false},
		"a person created the claim": {func(w *world) {
			w.claim("data-db-0", createdBy("kubectl-create"))
			w.deleteSet()
		}, false},
		"the claim is older than the set": {func(w *world) {
			w.claim("data-db-0", func(o *v1.PersistentVolumeClaim) { o.CreationTimestamp = metav1.Unix(1_699_999_999, 0) })
			w.deleteSet()
		}, false},
		"Kubernetes makes the set its owner after all": {func(w *world) {
			w.deleteSet()
			w.claim("data-db-0", owned(metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db",
				UID: "set-db"}))
			w.settle()
		}, false},
		"the claim is held": {func(w *world) { w.deleteSet(); w.claim("data-db-0", held); w.settle() }, false},
		"a pod of the set is there": {func(w *world) {
			w.pod("db", 0)
			w.settle()
			w.deleteSet()
		}, false},
		"a pod of something else uses it": {func(w *world) { w.deleteSet(); w.use("job", "data-db-0"); w.settle() },
			false},
		"too long ago": {func(w *world) { w.deleteSet(); w.clock.Step(rememberFor) }, false},
		"not too long ago": {
			func(w *world) { w.deleteSet(); w.clock.Step(rememberFor - statefulset.Settling - time.Second) }, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := leaving(t)
			c.change(w)
			w.recorded()
			if got := w.reports(); slices.Contains(got, "OwnerReferenceMissing") != c.reported {
				t.Errorf("waiting for %q, reported %t is wanted", got, c.reported)
			}
			if got := w.recorded(); slices.Contains(got, "Warning OwnerReferenceMissing") != c.reported {
				t.Errorf("Events %q", got)
			}
			if w.deleted("data-db-0") {
				t.Error("the claim is deleted")
			}
		})
	}
}

// A replica that begins to lead has seen the ends of sets just as its predecessor.
func TestInitialWorkOnClaimsLeftBehind(t *testing.T) {
	w := leaving(t)
	w.woken.idle = true
	w.claim("data-web-0", byKubernetes)
	w.deleteSet()
	if claims, _ := w.observer.first(); !slices.Equal(claims, []string{"ns/data-db-0"}) {
		t.Errorf("claims %q", claims)
	}
}

func TestMemoryOfDeletedSetsIsBounded(t *testing.T) {
	w := newWorld(t, Config{})
	d, start := w.observer.deleted, w.clock.Now()
	end := func(n int, after time.Duration) {
		d.add(statefulset.Set{Namespace: "ns", Name: fmt.Sprintf("db%d", n), UID: types.UID("u"), Templates: []string{"data"},
			Policy: statefulset.Policy{WhenDeleted: statefulset.Delete}}, true, start.Add(after))
	}
	known := func(n int, after time.Duration) bool {
		_, found := d.of("ns", fmt.Sprintf("data-db%d", n), start.Add(after))
		return found
	}
	for n := range rememberMax + 1 {
		end(n, time.Duration(n)*time.Second)
	}
	if len(d.last) != rememberMax || known(0, 0) || !known(1, 0) || !known(rememberMax, 0) {
		t.Errorf("%d are remembered, the first %t", len(d.last), known(0, 0))
	}
	end(rememberMax+1, rememberFor+10*time.Second)
	if want := rememberMax - 9; len(d.last) != want || !known(11, rememberFor+10*time.Second) {
		t.Errorf("%d are remembered a day later, want %d", len(d.last), want)
	}
	for _, name := range []string{"keeps", fmt.Sprintf("db%d", rememberMax)} {
		d.add(statefulset.Set{Namespace: "ns", Name: name, Templates: []string{"data"}}, true, start)
		if _, found := d.last[in("ns", "data-"+name)]; found {
			t.Errorf("%s was deleted last, and leaves its claims: it is remembered", name)
		}
	}
}

// The record of a set ends, even if the watch missed the end of the set.
func TestMissedEndOfSet(t *testing.T) {
	w := leaving(t)
	w.set("db", finalizers("orphan"))
	w.settle()
	w.set("db", finalizers(), func(o *appsv1.StatefulSet) { o.UID = "next" })
	w.settle()
	if left := w.observer.deleted.orphan; len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
