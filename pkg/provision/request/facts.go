package request

import (
	"github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Facts describe a claim and the objects from which its request is built, and are never changed. Needs returns the
// optional facts that are required.
//
// Nil stands for an object that does not exist. A failed read is not a fact: the caller returns its error and makes no
// plan.
type Facts struct {
	// Name is the name of the volume and PV. Default: the result of VolumeName.
	Name string
	// Claim and Class are required, where Class is the untranslated object of the API server.
	Claim *v1.PersistentVolumeClaim
	Class *storagev1.StorageClass
	// Attributes is the VolumeAttributesClass that the claim names.
	Attributes *storagev1.VolumeAttributesClass
	// AttributesUnserved means that the API server does not serve VolumeAttributesClasses.
	AttributesUnserved bool
	// Source has the facts about the source of the claim's data.
	Source Source

	// Selected is the node of the claim's annotation selected-node.
	Selected *topology.Node
	// Nodes lists all nodes, in any order.
	Nodes []topology.Node

	Driver   Driver
	Settings Settings
}

// Driver holds the driver's identity and capabilities.
type Driver struct {
	// Name is the name from GetPluginInfo.
	Name string
	// Plugin has the capabilities from GetPluginCapabilities.
	Plugin map[csi.PluginCapability_Service_Type]bool
	// Controller has the capabilities from ControllerGetCapabilities.
	Controller map[csi.ControllerServiceCapability_RPC_Type]bool
}

// topology reports whether the accessibility of the driver's volumes depends on the node.
func (d Driver) topology() bool {
	return d.Plugin[csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS]
}

// claimName returns the claim's name for messages.
func (f Facts) claimName() string { return f.Claim.Namespace + "/" + f.Claim.Name }

// size returns the requested size in bytes, rounded up.
func (f Facts) size() int64 {
	request := f.Claim.Spec.Resources.Requests[v1.ResourceStorage]
	return request.Value()
}

// block reports whether the claim requests a block device instead of a filesystem.
func block(mode *v1.PersistentVolumeMode) bool { return modeName(mode) == v1.PersistentVolumeBlock }

// modeName returns the name of a volume mode; nil is Filesystem (core/v1).
func modeName(mode *v1.PersistentVolumeMode) v1.PersistentVolumeMode {
	return ptr.Deref(mode, v1.PersistentVolumeFilesystem)
}

// Options is a claim that gets a volume, with the objects that its request depends on.
type Options struct {
	// Name is the name of the volume and PV, because a claim keeps the name of its first request. Default: the result of
	// VolumeName.
	Name string
	// Claim and Class are shared with the watch caches and must not be changed. Required.
	Claim *v1.PersistentVolumeClaim
	Class *storagev1.StorageClass
	// Node is the node that the scheduler selected, nil if none was selected or it was not read.
	Node *v1.Node
}

// SelectedNode returns the name of the claim's selected node, empty if none is selected.
func (o Options) SelectedNode() string { return o.Claim.Annotations[volume.AnnSelectedNode] }
