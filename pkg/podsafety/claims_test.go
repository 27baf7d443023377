package podsafety

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/controllers"
)

func (w *world) eachClaim(_ context.Context, visit func(podsafety.Claim)) error {
	if err := w.call("list claims"); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(w.kept)) {
		visit(podsafety.ClaimOf(w.kept[name]))
	}
	return nil
}

func (w *world) patchClaim(_ context.Context, claim podsafety.Claim, add bool) error {
	if err := w.call("%s", map[bool]string{true: addedToClaim, false: removedFromClaim}[add]); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o, found := w.kept[claim.Name]
	switch {
	case !found || o.UID != claim.UID:
		return kube.ErrGone
	case o.DeletionTimestamp != nil && add:
		return kube.ErrChanged
	}
	if o.Finalizers = running(add); o.DeletionTimestamp != nil {
		delete(w.kept, claim.Name)
	}
	return nil
}

// claimOfPod is the claim of a generic ephemeral volume of the pod that held returns.
func claimOfPod(change ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	o := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db-data", UID: "claim",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "db", UID: "uid",
			Controller: ptr.To(true)}}}}
	for _, c := range change {
		c(o)
	}
	return o
}

func heldClaim(o *v1.PersistentVolumeClaim) { o.Finalizers = []string{objects.RunningFinalizer} }

func terminatingClaim(o *v1.PersistentVolumeClaim) { o.DeletionTimestamp = &metav1.Time{} }

func ephemeral(o *v1.Pod) {
	o.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}}
}

// showClaim creates a claim, and makes the watch show it.
func (w *world) showClaim(o *v1.PersistentVolumeClaim) {
	w.Helper()
	w.kept[o.Name] = o
	before, known := w.claimCache["ns/"+o.Name]
	now, keep, err := recordClaim(o, known)
	switch {
	case err != nil:
		w.Fatal(err)
	case known:
		w.claimCache["ns/"+o.Name] = now
		w.observer.claimChanged(before, now)
	case keep:
		w.claimCache["ns/"+o.Name] = now
		w.observer.claimChanged(podsafety.Claim{}, now)
	}
}

func (w *world) settle() controller.Result { return w.settleClaim(w.Context(), "ns/db-data") }

const (
	addedToClaim     = "add finalizer to claim"
	removedFromClaim = "remove finalizer from claim"
)

// TestEphemeralClaimStaysAsLongAsItsPod plays the force deletion of a pod whose claim was deleted before.
func TestEphemeralClaimStaysAsLongAsItsPod(t *testing.T) {
	w := newWorld(t, Config{})
	w.show(held(ephemeral))
	w.showClaim(claimOfPod())
	w.settle()
	w.expectCalls(addedToClaim)
	w.showClaim(claimOfPod(heldClaim))
	w.settle()
	w.expectCalls()
	w.showClaim(claimOfPod(heldClaim, terminatingClaim))
	w.show(held(ephemeral, terminating))
	if got := w.settle(); got != controller.Every(claimEvery) {
		t.Errorf("due again %+v", got)
	}
	w.expectCalls()

	// The watch shows the end of the pod, and a live read does not.
	w.unwatch("ns/db")
	w.settle()
	w.expectCalls("get pod")
	w.fail["get pod"] = errors.New("refused")
	if got := w.settle(); got != controller.Retries(w.cfg.Settings).Retry() {
		t.Errorf("after a failed read, due again %+v", got)
	}
	w.expectCalls("get pod")
	w.fail = nil
	delete(w.live, "ns/db")
	w.settle()
	w.expectCalls("get pod", removedFromClaim)
	if len(w.kept) != 0 {
		t.Errorf("the claim stays: %v", w.kept)
	}
}

// A read that takes too long shows nothing about the pod.
func TestSlowReadReleasesNoClaim(t *testing.T) {
	w := newWorld(t, Config{})
	w.showClaim(claimOfPod(heldTerminating))
	w.cluster = ending{w, func() { w.clock.Step(session.LiveFor + 1) }}
	if got := w.settle(); got != controller.Every(claimEvery) {
		t.Errorf("due again %+v", got)
	}
	w.expectCalls("get pod")
}

func TestWrittenClaimsAreBoundToTheirUID(t *testing.T) {
	for _, change := range []func(*v1.PersistentVolumeClaim){func(*v1.PersistentVolumeClaim) {}, heldTerminating} {
		w := newWorld(t, Config{})
		w.showClaim(claimOfPod(change))
		w.kept["db-data"].UID = "other"
		before := slices.Clone(w.kept["db-data"].Finalizers)
		w.settle()
		if got := w.kept["db-data"]; got == nil || !slices.Equal(got.Finalizers, before) {
			t.Errorf("another claim of the name was written: %v", got)
		}
	}
}

func heldTerminating(o *v1.PersistentVolumeClaim) { heldClaim(o); terminatingClaim(o) }

