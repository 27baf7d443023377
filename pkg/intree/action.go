package intree

// Action is one step. The zero value is to do nothing.
type Action uint8

const (
	// Wait: nothing is to be done now.
	Wait Action = iota
	// Protect puts the finalizer on the PV, and takes those of the CSI side off.
	Protect
	// DropGuard takes the finalizer off a PV whose volume is kept, or is another's business:
	// only if the PV still is as it was read.
	DropGuard
	// ReadClaim reads the claim from the API server.
	ReadClaim
	// ReadAttachments counts the VolumeAttachments at the API server.
	ReadAttachments
	// ReadSiblings reads the other PVs of the volume from the API server.
	ReadSiblings
	// ReadPV reads the PV from the API server.
	ReadPV
	// ReadOriginal looks whether the PV that a twin belongs to is still there.
	ReadOriginal
	// MakeTwin creates the twin, which keeps its volume (Retain).
	MakeTwin
	// ArmTwin turns the twin's policy to Delete, which has the PV controller delete the volume: only
	// if the twin still is as it was judged.
	ArmTwin
	// DisarmTwin turns the twin's policy back to Retain.
	DisarmTwin
	// DeleteTwin asks the API server to delete a twin whose policy is Retain: only if it still is as
	// it was judged.
	DeleteTwin
	// FreeTwin takes a finalizer that another program put on off a twin that is being deleted and whose
	// policy is Retain: only if it still is as it was judged.
	FreeTwin
	// ReleasePV takes the finalizers off a PV whose volume is deleted, whatever else changed on it.
	ReleasePV
)

// String returns the action as used in logs.
func (a Action) String() string {
	switch a {
	case Wait:
		return "Wait"
	case Protect:
		return "Protect"
	case DropGuard:
		return "DropGuard"
	case ReadClaim:
		return "ReadClaim"
	case ReadAttachments:
		return "ReadAttachments"
	case ReadSiblings:
		return "ReadSiblings"
	case ReadPV:
		return "ReadPV"
	case ReadOriginal:
		return "ReadOriginal"
	case MakeTwin:
		return "MakeTwin"
	case ArmTwin:
		return "ArmTwin"
	case DisarmTwin:
		return "DisarmTwin"
	case DeleteTwin:
		return "DeleteTwin"
	case FreeTwin:
		return "FreeTwin"
	case ReleasePV:
		return "ReleasePV"
	}
	return "Unknown"
}

// changes tells whether the action changes the cluster. The others only look.
func (a Action) changes() bool {
	switch a {
	case Wait, ReadClaim, ReadAttachments, ReadSiblings, ReadPV, ReadOriginal:
		return false
	default:
		return true
	}
}
