package intree

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// Reason explains a decision. The same word is an Event's reason, a value in the log and a label of the metrics; its
// Sentence gives the meaning.
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

// Reasons for delaying a deletion that is due.
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

// Reasons that arise only while a step is carried out.
const (
	ReasonCacheStale     Reason = "CacheStale"
	ReasonAPIReadFailed  Reason = "APIReadFailed"
	ReasonAPIWriteFailed Reason = "APIWriteFailed"
	ReasonDryRun         Reason = "DryRun"
)

// keepVolume explains how to have a PV deleted whose volume no program deletes.
const keepVolume = "To have the PV deleted, set its reclaim policy to Retain, and delete the volume in the storage " +
	"system if it is not needed."

// byHand explains how to have a PV deleted whose finalizer this program does not touch.
const byHand = "To have the PV deleted, remove the finalizer " + Finalizer +
	" by hand; its volume then stays in the storage system."

// table has one row for every reason, in the order of their declaration.
var table = reasons.NewTable([]reasons.Row[Reason]{
	{Reason: ReasonNotOurs, Sentence: "No in-tree plugin provisioned this PV."},
	{Reason: ReasonNotSynced, Sentence: "It is not known yet whether kube-controller-manager manages the finalizer."},
	{Reason: ReasonManagedByController, Sentence: "kube-controller-manager manages this PV."},
	{Reason: ReasonControllerDeletes, Severity: reasons.Counted,
		Sentence: "The PV is terminating, and kube-controller-manager, which manages the finalizer, deletes its volume."},
	{Reason: ReasonControllerIdle, Severity: reasons.Warning,
		Sentence: "The PV is terminating, and the program that added " + Finalizer + " does not delete its volume. " +
			"kube-controller-manager before 1.31 never does, no matter who added the finalizer. " + byHand},
	{Reason: ReasonMigrated, Sentence: "The PV is migrated to a CSI driver, whose sidecar manages it."},
	{Reason: ReasonMigratedUnprotected, Severity: reasons.Warning,
		Sentence: "The PV was migrated to a CSI driver while it was terminating, so that the driver's sidecar cannot " +
			"protect it. " + byHand},
	{Reason: ReasonPolicyUnknown, Severity: reasons.Warning,
		Sentence: "volume-guard does not know this reclaim policy; it keeps the volume."},
	{Reason: ReasonPolicyKeepsVolume, Sentence: "The reclaim policy keeps the volume; nothing is deleted."},
	{Reason: ReasonRetainBound, Severity: reasons.Normal,
		Sentence: "The PV is terminating while its claim exists, and its policy keeps the volume. The PV is deleted when " +
			"the claim is gone; until then the policy can still be changed."},
	{Reason: ReasonProtected, Sentence: "The PV is protected until its volume is deleted."},
	{Reason: ReasonDeletionUnprotected, Severity: reasons.Warning,
		Sentence: "The PV was deleted before it could be protected: it can be gone before its volume is deleted. Look for " +
			"the volume in the storage system once the PV is gone."},
	{Reason: ReasonTerminatingBound, Severity: reasons.Counted,
		Sentence: "The PV is terminating, and its claim still uses the volume. The volume is deleted once the claim is " +
			"gone."},
	{Reason: ReasonNotClaimed, Severity: reasons.Warning,
		Sentence: "The PV is terminating and belongs to no claim, so nothing shows that its volume may be deleted. " +
			keepVolume},
	{Reason: ReasonNotReleased, Severity: reasons.Counted,
		Sentence: "The PV is terminating, and the PV controller has not released it from its claim yet."},
	{Reason: ReasonFinalizersRemoved,
		Sentence: "The finalizers of volume-guard are removed from all PVs (--release-finalizers)."},
	{Reason: ReasonVolumeGone, Severity: reasons.Counted,
		Sentence: "The volume is deleted; finalizers of other programs still keep the PV."},
	{Reason: ReasonWriterUnknown, Severity: reasons.Warning,
		Sentence: "The PV is terminating, and its managedFields do not show who added " + Finalizer + ", so it is left " +
			"alone. " + byHand},
	{Reason: ReasonHeld, Severity: reasons.Normal,
		Sentence: "The annotation csi-reclaimer.io/hold keeps the volume. Remove the annotation to have the volume deleted."},
	{Reason: ReasonClaimStillExists, Severity: reasons.Warning,
		Sentence: "The PV is released, but its claim still exists. The volume is kept as long as the claim exists."},
	{Reason: ReasonClaimNamesPV, Severity: reasons.Warning,
		Sentence: "The claim that the PV belonged to is gone, and another claim of that name names this PV in " +
			"spec.volumeName, as after a restore from a backup. The volume is kept as long as that claim exists."},
	{Reason: ReasonAttached, Severity: reasons.Normal,
		Sentence: "The volume is still attached to a node. It is deleted once the VolumeAttachment is gone."},
	{Reason: ReasonSharedSource, Severity: reasons.Normal,
		Sentence: "Another PV that keeps its volume names the same volume. The volume is deleted once that PV is gone or " +
			"is to be deleted too."},
	{Reason: ReasonTwinNameTaken, Severity: reasons.Warning,
		Sentence: "The volume can be deleted only through a second PV, and a PV that volume-guard did not create has the " +
			"name of that second PV. Delete it if it is not in use. Otherwise, set the reclaim policy of this PV to Retain, " +
			"and delete the volume in the storage system if it is not needed."},
	{Reason: ReasonTwinChanged, Severity: reasons.Warning,
		Sentence: "Somebody changed or bound the second PV through which the volume was to be deleted, so volume-guard " +
			"does not touch that PV. Delete it if it is not in use."},
	{Reason: ReasonTwinNotReleased, Severity: reasons.Counted,
		Sentence: "The PV controller has not yet confirmed, on a second PV of the volume, that the claim is gone."},
	{Reason: ReasonTwinDeleting, Severity: reasons.Counted,
		Sentence: "The PV controller is deleting the volume through a second PV."},
	{Reason: ReasonTwinTerminating, Severity: reasons.Counted,
		Sentence: "The second PV, through which the volume is deleted, is terminating."},
	{Reason: ReasonVolumeFailedDelete, Severity: reasons.Warning,
		Sentence: "The PV controller did not delete the volume; the deletion is retried."},
	{Reason: ReasonPluginGone, Severity: reasons.Warning,
		Sentence: "kube-controller-manager no longer has a plugin that can delete the volume. " + keepVolume},
	{Reason: ReasonProtect, Sentence: "The PV is protected until its volume is deleted."},
	{Reason: ReasonReclaim, Sentence: "The claim is gone and the reclaim policy is Delete; the volume is being deleted."},
	{Reason: ReasonOrphan,
		Sentence: "The PV to which this twin belongs is gone; the twin is deleted, and its volume kept."},
	{Reason: ReasonVolumeDeleted, Sentence: "The volume is deleted, and the finalizers are removed from the PV."},
	{Reason: ReasonTooLateToKeep, Severity: reasons.Warning, OnClaim: true,
		Sentence: "The PV was changed to keep its volume after the volume was deleted. The data is gone, and the " +
			"finalizers are removed from the PV."},
	{Reason: ReasonCacheStale, Sentence: "The watch cache is behind the API server; the PV is read again in a moment."},
	{Reason: ReasonAPIReadFailed, Severity: reasons.Warning,
		Sentence: "A read from the API server that the deletion needs failed; volume-guard tries again."},
	{Reason: ReasonAPIWriteFailed, Severity: reasons.Warning,
		Sentence: "A write to the API server failed; volume-guard tries again."},
	{Reason: ReasonDryRun, Severity: reasons.Normal, Sentence: "Dry run, nothing is changed."},
})

// Reasons returns every reason, in the order of their declaration.
func Reasons() []Reason { return table.Reasons() }

// Sentence returns the meaning of the reason and the action that a person can take.
func (r Reason) Sentence() string { return r.About().Sentence }

// EventType returns the type of the Events with this reason, Normal or Warning, or empty for a reason without Events.
func (r Reason) EventType() string { return r.About().Severity.EventType() }

// About returns the meaning and the severity of the reason, and the zero value for an unknown reason.
func (r Reason) About() reasons.About { return table.About(r) }

// Detail returns information about this PV that the reason's sentence does not give, or an empty string.
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
