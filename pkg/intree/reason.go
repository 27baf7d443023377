package intree

import (
	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// Reason says why a decision is what it is. The same word is an Event's reason, a value in the
// log and a label of the metrics. What each means is its Sentence.
type Reason string

// Reasons for leaving a PV alone.
const (
	ReasonNotOurs             Reason = "NotOurs"
	ReasonNotSynced           Reason = "NotSynced"
	ReasonLeftToController    Reason = "LeftToController"
	ReasonControllerDeletes   Reason = "ControllerDeletes"
	ReasonControllerIdle      Reason = "ControllerIdle"
	ReasonMigrated            Reason = "Migrated"
	ReasonMigratedUnprotected Reason = "MigratedUnprotected"
	ReasonPolicyUnknown       Reason = "PolicyUnknown"
	ReasonPolicyKeepsVolume   Reason = "PolicyKeepsVolume"
	ReasonRetainBound         Reason = "RetainBound"
	ReasonProtected           Reason = "Protected"
	ReasonDeletionUnprotected Reason = "DeletionUnprotected"
	ReasonTerminatingBound    Reason = "TerminatingBound"
	ReasonNotClaimed          Reason = "NotClaimed"
	ReasonNotReleased         Reason = "NotReleased"
	ReasonReleased            Reason = "Released"
	ReasonVolumeGone          Reason = "VolumeGone"
)

// Reasons for a deletion that is due and has to wait.
const (
	ReasonWriterUnknown Reason = "WriterUnknown"
	ReasonHeld          Reason = "Held"
	ReasonClaimAlive    Reason = "ClaimAlive"
	ReasonClaimNamesPV  Reason = "ClaimNamesPV"
	ReasonAttached      Reason = "Attached"
	ReasonSharedSource  Reason = "SharedSource"
	ReasonTwinNameTaken Reason = "TwinNameTaken"
	ReasonTwinChanged   Reason = "TwinChanged"
	ReasonTwinMade      Reason = "TwinMade"
	ReasonTwinArmed     Reason = "TwinArmed"
	ReasonTwinEnding    Reason = "TwinEnding"
	// ReasonVolumeFailedDelete is the word of the PV controller's own event.
	ReasonVolumeFailedDelete Reason = "VolumeFailedDelete"
	ReasonPluginGone         Reason = "PluginGone"
)

// Reasons for acting.
const (
	ReasonProtect       Reason = "Protect"
	ReasonReclaim       Reason = "Reclaim"
	ReasonOrphan        Reason = "Orphan"
	ReasonVolumeDeleted Reason = "VolumeDeleted"
	ReasonTooLateToKeep Reason = "TooLateToKeep"
)

// Reasons that only carrying out a step can find.
const (
	ReasonCatchingUp Reason = "CatchingUp"
	ReasonUnreadable Reason = "Unreadable"
	ReasonUnwritable Reason = "Unwritable"
	ReasonDryRun     Reason = "DryRun"
)

// Reasons returns every reason there is, in the order of their declaration.
func Reasons() []Reason {
	return []Reason{
		ReasonNotOurs, ReasonNotSynced, ReasonLeftToController, ReasonControllerDeletes, ReasonControllerIdle, ReasonMigrated, ReasonMigratedUnprotected,
		ReasonPolicyUnknown, ReasonPolicyKeepsVolume, ReasonRetainBound, ReasonProtected, ReasonDeletionUnprotected, ReasonTerminatingBound,
		ReasonNotClaimed, ReasonNotReleased, ReasonReleased, ReasonVolumeGone,
		ReasonWriterUnknown, ReasonHeld, ReasonClaimAlive, ReasonClaimNamesPV, ReasonAttached, ReasonSharedSource, ReasonTwinNameTaken, ReasonTwinChanged,
		ReasonTwinMade, ReasonTwinArmed, ReasonTwinEnding, ReasonVolumeFailedDelete, ReasonPluginGone,
		ReasonProtect, ReasonReclaim, ReasonOrphan, ReasonVolumeDeleted, ReasonTooLateToKeep,
		ReasonCatchingUp, ReasonUnreadable, ReasonUnwritable, ReasonDryRun,
	}
}

// Sentence returns what the reason means and what a person can do about it.
func (r Reason) Sentence() string {
	sentence, _ := r.about()
	return sentence
}

// notice is how loudly a reason is told.
type notice uint8

const (
	// silent reasons are the normal course of things.
	silent notice = iota
	// quiet reasons are silent ones that keep a PV which somebody deleted: they are counted.
	quiet
	// normal reasons keep a PV that is to go, as they should.
	normal
	// warning reasons want a person's attention.
	warning
)

// notice returns how loudly the reason is told.
func (r Reason) notice() notice {
	_, loud := r.about()
	return loud
}

// EventType returns the type of the Events with this reason, Normal or Warning, empty where none is told.
func (r Reason) EventType() string {
	switch r.notice() {
	case silent, quiet:
	case normal:
		return v1.EventTypeNormal
	case warning:
		return v1.EventTypeWarning
	}
	return ""
}

// waits tells whether a PV with this reason is on its way to be deleted and does not get there, so
// that it is counted as waiting.
func (r Reason) waits() bool { return r.notice() != silent }

// wayOut is how a person lets a PV go whose volume nobody deletes.
const wayOut = "To let the PV go, turn its reclaim policy to Retain, and delete the volume in the storage system if it is not needed."

// byHand is how a person lets a PV go whose finalizer this program does not touch.
const byHand = "To let the PV go by hand, take " + Finalizer + " off its finalizers; its volume then stays in the storage system."

// about returns what the reason means and how loudly it is told.
func (r Reason) about() (sentence string, loud notice) {
	switch r {
	case ReasonNotOurs:
		return "No in-tree plugin provisioned this PV.", silent
	case ReasonNotSynced:
		return "It is not known yet whether kube-controller-manager manages the finalizer.", silent
	case ReasonLeftToController:
		return "kube-controller-manager answers for this PV.", silent
	case ReasonControllerDeletes:
		return "The PV is being deleted, and kube-controller-manager, which manages the finalizer, is to delete its volume.", quiet
	case ReasonControllerIdle:
		return "The PV is being deleted, and the program that put " + Finalizer + " on it does not delete its volume. kube-controller-manager before 1.31 never does, wherever the finalizer came from. " + byHand, warning
	case ReasonMigrated:
		return "The PV is migrated to a CSI driver, whose sidecar answers for it.", silent
	case ReasonMigratedUnprotected:
		return "The PV was migrated to a CSI driver while it was being deleted, so that the driver's sidecar cannot protect it. " + byHand, warning
	case ReasonPolicyUnknown:
		return "The reclaim policy is none that is known here; the volume is kept.", warning
	case ReasonPolicyKeepsVolume:
		return "The reclaim policy keeps the volume; nothing is deleted.", silent
	case ReasonRetainBound:
		return "The PV is being deleted while its claim lives, and its policy keeps the volume. It goes when the claim is gone; until then the policy can still be turned back.", normal
	case ReasonProtected:
		return "The PV is protected until its volume is deleted.", silent
	case ReasonDeletionUnprotected:
		return "The PV was deleted before it could be protected: it can vanish before its volume is deleted, and nothing can be done about it any more.", warning
	case ReasonTerminatingBound:
		return "The PV is being deleted, and its claim still uses the volume. The volume is deleted once the claim is gone.", quiet
	case ReasonNotClaimed:
		return "The PV is being deleted and belongs to no claim, so nothing shows that its volume may go. " + wayOut, warning
	case ReasonNotReleased:
		return "The PV is being deleted, and the PV controller has not released it from its claim yet.", quiet
	case ReasonReleased:
		return "The finalizers of volume-guard are taken off all PVs (--release-finalizers).", silent
	case ReasonVolumeGone:
		return "The volume is deleted; finalizers of others still hold the PV.", quiet
	case ReasonWriterUnknown:
		return "The PV is being deleted, and it cannot be told who put " + Finalizer + " on it (its managedFields do not say), so it is left alone. " + byHand, warning
	case ReasonHeld:
		return "The annotation csi-reclaimer.io/hold keeps the volume. Remove it to let the volume go.", normal
	case ReasonClaimAlive:
		return "The PV is released, but its claim still exists. The volume is kept as long as it does.", warning
	case ReasonClaimNamesPV:
		return reclaim.ReasonClaimNamesPV.Sentence(), warning
	case ReasonAttached:
		return "The volume is still attached to a node. It is deleted once the VolumeAttachment is gone.", normal
	case ReasonSharedSource:
		return "Another PV that keeps its volume names the same volume. The volume is deleted once that PV is gone or is to be deleted too.", normal
	case ReasonTwinNameTaken:
		return "The volume can be deleted only by way of a second PV, and a PV that volume-guard did not make has its name. Delete that PV, or: " + wayOut, warning
	case ReasonTwinChanged:
		return "Somebody has changed or bound the PV by way of which the volume was to be deleted, so it is left alone. Delete that PV if nobody uses it.", warning
	case ReasonTwinMade:
		return "The PV controller has not yet confirmed, on a second PV of the volume, that the claim is gone.", quiet
	case ReasonTwinArmed:
		return "The PV controller is deleting the volume, by way of a second PV.", quiet
	case ReasonTwinEnding:
		return "The second PV, by way of which the volume is deleted, is going.", quiet
	case ReasonVolumeFailedDelete:
		return "The PV controller did not delete the volume; it is tried again.", warning
	case ReasonPluginGone:
		return "kube-controller-manager has no plugin any more that could delete the volume. " + wayOut, warning
	case ReasonProtect:
		return "The PV is protected until its volume is deleted.", silent
	case ReasonReclaim:
		return "The claim is gone and the reclaim policy is Delete; the volume is being deleted.", silent
	case ReasonOrphan:
		return "The PV to which this twin belongs is gone; the twin is deleted, and its volume kept.", silent
	case ReasonVolumeDeleted:
		return "The volume is deleted; the PV is let go.", silent
	case ReasonTooLateToKeep:
		return "The PV was changed to keep its volume after the volume was deleted. The data is gone; the PV is let go.", warning
	case ReasonCatchingUp:
		return "What the watch shows is behind the API server; it is looked at again in a moment.", silent
	case ReasonUnreadable:
		return "What has to be known before a deletion could not be read from the API server; it is tried again.", warning
	case ReasonUnwritable:
		return "The API server did not take a change; it is tried again.", warning
	case ReasonDryRun:
		return "Dry run, nothing is changed.", normal
	}
	return "", silent
}
