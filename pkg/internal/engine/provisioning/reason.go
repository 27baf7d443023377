package provisioning

import "github.com/csi-reclaimer/csi-reclaimer/pkg/internal/reasons"

// Reason is why a decision is what it is. The same word is an Event's reason, a value in the log and a label of
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

// table has a row for every reason there is, in the order of their declaration.
var table = reasons.NewTable([]reasons.Row[Reason]{
	{Reason: ReasonNotOurs, Sentence: "Another driver provisions this claim."},
	{Reason: ReasonNotNeeded, Sentence: "The claim needs no new volume: it is bound, terminating or gone."},
	{Reason: ReasonNotWanted, Sentence: "The claim's StorageClass does not exist, or no node is selected yet."},
	{Reason: ReasonOtherNode, Sentence: "The node that is selected for the claim provisions its volume."},
	{Reason: ReasonNotLeading, Sentence: "This replica does not hold the lease."},
	{Reason: ReasonLeftToPopulator, Severity: reasons.Normal,
		Sentence: "The claim takes its data from a kind of object that is not for this provisioner. A volume populator, if " +
			"one is installed for that kind, provisions and fills the volume."},
	{Reason: ReasonProvision, Sentence: "The claim gets a volume."},
	{Reason: ReasonFinish,
		Sentence: "CreateVolume was called for this claim and its outcome is not known yet: the request is repeated until " +
			"it is."},
	{Reason: ReasonStored, Sentence: "The volume has its PersistentVolume."},
	{Reason: ReasonNothingMade, Sentence: "The driver made no volume."},
	{Reason: ReasonNotBegun, Sentence: "The claim went before the driver was called."},
	{Reason: ReasonDiscard, Severity: reasons.Normal,
		Sentence: "The driver made another volume than was asked for. The volume is deleted, and asked for again."},
	{Reason: ReasonNodeSelection,
		Sentence: "The claim binds immediately; the first node that selects itself provisions its volume."},
	{Reason: ReasonLogNotRead, Sentence: "The in-flight log has not been read yet."},
	{Reason: ReasonLogChanging, Sentence: "A write of the in-flight log is not confirmed yet."},
	{Reason: ReasonLogUnreadable, Severity: reasons.Warning,
		Sentence: "The in-flight log has bytes under the name of this claim's volume that cannot be read, or its Lease is " +
			"a copy. Look at the Leases with the label csi-reclaimer.io/in-flight-log; if no volume of that name exists in " +
			"the storage system, remove the annotation, or the Lease."},
	{Reason: ReasonLogFull, Severity: reasons.Warning,
		Sentence: "The in-flight log is full: too many volumes are in flight whose outcome is not known. New volumes wait " +
			"until the driver answers for some of them."},
	{Reason: ReasonNotQuiet,
		Sentence: "The volume has its PersistentVolume. A call that was not answered may still arrive; until then the " +
			"entry of the in-flight log stays."},
	{Reason: ReasonNameTaken, Severity: reasons.Warning,
		Sentence: "The name of this claim's PersistentVolume belongs to another claim, to a PersistentVolume that is " +
			"terminating or on another node, or to another driver's volume. It is tried again when the name is free."},
	{Reason: ReasonHasAnother, Severity: reasons.Warning,
		Sentence: "The driver made another volume than was asked for, and another PersistentVolume or claim may own it. It " +
			"is kept."},
	{Reason: ReasonFailed, Severity: reasons.Warning, Sentence: "The volume could not be provisioned; it is tried again."},
	{Reason: ReasonOutcomeUnknown, Severity: reasons.Warning,
		Sentence: "CreateVolume was called for this claim, and whether it made a volume is not known. The same request is " +
			"repeated until the driver tells. The claim can be deleted meanwhile: a volume that is found gets a " +
			"PersistentVolume, which is then reclaimed by its policy. `kubectl reclaim explain` shows the request and the way " +
			"out."},
	{Reason: ReasonAPIReadFailed, Severity: reasons.Normal,
		Sentence: "The API server did not answer a read; it is tried again."},
	{Reason: ReasonAPIWriteFailed, Severity: reasons.Normal,
		Sentence: "The API server did not accept a write; it is tried again."},
	{Reason: ReasonRemovedByHand, Severity: reasons.Warning,
		Sentence: "Somebody removed the entry of this claim's volume from the in-flight log: the volume, if there is one, " +
			"is left to them."},
})

// Reasons returns every reason there is, in the order of their declaration.
func Reasons() []Reason { return table.Reasons() }

// Sentence returns what the reason means and what a person can do about it.
func (r Reason) Sentence() string { return r.About().Sentence }

// EventType returns the type of the Events with this reason, Normal or Warning, empty for a reason without Events.
func (r Reason) EventType() string { return r.About().Severity.EventType() }

// About returns what the reason means and how severe it is, the zero value for a word that is none of the reasons.
func (r Reason) About() reasons.About { return table.About(r) }
