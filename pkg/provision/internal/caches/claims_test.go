package caches

import (
	"slices"
	"testing"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// follow records the changes that Claims reports.
type follow struct {
	*Claims
	heard []string
}

func newFollow() *follow {
	f := &follow{Claims: NewClaims(fake.NewClientset().CoreV1())}
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

func TestRecreatedClaimIsAnotherClaim(t *testing.T) {
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

// The indexes hold claims without a volume alone.
func TestClaimsByClassAndSource(t *testing.T) {
	t.Parallel()
	class, other := "fast", "slow"
	const source = "PersistentVolumeClaim/ns/one"
	for name, c := range map[string]struct {
		change func(*v1.PersistentVolumeClaim)
		// class and source are the groups of the claim, empty for none.
		class, source string
	}{
		"it waits":             {func(*v1.PersistentVolumeClaim) {}, class, source},
		"its class is another": {func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = &other }, other, source},
		"its class is set by an annotation": {func(c *v1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{v1.BetaStorageClassAnnotation: other}
		}, other, source},
		"it has no class":  {func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }, "", source},
		"it has no source": {func(c *v1.PersistentVolumeClaim) { c.Spec.DataSource = nil }, class, ""},
		"it is being deleted": {func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }, class,
			source},
		"it has its volume": {func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv" }, "", ""},
	} {
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: "u1"},
			Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &class,
				DataSource: &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "one"}}}
		if c.change(claim); classOf(claim) != c.class || sourceOf(claim) != c.source {
			t.Errorf("%s: it is in the groups %q and %q, want %q and %q", name, classOf(claim), sourceOf(claim),
				c.class, c.source)
		}
	}
	of := volume.SourceRef{Kind: volume.SourceClaim, Namespace: "ns", Name: "one", UID: "u"}
	if got := groupOf(of); got != source {
		t.Errorf("claims of the source are sought in %q, want %q", got, source)
	}
}

// followed records the calls of a Follower.
type followed struct{ got []string }

func (f *followed) ClaimShown(claim *v1.PersistentVolumeClaim) {
	f.got = append(f.got, "shown "+claim.Spec.VolumeName)
}
func (f *followed) ClaimDeleted(last *v1.PersistentVolumeClaim) {
	f.got = append(f.got, "deleted "+last.Spec.VolumeName)
}

// A Follower receives all claims, even the ones that take no memory, and each deletion only from its own event.
func TestFollowerReceivesAllClaims(t *testing.T) {
	claim := func(uid types.UID, volume string) *v1.PersistentVolumeClaim {
		return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data", UID: uid},
			Spec: v1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	for name, c := range map[string]struct {
		happens func(claimChanges)
		want    []string
	}{
		"a claim is bound and deleted": {func(c claimChanges) {
			c.Added(claim("u1", ""))
			c.Updated(claim("u1", ""), claim("u1", "pv"))
			c.Deleted(claim("u1", "pv"), true)
		}, []string{"shown ", "shown pv", "deleted pv"}},
		"an end that the watch has missed": {func(c claimChanges) {
			c.Added(claim("u1", "pv"))
			c.Deleted(claim("u1", "pv"), false)
		}, []string{"shown pv"}},
		"a claim that was replaced unseen": {func(c claimChanges) {
			c.Updated(claim("u1", "pv"), claim("u2", "pv"))
		}, []string{"shown pv"}},
		"claims that are left out": {func(c claimChanges) {
			c.LeftOut(claim("u1", "pv"))
			c.LeftOutDeleted(claim("u1", "pv"))
		}, []string{"shown pv", "deleted pv"}},
	} {
		t.Run(name, func(t *testing.T) {
			f, follower := newFollow(), &followed{}
			f.Follower = follower
			c.happens(claimChanges{f.Claims})
			if !slices.Equal(follower.got, c.want) {
				t.Errorf("received %q, want %q", follower.got, c.want)
			}
		})
	}
}

func TestIsTerminatingSource(t *testing.T) {
	now := metav1.Now()
	for name, c := range map[string]struct {
		deleted    *metav1.Time
		finalizers []string
		want       bool
	}{
		"a source that is terminating":     {&now, []string{"example.com/x", request.CloningFinalizer}, true},
		"a source that is not terminating": {nil, []string{request.CloningFinalizer}, false},
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
