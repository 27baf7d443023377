package intree

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// Reason explains a decision. The same word is an Event's reason, a value in the log and a label of the metrics; its
// Sentence gives the meaning.
type Reason = reasons.Word[family]

// family gives a Reason the meaning that this package declares.
type family struct{}

// About implements reasons.Family.
func (family) About(word string) reasons.About { return table.About(word) }

var table reasons.Table[family]

// Reasons for leaving a PV alone.
var (
	ReasonNotOurs   = table.Silent("NotOurs", "No in-tree plugin provisioned this PV.")
	ReasonNotSynced = table.Silent("NotSynced",
		"It is not known yet whether kube-controller-manager manages the finalizer.")
	ReasonManagedByController = table.Silent("ManagedByController", "kube-controller-manager manages this PV.")
	ReasonControllerDeletes   = table.Counted("ControllerDeletes",
		"The PV is terminating, and is left to kube-controller-manager, which manages the finalizer.")
	ReasonControllerIdle = table.Warning("ControllerIdle",
		"The PV is terminating, and the program that added "+Finalizer+" does not act on it. "+
			"kube-controller-manager before 1.31 never does, no matter who added the finalizer. "+byHand)
	ReasonMigrated            = table.Silent("Migrated", "The PV is migrated to a CSI driver, whose sidecar manages it.")
	ReasonMigratedUnprotected = table.Warning("MigratedUnprotected",
		"The PV was migrated to a CSI driver while it was terminating, so that the driver's sidecar cannot protect it. "+
			byHand)
	ReasonPolicyUnknown = table.Warning("PolicyUnknown",
		"volume-guard does not know this reclaim policy; it keeps the volume.")
	ReasonPolicyKeepsVolume = table.Silent("PolicyKeepsVolume", "The reclaim policy keeps the volume; nothing is deleted.")
	ReasonRetainBound       = table.Normal("RetainBound",
		"The PV is terminating while its claim exists, and its policy keeps the volume. The PV is deleted when the claim "+
			"is gone; until then the policy can still be changed.")
	ReasonProtected           = table.Silent("Protected", "The PV is protected until its volume is deleted.")
	ReasonDeletionUnprotected = table.Warning("DeletionUnprotected",
		"The PV was deleted before it could be protected: it can be gone before its volume is deleted. Look for the volume "+
			"in the storage system once the PV is gone.")
	ReasonTerminatingBound = table.Normal("TerminatingBound",
		"The PV is terminating, and its claim still uses the volume. The volume is deleted once the claim is gone.")
	ReasonNotClaimed = table.Warning("NotClaimed",
		"The PV is terminating and belongs to no claim, so nothing shows that its volume may be deleted. "+keepVolume)
	// FindMatchingVolume in component-helpers/storage/volume skips terminating PVs even if their claimRef names the claim,
	// and modifyDeletionFinalizers in pv_controller_base.go holds PVs in any phase.
	ReasonTerminatingUnbound = table.Warning("TerminatingUnbound",
		"The PV was deleted before its claim was bound to it. The PV controller binds no terminating PV to a claim without "+
			"spec.volumeName, so PV and claim wait for each other. Delete the claim; the volume is then deleted.")
	ReasonNotReleased = table.Counted("NotReleased",
		"The PV is terminating, and volume-guard does not know its phase: it keeps the volume.")
	ReasonFinalizersRemoved = table.Silent("FinalizersRemoved",
		"The finalizers of volume-guard are removed from all PVs (--release-finalizers).")
	ReasonVolumeGone = table.Counted("VolumeGone",
		"The volume is deleted; finalizers of other programs still keep the PV.")
)

