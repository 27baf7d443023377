package provision

import (
	"context"
	"slices"

	"k8s.io/api/core/v1"
	libcontroller "sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
)

// provisioner is what the library calls. It is safe for concurrent use.
type provisioner struct{ *Controller }

var (
	_ libcontroller.Qualifier        = provisioner{}
	_ libcontroller.BlockProvisioner = provisioner{}
)

// SupportsBlock leaves it to the driver to refuse a block volume, as the stock provisioner does.
func (provisioner) SupportsBlock(context.Context) bool { return true }

// Delete never deletes: PVs and their volumes are the matter of package reclaim, and the volumes
// that have no PV that of the engine. The library calls it where it takes a PV for one that could
// not be stored, on the strength of answers that were lost.
func (provisioner) Delete(context.Context, *v1.PersistentVolume) error {
	return &libcontroller.IgnoredError{Reason: "volumes are deleted elsewhere"}
}

// ShouldProvision reports whether Provision is to be called for a claim now.
func (l provisioner) ShouldProvision(ctx context.Context, claim *v1.PersistentVolumeClaim) bool {
	return l.working() && l.wants(ctx, claim)
}

// Provision puts the claim's volume into the queue. The library is told that there is nothing to store, to record or
// to try again.
func (l provisioner) Provision(_ context.Context, options libcontroller.ProvisionOptions) (*v1.PersistentVolume,
	libcontroller.ProvisioningState, error) {
	name := l.nameOf(options.PVC.UID)
	l.tracker.want(name, keyOf(options.PVC))
	l.queue.Add(name)
	return nil, libcontroller.ProvisioningFinished, &libcontroller.IgnoredError{Reason: "it is queued"}
}

// wants reports whether a claim is to get its volume here and now. It repeats what the library checks: later tries do
// not go through it.
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
