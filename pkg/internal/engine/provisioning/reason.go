package provisioning

import "github.com/csi-reclaimer/csi-reclaimer/pkg/internal/reasons"

// Reason says why a decision is what it is. The same word is an Event's reason, a value in the log and a label of
// the metrics.
type Reason string

// Reasons for leaving a claim alone.
const (
	ReasonNotOurs    Reason = "NotOurs"
	ReasonNotNeeded  Reason = "NotNeeded"
	ReasonNotWanted  Reason = "NotWanted"
	ReasonOtherNode  Reason = "OtherNode"
	ReasonNotLeading Reason = "NotLeading"
	// ReasonLeftToPopulator: a volume populator provisions the claim (KEP-1495).
	ReasonLeftToPopulator Reason = "LeftToPopulator"
)

// Reasons for acting.
const (
	ReasonProvision     Reason = "Provision"
	ReasonFinish        Reason = "FinishProvisioning"
	ReasonStored        Reason = "VolumeStored"
	ReasonNothingMade   Reason = "NothingMade"
	ReasonNotBegun      Reason = "NotBegun"
	ReasonDiscard       Reason = "VolumeNotAsRequested"
	ReasonNodeSelection Reason = "NodeSelection"
)

// Reasons for waiting.
const (
	ReasonLogNotRead    Reason = "InFlightLogNotRead"
	ReasonLogChanging   Reason = "InFlightLogChanging"
	ReasonLogUnreadable Reason = "InFlightLogUnreadable"
	ReasonLogFull       Reason = "InFlightLogFull"
	ReasonNotQuiet      Reason = "WaitingForLateCalls"
	ReasonNameTaken     Reason = "PersistentVolumeNameTaken"
	ReasonHasAnother    Reason = "VolumeHasPersistentVolume"
)

// Reasons that only carrying out a step can find.
const (
	// ReasonFailed is the word of sig-storage-lib-external-provisioner's Event.
	ReasonFailed Reason = "ProvisioningFailed"
	// ReasonOutcomeUnknown: a call failed, and whether there is a volume is not known.
	ReasonOutcomeUnknown Reason = "ProvisioningOutcomeUnknown"
	ReasonAPIReadFailed  Reason = "APIReadFailed"
	ReasonAPIWriteFailed Reason = "APIWriteFailed"
	// ReasonRemovedByHand: somebody removed the entry from the log.
	ReasonRemovedByHand Reason = "InFlightEntryRemoved"
)

// Reasons returns every reason there is, in the order of their declaration.
func Reasons() []Reason {
	return []Reason{
		ReasonNotOurs, ReasonNotNeeded, ReasonNotWanted, ReasonOtherNode, ReasonNotLeading, ReasonLeftToPopulator,
		ReasonProvision, ReasonFinish, ReasonStored, ReasonNothingMade, ReasonNotBegun, ReasonDiscard, ReasonNodeSelection,
		ReasonLogNotRead, ReasonLogChanging, ReasonLogUnreadable, ReasonLogFull, ReasonNotQuiet, ReasonNameTaken,
		ReasonHasAnother,
		ReasonFailed, ReasonOutcomeUnknown, ReasonAPIReadFailed, ReasonAPIWriteFailed, ReasonRemovedByHand,
	}
}

// Sentence returns what the reason means and what a person can do about it.
func (r Reason) Sentence() string { return r.About().Sentence }

// EventType returns the type of the Events with this reason, Normal or Warning, empty for a reason without Events.
func (r Reason) EventType() string { return r.About().Severity.EventType() }

// About returns how severe the reason is, and what it means.
func (r Reason) About() reasons.About {
	sentence, severity := r.describe()
	return reasons.About{Severity: severity, Sentence: sentence}
}

func (r Reason) describe() (sentence string, severity reasons.Severity) {
	switch r {
	case ReasonNotOurs:
		return "Another driver provisions this claim.", reasons.Silent
	case ReasonNotNeeded:
		return "The claim needs no new volume: it is bound, terminating or gone.", reasons.Silent
	case ReasonNotWanted:
		return "The claim's StorageClass does not exist, or no node is selected yet.", reasons.Silent
	case ReasonOtherNode:
		return "The node that is selected for the claim provisions its volume.", reasons.Silent
	case ReasonNotLeading:
		return "This replica does not hold the lease.", reasons.Silent
	case ReasonLeftToPopulator:
		return "The claim takes its data from a kind of object that is not for this provisioner. A volume populator, if " +
			"one is installed for that kind, provisions and fills the volume.", reasons.Normal
	case ReasonProvision:
		return "The claim gets a volume.", reasons.Silent
	case ReasonFinish:
		return "CreateVolume was called for this claim and its outcome is not known yet: the request is repeated until it " +
			"is.", reasons.Silent
	case ReasonStored:
		return "The volume has its PersistentVolume.", reasons.Silent
	case ReasonNothingMade:
		return "The driver made no volume.", reasons.Silent
	case ReasonNotBegun:
		return "The claim went before the driver was called.", reasons.Silent
	case ReasonDiscard:
		return "The driver made another volume than was asked for. The volume is deleted, and asked for again.",
			reasons.Normal
	case ReasonNodeSelection:
		return "The claim binds immediately; the first node that selects itself provisions its volume.", reasons.Silent
	case ReasonLogNotRead:
		return "The in-flight log has not been read yet.", reasons.Silent
	case ReasonLogChanging:
		return "A write of the in-flight log is not confirmed yet.", reasons.Silent
	case ReasonLogUnreadable:
		return "The in-flight log has bytes under the name of this claim's volume that cannot be read, or its Lease is a " +
			"copy. " +
			"Look at the Leases with the label csi-reclaimer.io/in-flight-log; if no volume of that name exists in the " +
			"storage system, remove the annotation, or the Lease.", reasons.Warning
	case ReasonLogFull:
		return "The in-flight log is full: too many volumes are in flight whose outcome is not known. New volumes wait " +
			"until the driver answers for some of them.", reasons.Warning
	case ReasonNotQuiet:
		return "The volume has its PersistentVolume. A call that was not answered may still arrive; until then the entry " +
			"of the in-flight log stays.", reasons.Silent
	case ReasonNameTaken:
		return "The name of this claim's PersistentVolume belongs to another claim, to a PersistentVolume that is " +
				"terminating or on another node, or to another driver's volume. It is tried again when the name is free.",
			reasons.Warning
	case ReasonHasAnother:
		return "The driver made another volume than was asked for, and another PersistentVolume or claim may own it. It " +
			"is kept.", reasons.Warning
	case ReasonFailed:
		return "The volume could not be provisioned; it is tried again.", reasons.Warning
	case ReasonOutcomeUnknown:
		return "CreateVolume was called for this claim, and whether it made a volume is not known. The same request is " +
			"repeated until the driver tells. " +
			"The claim can be deleted meanwhile: a volume that is found gets a PersistentVolume, which is then reclaimed by " +
			"its policy. " +
			"`kubectl reclaim explain` shows the request and the way out.", reasons.Warning
	case ReasonAPIReadFailed:
		return "The API server did not answer a read; it is tried again.", reasons.Normal
	case ReasonAPIWriteFailed:
		return "The API server did not accept a write; it is tried again.", reasons.Normal
	case ReasonRemovedByHand:
		return "Somebody removed the entry of this claim's volume from the in-flight log: the volume, if there is one, is " +
			"left to them.", reasons.Warning
	}
	return "", reasons.Silent
}
