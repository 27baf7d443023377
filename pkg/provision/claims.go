package provision

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// claims is the watch cache of claims. One that has no volume yet, or has an earlier version's finalizer, is kept
// whole but for managedFields: the library updates what it finds here. Of one that was such and is none any more,
// what is decided from is kept; one that never was takes no memory. Its methods are safe for concurrent use.
type claims struct {
	claimCache
	// changed is called with every change, with nil for what was not there before or is not there now.
	// It is set before the watch begins.
	changed func(before, now *v1.PersistentVolumeClaim)

	mu sync.Mutex
	// names are those of the claims that are kept whole, as the cache knows them.
	names map[types.UID]string
}

func newClaims(core rest.Interface) *claims {
	c := &claims{names: map[types.UID]string{}}
	c.claimCache = kube.NewCache(core, "persistentvolumeclaims", &v1.PersistentVolumeClaim{}, recordClaim, claimChanges{c})
	return c
}

// claimCache is a watch cache of claims, known as "namespace/name".
type claimCache interface {
	Get(name string) (claim *v1.PersistentVolumeClaim, found bool)
	// Each calls visit for every claim. visit does not call back.
	Each(visit func(*v1.PersistentVolumeClaim))
	Synced() bool
	Run(ctx context.Context)
}

// watch keeps the cache up to date until ctx ends.
func (c *claims) watch(ctx context.Context) { c.Run(ctx) }

// of returns the claim of a key, nil if it is not there. It may be kept in part; see whole.
func (c *claims) of(k key) *v1.PersistentVolumeClaim {
	claim, found := c.Get(k.namespace + "/" + k.name)
	if !found || claim.UID != k.uid {
		return nil
	}
	return claim
}

// wholeByUID returns the claim with this UID if it is kept whole, and else nil.
func (c *claims) wholeByUID(uid types.UID) *v1.PersistentVolumeClaim {
	c.mu.Lock()
	name, known := c.names[uid]
	c.mu.Unlock()
	if !known {
		return nil
	}
	claim, found := c.Get(name)
	if !found || claim.UID != uid || !whole(claim) {
		return nil
	}
	return claim
}

// whole reports whether all of such a claim is kept: it may be written to, or given to RequestBuilder.
func whole(claim *v1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName == "" || slices.ContainsFunc(claim.Finalizers, IsLegacyFinalizer) || freesSource(claim)
}

// recordClaim copies what is kept of a claim: the claims of a list are parts of one piece of memory.
func recordClaim(object runtime.Object, _ bool) (_ *v1.PersistentVolumeClaim, keep bool, err error) {
	claim, ok := object.(*v1.PersistentVolumeClaim)
	if !ok {
		return nil, false, fmt.Errorf("watch claims: got a %T", object)
	}
	if !whole(claim) {
		return partOf(claim), false, nil
	}
	own := *claim
	own.ManagedFields = nil
	return &own, true, nil
}

// partOf is what decisions about a claim are made from that has its volume and is not held.
func partOf(claim *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
	part := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			DeletionTimestamp: claim.DeletionTimestamp, Annotations: maps.Clone(claim.Annotations),
		},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: claim.Spec.VolumeName, StorageClassName: claim.Spec.StorageClassName},
	}
	maps.DeleteFunc(part.Annotations, func(name, _ string) bool {
		return name != annProvisioner && name != annProvisionerBeta && name != annSelectedNode &&
			name != v1.BetaStorageClassAnnotation
	})
	return part
}

// claimChanges follows the claims.
type claimChanges struct{ *claims }

func (c claimChanges) Added(now *v1.PersistentVolumeClaim) {
	c.note(nil, now)
	c.changed(nil, now)
}

func (c claimChanges) Updated(before, now *v1.PersistentVolumeClaim) {
	if before.UID != now.UID {
		c.Deleted(before, false)
		c.Added(now)
		return
	}
	c.note(before, now)
	c.changed(before, now)
}

func (c claimChanges) Deleted(last *v1.PersistentVolumeClaim, _ bool) {
	c.note(last, nil)
	c.changed(last, nil)
}

// note keeps names up to date.
func (c *claims) note(before, now *v1.PersistentVolumeClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before != nil {
		delete(c.names, before.UID)
	}
	if now != nil && whole(now) {
		c.names[now.UID] = now.Namespace + "/" + now.Name
	}
}
