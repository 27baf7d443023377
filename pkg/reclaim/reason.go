package reclaim

// Reason says why a decision is what it is. The same word is an Event's reason, a value in
// the log, a label of the metrics and a column of the kubectl plugin.
type Reason string

// Reasons for leaving a PV alone.
const (
	// ReasonNotOurs: another driver, or the PV controller, answers for this PV.
	ReasonNotOurs Reason = "NotOurs"
	// ReasonPolicyUnknown: the reclaim policy is not one of Delete, Retain, Recycle.
	ReasonPolicyUnknown Reason = "PolicyUnknown"
	// ReasonPolicyKeepsVolume: the policy is not Delete. Also the reason for taking our
	// finalizer off such a PV.
	ReasonPolicyKeepsVolume Reason = "PolicyKeepsVolume"
	// ReasonRetainBound: the policy is not Delete and the PV is terminating, but its claim
	// lives. The finalizer stays, so that the policy can still be turned back.
	ReasonRetainBound Reason = "RetainBound"
	// ReasonNotClaimed: no claim was ever bound, or an administrator takes the volume back.
	// Also the reason for taking our finalizer off such a PV.
	ReasonNotClaimed Reason = "NotClaimed"
	// ReasonNotYetBound: the PV belongs to a claim, but the PV controller has not bound it.
	ReasonNotYetBound Reason = "NotYetBound"
	// ReasonBound: protected, and in use by its claim.
	ReasonBound Reason = "Bound"
	// ReasonTerminatingBound: someone deleted the PV; the claim still uses the volume.
	ReasonTerminatingBound Reason = "TerminatingBound"
	// ReasonDeletionUnprotected: the PV was deleted before it was protected, and the API
	// server takes no finalizer any more.
	ReasonDeletionUnprotected Reason = "DeletionUnprotected"
	// ReasonVolumeGone: the volume is deleted and our finalizer is off; others hold the PV.
	ReasonVolumeGone Reason = "VolumeGone"
)

// Reasons for a deletion that is due and has to wait.
const (
	// ReasonHandleUnknown: the PV names no volume handle of this driver.
	ReasonHandleUnknown Reason = "HandleUnknown"
	// ReasonAttached: a VolumeAttachment says that a node still has the volume.
	ReasonAttached Reason = "Attached"
	// ReasonSharedHandle: another PV that is not to be deleted names the same volume.
	ReasonSharedHandle Reason = "SharedHandle"
	// ReasonClaimAlive: the PV is Released, but a live read found its claim.
	ReasonClaimAlive Reason = "ClaimAlive"
)

// Reasons for acting.
const (
	// ReasonProtect: a claimed PV that says Delete has to outlive its volume.
	ReasonProtect Reason = "Protect"
	// ReasonReclaim: the claim is gone and the policy is Delete.
	ReasonReclaim Reason = "Reclaim"
	// ReasonVolumeDeleted: the volume is deleted, now the PV may go.
	ReasonVolumeDeleted Reason = "VolumeDeleted"
)

// Reasons that only carrying out a step can find.
const (
	// ReasonVolumeFailedDelete: the driver did not delete the volume. The word is that of
	// sig-storage-lib-external-provisioner's event.
	ReasonVolumeFailedDelete Reason = "VolumeFailedDelete"
	// ReasonSecretNotFound: the Secret for the deletion does not exist; the driver is
	// called without.
	ReasonSecretNotFound Reason = "SecretNotFound"
	// ReasonCatchingUp: there are more VolumeAttachments than one small list shows, and the
	// watch has not delivered all that the API server has.
	ReasonCatchingUp Reason = "CatchingUp"
	// ReasonUnreadable: the API server did not answer a read that has to come before a
	// deletion.
	ReasonUnreadable Reason = "Unreadable"
	// ReasonUnwritable: the API server did not take a write.
	ReasonUnwritable Reason = "Unwritable"
)

