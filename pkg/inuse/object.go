package inuse

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Object is what is kept of a PV or a claim.
type Object struct {
	// Namespace is empty for a PV.
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	// Terminating: it has a deletionTimestamp.
	Terminating bool
	// Protected: it carries the finalizer.
	Protected bool
}

// ObjectOf reads what is needed of an object that the finalizer may protect.
func ObjectOf(o metav1.Object, finalizer string) Object {
	return Object{
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
		Terminating: o.GetDeletionTimestamp() != nil, Protected: slices.Contains(o.GetFinalizers(), finalizer),
	}
}

// AsDeleted returns the object as it is once it is being deleted and held by the finalizer.
func (o Object) AsDeleted() Object {
	o.Terminating, o.Protected = true, true
	return o
}

// Key is what the object is found by: its name, after the namespace if it has one.
func (o Object) Key() string { return cache.NewObjectName(o.Namespace, o.Name).String() }

// Needs reports whether anything may have to be done for the object. What has a finalizer and is not
// terminating needs nothing, and nothing is kept of it.
func (o Object) Needs() bool { return o.Terminating == o.Protected }
