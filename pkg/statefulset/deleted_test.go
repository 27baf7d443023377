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
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/kubetest"
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
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Time: &o.CreationTimestamp,
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
	if events := kubetest.EventReasons(w.events); len(events) > 0 || len(w.claimReports.Waiting()) > 0 {
		t.Errorf("Events %q while Kubernetes may still delete it", events)
	}
	w.clock.Step(statefulset.Settling)
	if got := w.reconcile(t.Context(), "ns/data-db-0"); got != controller.Done() {
		t.Errorf("due again %+v", got)
	}
	events := kubetest.Events(w.events)
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
	const mine = "example.com/mine"
	type steps []func(w *world)
	gone := (*world).deleteSet
	set := func(alter ...func(*appsv1.StatefulSet)) func(*world) {
		return func(w *world) { w.set("db", alter...); w.settle() }
	}
	claim := func(alter ...func(*v1.PersistentVolumeClaim)) func(*world) {
		return func(w *world) { w.claim("data-db-0", alter...); w.settle() }
	}
	pod := func(w *world) { w.pod("db", 0); w.settle() }
	pass := func(d time.Duration) func(*world) { return func(w *world) { w.clock.Step(d) } }
	next := func(o *appsv1.StatefulSet) { takesClaims(o); o.UID = "next" }
	for sentence, c := range map[string]struct {
		steps    steps
		reported bool
	}{
		"the set is there": {nil, false},
		"the set is gone":  {steps{gone}, true},
		"the claim comes after the end of the set": {steps{func(w *world) {
			delete(w.live, "ns/data-db-0")
			w.deleteSet()
			w.claim("data-db-0", byKubernetes)
			w.sync()
			if !slices.Contains(w.woken.claims, "ns/data-db-0") {
				w.Error("the claim is not worked on")
			}
		}}, true},
		"the claim was marked": {steps{set(byField), pod, func(w *world) {
			if w.mark("data-db-0") == "" {
				w.Error("the claim is not marked")
			}
			w.endPod("db-0")
		}, gone}, true},
		"the set was in the foreground":             {steps{set(finalizers("foregroundDeletion")), gone}, true},
		"the set is deleted without its dependents": {steps{set(finalizers("orphan")), gone}, false},
		"another finalizer kept that set for longer": {
			steps{set(finalizers("orphan", mine)), set(finalizers(mine)), gone}, false},
		"the policy retains": {steps{set(byField, func(o *appsv1.StatefulSet) {
			o.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
		}), gone}, false},
		"the watch missed the end of the set": {steps{func(w *world) {
			last := w.setCache.Records["ns/db"]
			delete(w.setCache.Records, "ns/db")
			delete(w.sets, "ns/db")
			setChanges{w.observer}.Deleted(last, false)
		}}, false},
		"the set was created again":                       {steps{gone, set(next)}, false},
		"the next set was deleted without its dependents": {steps{gone, set(next, finalizers("orphan")), gone}, false},
		"another finalizer kept the next set, which was first seen without its dependents": {
			steps{gone, set(next, finalizers("orphan", mine)), set(finalizers(mine)), gone}, false},
		"the next set has other templates":   {steps{gone, set(next, template("logs"))}, true},
		"the watch shows the next set alone": {steps{set(next, template("logs"))}, false},
		"a person created the claim":         {steps{claim(createdBy("kubectl-create")), gone}, false},
		"the claim has the volume of another": {steps{claim(byKubernetes, func(o *v1.PersistentVolumeClaim) {
			o.Spec.VolumeName = "pvc-before"
		}), gone}, false},
		"Velero restored the claim": {steps{claim(byKubernetes, func(o *v1.PersistentVolumeClaim) {
			o.Labels = map[string]string{"velero.io/restore-name": "r"}
		}), gone}, false},
		"the claim is older than the set": {steps{claim(func(o *v1.PersistentVolumeClaim) {
			o.CreationTimestamp = metav1.Unix(1_699_999_999, 0)
		}), gone}, false},
		"Kubernetes makes the set its owner after all": {steps{gone, claim(owned(metav1.OwnerReference{
			APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "set-db"}))}, false},
		"the claim is held":               {steps{gone, claim(held)}, false},
		"a pod of the set is there":       {steps{pod, gone}, false},
		"a pod of something else uses it": {steps{gone, func(w *world) { w.use("job", "data-db-0"); w.settle() }}, false},
		"too long ago":                    {steps{gone, pass(rememberFor)}, false},
		"not too long ago":                {steps{gone, pass(rememberFor - statefulset.Settling - time.Second)}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := leaving(t)
			for _, step := range c.steps {
				step(w)
			}
			kubetest.EventReasons(w.events)
			if got := w.reports(); slices.Contains(got, "OwnerReferenceMissing") != c.reported {
				t.Errorf("waiting for %q, reported %t is wanted", got, c.reported)
			}
			if got := kubetest.EventReasons(w.events); slices.Contains(got, "Warning OwnerReferenceMissing") != c.reported {
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

// The sets of one namespace do not displace those of others.
func TestDeletedSetsOfNamespacesHaveShares(t *testing.T) {
	start := time.Unix(1000, 0)
	d := newDeletedSets()
	end := func(namespace string, n int) {
		s := statefulset.Set{Namespace: namespace, Name: fmt.Sprintf("db%d", n), UID: "u", Templates: []string{"data"},
			Policy: statefulset.Policy{WhenDeleted: statefulset.Delete}}
		d.add(s, true, start.Add(time.Duration(n)*time.Second))
	}
	end("quiet", 0)
	for n := range rememberMax + 10 {
		end("busy", n)
	}
	if _, found := d.of("quiet", "data-db0", start); !found || len(d.last) != rememberMax {
		t.Errorf("the set of the other namespace is remembered: %t; %d in all", found, len(d.last))
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
