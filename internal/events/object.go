package events

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Object is the subject of a report.
type Object struct {
	v1.ObjectReference
	// Claim is the claim of a PV, the zero value for none.
	Claim v1.ObjectReference
	// Set is the StatefulSet of a claim, the zero value for none.
	Set v1.ObjectReference
	// Node is the node of a NodeFence or a FencePolicy, the zero value for none; each Event is recorded on it too.
	Node v1.ObjectReference
	// Key distinguishes reports on one object that have different subjects, by default its UID.
	Key types.UID
	// Prefix begins each message, and names the subject.
	Prefix string
}

// key is the key under which reports are remembered.
func (o Object) key() types.UID {
	if o.Key != "" {
		return o.Key
	}
	return o.UID
}

// Claim returns a reference to a PersistentVolumeClaim.
func Claim(namespace, name string, uid types.UID) v1.ObjectReference {
	return v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name, UID: uid}
}

// Pod returns the Object of a Pod.
func Pod(namespace, name string, uid types.UID, resourceVersion string) Object {
	return Object{ObjectReference: v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name,
		UID: uid, ResourceVersion: resourceVersion}}
}

// PV returns the Object of a PersistentVolume and its claim, if it has one.
func PV(name string, uid types.UID, resourceVersion string, claim volume.ClaimRef) Object {
	o := Object{ObjectReference: v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolume", Name: name, UID: uid,
		ResourceVersion: resourceVersion}}
	if claim.Name != "" {
		o.Claim = Claim(claim.Namespace, claim.Name, claim.UID)
	}
	return o
}

// Set returns a reference to a StatefulSet.
func Set(namespace, name string, uid types.UID) v1.ObjectReference {
	return v1.ObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Namespace: namespace, Name: name, UID: uid}
}

// Node returns a reference to a Node, whose UID is the name, as in the Events of kubelets, so that kubectl describe
// finds both.
func Node(name string) v1.ObjectReference {
	return v1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: name, UID: types.UID(name)}
}

// Lease returns the Object of a Lease, for reports that concern no other object.
func Lease(at types.NamespacedName) Object {
	return Object{ObjectReference: v1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease",
		Namespace: at.Namespace, Name: at.Name}}
}

// logged returns the object's keys and values for the log.
func (o Object) logged() []any {
	switch {
	case o.Kind == "PersistentVolumeClaim":
		return []any{"claim", klog.KRef(o.Namespace, o.Name)}
	case o.Kind != "PersistentVolume":
		return []any{o.Kind, klog.KRef(o.Namespace, o.Name)}
	case o.Claim.Name == "":
		return []any{"PV", o.Name}
	}
	return []any{"PV", o.Name, "claim", klog.KRef(o.Claim.Namespace, o.Claim.Name)}
}
