package view

import (
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Around holds an object and the objects related to it. Objects that could not be read are missing.
type Around struct {
	Subject Ref
	PVs     []*v1.PersistentVolume
	Claims  []*v1.PersistentVolumeClaim
	Pods    []explain.Pod
	// Nodes holds the related nodes that exist, and Gone the names of related nodes that do not.
	Nodes       []*v1.Node
	Gone        []string
	Attachments []storagev1.VolumeAttachment
	Fences      []*v1alpha1.NodeFence
	// Finalizers holds the explained finalizers of the subject and its PV, by Ref.ID.
	Finalizers map[string][]explain.Finalizer
	// More counts the objects that were left out.
	More int
}
