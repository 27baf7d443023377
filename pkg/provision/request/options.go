package request

import (
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// Options is the claim that is to get a volume, with what its volume is to be like.
type Options struct {
	// Claim and Class are as the watch cache has them: not to be changed. Required.
	Claim *v1.PersistentVolumeClaim
	Class *storagev1.StorageClass
	// Node is the node that the scheduler has selected, nil if none was, or if it was not read.
	Node *v1.Node
}

// SelectedNode returns the name of the claim's selected node, empty if none is.
func (o Options) SelectedNode() string { return o.Claim.Annotations[annSelectedNode] }
