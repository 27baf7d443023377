package caches

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/request"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Claims is the watch cache of claims. It keeps a claim without a volume whole except for managedFields, because a
// request is built from it, and an update writes it back. Once such a claim has its volume, only the fields for
// decisions remain; a claim that was bound from the start takes no memory. Its methods are safe for concurrent use.
type Claims struct {
	ClaimCache
	// Changed is called with every change; before or now is nil if the claim did not exist or no longer exists. It is set
	// before the watch begins.
	Changed func(before, now *v1.PersistentVolumeClaim)
	// Follower, if set, receives the events of the watch for all claims. It is set before the watch begins.
	Follower Follower

	mu sync.Mutex
	// names has the cache keys of the claims that are kept whole.
	names map[types.UID]string
	// byClass and bySource find the claims without a volume, by their class (some 40 bytes a claim) and by the source of
	// their data (some 350). Claims with a volume, nearly all, take no memory there. The indexes are the cache's, because
	// Changed gets the claims of a new list one by one: a source could be freed while a claim that needs it is in the
	// list, but not yet passed to Changed.
	byClass, bySource func(group string) []*v1.PersistentVolumeClaim
}

// NewClaims returns a cache that is not running yet.
func NewClaims(core corev1.CoreV1Interface) *Claims {
	c := &Claims{Follower: noFollower{}, names: map[types.UID]string{}}
	cache := kube.NewTypedCache(core.PersistentVolumeClaims(metav1.NamespaceAll), "persistentvolumeclaims",
		&v1.PersistentVolumeClaim{}, RecordClaim, claimChanges{c})
	c.byClass, c.bySource = cache.Index(classOf), cache.Index(sourceOf)
	c.ClaimCache = cache
	return c
}

// Follower is the ClaimFollower of package provision.
type Follower interface {
	ClaimShown(claim *v1.PersistentVolumeClaim)
	ClaimDeleted(last *v1.PersistentVolumeClaim)
}

// noFollower is the default Follower.
type noFollower struct{}

func (noFollower) ClaimShown(*v1.PersistentVolumeClaim)   {}
func (noFollower) ClaimDeleted(*v1.PersistentVolumeClaim) {}

// ClaimCache is a watch cache of claims with the keys "namespace/name".
type ClaimCache interface {
	Get(name string) (claim *v1.PersistentVolumeClaim, found bool)
	// Each calls visit for every claim, and visit must not call back.
	Each(visit func(*v1.PersistentVolumeClaim))
	controller.Cache
}

// Of returns the claim with this name and UID, nil if it does not exist. The claim may be partial; see Whole.
func (c *Claims) Of(namespace, name string, uid types.UID) *v1.PersistentVolumeClaim {
	claim, found := c.Get(namespace + "/" + name)
	if !found || claim.UID != uid {
		return nil
	}
	return claim
}

// WholeByUID returns the claim with this UID if it is kept whole, and otherwise nil.
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

// OfClass returns the claims without a volume that name this class.
func (c *Claims) OfClass(class string) []*v1.PersistentVolumeClaim { return c.byClass(class) }

// From returns the claims without a volume that name this source of their data, whose UID does not count.
func (c *Claims) From(source volume.SourceRef) []*v1.PersistentVolumeClaim {
	return c.bySource(groupOf(source))
}

// groupOf returns the group of a source in bySource, empty for no source.
func groupOf(source volume.SourceRef) string {
	if source.Kind == volume.SourceNone {
		return ""
	}
	return string(source.Kind) + "/" + source.Namespace + "/" + source.Name
}

// classOf returns the group of a claim in byClass, empty for none.
func classOf(claim *v1.PersistentVolumeClaim) string {
	if claim.Spec.VolumeName != "" {
		return ""
	}
	return objects.ClaimClass(claim)
}

// sourceOf returns the group of a claim in bySource, empty for none.
func sourceOf(claim *v1.PersistentVolumeClaim) string {
	if claim.Spec.VolumeName != "" {
		return ""
	}
	return groupOf(request.SourceOf(claim))
}

// Whole reports whether the cache keeps such a claim completely, so that it may be written or given to a request
// builder.
func Whole(claim *v1.PersistentVolumeClaim) bool {
	return claim.Spec.VolumeName == "" || IsTerminatingSource(claim)
}

// IsTerminatingSource reports whether a claim is being deleted and protected as the source of clones.
func IsTerminatingSource(claim *v1.PersistentVolumeClaim) bool {
	return claim.DeletionTimestamp != nil && slices.Contains(claim.Finalizers, request.CloningFinalizer)
}

// RecordClaim copies the kept fields of a claim, because the claims of a list share one allocation. known means that
// the cache has the claim, and goes on to keep it.
var RecordClaim = kube.RecordSome(func(claim *v1.PersistentVolumeClaim, known bool) (_ *v1.PersistentVolumeClaim,
	keep bool) {
	switch {
	case Whole(claim):
	case known:
		return partOf(claim), false
	default:
		return identityOf(claim), false
	}
	own := *claim
	own.ManagedFields = nil
	return &own, true
})

// identityOf returns the fields that a Follower needs of a claim that the cache does not keep. The cache holds them for
// all bound claims until its first list is complete: 50,000 with all fields for decisions would take 35 MiB more.
func identityOf(claim *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
		},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: claim.Spec.VolumeName},
	}
}

// partOf returns the fields that decisions need of a claim that is not kept whole.
func partOf(claim *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaim {
	part := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, ResourceVersion: claim.ResourceVersion,
			DeletionTimestamp: claim.DeletionTimestamp, Annotations: maps.Clone(claim.Annotations),
		},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: claim.Spec.VolumeName, StorageClassName: claim.Spec.StorageClassName},
	}
	maps.DeleteFunc(part.Annotations, func(name, _ string) bool {
		return name != volume.AnnProvisioner && name != volume.AnnProvisionerBeta && name != volume.AnnSelectedNode &&
			name != v1.BetaStorageClassAnnotation
	})
	return part
}

// claimChanges handles the events of claims.
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

// note updates names after a change of one claim, where before or now may be nil.
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
