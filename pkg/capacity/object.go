package capacity

import (
	"encoding/json"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Labels of the objects, with the same keys and values as external-provisioner's.
const (
	// LabelDriver holds the name of the CSI driver, as in the field provisioner of its classes.
	LabelDriver = "csi.storage.k8s.io/drivername"
	// LabelManagedBy identifies the program that manages the object; see Config.ManagedBy.
	LabelManagedBy = "csi.storage.k8s.io/managed-by"
)

// namePrefix is the generateName of the objects; the API server adds a random suffix.
const namePrefix = "csisc-"

func labelsOf(driver, managedBy string) labels.Set {
	return labels.Set{LabelDriver: driver, LabelManagedBy: managedBy}
}

// objectOf reads the record of an object, without keeping a reference to the object.
func objectOf(o *storagev1.CSIStorageCapacity, ours labels.Set) Object {
	object := Object{
		Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		Item:        WorkItem{o.StorageClassName, segmentOf(o.NodeTopology)},
		Ours:        ours.AsSelector().Matches(labels.Set(o.Labels)),
		Terminating: o.DeletionTimestamp != nil,
		Controlled:  metav1.GetControllerOfNoCopy(o) != nil,
		Capacity:    Capacity{Available: sizeOf(o.Capacity), MaximumVolumeSize: sizeOf(o.MaximumVolumeSize)},
	}
	for _, owner := range o.OwnerReferences {
		object.Owners = append(object.Owners, owner.UID)
	}
	return object
}

// ownedBy reports whether the object has that owner, which is true for nil because no owner is configured then.
func (o Object) ownedBy(owner *metav1.OwnerReference) bool {
	return owner == nil || slices.Contains(o.Owners, owner.UID)
}

func sizeOf(q *resource.Quantity) Size {
	if q == nil {
		return Size{}
	}
	return Size{Bytes: q.Value(), Known: true}
}

func (s Size) quantity() *resource.Quantity {
	if !s.Known {
		return nil
	}
	return resource.NewQuantity(s.Bytes, resource.BinarySI)
}

func newObject(item WorkItem, a Capacity, marks labels.Set,
	owner *metav1.OwnerReference) *storagev1.CSIStorageCapacity {
	o := &storagev1.CSIStorageCapacity{
		ObjectMeta:       metav1.ObjectMeta{GenerateName: namePrefix, Labels: marks},
		StorageClassName: item.Class, NodeTopology: &metav1.LabelSelector{MatchLabels: item.Segment.Labels()},
		Capacity: a.Available.quantity(), MaximumVolumeSize: a.MaximumVolumeSize.quantity(),
	}
	if owner != nil {
		o.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return o
}

// patchOf returns the strategic merge patch that writes the capacity, and the owner where it is missing. The patch
// carries the UID and resourceVersion that were read, and keeps other owners.
func patchOf(o Object, a Capacity, owner *metav1.OwnerReference) ([]byte, error) {
	about := map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion}
	if owner != nil && !o.Owned {
		own := *owner
		if o.Controlled {
			own.Controller = nil // an object has at most one controller; garbage collection considers all owners
		}
		about["ownerReferences"] = []metav1.OwnerReference{own}
	}
	body, err := json.Marshal(map[string]any{"metadata": about, "capacity": a.Available.quantity(),
		"maximumVolumeSize": a.MaximumVolumeSize.quantity()})
	if err != nil {
		return nil, fmt.Errorf("write a patch of CSIStorageCapacity %q: %w", o.Name, err)
	}
	return body, nil
}
