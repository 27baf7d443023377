package singlenode

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"

// Action is one step of a session, Wait in its zero value.
type Action uint8

const (
	// Wait leaves everything unchanged until an event or Decision.After.
	Wait Action = iota
	// ReadNamespace, ReadHolder, ReadFence and ReadNode read one object from the API server: the pod's namespace, the pod
	// named in a lock, the fence of a node, and the Node. ReadClaim reads a claim and, as far as its lock depends on them,
	// its StorageClass and PV. They succeed if an object does not exist. ListPods lists the pods of the namespace, at
	// least as new as the request, and finds the ungated ones that name one of the claims.
	ReadNamespace
	ReadClaim
	ReadHolder
	ReadFence
	ReadNode
	ListPods
	// TakeLock adds lock and finalizer to a claim, provided that the claim has not changed since it was read.
	TakeLock
	// FreeLock removes lock and finalizer from a claim, provided that the claim has not changed since it was read. With
	// Rules.Removing, only the UID has to match.
	FreeLock
	// RemoveGate removes the gate, after which the pod can be scheduled.
	RemoveGate
)

var actionNames = []string{
	Wait: "Wait", ReadNamespace: "ReadNamespace", ReadClaim: "ReadClaim", ReadHolder: "ReadHolder",
	ReadFence: "ReadFence", ReadNode: "ReadNode", ListPods: "ListPods", TakeLock: "TakeLock", FreeLock: "FreeLock",
	RemoveGate: "RemoveGate",
}

// String returns the name used in logs.
func (a Action) String() string { return session.Name(a, actionNames) }

// Kind reports whether the action waits, reads or writes. An unknown action counts as a write.
func (a Action) Kind() session.Kind { return session.KindOf(a) }
