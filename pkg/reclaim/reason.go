package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	v1 "k8s.io/api/core/v1"
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
	ReasonLeftOver            Reason = "LeftOver"
	ReasonReleased            Reason = "Released"
	ReasonRolledBack          Reason = "RolledBack"
	ReasonVolumeGone          Reason = "VolumeGone"
)

// Reasons for a deletion that is due and has to wait.
const (
	ReasonHeld          Reason = "Held"
	ReasonBraked        Reason = "Braked"
	ReasonHandleUnknown Reason = "HandleUnknown"
	ReasonAttached      Reason = "Attached"
	ReasonSharedHandle  Reason = "SharedHandle"
	ReasonClaimAlive    Reason = "ClaimAlive"
	ReasonClaimNamesPV  Reason = "ClaimNamesPV"
	ReasonNodeNotAlone  Reason = "NodeNotAlone"
	ReasonInFlight      Reason = "ProvisioningInFlight"
	ReasonLogNotRead    Reason = "InFlightLogNotRead"
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
	ReasonCatchingUp         Reason = "CatchingUp"
	ReasonUnreadable         Reason = "Unreadable"
	ReasonUnwritable         Reason = "Unwritable"
	ReasonDryRun             Reason = "DryRun"
	// ReasonAdmissionPolicyIneffective is told once by a process, for all PVs of the driver.
	ReasonAdmissionPolicyIneffective Reason = "AdmissionPolicyIneffective"
)

