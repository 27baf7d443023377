package twins

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/reasons"
)

// Reason says why a decision is what it is. The same word is an Event's reason, a value in the log and a label of the
// metrics. What each means is its Sentence.
type Reason string

// Reasons for leaving a PV alone.
const (
	ReasonNotOurs             Reason = "NotOurs"
	ReasonNotSynced           Reason = "NotSynced"
	ReasonManagedByController Reason = "ManagedByController"
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
	ReasonFinalizersRemoved   Reason = "FinalizersRemoved"
	ReasonVolumeGone          Reason = "VolumeGone"
)

// Reasons why a deletion that is due has to wait.
const (
	ReasonWriterUnknown    Reason = "WriterUnknown"
	ReasonHeld             Reason = "Held"
	ReasonClaimStillExists Reason = "ClaimStillExists"
	ReasonClaimNamesPV     Reason = "ClaimNamesPV"
	ReasonAttached         Reason = "Attached"
	ReasonSharedSource     Reason = "SharedSource"
	ReasonTwinNameTaken    Reason = "TwinNameTaken"
	ReasonTwinChanged      Reason = "TwinChanged"
	ReasonTwinNotReleased  Reason = "TwinNotReleased"
	ReasonTwinDeleting     Reason = "TwinDeleting"
	ReasonTwinTerminating  Reason = "TwinTerminating"
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

// Reasons that only carrying out a step finds.
const (
	ReasonCacheStale     Reason = "CacheStale"
	ReasonAPIReadFailed  Reason = "APIReadFailed"
	ReasonAPIWriteFailed Reason = "APIWriteFailed"
	ReasonDryRun         Reason = "DryRun"
)

// Reasons returns every reason there is, in the order of their declaration.
func Reasons() []Reason {
	return []Reason{
		ReasonNotOurs, ReasonNotSynced, ReasonManagedByController, ReasonControllerDeletes, ReasonControllerIdle,
		ReasonMigrated, ReasonMigratedUnprotected,
		ReasonPolicyUnknown, ReasonPolicyKeepsVolume, ReasonRetainBound, ReasonProtected, ReasonDeletionUnprotected,
		ReasonTerminatingBound,
		ReasonNotClaimed, ReasonNotReleased, ReasonFinalizersRemoved, ReasonVolumeGone,
		ReasonWriterUnknown, ReasonHeld, ReasonClaimStillExists, ReasonClaimNamesPV, ReasonAttached, ReasonSharedSource,
		ReasonTwinNameTaken, ReasonTwinChanged,
		ReasonTwinNotReleased, ReasonTwinDeleting, ReasonTwinTerminating, ReasonVolumeFailedDelete, ReasonPluginGone,
		ReasonProtect, ReasonReclaim, ReasonOrphan, ReasonVolumeDeleted, ReasonTooLateToKeep,
		ReasonCacheStale, ReasonAPIReadFailed, ReasonAPIWriteFailed, ReasonDryRun,
	}
}

// Sentence returns what the reason means and what a person can do about it.
func (r Reason) Sentence() string { return r.About().Sentence }

// EventType returns the type of the Events with this reason, Normal or Warning, empty where there is none.
func (r Reason) EventType() string { return r.About().Severity.EventType() }

// keepVolume is how a person has a PV deleted whose volume nobody deletes.
const keepVolume = "To have the PV deleted, set its reclaim policy to Retain, and delete the volume in the storage " +
	"system if it is not needed."

// byHand is how a person has a PV deleted whose finalizer this program does not touch.
const byHand = "To have the PV deleted, remove the finalizer " + Finalizer +
	" by hand; its volume then stays in the storage system."

// About returns the reason's row in the table of reasons, the zero value for a word that is none.
func (r Reason) About() reasons.About {
	for _, table := range []func(Reason) (string, reasons.Severity){aboutPV, aboutTwin, aboutSteps} {
		if sentence, severity := table(r); sentence != "" {
			return reasons.About{Severity: severity, Sentence: sentence, OnClaim: r == ReasonTooLateToKeep}
		}
	}
	return reasons.About{}
}

// aboutPV has the reasons that lie with the PV, its claim and other programs.
func aboutPV(r Reason) (sentence string, severity reasons.Severity) {
	switch r {
	case ReasonNotOurs:
		return "No in-tree plugin provisioned this PV.", reasons.Silent
	case ReasonNotSynced:
		return "It is not known yet whether kube-controller-manager manages the finalizer.", reasons.Silent
	case ReasonManagedByController:
		return "kube-controller-manager answers for this PV.", reasons.Silent
	case ReasonControllerDeletes:
		return "The PV is terminating, and kube-controller-manager, which manages the finalizer, deletes its volume.",
			reasons.Counted
	case ReasonControllerIdle:
		return "The PV is terminating, and the program that added " + Finalizer +
			" does not delete its volume. kube-controller-manager before 1.31 never does, whoever added the finalizer. " +
			byHand, reasons.Warning
	case ReasonMigrated:
		return "The PV is migrated to a CSI driver, whose sidecar answers for it.", reasons.Silent
	case ReasonMigratedUnprotected:
		return "The PV was migrated to a CSI driver while it was terminating, so that the driver's sidecar cannot protect " +
			"it. " + byHand, reasons.Warning
	case ReasonPolicyUnknown:
		return "The reclaim policy is not known to volume-guard; the volume is kept.", reasons.Warning
	case ReasonPolicyKeepsVolume:
		return "The reclaim policy keeps the volume; nothing is deleted.", reasons.Silent
	case ReasonRetainBound:
		return "The PV is terminating while its claim exists, and its policy keeps the volume. The PV is deleted when the " +
			"claim is gone; until then the policy can still be changed.", reasons.Normal
	case ReasonProtected, ReasonProtect:
		return "The PV is protected until its volume is deleted.", reasons.Silent
	case ReasonDeletionUnprotected:
		return "The PV was deleted before it could be protected: it can be gone before its volume is deleted, and nothing " +
			"can be done about it any more.", reasons.Warning
	case ReasonTerminatingBound:
		return "The PV is terminating, and its claim still uses the volume. The volume is deleted once the claim is gone.",
			reasons.Counted
	case ReasonNotClaimed:
		return "The PV is terminating and belongs to no claim, so nothing shows that its volume may be deleted. " +
			keepVolume, reasons.Warning
	case ReasonNotReleased:
		return "The PV is terminating, and the PV controller has not released it from its claim yet.", reasons.Counted
	case ReasonWriterUnknown:
		return "The PV is terminating, and its managedFields do not show who added " + Finalizer +
			", so it is left alone. " + byHand, reasons.Warning
	case ReasonHeld:
		return "The annotation csi-reclaimer.io/hold keeps the volume. Remove the annotation to have the volume deleted.",
			reasons.Normal
	case ReasonClaimStillExists:
		return "The PV is released, but its claim still exists. The volume is kept as long as the claim exists.",
			reasons.Warning
	case ReasonClaimNamesPV:
		return "The claim that the PV belonged to is gone, and another claim of that name names this PV in " +
				"spec.volumeName, as after a restore from a backup. The volume is kept as long as that claim exists.",
			reasons.Warning
	case ReasonAttached:
		return "The volume is still attached to a node. It is deleted once the VolumeAttachment is gone.", reasons.Normal
	case ReasonSharedSource:
		return "Another PV that keeps its volume names the same volume. The volume is deleted once that PV is gone or is " +
			"to be deleted too.", reasons.Normal
	default:
		return "", reasons.Silent
	}
}

// aboutTwin has the reasons that lie with the twin and the PV controller's deletion of its volume.
func aboutTwin(r Reason) (sentence string, severity reasons.Severity) {
	switch r {
	case ReasonTwinNameTaken:
		return "The volume can be deleted only by way of a second PV, and a PV that volume-guard did not create has its " +
			"name. Delete that PV, or: " + keepVolume, reasons.Warning
	case ReasonTwinChanged:
		return "Somebody has changed or bound the second PV, by way of which the volume was to be deleted, so it is left " +
			"alone. Delete that PV if nobody uses it.", reasons.Warning
	case ReasonTwinNotReleased:
		return "The PV controller has not yet confirmed, on a second PV of the volume, that the claim is gone.",
			reasons.Counted
	case ReasonTwinDeleting:
		return "The PV controller is deleting the volume, by way of a second PV.", reasons.Counted
	case ReasonTwinTerminating:
		return "The second PV, by way of which the volume is deleted, is terminating.", reasons.Counted
	case ReasonVolumeFailedDelete:
		return "The PV controller did not delete the volume; the deletion is retried.", reasons.Warning
	case ReasonPluginGone:
		return "kube-controller-manager has no plugin any more that could delete the volume. " + keepVolume, reasons.Warning
	case ReasonVolumeGone:
		return "The volume is deleted; finalizers of other programs still keep the PV.", reasons.Counted
	case ReasonReclaim:
		return "The claim is gone and the reclaim policy is Delete; the volume is being deleted.", reasons.Silent
	case ReasonOrphan:
		return "The PV to which this twin belongs is gone; the twin is deleted, and its volume kept.", reasons.Silent
	case ReasonVolumeDeleted:
		return "The volume is deleted, and the finalizers are removed from the PV.", reasons.Silent
	case ReasonTooLateToKeep:
		return "The PV was changed to keep its volume after the volume was deleted. The data is gone, and the finalizers " +
			"are removed from the PV.", reasons.Warning
	default:
		return "", reasons.Silent
	}
}

// aboutSteps has the reasons that lie with this program and the API server.
func aboutSteps(r Reason) (sentence string, severity reasons.Severity) {
	switch r {
	case ReasonFinalizersRemoved:
		return "The finalizers of volume-guard are removed from all PVs (--release-finalizers).", reasons.Silent
	case ReasonCacheStale:
		return "The watch cache is behind the API server; the PV is read again in a moment.", reasons.Silent
	case ReasonAPIReadFailed:
		return "What has to be known before a deletion could not be read from the API server; the read is retried.",
			reasons.Warning
	case ReasonAPIWriteFailed:
		return "The API server did not accept a change; the write is retried.", reasons.Warning
	case ReasonDryRun:
		return "Dry run, nothing is changed.", reasons.Normal
	default:
		return "", reasons.Silent
	}
}

// Detail returns what is known of this PV beyond the reason's sentence, empty for nothing.
func (f Facts) Detail(r Reason) string {
	switch r {
	case ReasonVolumeFailedDelete, ReasonPluginGone:
		if f.Failure.Message != "" {
			return f.Failure.Message
		}
		return f.PV.Message
	case ReasonTwinNameTaken, ReasonTwinChanged:
		return fmt.Sprintf("It is PV %s.", f.Twin.Name)
	case ReasonHeld:
		return f.PV.HeldBecause
	default:
		return ""
	}
}
