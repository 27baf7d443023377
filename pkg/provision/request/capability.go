package request

import (
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/accessmodes"
	v1 "k8s.io/api/core/v1"
)

// capabilities returns one capability for each access mode of the claim, in its order. The CSI mode of an access mode,
// with and without the driver's SINGLE_NODE_MULTI_WRITER, comes from a table of csi-lib-utils, which the attacher
// shares.
func (f Facts) capabilities(fsType string) ([]*csi.VolumeCapability, error) {
	modes := f.Claim.Spec.AccessModes
	switch {
	case len(modes) == 0:
		return nil, refuse(ReasonClaimInvalid, "claim %q has no access mode; set spec.accessModes", f.claimName())
	case len(modes) > 1 && slices.Contains(modes, v1.ReadWriteOncePod):
		return nil, refuse(ReasonClaimInvalid,
			"claim %q has ReadWriteOncePod beside other access modes; create it with one or the others", f.claimName())
	}
	var all []*csi.VolumeCapability
	for _, mode := range modes {
		asCSI, err := accessmodes.ToCSIAccessMode([]v1.PersistentVolumeAccessMode{mode},
			f.Driver.Controller[csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER])
		if err != nil {
			return nil, refuse(ReasonClaimInvalid, "claim %q has an access mode that is none: %w", f.claimName(), err)
		}
		capability := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: asCSI}}
		if block(f.Claim.Spec.VolumeMode) {
			capability.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		} else {
			capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{
				FsType: fsType, MountFlags: slices.Clone(f.Class.MountOptions),
			}}
		}
		all = append(all, capability)
	}
	return all, nil
}

// readOnly reports whether the volume is attached read-only: its only access mode is read-only, and the settings
// request it.
func (s Settings) readOnly(capabilities []*csi.VolumeCapability) bool {
	return s.ControllerPublishReadOnly && len(capabilities) == 1 &&
		capabilities[0].GetAccessMode().GetMode() == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}
