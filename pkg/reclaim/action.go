package reclaim

// Action is one step. The zero value is to do nothing.
type Action uint8

const (
	// Wait: nothing is to be done now.
	Wait Action = iota
	// AddFinalizer puts our finalizer on the PV.
	AddFinalizer
	// AdoptPV puts the owner's finalizer on a PV and takes the companion's off, in one write.
	AdoptPV
	// DropFinalizer takes our finalizers off the PV, which gives up its protection: only
	// if it still is as it was read.
	DropFinalizer
	// CatchUpAttachments makes sure that no VolumeAttachment is overlooked.
	CatchUpAttachments
	// ReadSecrets reads the Secret for the deletion.
	ReadSecrets
	// ReadClaim reads the claim from the API server.
	ReadClaim
	// ReadSiblings reads the other PVs of the handle from the API server.
	ReadSiblings
	// ReadFamily makes sure that no other PV of the handle is overlooked.
	ReadFamily
	// ReadPV reads the PV from the API server.
	ReadPV
	// ReadNodes looks whether another node is in the place of this one.
	ReadNodes
	// DeleteVolume has the storage system delete the volume.
	DeleteVolume
	// DeletePV asks the API server to delete the PV.
	DeletePV
	// ReleasePV takes our finalizers off a PV whose volume is deleted, whatever else
	// changed on it.
	ReleasePV
)

// String returns the action as used in logs.
func (a Action) String() string {
	switch a {
	case Wait:
		return "Wait"
	case AddFinalizer:
		return "AddFinalizer"
	case AdoptPV:
		return "AdoptPV"
	case DropFinalizer:
		return "DropFinalizer"
	case CatchUpAttachments:
		return "CatchUpAttachments"
	case ReadSecrets:
		return "ReadSecrets"
	case ReadClaim:
		return "ReadClaim"
	case ReadSiblings:
		return "ReadSiblings"
	case ReadFamily:
		return "ReadFamily"
	case ReadPV:
		return "ReadPV"
	case ReadNodes:
		return "ReadNodes"
	case DeleteVolume:
		return "DeleteVolume"
	case DeletePV:
		return "DeletePV"
	case ReleasePV:
		return "ReleasePV"
	}
	return "Unknown"
}

// changes tells whether the action changes the cluster or the storage system. The others
// only look.
func (a Action) changes() bool {
	switch a {
	case Wait, CatchUpAttachments, ReadSecrets, ReadClaim, ReadSiblings, ReadFamily, ReadPV, ReadNodes:
		return false
	default:
		return true
	}
}

// gives tells whether the action gives up a volume, a PV or its protection, or prepares that.
func (a Action) gives() bool {
	switch a {
	case Wait, AddFinalizer, AdoptPV:
		return false
	default:
		return true
	}
}

// protects tells whether the action is work for the loop of first-time protection, which
// no deletion waits for.
func (a Action) protects() bool { return a == AddFinalizer || a == AdoptPV }
