package singlenode

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"

// Action is one step. The zero value is to do nothing.
type Action uint8

const (
	// Wait: nothing is to be done now.
	Wait Action = iota
	// ReadNamespace, ReadClaim, ReadHolder, ReadFence and ReadNode read the namespace of the pod, a claim, the pod that a
	// lock names, and the fence of a node and its Node from the API server. ListPods lists the pods of the namespace.
	ReadNamespace
	ReadClaim
	ReadHolder
	ReadFence
	ReadNode
	ListPods
	// TakeLock writes lock and finalizer to a claim, if it still is as it was read.
	TakeLock
	// FreeLock removes lock and finalizer from a claim, if it still is as it was read.
	FreeLock
	// RemoveGate removes the gate from the pod, which can be scheduled then.
	RemoveGate
)

// String returns the action as used in logs.
func (a Action) String() string {
	names := [...]string{
		Wait: "Wait", ReadNamespace: "ReadNamespace", ReadClaim: "ReadClaim", ReadHolder: "ReadHolder",
		ReadFence: "ReadFence", ReadNode: "ReadNode", ListPods: "ListPods", TakeLock: "TakeLock", FreeLock: "FreeLock",
		RemoveGate: "RemoveGate",
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
	case ReadNamespace, ReadClaim, ReadHolder, ReadFence, ReadNode, ListPods:
		return session.Reads
	default:
		return session.Writes
	}
}
