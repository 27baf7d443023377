package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Reason identifies why a decision was made, and its Sentence explains it. The same word serves as an Event's reason,
// a value in the log, a label of the metrics and a column of the kubectl plugin.
type Reason = reasons.Word[family]

// family gives a Reason the meaning that this package declares.
type family struct{}

// About implements reasons.Family.
func (family) About(word string) reasons.About { return table.About(word) }

var table reasons.Table[family]

// Reasons for leaving a PV alone.
var (
	ReasonNotOurs    = table.Silent("NotOurs", "This PV belongs to another driver or to the PV controller.")
	ReasonNotLeading = table.Silent("NotLeading",
		"This replica does not hold the Lease, or did not renew it in time; the leader decides.")
	ReasonStaticIgnored = table.Silent("StaticIgnored",
		"No provisioner created this PV, and csi-reclaimer ignores such PVs (--static-pvs=ignore).")
	ReasonOtherNode = table.Silent("OtherNode",
		"The volume is not on this node; csi-reclaimer on another node handles it.")
	ReasonNodeUnclear = table.Warning("NodeUnclear",
		"The PV's node affinity does not restrict the volume to one node, so no node deletes it or removes its finalizer "+
			"(--node-deployment). Use an affinity on the driver's own topology.")
	ReasonNoNode = table.Silent("NoNode",
		"The PV's node affinity does not restrict the volume to one node, so no node protects or deletes it "+
			"(--node-deployment).")
	ReasonLeftToPeer    = table.Silent("LeftToPeer", "The external-provisioner beside csi-reclaimer handles this PV.")
	ReasonPolicyUnknown = table.Warning("PolicyUnknown",
		"csi-reclaimer does not know this reclaim policy; it keeps the volume.")
	ReasonPolicyKeepsVolume = table.Silent("PolicyKeepsVolume", "The reclaim policy keeps the volume; nothing is deleted.")
	ReasonRetainBound       = table.Normal("RetainBound",
		"The PV is terminating while its claim exists, and its policy keeps the volume. The PV is deleted when the claim "+
			"is gone; until then the policy can still be changed.")
	ReasonNotClaimed  = table.Silent("NotClaimed", "The PV belongs to no claim; its volume is kept.")
	ReasonNotYetBound = table.Silent("NotYetBound",
		"The PV is reserved for a claim that the PV controller has not bound to it yet.")
	ReasonBound            = table.Silent("Bound", "The PV is in use by its claim.")
	ReasonTerminatingBound = table.Normal("TerminatingBound",
		"The PV is terminating, and its claim still uses the volume. The volume is deleted once the claim is gone.")
	// FindMatchingVolume in component-helpers/storage/volume skips terminating PVs even if their claimRef names the claim.
	ReasonTerminatingUnbound = table.Warning("TerminatingUnbound",
		"The PV was deleted before its claim was bound to it. The PV controller binds no terminating PV to a claim without "+
			"spec.volumeName, so PV and claim wait for each other. Delete the claim; the volume is then deleted.")
	ReasonDeletionUnprotected = table.Warning("DeletionUnprotected",
		"The PV was deleted before it could be protected: it can be gone before its volume is deleted. To keep the volume, "+
			"change the policy to Retain now.")
	ReasonReclaimAbandoned = table.Warning("ReclaimAbandoned",
		"Another program or user removed the finalizer while the PV was terminating, so its volume is kept. Delete the "+
			"volume in the storage system if it is not needed.")
	ReasonFinalizerContested = table.Warning("FinalizerContested",
		"Another program removes the finalizer from several PVs of the driver again and again, so csi-reclaimer adds it to "+
			"none of them: PVs that are deleted before their claims leak their volumes.")
	ReasonPVContested = table.Warning("PVContested",
		"Another program removes the finalizer from this PV again and again, so csi-reclaimer does not add it again: if "+
			"the PV is deleted before its claim, its volume leaks. Other PVs are protected.")
	ReasonStaleFinalizer = table.Warning("StaleFinalizer",
		"The PV carries the finalizer "+volume.CompanionFinalizer+", for which no program deletes the volume in this "+
			"role. Run csi-reclaimer with --role=companion until all terminating PVs with it are gone, and then once with "+
			"--role=companion --release-finalizers.")
	ReasonFinalizersRemoved = table.Silent("FinalizersRemoved",
		"csi-reclaimer removes its finalizers from all PVs of the driver (--release-finalizers).")
	ReasonRolledBack = table.Silent("RolledBack",
		"The reclaim policy of PVs that are deleted before their claim is not honored (--honor-reclaim-policy=false); no "+
			"finalizer protects the PV.")
	ReasonVolumeGone = table.Counted("VolumeGone",
		"The volume is deleted; finalizers of other programs still keep the PV.")
)

