package explain

import (
	"strings"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// PV holds the fields of a PersistentVolume that explanations need.
type PV struct {
	volume.PV
	// Tree holds the fields of an in-tree volume; nil for any other volume.
	Tree *intree.PV
	// FormerPlugin is the in-tree plugin that the volume needs, if some version of Kubernetes lacks it; empty otherwise.
	FormerPlugin string
}

// PVOf converts a PersistentVolume into a value that keeps no reference to o.
func PVOf(o *v1.PersistentVolume) PV {
	pv := PV{PV: volume.Of(o), FormerPlugin: formerPlugin(o)}
	if pv.InTree {
		tree := intree.Of(o)
		pv.Tree = &tree
	}
	return pv
}

// PolicyName returns the PV's reclaim policy as the Kubernetes API spells it.
func (pv PV) PolicyName() string {
	switch pv.Policy {
	case volume.PolicyDelete:
		return string(v1.PersistentVolumeReclaimDelete)
	case volume.PolicyRetain:
		return string(v1.PersistentVolumeReclaimRetain)
	case volume.PolicyRecycle:
		return string(v1.PersistentVolumeReclaimRecycle)
	case volume.PolicyUnknown:
	}
	return "unknown"
}

// WantsDeletion reports whether the PV's own fields ask for the deletion of its volume.
func (pv PV) WantsDeletion() bool {
	return pv.Policy == volume.PolicyDelete && (pv.Phase == volume.PhaseReleased || pv.Phase == volume.PhaseFailed) &&
		pv.Claim.UID != ""
}

// inTreePrefix begins the name of every in-tree volume plugin.
const inTreePrefix = "kubernetes.io/"

// CSIName reports whether the name of a provisioner can be a CSI driver's, which never contains a slash
// (ValidateCSIDriverName in pkg/apis/core/validation).
func CSIName(provisioner string) bool {
	return provisioner != "" && !strings.Contains(provisioner, "/")
}

// InTree reports whether an owner of PVs is an in-tree volume plugin.
func InTree(owner string) bool { return strings.HasPrefix(owner, inTreePrefix) }

// ClaimClass returns the name of a claim's StorageClass, empty for none.
func ClaimClass(claim *v1.PersistentVolumeClaim) string {
	if class, found := claim.Annotations[v1.BetaStorageClassAnnotation]; found {
		return class
	}
	if claim.Spec.StorageClassName != nil {
		return *claim.Spec.StorageClassName
	}
	return ""
}

// The plugins that Kubernetes had up to 1.30. The others left before any version still in use.
const (
	RBD    = "rbd"
	CephFS = "cephfs"
)

// formerPlugin returns the in-tree plugin that a PV needs, if Kubernetes has removed it in any version, and otherwise
// an empty string. The list follows the documentation of PersistentVolumeSource in core/v1 ("no longer supported").
func formerPlugin(o *v1.PersistentVolume) string {
	switch s := o.Spec.PersistentVolumeSource; {
	case s.RBD != nil:
		return RBD
	case s.CephFS != nil:
		return CephFS
	case s.Glusterfs != nil:
		return "glusterfs"
	case s.Flocker != nil:
		return "flocker"
	case s.Quobyte != nil:
		return "quobyte"
	case s.StorageOS != nil:
		return "storageos"
	case s.ScaleIO != nil:
		return "scaleIO"
	case s.PhotonPersistentDisk != nil:
		return "photonPersistentDisk"
	}
	return ""
}
