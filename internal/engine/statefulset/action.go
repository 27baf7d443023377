package statefulset

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"

// Action is a step of a session. The zero value is to do nothing.
type Action uint8

const (
	// Wait: nothing is to be done now.
	Wait Action = iota
	// ReadClaim, ReadPod and ReadSet read one object.
	ReadClaim
	ReadPod
	ReadSet
	// PatchClaim changes the mark and the owner references of the claim, if it is as it was read.
	PatchClaim
	// DeleteClaim deletes the claim, if it is as it was read.
	DeleteClaim
	// DeletePod deletes the pod with the UID that was read.
	DeletePod
)

// String returns the action as used in logs.
func (a Action) String() string {
	names := [...]string{
		Wait: "Wait", ReadClaim: "ReadClaim", ReadPod: "ReadPod", ReadSet: "ReadSet", PatchClaim: "PatchClaim",
		DeleteClaim: "DeleteClaim", DeletePod: "DeletePod",
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
	case ReadClaim, ReadPod, ReadSet:
		return session.Reads
	default:
		return session.Writes
	}
}