// Reasons for a deletion that is due and has to wait.
var (
	ReasonHeld = table.Normal("Held",
		"The annotation "+volume.HoldAnnotation+" keeps the volume. Remove it to have the volume deleted.")
	ReasonDeletionsPaused = table.Normal("DeletionsPaused",
		"Deletions are paused: more volumes became deletable at once than --brake-deletions allows, or their number is not "+
			"known yet. Check that these volumes should be deleted; then remove the annotation "+BrakeAnnotation+" from "+
			"the Lease to resume.")
	ReasonHandleUnknown = table.Warning("HandleUnknown",
		"The PV names no volume handle of this driver, so the driver cannot be asked to delete it.")
	ReasonAttached = table.Normal("Attached",
		"The volume is still attached to a node. It is deleted once the VolumeAttachment is gone.")
	ReasonSharedHandle = table.Normal("SharedHandle",
		"Another PV that keeps its volume names the same volume handle. The volume is deleted once that PV is gone or is "+
			"to be deleted too, without a hold.")
	ReasonClaimStillExists = table.Warning("ClaimStillExists",
		"The PV is released, but its claim still exists. The volume is kept until the claim is gone.")
	ReasonClaimNamesPV = table.Warning("ClaimNamesPV",
		"The claim that the PV belonged to is gone, and another claim of that name names this PV in spec.volumeName, as "+
			"after a restore from a backup. The volume is kept as long as that claim exists.")
	ReasonTopologyNotUnique = table.Warning("TopologyNotUnique",
		"Other nodes have the same topology labels as this one, or this one lacks them, so it is not known which node has "+
			"the volume. The driver must give each node a topology of its own.")
	ReasonInFlight = table.Normal("ProvisioningInFlight",
		"The in-flight log still has an entry for this PV's volume: a call that provisions it may be repeated or arrive "+
			"late. The PV and its volume stay until the entry is settled. `kubectl reclaim explain` on the claim shows the "+
			"entry.")
	ReasonLogNotRead = table.Counted("InFlightLogNotRead",
		"The in-flight log has not been read yet. Nothing is deleted before it is known which volumes are being "+
			"provisioned; the log of csi-reclaimer says why.")
	ReasonLogUnreadable = table.Warning("InFlightLogUnreadable",
		"The part of the in-flight log that is for this PV's volume cannot be read, so it is not known whether a call that "+
			"provisions the volume may still arrive. The PV and its volume stay until it can be read. Delete the Lease if it "+
			"was restored or copied; `kubectl reclaim status` names all that cannot be read.")
)

// Reasons for acting.
var (
	ReasonProtect = table.Silent("Protect", "The PV is protected until its volume is deleted.")
	ReasonAdopt   = table.Silent("Adopt", "csi-reclaimer replaces the finalizer of role companion with the finalizer of "+
		"role owner.")
	ReasonReclaim = table.Silent("Reclaim",
		"The claim is gone and the reclaim policy is Delete; the volume is being deleted.")
	ReasonUnprotectedReclaim = table.Warning("UnprotectedReclaim",
		"The PV was deleted before it could be protected. Its policy was Delete and its claim is gone, so its volume was "+
			"deleted after it.")
	ReasonVolumeDeleted = table.Silent("VolumeDeleted", "The volume is deleted; the PV is deleted next.")
	ReasonTooLateToKeep = table.Declare("TooLateToKeep", reasons.About{
		Severity: reasons.Warning, OnClaim: true, Sentence: "The PV was changed to keep its volume, or created, after the " +
			"deletion of the volume had begun. The data is gone, or it may be: look for the volume in the storage system."})
)

// Reasons at the end of a PV.
var (
	ReasonGone          = table.Silent("Gone", "The PV is gone and nothing is left to do.")
	ReasonLeftToSibling = table.Silent("LeftToSibling",
		"The PV is gone; another PV names the same volume and decides about it.")
	ReasonVolumeLeftBehind = table.Warning("VolumeLeftBehind",
		"The PV is gone, it was not protected, and nothing proves that its volume may be deleted: the volume may be left "+
			"behind. Look for it in the storage system.")
)

// Reasons that only the call of a step can find.
var (
	// ReasonVolumeFailedDelete is the reason of sig-storage-lib-external-provisioner's Event.
	ReasonVolumeFailedDelete = table.Warning("VolumeFailedDelete",
		"The driver did not delete the volume; csi-reclaimer tries again.")
	// ReasonDeletionInProgress has no Event, because the driver ends by itself.
	ReasonDeletionInProgress = table.Counted("DeletionInProgress",
		"The driver is still deleting the volume. csi-reclaimer asks again, less and less often.")
	ReasonVolumeBusy     = table.Silent("VolumeBusy", "The volume is being deleted for another PV of the same handle.")
	ReasonSecretNotFound = table.Warning("SecretNotFound",
		"The Secret named for the deletion does not exist; the driver is called without it.")
	ReasonSecretUnclear = table.Warning("SecretUnclear",
		"Which Secret the deletion needs is unclear, so the driver is not called.")
	ReasonCacheStale = table.Normal("CacheStale",
		"The watch cache is behind the API server; csi-reclaimer tries again in a moment.")
	ReasonAPIReadFailed, ReasonAPIWriteFailed = table.APIFailures("deletion", "csi-reclaimer")
	ReasonDryRun                              = table.DryRun()
	// ReasonAdmissionPolicyIneffective is reported once by a process, for all PVs of the driver.
	ReasonAdmissionPolicyIneffective = table.Warning("AdmissionPolicyIneffective",
		"The PV was bound without the finalizer although an admission policy for the driver adds it, so PVs that are "+
			"deleted at once can leak their volumes. Check that every API server serves MutatingAdmissionPolicy, and that the "+
			"policy is the one of this version; then restart csi-reclaimer.")
)

// Reasons returns every reason in the order of declaration.
func Reasons() []Reason { return table.Reasons() }
