package kube

import (
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// The client has the permissions of the stock external-provisioner.
func TestClaimFinalizersWithoutPatch(t *testing.T) {
	const ours, theirs = "example.com/ours", "example.com/theirs"
	resource := schema.GroupResource{Resource: "persistentvolumeclaims"}
	forbidden := func(verb string) error { return apierrors.NewForbidden(resource, "data", errors.New("may not "+verb)) }
	for name, c := range map[string]struct {
		patch      FinalizerPatch
		finalizers []string
		updates    []error // answers to the first updates
		forever    error   // and to all others
		strips     bool    // a webhook removes all finalizers
		want       []string
		writes     int
		err        error
		forbidden  bool
	}{
		"added": {patch: FinalizerPatch{UID: "u1", Add: []string{ours}}, finalizers: []string{theirs},
			want: []string{theirs, ours}, writes: 1},
		"there already": {patch: FinalizerPatch{UID: "u1", Add: []string{ours}}, finalizers: []string{ours, theirs},
			want: []string{ours, theirs}},
		"removed": {patch: FinalizerPatch{UID: "u1", Remove: []string{ours}}, finalizers: []string{ours, theirs},
			want: []string{theirs}, writes: 1},
		"changed meanwhile": {patch: FinalizerPatch{UID: "u1", Add: []string{ours}},
			updates: []error{apierrors.NewConflict(resource, "data", errors.New("changed"))}, want: []string{ours}, writes: 2},
		"changed again and again": {patch: FinalizerPatch{UID: "u1", Add: []string{ours}},
			forever: apierrors.NewConflict(resource, "data", errors.New("changed")), writes: updateTries, err: ErrChanged},
		"changed since it was read": {patch: FinalizerPatch{UID: "u1", ResourceVersion: "6", Add: []string{ours}},
			err: ErrChanged},
		"another claim of the name": {patch: FinalizerPatch{UID: "u2", Add: []string{ours}}, err: ErrGone},
		"being deleted": {patch: FinalizerPatch{UID: "u1", Add: []string{ours}},
			forever: apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolumeClaim"}, "data", nil), writes: 1,
			err: apierrors.NewInvalid(schema.GroupKind{Kind: "PersistentVolumeClaim"}, "data", nil)},
		"stripped": {patch: FinalizerPatch{UID: "u1", Add: []string{ours}}, strips: true, writes: 1, err: ErrUndone},
		"update is forbidden too": {patch: FinalizerPatch{UID: "u1", Add: []string{ours}}, forever: forbidden("update"),
			writes: 1, forbidden: true},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(&v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data",
				UID: "u1", ResourceVersion: "7", Finalizers: c.finalizers}})
			writes := 0
			client.PrependReactor("patch", resource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, forbidden("patch")
			})
			client.PrependReactor("update", resource.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
				update, ok := a.(clienttesting.UpdateAction)
				if o, isClaim := update.GetObject().(*v1.PersistentVolumeClaim); !ok || !isClaim || o.ResourceVersion != "7" {
					t.Errorf("the update is not bound to what was read: %+v", a)
				}
				writes++
				if writes <= len(c.updates) {
					return true, nil, c.updates[writes-1]
				}
				if c.strips {
					return true, &v1.PersistentVolumeClaim{}, nil
				}
				return c.forever != nil, nil, c.forever
			})
			claims := client.CoreV1().PersistentVolumeClaims("ns")
			c.patch.Name = "data"
			err := ChangeClaimFinalizers(t.Context(), claims, c.patch)
			if writes != c.writes || apierrors.IsForbidden(err) != c.forbidden {
				t.Errorf("%d updates, %v", writes, err)
			}
			switch {
			case c.forbidden:
			case apierrors.IsInvalid(c.err):
				if !apierrors.IsInvalid(err) {
					t.Errorf("ChangeClaimFinalizers = %v", err)
				}
			case !errors.Is(err, c.err):
				t.Errorf("ChangeClaimFinalizers = %v, want %v", err, c.err)
			}
			o, err := claims.Get(t.Context(), "data", metav1.GetOptions{})
			if err != nil || c.err == nil && !c.forbidden && !slices.Equal(o.Finalizers, c.want) {
				t.Errorf("finalizers %v, %v", o.Finalizers, err)
			}
		})
	}
}

func TestFinalizersOfMissingClaim(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("patch", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{}, "data", errors.New("no"))
	})
	err := ChangeClaimFinalizers(t.Context(), client.CoreV1().PersistentVolumeClaims("ns"),
		FinalizerPatch{Name: "data", UID: "u1", Add: []string{"example.com/ours"}})
	if !errors.Is(err, ErrGone) {
		t.Errorf("ChangeClaimFinalizers = %v", err)
	}
}
