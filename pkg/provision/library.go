package provision

import (
	"context"
	"slices"

	"k8s.io/api/core/v1"
	libcontroller "sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/internal/caches"
)

// provisioner implements the library's interfaces, and is safe for concurrent use.
type provisioner struct{ *Controller }

var (
	_ libcontroller.Qualifier        = provisioner{}
	_ libcontroller.BlockProvisioner = provisioner{}
)

// SupportsBlock leaves the refusal of block volumes to the driver, as the stock provisioner does.
func (provisioner) SupportsBlock(context.Context) bool { return true }

// Delete never deletes: package reclaim deletes PVs and their volumes, and the engine deletes volumes without a PV. The
// library calls Delete if lost answers make it believe that a PV could not be stored.
func (provisioner) Delete(context.Context, *v1.PersistentVolume) error {
	return &libcontroller.IgnoredError{Reason: "volumes are deleted elsewhere"}
}

// ShouldProvision reports whether the library has to call Provision for a claim now.
func (l provisioner) ShouldProvision(ctx context.Context, claim *v1.PersistentVolumeClaim) bool {
	return l.working() && l.wants(ctx, claim)
}

// Provision queues the claim's volume, and its result tells the library to store, record and retry no volume.
func (l provisioner) Provision(_ context.Context, options libcontroller.ProvisionOptions) (*v1.PersistentVolume,
	libcontroller.ProvisioningState, error) {
	name := l.nameOf(options.PVC.UID)
	l.tracker.want(name, keyOf(options.PVC))
	l.queue.Add(name)
	return nil, libcontroller.ProvisioningFinished, &libcontroller.IgnoredError{Reason: "it is queued"}
}

// wants reports whether this process has to provision a claim now. It repeats the library's checks, because later tries
// do not go through the library.
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
