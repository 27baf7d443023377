package objects

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Volume is what a volume is known by to a fence of volumes. The zero value: no fence covers it.
type Volume struct {
	// Driver is the CSI driver of its PV, empty for none or where it is not known.
	Driver string
	// Attributes are spec.csi.volumeAttributes of the PV.
	Attributes map[string]string
}

// VolumeOf reads what is needed of a PV.
func VolumeOf(o *v1.PersistentVolume) Volume {
	if o.Spec.CSI == nil {
		return Volume{}
	}
	return Volume{o.Spec.CSI.Driver, maps.Clone(o.Spec.CSI.VolumeAttributes)}
}

// CoversVolume reports whether one of these fences covers the volume. One driver may serve several storage systems, and
// a fence is of one, so a volume is covered if it has each attribute that the fence names: one that it lacks may be of
// another storage system. A fence that names none covers none, unless it says that it covers all.
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
