package fencing

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"

// Action is a step of a session. The zero value is to do nothing.
type Action uint8

const (
	// Wait: nothing is to be done now.
	Wait Action = iota
	// ReadFence, ReadNode and ReadLease read the NodeFence, its Node and the Lease of the node from the API server.
	ReadFence
	ReadNode
	ReadLease
	// ReadRun reads the object by which the agent of Decision.Run works.
	ReadRun
	// ListRemaining lists what remains on the node of before: pods that are terminating, and VolumeAttachments.
	ListRemaining
	// AddFinalizer and RemoveFinalizer change Finalizer of the NodeFence, and DeleteFence deletes it.
	AddFinalizer
	RemoveFinalizer
	DeleteFence
	// WriteStatus writes Decision.Status, if the NodeFence is as it was read.
	WriteStatus
	// StartRun starts the run of an agent. It succeeds where it was started before.
	StartRun
	// StopRun ends the run of an agent, or removes what remains of one that has ended.
	StopRun
	// AddTaint and RemoveTaint change the taint of this project on the Node.
	AddTaint
	RemoveTaint
)

// String returns the action as used in logs.
func (a Action) String() string {
	names := [...]string{
		Wait: "Wait", ReadFence: "ReadFence", ReadNode: "ReadNode", ReadLease: "ReadLease", ReadRun: "ReadRun",
		ListRemaining: "ListRemaining", AddFinalizer: "AddFinalizer", RemoveFinalizer: "RemoveFinalizer",
		DeleteFence: "DeleteFence", WriteStatus: "WriteStatus", StartRun: "StartRun", StopRun: "StopRun",
		AddTaint: "AddTaint", RemoveTaint: "RemoveTaint",
	}
	if int(a) < len(names) {
		return names[a]
	}
	return "Unknown"
}

// Kind returns what the action does. An action that is not known writes.
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
