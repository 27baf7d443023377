package fencing

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"

// Action is a step of a session. The zero value is [Wait].
type Action uint8

const (
	// Wait does nothing until the next event or the end of the wait.
	Wait Action = iota
	// ReadFence, ReadNode and ReadLease read the NodeFence, its Node and the Lease of the node from the API server.
	ReadFence
	ReadNode
	ReadLease
	// ReadRun reads the object that belongs to Decision.Run.
	ReadRun
	// ListRemaining lists the pods and VolumeAttachments that are left on the node.
	ListRemaining
	// AddFinalizer and RemoveFinalizer change Finalizer on the NodeFence, and DeleteFence deletes it.
	AddFinalizer
	RemoveFinalizer
	DeleteFence
	// WriteStatus writes Decision.Status, if the NodeFence is unchanged since it was read.
	WriteStatus
	// StartRun starts the run of an agent, and succeeds if the run was already started.
	StartRun
	// StopRun ends the run of an agent, or removes the object of an ended one.
	StopRun
	// AddTaint makes Decision.Taint the only taint of this project on the Node, and RemoveTaint leaves none.
	AddTaint
	RemoveTaint
)

var actionNames = []string{
	Wait: "Wait", ReadFence: "ReadFence", ReadNode: "ReadNode", ReadLease: "ReadLease", ReadRun: "ReadRun",
	ListRemaining: "ListRemaining", AddFinalizer: "AddFinalizer", RemoveFinalizer: "RemoveFinalizer",
	DeleteFence: "DeleteFence", WriteStatus: "WriteStatus", StartRun: "StartRun", StopRun: "StopRun",
	AddTaint: "AddTaint", RemoveTaint: "RemoveTaint",
}

// Taint is the taint of this project on the Node of a fence, which follows from the coverage of its proof. The zero
// value is no taint.
type Taint uint8

const (
	NoTaint Taint = iota
	// OutOfService makes Kubernetes delete the pods of the node and detach its volumes, so it needs a proof that no
	// process runs there. A node that returns loses it.
	OutOfService
	// VolumesFenced keeps new pods from a node that does not reach its volumes, whose processes may run on. The node
	// loses it once it has booted.
	VolumesFenced
)

// String returns the action as used in logs.
func (a Action) String() string { return session.Name(a, actionNames) }

// Kind returns the effect of the action, where an unknown action counts as a write.
func (a Action) Kind() session.Kind {
	switch a {
	case Wait:
		return session.Waits
	case ReadFence, ReadNode, ReadLease, ReadRun, ListRemaining:
		return session.Reads
	default:
		return session.Writes
	}
}
