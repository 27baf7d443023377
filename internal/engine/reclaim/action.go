package reclaim

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"

// Action is one step; the zero value does nothing.
type Action uint8

const (
	// Wait does nothing now.
	Wait Action = iota
	AddFinalizer
	// AdoptPV adds the owner's finalizer to a PV and removes the companion's, in one write.
	AdoptPV
	// RemoveFinalizer removes our finalizers from the PV, which ends its protection, unless the PV has changed since it
	// was read.
	RemoveFinalizer
	// ListAttachments lists the VolumeAttachments, because the watch may be behind.
	ListAttachments
	ReadSecrets
	ReadClaim
	ReadSiblings
	// ListPVs lists the PVs, so that no other PV of the handle is overlooked.
	ListPVs
	ReadPV
	// ListNodes lists the nodes, to find others with the topology segments of this one.
	ListNodes
	DeleteVolume
	DeletePV
	// FinalizePV removes our finalizers from a PV whose volume is deleted, even if the PV has changed.
	FinalizePV
)

var actionNames = []string{
	Wait: "Wait", AddFinalizer: "AddFinalizer", AdoptPV: "AdoptPV", RemoveFinalizer: "RemoveFinalizer",
	ListAttachments: "ListAttachments", ReadSecrets: "ReadSecrets", ReadClaim: "ReadClaim", ReadSiblings: "ReadSiblings",
	ListPVs: "ListPVs", ReadPV: "ReadPV", ListNodes: "ListNodes", DeleteVolume: "DeleteVolume", DeletePV: "DeletePV",
	FinalizePV: "FinalizePV",
}

// String returns the action as used in logs.
func (a Action) String() string { return session.Name(a, actionNames) }

// writes reports whether the action changes the cluster or the storage system.
func (a Action) writes() bool {
	switch a {
	case Wait, ListAttachments, ReadSecrets, ReadClaim, ReadSiblings, ListPVs, ReadPV, ListNodes:
		return false
	default:
		return true
	}
}

// destroys reports whether the action deletes a volume, a PV or its protection, or prepares that.
func (a Action) destroys() bool {
	switch a {
	case Wait, AddFinalizer, AdoptPV:
		return false
	default:
		return true
	}
}

// Protects reports whether the action belongs to the loop of first-time protection, which no deletion waits for.
func (a Action) Protects() bool { return a == AddFinalizer || a == AdoptPV }
