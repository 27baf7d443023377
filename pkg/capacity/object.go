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

// Labels of the objects, as external-provisioner has them.
const (
	// LabelDriver has the driver's name as its value.
	LabelDriver = "csi.storage.k8s.io/drivername"
	// LabelManagedBy says who of several keeps the object: see Config.ManagedBy.
	LabelManagedBy = "csi.storage.k8s.io/managed-by"
)

// namePrefix begins the names of the objects, which the API server completes.
const namePrefix = "csisc-"

// labelsOf are what makes an object ours.
func labelsOf(driver, managedBy string) labels.Set {
	return labels.Set{LabelDriver: driver, LabelManagedBy: managedBy}
}

// objectOf reads what is kept of an object, without keeping a reference to it.
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

// ownedBy reports whether an owner is among the object's; true for nil, which is no owner.
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

// newObject makes the object of an item.
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

// patchOf is the strategic merge patch that writes an answer, and the owner where it is missing, into
// an object, only if that is exactly as it was read. Other owners stay.
func patchOf(o Object, a Capacity, owner *metav1.OwnerReference) ([]byte, error) {
	about := map[string]any{"uid": o.UID, "resourceVersion": o.ResourceVersion}
	if owner != nil && !o.Owned {
		own := *owner
		if o.Controlled {
			own.Controller = nil // there can be one only; what it owns goes with all of its owners
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
