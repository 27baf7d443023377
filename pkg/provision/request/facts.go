package request

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
)

// Facts are all that is known about a claim when its volume is asked for. Nothing of it is
// changed. Needs says which of the optional ones have to be there.
//
// Nil stands for an object that does not exist. A read that failed is not a fact: the caller
// returns its error and asks for no plan.
type Facts struct {
	// Claim and Class are required. The class is as the API server has it, untranslated.
	Claim *v1.PersistentVolumeClaim
	Class *storagev1.StorageClass
	// Attributes is the VolumeAttributesClass that the claim names.
	Attributes *storagev1.VolumeAttributesClass
	// AttributesUnserved: the API server does not serve VolumeAttributesClasses.
	AttributesUnserved bool
	// Source is what the claim's data come from.
	Source Source

	// Selected is the node that the claim's annotation selected-node names.
	Selected *topology.Node
	// Nodes are all nodes, in any order.
	Nodes []topology.Node

	Driver   Driver
	Settings Settings
}

// Driver is what the driver said about itself.
type Driver struct {
	// Name is that of GetPluginInfo.
	Name string
	// Plugin are the capabilities of GetPluginCapabilities.
	Plugin map[csi.PluginCapability_Service_Type]bool
	// Controller are the capabilities of ControllerGetCapabilities.
	Controller map[csi.ControllerServiceCapability_RPC_Type]bool
}

// topology reports whether the driver's volumes are not equally reachable from all nodes.
func (d Driver) topology() bool {
	return d.Plugin[csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS]
}

// claimName names the claim in sentences.
func (f Facts) claimName() string { return f.Claim.Namespace + "/" + f.Claim.Name }

// size returns the bytes that the claim asks for, rounded up.
func (f Facts) size() int64 {
	request := f.Claim.Spec.Resources.Requests[v1.ResourceStorage]
	return request.Value()
}

// block reports whether the claim wants a device instead of a filesystem.
func block(mode *v1.PersistentVolumeMode) bool {
	return mode != nil && *mode == v1.PersistentVolumeBlock
}

// modeName names a volume mode; nil is Filesystem (core/v1).
func modeName(mode *v1.PersistentVolumeMode) v1.PersistentVolumeMode {
	if mode == nil {
		return v1.PersistentVolumeFilesystem
	}
	return *mode
}
