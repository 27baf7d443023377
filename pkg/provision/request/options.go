package request

import (
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

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
func (o Options) SelectedNode() string { return o.Claim.Annotations[annSelectedNode] }