// Reasons returns every reason there is, in the order of their declaration.
func Reasons() []Reason {
	return []Reason{
		ReasonNotOurs, ReasonNotLeading, ReasonStaticIgnored, ReasonOtherNode, ReasonNodeUnclear, ReasonLeftToPeer, ReasonPolicyUnknown, ReasonPolicyKeepsVolume, ReasonRetainBound,
		ReasonNotClaimed, ReasonNotYetBound, ReasonBound, ReasonTerminatingBound, ReasonDeletionUnprotected,
		ReasonReclaimAbandoned, ReasonFinalizerContested, ReasonPVContested, ReasonLeftOver, ReasonReleased, ReasonRolledBack, ReasonVolumeGone,
		ReasonHeld, ReasonBraked, ReasonHandleUnknown, ReasonAttached, ReasonSharedHandle, ReasonClaimAlive, ReasonClaimNamesPV, ReasonNodeNotAlone, ReasonInFlight, ReasonLogNotRead,
		ReasonProtect, ReasonAdopt, ReasonReclaim, ReasonUnprotectedReclaim, ReasonVolumeDeleted, ReasonTooLateToKeep,
		ReasonGone, ReasonLeftToSibling, ReasonVolumeLeftBehind,
		ReasonVolumeFailedDelete, ReasonVolumeBusy, ReasonSecretNotFound, ReasonSecretUnclear, ReasonCatchingUp,
		ReasonUnreadable, ReasonUnwritable, ReasonDryRun, ReasonAdmissionPolicyIneffective,
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

// about returns what the reason means and how loudly it is told.
func (r Reason) about() (sentence string, loud notice) {
	switch r {
	case ReasonNotOurs:
		return "Another driver or the PV controller answers for this PV.", silent
	case ReasonNotLeading:
		return "This replica does not hold the Lease, or did not renew it in time; the one that leads decides.", silent
	case ReasonStaticIgnored:
		return "No provisioner made this PV, and such PVs are to be left alone (--static-pvs=ignore).", silent
	case ReasonOtherNode:
		return "The volume is not on this node; csi-reclaimer on another one answers for it.", silent
	case ReasonNodeUnclear:
		return "The PV's node affinity does not say that one node alone has the volume, so that no node deletes it (--node-deployment). Let the affinity name the driver's own topology, or delete the volume and the PV by hand.", warning
	case ReasonInFlight:
		return "The in-flight log still has an entry for this PV's volume: a call that provisions it may be repeated or arrive late. The PV and its volume stay until the entry is settled. `kubectl reclaim explain` on the claim shows the entry.", normal
	case ReasonLogNotRead:
		return "The in-flight log has not been read yet. Nothing is deleted before it is known which volumes are being provisioned; the program's own log says what keeps it.", quiet
	case ReasonLeftToPeer:
		return "The external-provisioner beside csi-reclaimer answers for this PV.", silent
	case ReasonPolicyUnknown:
		return "The reclaim policy is none that is known here; the volume is kept.", warning
	case ReasonPolicyKeepsVolume:
		return "The reclaim policy keeps the volume; nothing is deleted.", silent
	case ReasonRetainBound:
		return "The PV is being deleted while its claim lives, and its policy keeps the volume. It goes when the claim is gone; until then the policy can still be turned back.", normal
	case ReasonNotClaimed:
		return "The PV belongs to no claim; its volume is kept.", silent
	case ReasonNotYetBound:
		return "The PV is reserved for a claim that the PV controller has not bound to it yet.", silent
	case ReasonBound:
		return "The PV is in use by its claim.", silent
	case ReasonTerminatingBound:
		return "The PV is being deleted, and its claim still uses the volume. The volume is deleted once the claim is gone.", quiet
	case ReasonDeletionUnprotected:
		return "The PV was deleted before it could be protected: it can vanish before its volume is deleted. Nothing can be done while it is there.", warning
	case ReasonReclaimAbandoned:
		return "The finalizer was taken off by others while the PV was being deleted: somebody decided to let it go, and its volume is kept. Delete the volume in the storage system if it is not needed.", warning
	case ReasonFinalizerContested:
		return "Another program removes the finalizer from several PVs of the driver again and again, so it is added to none of them any more: PVs that are deleted before their claims leak their volumes.", warning
	case ReasonPVContested:
		return "Somebody removes the finalizer from this PV again and again, so it is not added to it any more: if the PV is deleted before its claim, its volume leaks. Other PVs are protected.", warning
	case ReasonLeftOver:
		return "The PV carries the finalizer " + volume.CompanionFinalizer + ", which nobody takes off in this role. Run csi-reclaimer with --role=companion --release-finalizers once.", warning
	case ReasonReleased:
		return "The finalizers are taken off all PVs of the driver (--release-finalizers).", silent
	case ReasonRolledBack:
		return "The reclaim policy of PVs that are deleted before their claim is not honoured (--honor-reclaim-policy=false); no finalizer protects the PV.", silent
	case ReasonVolumeGone:
		return "The volume is deleted; finalizers of others still hold the PV.", quiet
	case ReasonHeld:
		return "The annotation " + volume.HoldAnnotation + " keeps the volume. Remove it to let the volume go.", normal
	case ReasonBraked:
		return "Deletions are stopped: more volumes became deletable at once than --brake-deletions allows, or it is not known yet. Look whether they are to go; then let go by removing the annotation " + BrakeAnnotation + " from the Lease.", normal
	case ReasonHandleUnknown:
		return "The PV names no volume handle of this driver, so there is nothing to ask the driver for.", warning
	case ReasonAttached:
		return "The volume is still attached to a node. It is deleted once the VolumeAttachment is gone.", normal
	case ReasonSharedHandle:
		return "Another PV that keeps its volume names the same volume handle. The volume is deleted once that PV is gone or is to be deleted too.", normal
	case ReasonClaimAlive:
		return "The PV is released, but its claim still exists. The volume is kept as long as it does.", warning
	case ReasonClaimNamesPV:
		return "The claim that the PV belonged to is gone, and another claim of that name names this PV in spec.volumeName, as after a restore from a backup. The volume is kept as long as that claim exists.", warning
	case ReasonNodeNotAlone:
		return "Other nodes have the same topology labels as this one, or this one lacks them, so that it is not known which of them has the volume. The driver has to give each node a topology of its own.", warning
	case ReasonProtect:
		return "The PV is protected until its volume is deleted.", silent
	case ReasonAdopt:
		return "The finalizer of role companion is exchanged for that of role owner.", silent
	case ReasonReclaim:
		return "The claim is gone and the reclaim policy is Delete; the volume is being deleted.", silent
	case ReasonUnprotectedReclaim:
		return "The PV was deleted before it could be protected. Its policy was Delete and its claim is gone, so its volume was deleted after it.", warning
	case ReasonVolumeDeleted:
		return "The volume is deleted; the PV is let go.", silent
	case ReasonTooLateToKeep:
		return "The PV was changed to keep its volume after the volume was deleted. The data is gone; the PV is let go.", warning
	case ReasonGone:
		return "The PV is gone and nothing is left to be done.", silent
	case ReasonLeftToSibling:
		return "The PV is gone; another PV names the same volume and decides about it.", silent
	case ReasonVolumeLeftBehind:
		return "The PV is gone, it was not protected, and it is not proven that its volume may go: the volume may be left behind. Look for it in the storage system.", warning
	case ReasonVolumeFailedDelete:
		return "The driver did not delete the volume; it is tried again.", warning
	case ReasonVolumeBusy:
		return "The deletion of this volume is going on for another PV of the same handle.", silent
	case ReasonSecretNotFound:
		return "The Secret named for the deletion does not exist; the driver is called without it.", warning
	case ReasonSecretUnclear:
		return "Which Secret the deletion needs cannot be told, so the driver is not called.", warning
	case ReasonCatchingUp:
		return "What the watches show is behind the API server; it is looked at again in a moment.", normal
	case ReasonUnreadable:
		return "What has to be known before a deletion could not be read from the API server; it is tried again.", warning
	case ReasonUnwritable:
		return "The API server did not take a change; it is tried again.", warning
	case ReasonAdmissionPolicyIneffective:
		return "The PV was bound without the finalizer although an admission policy that adds it stands for the driver, so that PVs which are deleted at once can leak their volumes. Look whether every API server runs with MutatingAdmissionPolicy, and whether the policy is the one of this version; then restart csi-reclaimer.", warning
	case ReasonDryRun:
		return "Dry run, nothing is changed.", normal
	}
	return "", silent
}

// waits tells whether a PV with this reason is on its way to be deleted and does not get
// there, so that it is counted as waiting.
func (r Reason) waits() bool { return r.notice() != silent }
