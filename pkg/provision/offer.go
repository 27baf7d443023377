package provision

import (
	"context"
	"slices"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
)

// offerWorkers is the number of workers that select claims. They only read memory.
const offerWorkers = 4

// offer queues a claim that may have to be provisioned, unless its PV is stored.
func (p *Controller) offer(claim *v1.PersistentVolumeClaim) {
	wanted := claim.Spec.VolumeName == "" && claim.DeletionTimestamp == nil &&
		p.at(claim) != provision.NodeElsewhere && p.ours(claim)
	if p.working() && wanted && !p.stored(claim.UID) {
		p.offers.Add(keyOf(claim))
	}
}

// accept queues the volume of an offered claim that this process has to provision now. The PV controller asks for a
// volume by its annotation on the claim, so a claim without one waits.
func (p *Controller) accept(ctx context.Context, k key) controller.Result {
	claim := p.claims.WholeByUID(k.uid)
	if claim == nil {
		return controller.Done()
	}
	if _, asked := askedOf(claim); asked && p.wants(ctx, claim) {
		name := p.nameOf(k.uid)
		p.tracker.want(name, k)
		p.queue.Add(name)
	}
	return controller.Done()
}

// wants reports whether this process has to provision a claim now.
func (p *Controller) wants(ctx context.Context, claim *v1.PersistentVolumeClaim) bool {
	class := p.classOf(claim)
	switch {
	case claim.DeletionTimestamp != nil, claim.Spec.VolumeName != "", !p.ours(claim), class == nil:
		return false
	case !slices.Contains(p.names, class.Provisioner):
		return false
	case p.at(claim) == provision.NodeElsewhere, late(class) && claim.Annotations[caches.AnnSelectedNode] == "":
		return false
	}
	if q, ok := p.requests.(Qualifier); ok {
		if err := q.Ignores(claim, class); err != nil {
			p.announce(ctx, claim, err)
			return false
		}
	}
	if p.at(claim) == provision.NodeNone {
		p.selecting.Add(keyOf(claim))
		return false
	}
	return true
}
