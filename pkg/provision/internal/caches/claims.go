package caches

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/finalizers"
)

// Annotations of a claim that are read. The PV controller writes the first two, the scheduler the last.
const (
	AnnProvisioner     = "volume.kubernetes.io/storage-provisioner"
	AnnProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
	AnnSelectedNode    = "volume.kubernetes.io/selected-node"
)

// Claims is the watch cache of claims. One that has no volume yet is kept whole but for managedFields: the
// library updates what it finds here. Of one that was such and is none any more, what is decided from is kept; one that
// never was takes no memory. Its methods are safe for concurrent use.
type Claims struct {
	ClaimCache
	// Changed is called with every change, with nil for what was not there before or is not there now.
	// It is set before the watch begins.
	Changed func(before, now *v1.PersistentVolumeClaim)
	// Follower, if set, receives what the watch shows of all claims. It is set before the watch begins.
	Follower Follower

	mu sync.Mutex
	// names are those of the claims that are kept whole, as the cache knows them.
	names map[types.UID]string
}

// NewClaims returns a cache that is not running. core reaches the API server.
func NewClaims(core rest.Interface) *Claims {
	c := &Claims{Follower: noFollower{}, names: map[types.UID]string{}}
	c.ClaimCache = kube.NewCache(core, "persistentvolumeclaims", &v1.PersistentVolumeClaim{}, RecordClaim, claimChanges{c})
	return c
}

// Follower is the ClaimFollower of package provision.
type Follower interface {
	ClaimShown(claim *v1.PersistentVolumeClaim)
	ClaimDeleted(last *v1.PersistentVolumeClaim)
}

// noFollower is the Follower where none is set.
type noFollower struct{}

func (noFollower) ClaimShown(*v1.PersistentVolumeClaim)   {}
func (noFollower) ClaimDeleted(*v1.PersistentVolumeClaim) {}

// ClaimCache is a watch cache of claims, known as "namespace/name".
type ClaimCache interface {
	Get(name string) (claim *v1.PersistentVolumeClaim, found bool)
	// Each calls visit for every claim. visit does not call back.
	Each(visit func(*v1.PersistentVolumeClaim))
	Synced() bool
	Run(ctx context.Context)
}

// Of returns the claim with this name and UID, nil if it is not there. It may be kept in part; see Whole.
func (c *Claims) Of(namespace, name string, uid types.UID) *v1.PersistentVolumeClaim {
	claim, found := c.Get(namespace + "/" + name)
	if !found || claim.UID != uid {
		return nil
	}
	return claim
}

// WholeByUID returns the claim with this UID if it is kept whole, and else nil.
func (c *Claims) WholeByUID(uid types.UID) *v1.PersistentVolumeClaim {
	c.mu.Lock()
	name, known := c.names[uid]
	c.mu.Unlock()
	if !known {
		return nil
	}
	claim, found := c.Get(name)
	if !found || claim.UID != uid || !Whole(claim) {
		return nil
	}
	return claim
}

// Whole reports whether all of such a claim is kept: it may be written to, or given to a request builder.
func Whole(claim *v1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName == "" || IsTerminatingSource(claim)
}

// IsTerminatingSource reports whether a claim is one that volumes are cloned from, and is being deleted.
func IsTerminatingSource(claim *v1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp != nil && slices.Contains(claim.Finalizers, finalizers.Cloning)
}

// RecordClaim copies what is kept of a claim: the claims of a list are parts of one piece of memory.
func RecordClaim(object runtime.Object, _ bool) (_ *v1.PersistentVolumeClaim, keep bool, err error) {
	claim, ok := object.(*v1.PersistentVolumeClaim)
	if !ok {
		return nil, false, fmt.Errorf("watch claims: got a %T", object)
	}
	if !Whole(claim) {
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
		return name != AnnProvisioner && name != AnnProvisionerBeta && name != AnnSelectedNode &&
			name != v1.BetaStorageClassAnnotation
	})
	return part
}

// claimChanges follows the claims.
type claimChanges struct{ *Claims }

var _ kube.LeftOutHandler[*v1.PersistentVolumeClaim] = claimChanges{}

func (c claimChanges) Added(now *v1.PersistentVolumeClaim) {
	c.Follower.ClaimShown(now)
	c.note(nil, now)
	c.Changed(nil, now)
}

func (c claimChanges) Updated(before, now *v1.PersistentVolumeClaim) {
	if before.UID != now.UID {
		c.Deleted(before, false)
		c.Added(now)
		return
	}
	c.Follower.ClaimShown(now)
	c.note(before, now)
	c.Changed(before, now)
}

func (c claimChanges) LeftOut(now *v1.PersistentVolumeClaim)         { c.Follower.ClaimShown(now) }
func (c claimChanges) LeftOutDeleted(last *v1.PersistentVolumeClaim) { c.Follower.ClaimDeleted(last) }

func (c claimChanges) Deleted(last *v1.PersistentVolumeClaim, final bool) {
	if final {
		c.Follower.ClaimDeleted(last)
	}
	c.note(last, nil)
	c.Changed(last, nil)
}

// note keeps names up to date.
func (c *Claims) note(before, now *v1.PersistentVolumeClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before != nil {
		delete(c.names, before.UID)
	}
	if now != nil && Whole(now) {
		c.names[now.UID] = now.Namespace + "/" + now.Name
	}
}
