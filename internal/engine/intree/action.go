package intree

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"

// Action is one step. The zero value is to do nothing.
type Action uint8

const (
	// Wait: nothing is to be done now.
	Wait Action = iota
	// AddFinalizer adds the finalizer to the PV, and removes those of the CSI side.
	AddFinalizer
	// RemoveFinalizer removes the finalizer from a PV whose volume is kept, or that another program manages: only
	// if the PV still is as it was read.
	RemoveFinalizer
	// ReadClaim reads the claim from the API server.
	ReadClaim
	// ReadAttachments counts the VolumeAttachments at the API server.
	ReadAttachments
	// ReadSiblings reads the other PVs of the volume from the API server.
	ReadSiblings
	// ReadPV reads the PV from the API server.
	ReadPV
	// ReadOriginal reads the PV that a twin belongs to from the API server.
	ReadOriginal
	// ReadTwin reads the PV that has the twin's name, where the watch cache does not show one but the API server has
	// refused to create a second.
	ReadTwin
	// CreateTwin creates the twin, which keeps its volume (Retain).
	CreateTwin
	// SetTwinDelete sets the twin's policy to Delete, upon which the PV controller deletes the volume: only if the twin
	// still is as it was judged.
	SetTwinDelete
	// SetTwinRetain sets the twin's policy back to Retain.
	SetTwinRetain
	// DeleteTwin deletes a twin whose policy is Retain: only if it still is as it was judged.
	DeleteTwin
	// RemoveTwinFinalizer removes a finalizer that another program added from a twin that is terminating and whose
	// policy is Retain: only if it still is as it was judged.
	RemoveTwinFinalizer
	// RemoveFinalizerByUID removes the finalizers from a PV whose volume is deleted, whatever else changed on it.
	RemoveFinalizerByUID
)

// String returns the action as used in logs.
func (a Action) String() string {
	names := [...]string{
		Wait: "Wait", AddFinalizer: "AddFinalizer", RemoveFinalizer: "RemoveFinalizer",
		ReadClaim: "ReadClaim", ReadAttachments: "ReadAttachments", ReadSiblings: "ReadSiblings", ReadPV: "ReadPV",
		ReadOriginal: "ReadOriginal", ReadTwin: "ReadTwin",
		CreateTwin: "CreateTwin", SetTwinDelete: "SetTwinDelete", SetTwinRetain: "SetTwinRetain", DeleteTwin: "DeleteTwin",
		RemoveTwinFinalizer: "RemoveTwinFinalizer", RemoveFinalizerByUID: "RemoveFinalizerByUID",
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
	case ReadClaim, ReadAttachments, ReadSiblings, ReadPV, ReadOriginal, ReadTwin:
		return session.Reads
	default:
		return session.Writes
	}
}
