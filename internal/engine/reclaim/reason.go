package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Reason identifies why a decision was made, and its Sentence explains it. The same word serves as an Event's reason,
// a value in the log, a label of the metrics and a column of the kubectl plugin.
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
	ReasonLogUnreadable     Reason = "InFlightLogUnreadable"
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

// Reasons that only the call of a step can find.
const (
	// ReasonVolumeFailedDelete is the reason of sig-storage-lib-external-provisioner's Event.
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

// table has a row for every reason, in the order of their declaration.
var table = reasons.NewTable([]reasons.Row[Reason]{
	{Reason: ReasonNotOurs, Sentence: "This PV belongs to another driver or to the PV controller."},
	{Reason: ReasonNotLeading,
		Sentence: "This replica does not hold the Lease, or did not renew it in time; the leader decides."},
	{Reason: ReasonStaticIgnored,
		Sentence: "No provisioner created this PV, and csi-reclaimer ignores such PVs (--static-pvs=ignore)."},
	{Reason: ReasonOtherNode, Sentence: "The volume is not on this node; csi-reclaimer on another node handles it."},
	{Reason: ReasonNodeUnclear, Severity: reasons.Warning,
		Sentence: "The PV's node affinity does not say that one node alone has the volume, so that no node deletes it " +
			"(--node-deployment). Let the affinity name the driver's own topology, or delete the volume and the PV by hand."},
	{Reason: ReasonLeftToPeer, Sentence: "The external-provisioner beside csi-reclaimer handles this PV."},
	{Reason: ReasonPolicyUnknown, Severity: reasons.Warning,
		Sentence: "csi-reclaimer does not know this reclaim policy; it keeps the volume."},
	{Reason: ReasonPolicyKeepsVolume, Sentence: "The reclaim policy keeps the volume; nothing is deleted."},
	{Reason: ReasonRetainBound, Severity: reasons.Normal,
		Sentence: "The PV is terminating while its claim exists, and its policy keeps the volume. The PV is deleted when " +
			"the claim is gone; until then the policy can still be changed."},
	{Reason: ReasonNotClaimed, Sentence: "The PV belongs to no claim; its volume is kept."},
	{Reason: ReasonNotYetBound,
		Sentence: "The PV is reserved for a claim that the PV controller has not bound to it yet."},
	{Reason: ReasonBound, Sentence: "The PV is in use by its claim."},
	{Reason: ReasonTerminatingBound, Severity: reasons.Counted,
		Sentence: "The PV is terminating, and its claim still uses the volume. The volume is deleted once the claim is " +
			"gone."},
	{Reason: ReasonDeletionUnprotected, Severity: reasons.Warning,
		Sentence: "The PV was deleted before it could be protected: it can be gone before its volume is deleted. To keep " +
			"the volume, change the policy to Retain now."},
	{Reason: ReasonReclaimAbandoned, Severity: reasons.Warning,
		Sentence: "Somebody else removed the finalizer while the PV was terminating, so its volume is kept. Delete the " +
			"volume in the storage system if it is not needed."},
	{Reason: ReasonFinalizerContested, Severity: reasons.Warning,
		Sentence: "Another program removes the finalizer from several PVs of the driver again and again, so csi-reclaimer " +
			"adds it to none of them: PVs that are deleted before their claims leak their volumes."},
	{Reason: ReasonPVContested, Severity: reasons.Warning,
		Sentence: "Somebody removes the finalizer from this PV again and again, so csi-reclaimer does not add it again: if " +
			"the PV is deleted before its claim, its volume leaks. Other PVs are protected."},
	{Reason: ReasonStaleFinalizer, Severity: reasons.Warning,
		Sentence: "The PV carries the finalizer " + volume.CompanionFinalizer + ", which no program removes in this role. " +
			"Run csi-reclaimer with --role=companion --release-finalizers once."},
	{Reason: ReasonFinalizersRemoved,
		Sentence: "csi-reclaimer removes its finalizers from all PVs of the driver (--release-finalizers)."},
	{Reason: ReasonRolledBack,
		Sentence: "The reclaim policy of PVs that are deleted before their claim is not honored " +
			"(--honor-reclaim-policy=false); no finalizer protects the PV."},
	{Reason: ReasonVolumeGone, Severity: reasons.Counted,
		Sentence: "The volume is deleted; finalizers of other programs still keep the PV."},
	{Reason: ReasonHeld, Severity: reasons.Normal,
		Sentence: "The annotation " + volume.HoldAnnotation + " keeps the volume. Remove it to have the volume deleted."},
	{Reason: ReasonDeletionsPaused, Severity: reasons.Normal,
		Sentence: "Deletions are paused: more volumes became deletable at once than --brake-deletions allows, or whether " +
			"so is not known yet. Check that these volumes are to be deleted; then remove the annotation " + BrakeAnnotation +
			" from the Lease to resume."},
	{Reason: ReasonHandleUnknown, Severity: reasons.Warning,
		Sentence: "The PV names no volume handle of this driver, so the driver cannot be asked to delete it."},
	{Reason: ReasonAttached, Severity: reasons.Normal,
		Sentence: "The volume is still attached to a node. It is deleted once the VolumeAttachment is gone."},
	{Reason: ReasonSharedHandle, Severity: reasons.Normal,
		Sentence: "Another PV that keeps its volume names the same volume handle. The volume is deleted once that PV is " +
			"gone or is to be deleted too."},
	{Reason: ReasonClaimStillExists, Severity: reasons.Warning,
		Sentence: "The PV is released, but its claim still exists. The volume is kept until the claim is gone."},
	{Reason: ReasonClaimNamesPV, Severity: reasons.Warning,
		Sentence: "The claim that the PV belonged to is gone, and another claim of that name names this PV in " +
			"spec.volumeName, as after a restore from a backup. The volume is kept as long as that claim exists."},
	{Reason: ReasonTopologyNotUnique, Severity: reasons.Warning,
		Sentence: "Other nodes have the same topology labels as this one, or this one lacks them, so it is not known which " +
			"node has the volume. The driver must give each node a topology of its own."},
	{Reason: ReasonInFlight, Severity: reasons.Normal,
		Sentence: "The in-flight log still has an entry for this PV's volume: a call that provisions it may be repeated or " +
			"arrive late. The PV and its volume stay until the entry is settled. `kubectl reclaim explain` on the claim shows " +
			"the entry."},
	{Reason: ReasonLogNotRead, Severity: reasons.Counted,
		Sentence: "The in-flight log has not been read yet. Nothing is deleted before it is known which volumes are being " +
			"provisioned; the log of csi-reclaimer says why."},
	{Reason: ReasonLogUnreadable, Severity: reasons.Warning,
		Sentence: "The part of the in-flight log that is for this PV's volume cannot be read, so it is not known whether a " +
			"call that provisions the volume may still arrive. The PV and its volume stay until it can be read. Delete the " +
			"Lease if it was restored or copied; `kubectl reclaim status` names all that cannot be read."},
	{Reason: ReasonProtect, Sentence: "The PV is protected until its volume is deleted."},
	{Reason: ReasonAdopt, Sentence: "csi-reclaimer replaces the finalizer of role companion by that of role owner."},
	{Reason: ReasonReclaim, Sentence: "The claim is gone and the reclaim policy is Delete; the volume is being deleted."},
	{Reason: ReasonUnprotectedReclaim, Severity: reasons.Warning,
		Sentence: "The PV was deleted before it could be protected. Its policy was Delete and its claim is gone, so its " +
			"volume was deleted after it."},
	{Reason: ReasonVolumeDeleted, Sentence: "The volume is deleted; the PV is deleted next."},
	{Reason: ReasonTooLateToKeep, Severity: reasons.Warning, OnClaim: true,
		Sentence: "The PV was changed to keep its volume after the volume was deleted. The data is gone; the PV is deleted " +
			"next."},
	{Reason: ReasonGone, Sentence: "The PV is gone and nothing is left to do."},
	{Reason: ReasonLeftToSibling, Sentence: "The PV is gone; another PV names the same volume and decides about it."},
	{Reason: ReasonVolumeLeftBehind, Severity: reasons.Warning,
		Sentence: "The PV is gone, it was not protected, and nothing proves that its volume may be deleted: the volume may " +
			"be left behind. Look for it in the storage system."},
	{Reason: ReasonVolumeFailedDelete, Severity: reasons.Warning,
		Sentence: "The driver did not delete the volume; csi-reclaimer tries again."},
	{Reason: ReasonVolumeBusy, Sentence: "The volume is being deleted for another PV of the same handle."},
	{Reason: ReasonSecretNotFound, Severity: reasons.Warning,
		Sentence: "The Secret named for the deletion does not exist; the driver is called without it."},
	{Reason: ReasonSecretUnclear, Severity: reasons.Warning,
		Sentence: "Which Secret the deletion needs is unclear, so the driver is not called."},
	{Reason: ReasonCacheStale, Severity: reasons.Normal,
		Sentence: "The watch cache is behind the API server; csi-reclaimer tries again in a moment."},
	{Reason: ReasonAPIReadFailed, Severity: reasons.Warning,
		Sentence: "A read from the API server that the deletion needs failed; csi-reclaimer tries again."},
	{Reason: ReasonAPIWriteFailed, Severity: reasons.Warning,
		Sentence: "A write to the API server failed; csi-reclaimer tries again."},
	{Reason: ReasonDryRun, Severity: reasons.Normal, Sentence: "Dry run, nothing is changed."},
	{Reason: ReasonAdmissionPolicyIneffective, Severity: reasons.Warning,
		Sentence: "The PV was bound without the finalizer although an admission policy for the driver adds it, so PVs that " +
			"are deleted at once can leak their volumes. Check that every API server serves MutatingAdmissionPolicy, and that " +
			"the policy is the one of this version; then restart csi-reclaimer."},
})

// Reasons returns every reason in the order of declaration.
func Reasons() []Reason { return table.Reasons() }

// Sentence explains the reason and the remedy, if any, to people.
func (r Reason) Sentence() string { return r.About().Sentence }

// EventType returns the type of Events with this reason, Normal or Warning, empty for a reason without Events.
func (r Reason) EventType() string { return r.About().Severity.EventType() }

// Waits reports whether a PV with this reason is due for deletion but held back, and so counts as waiting.
func (r Reason) Waits() bool { return r.About().Severity.Waits() }

// About returns the explanation and severity of the reason, the zero value for an unknown word.
func (r Reason) About() reasons.About { return table.About(r) }
