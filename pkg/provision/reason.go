package provision

import v1 "k8s.io/api/core/v1"

// Reason says why a decision is what it is. The same word is an Event's reason, a value in the log
// and a label of the metrics. What each means is its Sentence.
type Reason string

// Reasons for leaving a claim alone.
const (
	ReasonNotOurs       Reason = "NotOurs"
	ReasonNotBegun      Reason = "NotBegun"
	ReasonLeftToLibrary Reason = "LeftToLibrary"
	ReasonOtherNode     Reason = "OtherNode"
	// ReasonLeftToPopulator: see order.ReasonLeftToPopulator.
	ReasonLeftToPopulator Reason = "LeftToPopulator"
)

// Reasons for acting.
const (
	ReasonProvision  Reason = "Provision"
	ReasonFinish     Reason = "FinishProvisioning"
	ReasonCleanUp    Reason = "HalfMadeVolume"
	ReasonStored     Reason = "VolumeStored"
	ReasonNothing    Reason = "NothingMade"
	ReasonHasAnother Reason = "VolumeHasPV"
	ReasonDiscard    Reason = "VolumeNotAsOrdered"
	ReasonBidding    Reason = "NodeBidding"
)

// Reasons for which something has to wait.
const (
	// ReasonOutcomeUnknown holds a claim, as nothing proves that no volume is left.
	ReasonOutcomeUnknown Reason = "ProvisioningOutcomeUnknown"
	ReasonNameTaken      Reason = "PersistentVolumeNameTaken"
)

// Reasons that only carrying out a step can find.
const (
	// ReasonFailed is the word of sig-storage-lib-external-provisioner's event.
	ReasonFailed        Reason = "ProvisioningFailed"
	ReasonCleanUpFailed Reason = "ProvisioningCleanupFailed"
	ReasonUnreadable    Reason = "Unreadable"
	ReasonUnwritable    Reason = "Unwritable"
)

// Reasons returns every reason there is, in the order of their declaration.
func Reasons() []Reason {
	return []Reason{
		ReasonNotOurs, ReasonNotBegun, ReasonLeftToLibrary, ReasonOtherNode, ReasonLeftToPopulator,
		ReasonProvision, ReasonFinish, ReasonCleanUp, ReasonStored, ReasonNothing, ReasonHasAnother, ReasonDiscard, ReasonBidding,
		ReasonOutcomeUnknown, ReasonNameTaken,
		ReasonFailed, ReasonCleanUpFailed, ReasonUnreadable, ReasonUnwritable,
	}
}

// notice is how loudly a reason is told.
type notice uint8

const (
	// silent reasons are the normal course of things.
	silent notice = iota
	// normal reasons are worth an Event.
	normal
	// warning reasons want a person's attention.
	warning
)

// Sentence returns what the reason means and what a person can do about it.
func (r Reason) Sentence() string {
	sentence, _ := r.about()
	return sentence
}

func (r Reason) notice() notice {
	_, loud := r.about()
	return loud
}

// EventType returns the type of the Events with this reason, Normal or Warning, empty where none is told.
func (r Reason) EventType() string {
	switch r.notice() {
	case silent:
	case normal:
		return v1.EventTypeNormal
	case warning:
		return v1.EventTypeWarning
	}
	return ""
}

func (r Reason) about() (sentence string, loud notice) {
	switch r {
	case ReasonNotOurs:
		return "Another driver answers for this claim.", silent
	case ReasonNotBegun:
		return "No volume was asked for yet.", silent
	case ReasonLeftToLibrary:
		return "The volume is made when the claim's turn comes.", silent
	case ReasonOtherNode:
		return "The volume is made on the node that was selected for the claim.", silent
	case ReasonLeftToPopulator:
		return "The claim takes its data from a kind of object that is not for this provisioner: a volume populator, if one is installed for that kind, makes and fills the volume.", normal
	case ReasonBidding:
		return "The claim binds immediately; the first node to select itself makes its volume.", silent
	case ReasonProvision:
		return "The claim is to get a volume.", silent
	case ReasonFinish:
		return "The StorageClass is gone while the volume is being made: what was begun is finished.", silent
	case ReasonCleanUp:
		return "The claim does not need the volume any more that was being made for it; the volume is deleted.", normal
	case ReasonStored:
		return "The volume has its PersistentVolume.", silent
	case ReasonNothing:
		return "No volume was made; the claim is free.", silent
	case ReasonHasAnother:
		return "The volume belongs to another PersistentVolume; it is kept.", warning
	case ReasonDiscard:
		return "The driver made another volume than was asked for; it is deleted, and asked for again.", normal
	case ReasonOutcomeUnknown:
		return "It is not known whether a volume is left that was made for this claim: what is needed to find out (the StorageClass, a Secret, the source of its data, or the claim's PersistentVolume) is gone. " +
			"The claim, if it is there, is held until that is back. To let it go by hand, delete the volume in the storage system, if there is one (its name holds the claim's UID), " +
			"and take the finalizer " + Finalizer + " off the claim.", warning
	case ReasonNameTaken:
		return "The name of this claim's PersistentVolume belongs to another claim, or to a PersistentVolume that is being deleted, is on another node or names another driver's volume; it is tried again when it is free.", warning
	case ReasonFailed:
		return "The volume could not be made; it is tried again.", warning
	case ReasonCleanUpFailed:
		return "The volume that was being made for this claim could not be deleted; it is tried again, and the claim is held meanwhile.", warning
	case ReasonUnreadable:
		return "What has to be known could not be read from the API server; it is tried again.", normal
	case ReasonUnwritable:
		return "The API server did not take a change; it is tried again.", normal
	}
	return "", silent
}
