package podsafety

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"

// Action is one step. The zero value is to do nothing.
type Action uint8

const (
	// Wait: nothing is to be done now.
	Wait Action = iota
	// AddFinalizer adds the finalizer to a pod that is not terminating.
	AddFinalizer
	// ReadPod, ReadNode, ReadLease and ReadFence read the pod, its node, the node's Lease, and the fence of the node from
	// the API server.
	ReadPod
	ReadNode
	ReadLease
	ReadFence
	// ForceDelete deletes the pod without grace, if it has the UID: a pod whose grace is not 0 would stay without the
	// finalizer too.
	ForceDelete
	// RemoveFinalizer removes the finalizer from a pod that is terminating: only if it still is as it was judged.
	RemoveFinalizer
	// RemoveFinalizerByUID removes the finalizer because volume-guard is uninstalled, whatever else changed on the pod.
	RemoveFinalizerByUID
)

// String returns the action as used in logs.
func (a Action) String() string {
	names := [...]string{
		Wait: "Wait", AddFinalizer: "AddFinalizer", ReadPod: "ReadPod", ReadNode: "ReadNode", ReadLease: "ReadLease",
		ReadFence: "ReadFence", ForceDelete: "ForceDelete", RemoveFinalizer: "RemoveFinalizer",
		RemoveFinalizerByUID: "RemoveFinalizerByUID",
	}
	if int(a) < len(names) {
		return names[a]
	}
	return "Unknown"
}

// Kind returns what the action does to the objects. One that is not known may write.
func (a Action) Kind() session.Kind {
	switch a {
	case Wait:
		return session.Waits
	case ReadPod, ReadNode, ReadLease, ReadFence:
		return session.Reads
	default:
		return session.Writes
	}
}
