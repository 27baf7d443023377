package volume

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Annotations of a claim that the PV controller and the scheduler write.
const (
	// AnnProvisioner names the provisioner that the PV controller asks for the claim's volume, as AnnProvisionerBeta did
	// before Kubernetes 1.23.
	AnnProvisioner     = "volume.kubernetes.io/storage-provisioner"
	AnnProvisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
	// AnnSelectedNode names the node that the scheduler has selected for a claim that binds late.
	AnnSelectedNode = "volume.kubernetes.io/selected-node"
)

// ProvisionerOf returns the provisioner that the PV controller asks for a claim's volume.
func ProvisionerOf(claim *v1.PersistentVolumeClaim) (name string, asked bool) {
	if name, asked = claim.Annotations[AnnProvisioner]; !asked {
		name, asked = claim.Annotations[AnnProvisionerBeta]
	}
	return name, asked
}

// SourceKind is the kind of a source of data. The zero value stands for an empty volume.
type SourceKind string

// Kinds of sources that CSI drivers create volumes from.
const (
	SourceNone     SourceKind = ""
	SourceSnapshot SourceKind = "VolumeSnapshot"
	SourceClaim    SourceKind = "PersistentVolumeClaim"
)

// SourceRef names the source of a new volume's data, none if it is the zero value. It is comparable, and can be stored
// as JSON.
type SourceRef struct {
	Kind      SourceKind
	Namespace string
	Name      string
	// UID is empty if only the name is known.
	UID types.UID
}
