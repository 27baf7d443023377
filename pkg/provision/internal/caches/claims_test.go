package caches

import (
	"slices"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/finalizers"
)

// follow has claims come and change as a watch would show it.
type follow struct {
	*Claims
	heard []string
}

func newFollow() *follow {
	f := &follow{Claims: NewClaims(fake.NewClientset().CoreV1().RESTClient())}
	f.Changed = func(before, now *v1.PersistentVolumeClaim) {
		switch {
		case before == nil:
			f.heard = append(f.heard, "came")
		case now == nil:
			f.heard = append(f.heard, "went")
		default:
			f.heard = append(f.heard, "changed")
		}
	}
	return f
}

func TestAClaimOfTheSameNameIsAnotherOne(t *testing.T) {
	f := newFollow()
	at := func(uid types.UID) *v1.PersistentVolumeClaim {
		return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: uid}}
	}
	changes := claimChanges{f.Claims}
	changes.Added(at("u1"))
	changes.Updated(at("u1"), at("u2"))
	if !slices.Equal(f.heard, []string{"came", "went", "came"}) || f.names["u2"] != "ns/data" || len(f.names) != 1 {
		t.Errorf("heard %q, names %v", f.heard, f.names)
	}
	changes.Deleted(at("u2"), false)
	if len(f.names) > 0 {
		t.Errorf("names %v are left of a claim that is gone", f.names)
	}
}

func TestIsTerminatingSource(t *testing.T) {
	now := metav1.Now()
	for name, c := range map[string]struct {
		deleted    *metav1.Time
		finalizers []string
		want       bool
	}{
		"a source that is terminating":     {&now, []string{"example.com/x", finalizers.Cloning}, true},
		"a source that is not terminating": {nil, []string{finalizers.Cloning}, false},
		"another claim":                    {&now, []string{"example.com/x"}, false},
	} {
		claim := &v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: c.deleted, Finalizers: c.finalizers},
		}
		if got := IsTerminatingSource(claim); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
