package podsafety

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Action is one step. The zero value is [Wait].
type Action uint8

const (
	// Wait does nothing until the next event or the end of the wait.
	Wait Action = iota
	// AddFinalizer adds the finalizer to a pod that is not terminating.
	AddFinalizer
	// ReadPod, ReadNode, ReadLease and ReadFence read the pod, its node, the node's Lease and the node's fence from the
	// API server, and succeed if the object does not exist.
	ReadPod
	ReadNode
	ReadLease
	ReadFence
	// ForceDelete deletes the pod without grace, with its UID as a precondition. It is needed before RemoveFinalizer,
	// because a pod whose grace is not 0 would stay even without the finalizer.
	ForceDelete
	// RemoveFinalizer removes the finalizer from a terminating pod, if the pod is unchanged since it was judged.
	RemoveFinalizer
	// RemoveFinalizerByUID removes the finalizer because volume-guard is uninstalled, regardless of other changes to the
	// pod.
	RemoveFinalizerByUID
)

var actionNames = []string{
	Wait: "Wait", AddFinalizer: "AddFinalizer", ReadPod: "ReadPod", ReadNode: "ReadNode", ReadLease: "ReadLease",
	ReadFence: "ReadFence", ForceDelete: "ForceDelete", RemoveFinalizer: "RemoveFinalizer",
	RemoveFinalizerByUID: "RemoveFinalizerByUID",
}

// String returns the action as used in logs.
func (a Action) String() string { return session.Name(a, actionNames) }

// Kind returns the effect of the action, where an unknown action counts as a write.
func (a Action) Kind() session.Kind { return session.KindOf(a) }

const (
	// NamespaceLabel on a namespace is the mode of pod safety there: EnforceValue or WarnValue.
	NamespaceLabel = "csi-reclaimer.io/pod-safety"
	EnforceValue   = "enforce"
	WarnValue      = "warn"
)

// Pod is the record of a pod that decisions are made from.
type Pod = objects.Pod
