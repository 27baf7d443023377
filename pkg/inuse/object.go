package inuse

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Object holds the recorded fields of a PV or a claim.
type Object struct {
	// Namespace is empty for a PV.
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	// Terminating is true if the object has a deletionTimestamp.
	Terminating bool
	// Protected is true if the object has the finalizer.
	Protected bool
	// Owner is the UID of the object that controls this one, empty for none. It is the pod of a claim for a generic
	// ephemeral volume.
	Owner types.UID
}

// ObjectOf returns the needed fields of an object that the finalizer may protect.
func ObjectOf(o metav1.Object, finalizer string) Object {
	object := Object{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		Terminating: o.GetDeletionTimestamp() != nil, Protected: slices.Contains(o.GetFinalizers(), finalizer),
	}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		object.Owner = owner.UID
	}
	return object
}

// AsDeleted returns the object as if it were being deleted and held by the finalizer.
func (o Object) AsDeleted() Object {
	o.Terminating, o.Protected = true, true
	return o
}

// Key returns the object's name, after the namespace if it has one.
func (o Object) Key() string { return cache.NewObjectName(o.Namespace, o.Name).String() }

// Needs reports whether the object may need a write. An object that has the finalizer and is not terminating needs
// none, and is not recorded.
func (o Object) Needs() bool { return o.Terminating == o.Protected }
