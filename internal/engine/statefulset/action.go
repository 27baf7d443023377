package statefulset

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"

// Action is a step of a session, Wait in its zero value.
type Action uint8

const (
	// Wait leaves everything unchanged until an event or Decision.After.
	Wait Action = iota
	// ReadClaim, ReadPod and ReadSet send a GET for one object.
	ReadClaim
	ReadPod
	ReadSet
	// PatchClaim changes the mark and the owner references of the claim, provided that the claim has not changed since it
	// was read.
	PatchClaim
	// DeleteClaim deletes the claim, provided that it has not changed since it was read.
	DeleteClaim
	// DeletePod deletes the pod, provided that it still has the UID that was read.
	DeletePod
)

var actionNames = []string{
	Wait: "Wait", ReadClaim: "ReadClaim", ReadPod: "ReadPod", ReadSet: "ReadSet", PatchClaim: "PatchClaim",
	DeleteClaim: "DeleteClaim", DeletePod: "DeletePod",
}

// String returns the name used in logs.
func (a Action) String() string { return session.Name(a, actionNames) }

// Kind reports whether the action waits, reads or writes. An unknown action counts as a write.
func (a Action) Kind() session.Kind { return session.KindOf(a) }
