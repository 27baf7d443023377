package provision

// Action is one step. The zero value is to do nothing.
type Action uint8

const (
	// Wait: nothing is to be done now.
	Wait Action = iota
	// Protect puts our finalizer on the claim, only if the claim still is as it was read.
	Protect
	// Compose settles what the driver is asked for.
	Compose
	// SelectNode has the claim's volume made on this node.
	SelectNode
	// ReadPV reads the claim's PV from the API server.
	ReadPV
	// CreateVolume has the driver make the volume, or tell which one it made.
	CreateVolume
	// StorePV creates the PV of the volume.
	StorePV
	// DeleteVolume has the driver delete a volume that never had a PV.
	DeleteVolume
	// LetGo takes our finalizer off the claim.
	LetGo
)

// String returns the action as used in logs.
func (a Action) String() string {
	switch a {
	case Wait:
		return "Wait"
	case Protect:
		return "Protect"
	case Compose:
		return "Compose"
	case SelectNode:
		return "SelectNode"
	case ReadPV:
		return "ReadPV"
	case CreateVolume:
		return "CreateVolume"
	case StorePV:
		return "StorePV"
	case DeleteVolume:
		return "DeleteVolume"
	case LetGo:
		return "LetGo"
	}
	return "Unknown"
}
