package inflight

import (
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Entry is one volume whose CreateVolume may have been called and whose outcome is not settled. It holds all
// that is needed to repeat the same request and to create the PersistentVolume, also when the claim, its
// StorageClass, its node or its namespace are gone. It holds no Secret's value.
type Entry struct {
	// Volume is the name of the volume and of its PersistentVolume. It identifies the entry. Required.
	Volume string
	// Claim is the claim that the volume is for. Required.
	Claim Claim
	// Begun is when the entry was added.
	Begun time.Time
	// Epoch is the epoch of the process that added the entry. Put sets it.
	Epoch int64
	// Discarding: DeleteVolume may have been called for a volume that is not what was asked for.
	Discarding bool
	// Requests are the requests that may have been sent, one or two. Required.
	Requests []Request
}

// Claim names a PersistentVolumeClaim.
type Claim struct {
	Namespace, Name string
	UID             types.UID
}

// Request is one CreateVolume request and what becomes of its answer.
type Request struct {
	// Node is the node that was selected for the claim, empty if none was.
	Node string
	// Create is the request without its secrets. It is not changed. Required.
	Create *csi.CreateVolumeRequest
	// Secret names the Secret that goes with CreateVolume and DeleteVolume, nil for none.
	Secret *v1.SecretReference
	// Source is what the data of the volume come from, nil for an empty volume.
	Source *Source
	// DriverVersion is the vendor_version of the driver that was called first, empty if it is not known.
	// OtherVersions: another version may have been called, too.
	DriverVersion string
	OtherVersions bool
	// MayReschedule: where the driver has no room (ResourceExhausted), another node may have.
	MayReschedule bool
	// PV is the PersistentVolume but for what the driver's answer adds: handle, attributes, capacity and node
	// affinity. Required.
	PV *v1.PersistentVolume
	// Topology: the PersistentVolume's node affinity is the volume's accessible_topology.
	Topology bool
	// Migrated: the PersistentVolume is stored in the form of the in-tree plugin that the driver took over from.
	Migrated bool
}

// Source names what a volume is made from.
type Source struct {
	// Kind is PersistentVolumeClaim or VolumeSnapshot.
	Kind, Namespace, Name string
	UID                   types.UID
}
