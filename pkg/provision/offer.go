package provision

import (
	"context"
	"slices"

	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
)

// offer queues the volume of a claim that this process may have to provision now, unless its PV is stored. It reads
// only memory, because the watch waits for it. The PV controller asks for a volume by its annotation on the claim, so a
// claim without one waits.
func (p *Controller) offer(claim *v1.PersistentVolumeClaim) {
	_, asked := askedOf(claim)
	switch {
	case !p.working(), !asked, p.dueClass(claim) == nil, p.stored(claim.UID):
	case p.at(claim) == provision.NodeNone:
		p.selecting.Add(keyOf(claim))
	default:
		name := p.nameOf(claim.UID)
		p.tracker.want(name, keyOf(claim))
		p.queue.Add(name)
	}
}

// offerOf offers the claim with this UID if the cache knows it as a claim that may need a volume.
func (p *Controller) offerOf(claim types.UID) {
	if whole := p.claims.WholeByUID(claim); whole != nil {
		p.offer(whole)
	}
}

// dueClass returns the class of a claim whose volume is this driver's, and is due according to claim and class. It
// returns nil for other claims.
func (p *Controller) dueClass(claim *v1.PersistentVolumeClaim) *storagev1.StorageClass {
	class := p.classOf(claim)
	switch {
	case claim.DeletionTimestamp != nil, claim.Spec.VolumeName != "", !p.ours(claim), class == nil:
		return nil
	case !slices.Contains(p.names, class.Provisioner):
		return nil
	case p.at(claim) == provision.NodeElsewhere, late(class) && claim.Annotations[caches.AnnSelectedNode] == "":
		return nil
	}
	return class
}

// wantedClass returns the class of a claim that this process has to provision now, and nil for other claims.
func (p *Controller) wantedClass(ctx context.Context, claim *v1.PersistentVolumeClaim) *storagev1.StorageClass {
	class := p.dueClass(claim)
	if class == nil || p.at(claim) == provision.NodeNone || p.ignores(ctx, claim, class) {
		return nil
	}
	return class
}

// ignores reports whether another program provisions a claim.
func (p *Controller) ignores(ctx context.Context, claim *v1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	q, ok := p.requests.(Qualifier)
	if !ok {
		return false
	}
	err := q.Ignores(claim, class)
	if err != nil {
		p.announce(ctx, claim, err)
	}
	return err != nil
}