func TestClaimsAreEnqueued(t *testing.T) {
	for sentence, c := range map[string]struct {
		happens func(w *world)
		want    bool
	}{
		"a new claim":  {func(w *world) { w.showClaim(claimOfPod()) }, true},
		"its deletion": {func(w *world) { w.showClaim(claimOfPod(heldTerminating)) }, true},
		"its deletion, once it is held": {func(w *world) {
			w.showClaim(claimOfPod(heldClaim))
			w.showClaim(claimOfPod(heldTerminating))
		}, true},
		"it is held":       {func(w *world) { w.showClaim(claimOfPod(heldClaim)) }, false},
		"it is of no pod":  {func(w *world) { w.showClaim(claimOfPod(ownerless)) }, false},
		"its pod is gone":  {func(w *world) { w.show(held(ephemeral, terminating)); w.unwatch("ns/db") }, true},
		"its pod has none": {func(w *world) { w.show(held(terminating)); w.unwatch("ns/db") }, false},
		"its pod is released": {func(w *world) {
			w.show(held(ephemeral, terminating))
			w.show(held(ephemeral, terminating, unheld))
		}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			w := newWorld(t, Config{})
			woken := w.recordWoken()
			c.happens(w)
			if got := slices.Contains(woken.all, "claim ns/db-data"); got != c.want {
				t.Errorf("enqueued %q", woken.all)
			}
		})
	}
}

func ownerless(o *v1.PersistentVolumeClaim) { o.OwnerReferences = nil }

func TestDueClaims(t *testing.T) {
	w := newWorld(t, Config{})
	w.namespaceCache["ns"] = namespace{Name: "ns", Mode: podsafety.ModeOff}
	w.showClaim(claimOfPod())
	w.showClaim(claimOfPod(heldTerminating, func(o *v1.PersistentVolumeClaim) { o.Name = "restored" }))
	due := func(namespace string) []string { return slices.Sorted(slices.Values(w.observer.dueClaims(namespace))) }
	if got := due("ns"); !slices.Equal(got, []string{"ns/restored"}) {
		t.Errorf("without the label: %q", got)
	}
	w.namespaceCache["ns"] = namespace{Name: "ns", Mode: podsafety.ModeEnforce}
	for namespace, want := range map[string][]string{"ns": {"ns/db-data", "ns/restored"}, "other": nil} {
		if got := due(namespace); !slices.Equal(got, want) {
			t.Errorf("of namespace %q: %q", namespace, got)
		}
	}
	gone := w.claimCache["ns/restored"]
	delete(w.claimCache, "ns/restored")
	w.observer.claimChanged(gone, podsafety.Claim{})
	if got := due("ns"); !slices.Equal(got, []string{"ns/db-data"}) || len(w.observer.claimsIn.In("ns")) != 1 {
		t.Errorf("after the end of one: %q of %v", got, w.observer.claimsIn.All())
	}
	w.observer.claimChanged(w.claimCache["ns/db-data"], podsafety.Claim{})
	if left := w.observer.claimsIn.All(); len(left) > 0 {
		t.Errorf("after the end of all: %q", left)
	}
}

// counted counts the claims that a cache returns.
type counted struct {
	kube.Lister[podsafety.Claim]
	claims int
}

func (c *counted) Get(key string) (podsafety.Claim, bool) {
	c.claims++
	return c.Lister.Get(key)
}

func (c *counted) Each(visit func(podsafety.Claim)) {
	c.Lister.Each(func(claim podsafety.Claim) {
		c.claims++
		visit(claim)
	})
}

// At the start of a leader, every namespace is held, and there may be thousands.
func TestHeldNamespaceVisitsOnlyItsClaims(t *testing.T) {
	w := newWorld(t, Config{})
	const namespaces = 5
	for i := range namespaces {
		claim := podsafety.Claim{Namespace: fmt.Sprintf("ns-%d", i), Name: "db-data", Pod: "db", PodUID: "uid"}
		w.claimCache[claimKey(claim.Namespace, claim.Name)] = claim
		w.namespaceCache[claim.Namespace] = namespace{Name: claim.Namespace, Mode: podsafety.ModeEnforce}
		w.observer.claimChanged(podsafety.Claim{}, claim)
	}
	visits := &counted{Lister: w.observer.claims}
	w.observer.claims = visits
	for i := range namespaces {
		w.hold(w.Context(), fmt.Sprintf("ns-%d", i))
	}
	if visits.claims != namespaces {
		t.Errorf("%d visits of %d claims", visits.claims, namespaces)
	}
}

func TestDryRunLeavesClaims(t *testing.T) {
	w := newWorld(t, Config{Settings: controllers.Settings{DryRun: true}})
	w.showClaim(claimOfPod())
	w.settle()
	w.expectCalls()
	w.showClaim(claimOfPod(heldTerminating))
	w.settle()
	w.expectCalls("get pod")
}

func TestFailedClaimWriteIsRetried(t *testing.T) {
	w := newWorld(t, Config{})
	w.showClaim(claimOfPod())
	w.fail[addedToClaim] = errors.New("no answer")
	if got := w.settle(); got != controller.Retries(w.cfg.Settings).Retry() {
		t.Errorf("due again %+v", got)
	}
	w.showClaim(claimOfPod(terminatingClaim)) // before the watch shows it, nothing is to be done any more
	w.fail = nil
	w.settle()
	w.expectCalls(addedToClaim)
}

func TestRecordClaim(t *testing.T) {
	for sentence, c := range map[string]struct {
		claim *v1.PersistentVolumeClaim
		keep  bool
	}{
		"of a pod":            {claimOfPod(), true},
		"of no pod":           {claimOfPod(ownerless), false},
		"held, and of no pod": {claimOfPod(ownerless, heldClaim), true},
	} {
		if _, keep, err := recordClaim(c.claim, false); err != nil || keep != c.keep {
			t.Errorf("%s: kept %t, %v", sentence, keep, err)
		}
	}
}