// Reasons for delaying a deletion that is due.
var (
	ReasonWriterUnknown = table.Warning("WriterUnknown",
		"The PV is terminating, and its managedFields do not show who added "+Finalizer+", so it is left alone. "+
			byHand)
	ReasonHeld = table.Normal("Held",
		"The annotation csi-reclaimer.io/hold keeps volume-guard from deleting the volume. kube-controller-manager does not "+
			"know the annotation, and may have deleted the volume before. Remove the annotation to have volume and PV deleted.")
	ReasonHoldNotObeyed = table.Warning("HoldNotObeyed",
		"The annotation csi-reclaimer.io/hold does not keep this volume: kube-controller-manager, which deletes it, does "+
			"not know the annotation. To keep the volume, set the reclaim policy of each PV of the volume to Retain.")
	ReasonClaimStillExists = table.Warning("ClaimStillExists",
		"The PV is released, but its claim still exists. The volume is kept as long as the claim exists.")
	ReasonClaimNamesPV = table.Warning("ClaimNamesPV",
		"The claim that the PV belonged to is gone, and another claim of that name names this PV in spec.volumeName, as "+
			"after a restore from a backup. The volume is kept as long as that claim exists.")
	ReasonAttached = table.Normal("Attached",
		"The volume is still attached to a node. It is deleted once the VolumeAttachment is gone.")
	ReasonSharedSource = table.Normal("SharedSource",
		"Another PV that keeps its volume names the same volume. The volume is deleted once that PV is gone or is to be "+
			"deleted too, without a hold.")
	ReasonTwinNameTaken = table.Warning("TwinNameTaken",
		"The volume can be deleted only through a second PV, and a PV that volume-guard did not create has the name of "+
			"that second PV. Delete it if it is not in use. Otherwise, set the reclaim policy of this PV to Retain, and delete "+
			"the volume in the storage system if it is not needed.")
	ReasonTwinChanged = table.Warning("TwinChanged",
		"The second PV, made to delete the volume, was changed or bound by another program or user, so volume-guard does "+
			"not touch it. Delete it if it is not in use.")
	ReasonTwinNotReleased = table.Counted("TwinNotReleased",
		"The PV controller has not yet confirmed, on a second PV of the volume, that the claim is gone.")
	ReasonTwinDeleting    = table.Counted("TwinDeleting", "The PV controller is deleting the volume through a second PV.")
	ReasonTwinTerminating = table.Counted("TwinTerminating",
		"The second PV, through which the volume is deleted, is terminating.")
	// ReasonVolumeFailedDelete is the word of the PV controller's own event.
	ReasonVolumeFailedDelete = table.Warning("VolumeFailedDelete",
		"The PV controller did not delete the volume; the deletion is retried.")
	ReasonPluginGone = table.Warning("PluginGone",
		"kube-controller-manager no longer has a plugin that can delete the volume. "+keepVolume)
)

// Reasons for acting.
var (
	ReasonProtect = table.Silent("Protect", "The PV is protected until its volume is deleted.")
	ReasonReclaim = table.Silent("Reclaim",
		"The claim is gone and the reclaim policy is Delete; the volume is being deleted.")
	ReasonOrphan = table.Silent("Orphan",
		"The PV to which this twin belongs is gone; the twin is deleted, and its volume kept.")
	ReasonVolumeDeleted = table.Silent("VolumeDeleted",
		"The volume is deleted, and the finalizers are removed from the PV.")
	ReasonTooLateToKeep = table.Declare("TooLateToKeep", reasons.About{
		Severity: reasons.Warning, OnClaim: true, Sentence: "The PV was changed to keep its volume after the volume was " +
			"deleted. The data is gone, and the finalizers are removed from the PV."})
)

// Reasons that arise only while a step is carried out.
var (
	ReasonCacheStale = table.Silent("CacheStale",
		"The watch cache is behind the API server; the PV is read again in a moment.")
	ReasonAPIReadFailed, ReasonAPIWriteFailed = table.APIFailures("deletion", "volume-guard")
	ReasonDryRun                              = table.DryRun()
)

// keepVolume explains how to have a PV deleted whose volume no program deletes.
const keepVolume = "To have the PV deleted, set its reclaim policy to Retain, and delete the volume in the storage " +
	"system if it is not needed."

// byHand explains how to have a PV deleted whose finalizer this program does not touch.
const byHand = "To have the PV deleted, remove the finalizer " + Finalizer +
	" by hand; its volume then stays in the storage system."

// Reasons returns every reason, in the order of their declaration.
func Reasons() []Reason { return table.Reasons() }

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