// Sentence returns what the reason means, for people.
func (r Reason) Sentence() string {
	switch r {
	case ReasonNotOurs:
		return "Another driver or the PV controller answers for this PV."
	case ReasonPolicyUnknown:
		return "The reclaim policy is none that is known here; the volume is kept."
	case ReasonPolicyKeepsVolume:
		return "The reclaim policy keeps the volume; nothing is deleted."
	case ReasonRetainBound:
		return "The PV is being deleted while its claim lives, and its policy keeps the volume. It goes when the claim is gone; until then the policy can still be turned back."
	case ReasonNotClaimed:
		return "The PV belongs to no claim; its volume is kept."
	case ReasonNotYetBound:
		return "The PV is reserved for a claim that the PV controller has not bound to it yet."
	case ReasonBound:
		return "The PV is in use by its claim."
	case ReasonTerminatingBound:
		return "The PV is being deleted, and its claim still uses the volume. The volume is deleted once the claim is gone."
	case ReasonDeletionUnprotected:
		return "The PV was deleted before it could be protected: it can vanish while its volume stays. Look for the volume in the storage system once the PV is gone."
	case ReasonVolumeGone:
		return "The volume is deleted; finalizers of others still hold the PV."
	case ReasonHandleUnknown:
		return "The PV names no volume handle of this driver, so there is nothing to ask the driver for."
	case ReasonAttached:
		return "The volume is still attached to a node. It is deleted once the VolumeAttachment is gone."
	case ReasonSharedHandle:
		return "Another PV that keeps its volume names the same volume handle. The volume is deleted once that PV is gone or is to be deleted too."
	case ReasonClaimAlive:
		return "The PV is released, but its claim still exists. The volume is kept as long as it does."
	case ReasonProtect:
		return "The PV is protected until its volume is deleted."
	case ReasonReclaim:
		return "The claim is gone and the reclaim policy is Delete; the volume is being deleted."
	case ReasonVolumeDeleted:
		return "The volume is deleted; the PV is let go."
	case ReasonVolumeFailedDelete:
		return "The driver did not delete the volume; it is tried again."
	case ReasonSecretNotFound:
		return "The Secret named for the deletion does not exist; the driver is called without it."
	case ReasonCatchingUp:
		return "Whether the volume is attached is not known yet: the watch of VolumeAttachments is behind the API server."
	case ReasonUnreadable:
		return "What has to be known before a deletion could not be read from the API server; it is tried again."
	case ReasonUnwritable:
		return "The API server did not take a change; it is tried again."
	}
	return ""
}

// Reasons returns every reason there is, in the order of their declaration.
func Reasons() []Reason {
	return []Reason{
		ReasonNotOurs, ReasonPolicyUnknown, ReasonPolicyKeepsVolume, ReasonRetainBound, ReasonNotClaimed,
		ReasonNotYetBound, ReasonBound, ReasonTerminatingBound, ReasonDeletionUnprotected, ReasonVolumeGone,
		ReasonHandleUnknown, ReasonAttached, ReasonSharedHandle, ReasonClaimAlive,
		ReasonProtect, ReasonReclaim, ReasonVolumeDeleted,
		ReasonVolumeFailedDelete, ReasonSecretNotFound, ReasonCatchingUp, ReasonUnreadable, ReasonUnwritable,
	}
}

// notice is how loudly a reason is told.
type notice uint8

const (
	// silent reasons are the normal course of things.
	silent notice = iota
	// normal reasons keep a PV that is to go, as they should.
	normal
	// warning reasons want a person's attention.
	warning
)

// notice returns how loudly the reason is told. One that is not listed is silent.
func (r Reason) notice() notice {
	switch r {
	case ReasonAttached, ReasonSharedHandle, ReasonRetainBound, ReasonCatchingUp:
		return normal
	case ReasonDeletionUnprotected, ReasonHandleUnknown, ReasonClaimAlive, ReasonPolicyUnknown,
		ReasonVolumeFailedDelete, ReasonSecretNotFound, ReasonUnreadable, ReasonUnwritable:
		return warning
	default:
		return silent
	}
}

// waits tells whether a PV with this reason is on its way to be deleted and does not get
// there, so that it is counted as waiting.
func (r Reason) waits() bool {
	switch r {
	case ReasonTerminatingBound, ReasonVolumeGone:
		return true
	default:
		return r.notice() != silent
	}
}
