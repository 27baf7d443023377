package intree

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"

// Action is one step; the zero value is Wait.
type Action uint8

const (
	// Wait does nothing now.
	Wait Action = iota
	// AddFinalizer adds the finalizer to the PV, and removes the finalizers of the CSI side.
	AddFinalizer
	// RemoveFinalizer removes the finalizer from a PV whose volume is kept, or that another program manages. It fails if
	// the PV has changed since it was read.
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
	// ReadTwin reads the PV that has the twin's name, after the API server refused to create a PV of a name that the watch
	// cache does not show.
	ReadTwin
	// CreateTwin creates the twin, which keeps its volume (Retain).
	CreateTwin
	// SetTwinDelete sets the twin's policy to Delete, upon which the PV controller deletes the volume. It fails if the
	// twin has changed since it was judged.
	SetTwinDelete
	// SetTwinRetain sets the twin's policy back to Retain.
	SetTwinRetain
	// DeleteTwin deletes a twin whose policy is Retain, and fails if the twin has changed since it was judged.
	DeleteTwin
	// RemoveTwinFinalizer removes another program's finalizer from a terminating twin whose policy is Retain. It fails if
	// the twin has changed since it was judged.
	RemoveTwinFinalizer
	// RemoveFinalizerByUID removes the finalizers from a PV whose volume is deleted, regardless of other changes to the
	// PV.
	RemoveFinalizerByUID
)

var actionNames = []string{
	Wait: "Wait", AddFinalizer: "AddFinalizer", RemoveFinalizer: "RemoveFinalizer", ReadClaim: "ReadClaim",
	ReadAttachments: "ReadAttachments", ReadSiblings: "ReadSiblings", ReadPV: "ReadPV", ReadOriginal: "ReadOriginal",
	ReadTwin: "ReadTwin", CreateTwin: "CreateTwin", SetTwinDelete: "SetTwinDelete", SetTwinRetain: "SetTwinRetain",
	DeleteTwin: "DeleteTwin", RemoveTwinFinalizer: "RemoveTwinFinalizer", RemoveFinalizerByUID: "RemoveFinalizerByUID",
}

// String returns the action's name for logs.
func (a Action) String() string { return session.Name(a, actionNames) }

// Kind returns the action's effect on objects; an unknown action counts as a write.
func (a Action) Kind() session.Kind { return session.KindOf(a) }
