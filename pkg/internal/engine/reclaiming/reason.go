package reclaiming

import (
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Reason says why a decision is what it is. The same word is an Event's reason, a value in
// the log, a label of the metrics and a column of the kubectl plugin. What each means is
// its Sentence.
type Reason string

// Reasons for leaving a PV alone.
const (
	ReasonNotOurs             Reason = "NotOurs"
	ReasonNotLeading          Reason = "NotLeading"
	ReasonStaticIgnored       Reason = "StaticIgnored"
	ReasonOtherNode           Reason = "OtherNode"
	ReasonNodeUnclear         Reason = "NodeUnclear"
	ReasonLeftToPeer          Reason = "LeftToPeer"
	ReasonPolicyUnknown       Reason = "PolicyUnknown"
	ReasonPolicyKeepsVolume   Reason = "PolicyKeepsVolume"
	ReasonRetainBound         Reason = "RetainBound"
	ReasonNotClaimed          Reason = "NotClaimed"
	ReasonNotYetBound         Reason = "NotYetBound"
	ReasonBound               Reason = "Bound"
	ReasonTerminatingBound    Reason = "TerminatingBound"
	ReasonDeletionUnprotected Reason = "DeletionUnprotected"
	ReasonReclaimAbandoned    Reason = "ReclaimAbandoned"
	ReasonFinalizerContested  Reason = "FinalizerContested"
	ReasonPVContested         Reason = "PVContested"
	ReasonStaleFinalizer      Reason = "StaleFinalizer"
	ReasonFinalizersRemoved   Reason = "FinalizersRemoved"
	ReasonRolledBack          Reason = "RolledBack"
	ReasonVolumeGone          Reason = "VolumeGone"
)

// Reasons for a deletion that is due and has to wait.
const (
	ReasonHeld              Reason = "Held"
	ReasonDeletionsPaused   Reason = "DeletionsPaused"
	ReasonHandleUnknown     Reason = "HandleUnknown"
	ReasonAttached          Reason = "Attached"
	ReasonSharedHandle      Reason = "SharedHandle"
	ReasonClaimStillExists  Reason = "ClaimStillExists"
	ReasonClaimNamesPV      Reason = "ClaimNamesPV"
	ReasonTopologyNotUnique Reason = "TopologyNotUnique"
	ReasonInFlight          Reason = "ProvisioningInFlight"
	ReasonLogNotRead        Reason = "InFlightLogNotRead"
)

// Reasons for acting.
const (
	ReasonProtect            Reason = "Protect"
	ReasonAdopt              Reason = "Adopt"
	ReasonReclaim            Reason = "Reclaim"
	ReasonUnprotectedReclaim Reason = "UnprotectedReclaim"
	ReasonVolumeDeleted      Reason = "VolumeDeleted"
	ReasonTooLateToKeep      Reason = "TooLateToKeep"
)

// Reasons at the end of a PV.
const (
	ReasonGone             Reason = "Gone"
	ReasonLeftToSibling    Reason = "LeftToSibling"
	ReasonVolumeLeftBehind Reason = "VolumeLeftBehind"
)

// Reasons that only carrying out a step can find.
const (
	// ReasonVolumeFailedDelete is the word of sig-storage-lib-external-provisioner's event.
	ReasonVolumeFailedDelete Reason = "VolumeFailedDelete"
	ReasonVolumeBusy         Reason = "VolumeBusy"
	ReasonSecretNotFound     Reason = "SecretNotFound"
	ReasonSecretUnclear      Reason = "SecretUnclear"
	ReasonCacheStale         Reason = "CacheStale"
	ReasonAPIReadFailed      Reason = "APIReadFailed"
	ReasonAPIWriteFailed     Reason = "APIWriteFailed"
	ReasonDryRun             Reason = "DryRun"
	// ReasonAdmissionPolicyIneffective is reported once by a process, for all PVs of the driver.
	ReasonAdmissionPolicyIneffective Reason = "AdmissionPolicyIneffective"
)

// Reasons returns every reason there is, in the order of their declaration.
func Reasons() []Reason {
	return []Reason{
		ReasonNotOurs, ReasonNotLeading, ReasonStaticIgnored, ReasonOtherNode, ReasonNodeUnclear, ReasonLeftToPeer,
		ReasonPolicyUnknown, ReasonPolicyKeepsVolume, ReasonRetainBound,
		ReasonNotClaimed, ReasonNotYetBound, ReasonBound, ReasonTerminatingBound, ReasonDeletionUnprotected,
		ReasonReclaimAbandoned, ReasonFinalizerContested, ReasonPVContested, ReasonStaleFinalizer, ReasonFinalizersRemoved,
		ReasonRolledBack, ReasonVolumeGone,
		ReasonHeld, ReasonDeletionsPaused, ReasonHandleUnknown, ReasonAttached, ReasonSharedHandle, ReasonClaimStillExists,
		ReasonClaimNamesPV, ReasonTopologyNotUnique, ReasonInFlight, ReasonLogNotRead,
		ReasonProtect, ReasonAdopt, ReasonReclaim, ReasonUnprotectedReclaim, ReasonVolumeDeleted, ReasonTooLateToKeep,
		ReasonGone, ReasonLeftToSibling, ReasonVolumeLeftBehind,
		ReasonVolumeFailedDelete, ReasonVolumeBusy, ReasonSecretNotFound, ReasonSecretUnclear, ReasonCacheStale,
		ReasonAPIReadFailed, ReasonAPIWriteFailed, ReasonDryRun, ReasonAdmissionPolicyIneffective,
	}
}

// Sentence returns what the reason means and what a person can do about it.
func (r Reason) Sentence() string { return r.About().Sentence }

// EventType returns the type of the Events with this reason, Normal or Warning, empty where there are none.
func (r Reason) EventType() string { return r.About().Severity.EventType() }

// Waits reports whether a PV with this reason is on its way to be deleted and does not get there, so that it counts as
// waiting.
func (r Reason) Waits() bool { return r.About().Severity.Waits() }

// About returns what the reason means and how severe it is, the zero value for a word that is none of the reasons.
func (r Reason) About() reasons.About {
	sentence, severity := r.about()
	return reasons.About{Sentence: sentence, Severity: severity, OnClaim: r == ReasonTooLateToKeep}
}

func (r Reason) about() (string, reasons.Severity) {
	switch r {
	case ReasonNotOurs:
		return "This PV belongs to another driver or to the PV controller.", reasons.Silent
	case ReasonNotLeading:
		return "This replica does not hold the Lease, or did not renew it in time; the leader decides.", reasons.Silent
	case ReasonStaticIgnored:
		return "No provisioner created this PV, and csi-reclaimer ignores such PVs (--static-pvs=ignore).", reasons.Silent
	case ReasonOtherNode:
		return "The volume is not on this node; csi-reclaimer on another node handles it.", reasons.Silent
	case ReasonNodeUnclear:
		return "The PV's node affinity does not say that one node alone has the volume, so that no node deletes it " +
				"(--node-deployment). Let the affinity name the driver's own topology, or delete the volume and the PV by hand.",
			reasons.Warning
	case ReasonInFlight:
		return "The in-flight log still has an entry for this PV's volume: a call that provisions it may be repeated or " +
			"arrive late. The PV and its volume stay until the entry is settled. `kubectl reclaim explain` on the claim " +
			"shows the entry.", reasons.Normal
	case ReasonLogNotRead:
		return "The in-flight log has not been read yet. Nothing is deleted before it is known which volumes are being " +
			"provisioned; the program's own log says what keeps it.", reasons.Counted
	case ReasonLeftToPeer:
		return "The external-provisioner beside csi-reclaimer handles this PV.", reasons.Silent
	case ReasonPolicyUnknown:
		return "csi-reclaimer does not know this reclaim policy; it keeps the volume.", reasons.Warning
	case ReasonPolicyKeepsVolume:
		return "The reclaim policy keeps the volume; nothing is deleted.", reasons.Silent
	case ReasonRetainBound:
		return "The PV is terminating while its claim exists, and its policy keeps the volume. The PV goes when the claim " +
			"is gone; until then the policy can still be changed.", reasons.Normal
	case ReasonNotClaimed:
		return "The PV belongs to no claim; its volume is kept.", reasons.Silent
	case ReasonNotYetBound:
		return "The PV is reserved for a claim that the PV controller has not bound to it yet.", reasons.Silent
	case ReasonBound:
		return "The PV is in use by its claim.", reasons.Silent
	case ReasonTerminatingBound:
		return "The PV is terminating, and its claim still uses the volume. The volume is deleted once the claim is gone.",
			reasons.Counted
	case ReasonDeletionUnprotected:
		return "The PV was deleted before it could be protected: it can vanish before its volume is deleted. Nothing can " +
			"be done while it exists.", reasons.Warning
	case ReasonReclaimAbandoned:
		return "Somebody else removed the finalizer while the PV was terminating, so its volume is kept. Delete the " +
			"volume in the storage system if it is not needed.", reasons.Warning
	case ReasonFinalizerContested:
		return "Another program removes the finalizer from several PVs of the driver again and again, so csi-reclaimer " +
			"adds it to none of them: PVs that are deleted before their claims leak their volumes.", reasons.Warning
	case ReasonPVContested:
		return "Somebody removes the finalizer from this PV again and again, so csi-reclaimer does not add it again: if " +
			"the PV is deleted before its claim, its volume leaks. Other PVs are protected.", reasons.Warning
	case ReasonStaleFinalizer:
		return "The PV carries the finalizer " + volume.CompanionFinalizer +
				", which nobody removes in this role. Run csi-reclaimer with --role=companion --release-finalizers once.",
			reasons.Warning
	case ReasonFinalizersRemoved:
		return "csi-reclaimer removes its finalizers from all PVs of the driver (--release-finalizers).", reasons.Silent
	case ReasonRolledBack:
		return "The reclaim policy of PVs that are deleted before their claim is not honoured " +
			"(--honor-reclaim-policy=false); no finalizer protects the PV.", reasons.Silent
	case ReasonVolumeGone:
		return "The volume is deleted; finalizers of others still hold the PV.", reasons.Counted
	case ReasonHeld:
		return "The annotation " + volume.HoldAnnotation + " keeps the volume. Remove it to have the volume deleted.",
			reasons.Normal
	case ReasonDeletionsPaused:
		return "Deletions are paused: more volumes became deletable at once than --brake-deletions allows, or that is not " +
			"known yet. Check that these volumes are to be deleted; then remove the annotation " + BrakeAnnotation +
			" from the Lease to resume.", reasons.Normal
	case ReasonHandleUnknown:
		return "The PV names no volume handle of this driver, so the driver cannot be asked to delete it.", reasons.Warning
	case ReasonAttached:
		return "The volume is still attached to a node. It is deleted once the VolumeAttachment is gone.", reasons.Normal
	case ReasonSharedHandle:
		return "Another PV that keeps its volume names the same volume handle. The volume is deleted once that PV is gone " +
			"or is to be deleted too.", reasons.Normal
	case ReasonClaimStillExists:
		return "The PV is released, but its claim still exists. The volume is kept until the claim is gone.", reasons.Warning
	case ReasonClaimNamesPV:
		return "The claim that the PV belonged to is gone, and another claim of that name names this PV in " +
				"spec.volumeName, as after a restore from a backup. The volume is kept as long as that claim exists.",
			reasons.Warning
	case ReasonTopologyNotUnique:
		return "Other nodes have the same topology labels as this one, or this one lacks them, so that it is not known " +
			"which of them has the volume. The driver has to give each node a topology of its own.", reasons.Warning
	case ReasonProtect:
		return "The PV is protected until its volume is deleted.", reasons.Silent
	case ReasonAdopt:
		return "csi-reclaimer replaces the finalizer of role companion by that of role owner.", reasons.Silent
	case ReasonReclaim:
		return "The claim is gone and the reclaim policy is Delete; the volume is being deleted.", reasons.Silent
	case ReasonUnprotectedReclaim:
		return "The PV was deleted before it could be protected. Its policy was Delete and its claim is gone, so its " +
			"volume was deleted after it.", reasons.Warning
	case ReasonVolumeDeleted:
		return "The volume is deleted; the PV follows.", reasons.Silent
	case ReasonTooLateToKeep:
		return "The PV was changed to keep its volume after the volume was deleted. The data is gone; the PV follows.",
			reasons.Warning
	case ReasonGone:
		return "The PV is gone and nothing is left to do.", reasons.Silent
	case ReasonLeftToSibling:
		return "The PV is gone; another PV names the same volume and decides about it.", reasons.Silent
	case ReasonVolumeLeftBehind:
		return "The PV is gone, it was not protected, and nothing proves that its volume may be deleted: the volume may " +
			"be left behind. Look for it in the storage system.", reasons.Warning
	case ReasonVolumeFailedDelete:
		return "The driver did not delete the volume; csi-reclaimer tries again.", reasons.Warning
	case ReasonVolumeBusy:
		return "The volume is being deleted for another PV of the same handle.", reasons.Silent
	case ReasonSecretNotFound:
		return "The Secret named for the deletion does not exist; the driver is called without it.", reasons.Warning
	case ReasonSecretUnclear:
		return "Which Secret the deletion needs is unclear, so the driver is not called.", reasons.Warning
	case ReasonCacheStale:
		return "The watch cache is behind the API server; csi-reclaimer tries again in a moment.", reasons.Normal
	case ReasonAPIReadFailed:
		return "A read from the API server that the deletion needs failed; csi-reclaimer tries again.", reasons.Warning
	case ReasonAPIWriteFailed:
		return "A write to the API server failed; csi-reclaimer tries again.", reasons.Warning
	case ReasonAdmissionPolicyIneffective:
		return "The PV was bound without the finalizer although an admission policy for the driver adds it, so that PVs " +
				"which are deleted at once can leak their volumes. Check that every API server runs with " +
				"MutatingAdmissionPolicy, and that the policy is the one of this version; then restart csi-reclaimer.",
			reasons.Warning
	case ReasonDryRun:
		return "Dry run, nothing is changed.", reasons.Normal
	}
	return "", reasons.Silent
}
