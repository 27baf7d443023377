package request

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// cloneHandle returns the handle of the volume to clone. It must belong to a bound claim and to this driver, have the
// same volume mode, and not be larger than requested, while its class does not matter. A volume of the in-tree plugin
// that the driver replaces is known by its CSI name.
func (f Facts) cloneHandle(name types.NamespacedName) (string, error) {
	source, pv := f.Source.Claim, f.Source.PV
	switch {
	case source == nil || source.Namespace != name.Namespace || source.Name != name.Name:
		return "", refuse(ReasonSourceMissing, "claim %q has as its source claim %q, which does not exist", f.claimName(),
			name)
	case source.DeletionTimestamp != nil:
		return "", refuse(ReasonSourceDeleting,
			"claim %q has as its source claim %q, which is being deleted; delete the new claim too, or name another source",
			f.claimName(), name)
	case source.Status.Phase != v1.ClaimBound || source.Spec.VolumeName == "":
		return "", refuse(ReasonSourceNotReady, "claim %q has as its source claim %q, which is %s and has to be Bound",
			f.claimName(), name, source.Status.Phase)
	case pv == nil || pv.Name != source.Spec.VolumeName:
		return "", refuse(ReasonSourceMissing,
			"claim %q has as its source claim %q, whose PersistentVolume %q does not exist", f.claimName(), name,
			source.Spec.VolumeName)
	case !boundTo(pv, source):
		return "", refuse(ReasonSourceNotReady,
			"claim %q has as its source claim %q, whose PersistentVolume %q is not bound to it", f.claimName(), name, pv.Name)
	}
	if err := f.checkClone(source, pv); err != nil {
		return "", err
	}
	volume := volume.Of(pv)
	if volume.Driver != f.Driver.Name || volume.Handle == "" {
		return "", refuse(ReasonSourceUnfit,
			"claim %q has as its source claim %q, whose volume is not one of CSI driver %q; copy the data instead",
			f.claimName(), name, f.Driver.Name)
	}
	return volume.Handle, nil
}

func (f Facts) checkClone(source *v1.PersistentVolumeClaim, pv *v1.PersistentVolume) error {
	size := source.Spec.Resources.Requests[v1.ResourceStorage]
	name := source.Namespace + "/" + source.Name
	switch {
	case f.size() < size.Value():
		return refuse(ReasonSourceUnfit,
			"claim %q requests %d bytes and has as its source claim %q with %d; request at least as many", f.claimName(),
			f.size(), name, size.Value())
	case modeName(f.Claim.Spec.VolumeMode) != modeName(pv.Spec.VolumeMode):
		return refuse(ReasonSourceUnfit,
			"claim %q has volume mode %s and has as its source claim %q with %s; request the same mode",
			f.claimName(), modeName(f.Claim.Spec.VolumeMode), name, modeName(pv.Spec.VolumeMode))
	}
	return nil
}

// boundTo reports whether the PV is bound to the claim.
func boundTo(pv *v1.PersistentVolume, claim *v1.PersistentVolumeClaim) bool {
	ref := pv.Spec.ClaimRef
	return ref != nil && ref.UID == claim.UID && ref.Namespace == claim.Namespace && ref.Name == claim.Name &&
		pv.Status.Phase == v1.VolumeBound
}
