package objects

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Volume holds the properties by which a fence of volumes recognizes a volume. No fence covers the zero value.
type Volume struct {
	// Driver is the CSI driver of the PV, or "" if the PV has none or is unknown.
	Driver string
	// Attributes are spec.csi.volumeAttributes of the PV.
	Attributes map[string]string
}

// VolumeOf returns the record of a PV.
func VolumeOf(o *v1.PersistentVolume) Volume {
	if o.Spec.CSI == nil {
		return Volume{}
	}
	return Volume{o.Spec.CSI.Driver, maps.Clone(o.Spec.CSI.VolumeAttributes)}
}

// CoversVolume reports whether one of these fences covers the volume. A driver may serve several storage systems, and a
// fence concerns only one of them. A volume is therefore covered if it has every attribute that the fence names,
// because a volume without one may be in another storage system. A fence without attributes covers no volume, unless it
// is explicitly for all.
func CoversVolume(fenced []v1alpha1.CoveredVolumes, v Volume) bool {
	return slices.ContainsFunc(fenced, func(of v1alpha1.CoveredVolumes) bool {
		return v.Driver != "" && of.Driver == v.Driver && covers(of, v.Attributes)
	})
}

func covers(of v1alpha1.CoveredVolumes, attributes map[string]string) bool {
	if of.Volumes == v1alpha1.VolumesAll {
		return len(of.VolumeAttributes) == 0
	}
	for key, wanted := range of.VolumeAttributes {
		if value, found := attributes[key]; !found || value != string(wanted) {
			return false
		}
	}
	return of.Volumes == v1alpha1.VolumesMatching && len(of.VolumeAttributes) > 0
}

// Shared reports whether an access mode allows more than one node.
func Shared(modes []v1.PersistentVolumeAccessMode) bool {
	return slices.Contains(modes, v1.ReadWriteMany) || slices.Contains(modes, v1.ReadOnlyMany)
}
