package view

import (
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Around is an object, and what belongs to it. What could not be read is missing.
type Around struct {
	Subject Ref
	PVs     []*v1.PersistentVolume
	Claims  []*v1.PersistentVolumeClaim
	Pods    []pods.Pod
	// Nodes are those that exist, and Gone the names of those that do not.
	Nodes       []*v1.Node
	Gone        []string
	Attachments []storagev1.VolumeAttachment
	Fences      []*v1alpha1.NodeFence
	// Finalizers are those of the explanation, for the objects that it has them of, by Ref.ID.
	Finalizers map[string][]explain.Finalizer
	// More is how many objects were left out.
	More int
}
