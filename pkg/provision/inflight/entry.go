package inflight

import (
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Entry is one volume whose CreateVolume may have been called and whose outcome is not settled. It suffices to repeat
// the same request and to create the PersistentVolume even after the claim, its StorageClass, its node or its namespace
// are gone, but holds no values of Secrets.
type Entry struct {
	// Volume is the name of the volume and of its PersistentVolume, and identifies the entry. Required.
	Volume string
	// Claim is the claim that the volume is created for. Required.
	Claim Claim
	// Begun is the time at which the entry was added.
	Begun time.Time
	// Epoch is the epoch of the process that added the entry, and is set by Put.
	Epoch int64
	// Discarding means that DeleteVolume may have been called for a volume that does not match the request.
	Discarding bool
	// Requests are the requests that may have been sent, one or two. Required.
	Requests []Request
}

// Claim names a PersistentVolumeClaim.
type Claim struct {
	Namespace, Name string
	UID             types.UID
}

// Request is one CreateVolume request, together with the data that turns its answer into a PersistentVolume.
type Request struct {
	// Node is the node that was selected for the claim, empty if none was.
	Node string
	// Create is the request without its secrets, and is never changed. Required.
	Create *csi.CreateVolumeRequest
	// Secret names the Secret that goes with CreateVolume and DeleteVolume, nil for none.
	Secret *v1.SecretReference
	// Source is the source of the volume's data, nil for an empty volume.
	Source *Source
	// DriverVersion is the vendor_version of the driver that was called first, empty if unknown. OtherVersions is set if
	// another version may have been called, too.
	DriverVersion string
	OtherVersions bool
	// MayReschedule is set if another node may have room when the driver answers ResourceExhausted.
	MayReschedule bool
	// PV is the PersistentVolume without the fields that the driver's answer adds: handle, attributes, capacity and node
	// affinity. Required.
	PV *v1.PersistentVolume
	// Topology is set if the PersistentVolume's node affinity comes from the volume's accessible_topology.
	Topology bool
	// Migrated is set if the PersistentVolume is stored in the form of the in-tree plugin that the driver replaces.
	Migrated bool
}

// Source names the source of a volume's data.
type Source struct {
	// Kind is PersistentVolumeClaim or VolumeSnapshot.
	Kind, Namespace, Name string
	UID                   types.UID
}
