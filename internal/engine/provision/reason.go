package provision

import "github.com/csi-reclaimer/csi-reclaimer/internal/reasons"

// Reason identifies why a decision was made, as an Event's reason, a value in the log and a label of the metrics.
type Reason string

// Reasons for leaving a claim alone.
const (
	ReasonNotOurs    Reason = "NotOurs"
	ReasonNotNeeded  Reason = "NotNeeded"
	ReasonNotWanted  Reason = "NotWanted"
	ReasonOtherNode  Reason = "OtherNode"
	ReasonNotLeading Reason = "NotLeading"
	// ReasonLeftToPopulator means that a volume populator provisions the claim (KEP-1495).
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
	ReasonLogShare      Reason = "InFlightLogShareUsed"
	ReasonTooLarge      Reason = "RequestTooLarge"
	ReasonNotQuiet      Reason = "WaitingForLateCalls"
	ReasonNameTaken     Reason = "PersistentVolumeNameTaken"
	ReasonHasAnother    Reason = "VolumeHasPersistentVolume"
)

// Reasons that only the call of a step can find.
const (
	// ReasonFailed is the reason of sig-storage-lib-external-provisioner's Event.
	ReasonFailed Reason = "ProvisioningFailed"
	// ReasonOutcomeUnknown means that a call failed, and the existence of a volume is unknown.
	ReasonOutcomeUnknown Reason = "ProvisioningOutcomeUnknown"
	ReasonAPIReadFailed  Reason = "APIReadFailed"
	ReasonAPIWriteFailed Reason = "APIWriteFailed"
	// ReasonPVRefused means that the API server refused the PersistentVolume, and will do so again.
	ReasonPVRefused Reason = "PersistentVolumeRefused"
	// ReasonDriverChanged means that a refusal by another version of the driver settles no doubt.
	ReasonDriverChanged Reason = "DriverVersionChanged"
	// ReasonSecretGone means that a request is repeated without its Secret, which no longer exists.
	ReasonSecretGone Reason = "ProvisionerSecretGone"
	// ReasonSourceGone means that the driver refused a request in doubt because its source is gone.
	ReasonSourceGone Reason = "VolumeSourceGone"
	// ReasonSettled means that an operator settled the entry of the log.
	ReasonSettled Reason = "InFlightEntrySettled"
)

// table has a row for every reason, in the order of their declaration.
var table = reasons.NewTable([]reasons.Row[Reason]{
	{Reason: ReasonNotOurs, Sentence: "Another driver provisions this claim."},
	{Reason: ReasonNotNeeded, Sentence: "The claim needs no new volume: it is bound, terminating or gone."},
	{Reason: ReasonNotWanted, Sentence: "The claim's StorageClass does not exist, or no node is selected yet."},
	{Reason: ReasonOtherNode, Sentence: "The node that is selected for the claim provisions its volume."},
	{Reason: ReasonNotLeading, Sentence: "This replica does not hold the lease."},
	{Reason: ReasonLeftToPopulator, Severity: reasons.Normal,
		Sentence: "The claim's data source is of a kind that csi-reclaimer does not provision from. A volume populator, if " +
			"one is installed for that kind, provisions and fills the volume."},
	{Reason: ReasonProvision, Sentence: "The claim gets a volume."},
	{Reason: ReasonFinish,
		Sentence: "CreateVolume was called for this claim, and its outcome is not known yet. The request is repeated until " +
			"it is."},
	{Reason: ReasonStored, Sentence: "The volume has its PersistentVolume."},
	{Reason: ReasonNothingMade, Sentence: "The driver created no volume."},
	{Reason: ReasonNotBegun, Sentence: "The claim was deleted before the driver was called."},
	{Reason: ReasonDiscard, Severity: reasons.Normal,
		Sentence: "The driver created a volume that differs from the request. The volume is deleted and requested again."},
	{Reason: ReasonNodeSelection,
		Sentence: "The claim binds immediately; the first node that selects itself provisions its volume."},
	{Reason: ReasonLogNotRead, Sentence: "The in-flight log has not been read yet."},
	{Reason: ReasonLogChanging, Sentence: "A write to the in-flight log is not confirmed yet."},
	{Reason: ReasonLogUnreadable, Severity: reasons.Warning,
		Sentence: "The entry of this claim's volume in the in-flight log cannot be read, or its Lease is a copy. Look at " +
			"the Leases with the label csi-reclaimer.io/in-flight-log. If no volume of that name exists in the storage " +
			"system, remove the annotation, or the Lease."},
	{Reason: ReasonLogFull, Severity: reasons.Warning,
		Sentence: "The in-flight log is full: too many volumes are in flight whose outcome is not known. New volumes wait " +
			"until the driver answers for some of them. `kubectl reclaim status` lists the volumes in flight."},
	{Reason: ReasonLogShare, Severity: reasons.Warning,
		Sentence: "The claims of this namespace, or of this StorageClass, have all the volumes in flight that they may " +
			"have. New volumes of theirs wait until the driver answers for some of them. `kubectl reclaim status` lists the " +
			"volumes in flight."},
	{Reason: ReasonTooLarge, Severity: reasons.Warning,
		Sentence: "The CreateVolume request is larger than the in-flight log can hold, so the driver is not called. " +
			"Shorten the parameters, mount options or allowedTopologies of the StorageClass. If the driver has a topology " +
			"segment for each node, run csi-reclaimer with --strict-topology."},
	{Reason: ReasonNotQuiet,
		Sentence: "The volume has its PersistentVolume. A call that was not answered may still arrive; until then the " +
			"entry of the in-flight log stays."},
	{Reason: ReasonNameTaken, Severity: reasons.Warning,
		Sentence: "The name of this claim's PersistentVolume belongs to another claim, to a PersistentVolume that is " +
			"terminating or on another node, or to another driver's volume. Provisioning continues when the name is free."},
	{Reason: ReasonHasAnother, Severity: reasons.Warning,
		Sentence: "The driver returned a volume that differs from the request, and another PersistentVolume or claim may " +
			"own it. The volume is kept."},
	{Reason: ReasonFailed, Severity: reasons.Warning, DetailFirst: true,
		Sentence: "The volume could not be provisioned; csi-reclaimer tries again."},
	{Reason: ReasonOutcomeUnknown, Severity: reasons.Warning, DetailFirst: true,
		Sentence: "CreateVolume was called for this claim, and the driver has not answered whether it created the volume. " +
			"csi-reclaimer repeats the request until the driver does. You can delete the claim meanwhile: if there is a " +
			"volume, it gets a PersistentVolume, whose reclaim policy then applies. `kubectl reclaim explain` shows the " +
			"request and the way out."},
	{Reason: ReasonAPIReadFailed, Severity: reasons.Normal,
		Sentence: "A read from the API server failed; csi-reclaimer tries again."},
	{Reason: ReasonAPIWriteFailed, Severity: reasons.Normal,
		Sentence: "A write to the API server failed; csi-reclaimer tries again."},
	{Reason: ReasonPVRefused, Severity: reasons.Warning,
		Sentence: "The volume exists, and the API server refuses its PersistentVolume. csi-reclaimer tries again until the " +
			"cause is gone: an admission policy, a missing permission, or a value from the driver that is not valid. The " +
			"claim can be deleted meanwhile, the volume stays. `kubectl reclaim settle` ends the tries and leaves the " +
			"volume to you."},
	{Reason: ReasonDriverChanged, Severity: reasons.Warning,
		Sentence: "The outcome of CreateVolume is in doubt, and another version of the driver than the one that was called " +
			"refuses the request. It does not say whether the other one created the volume. Look for the volume in the " +
			"storage system, or install the earlier version again. `kubectl reclaim settle` ends the tries."},
	{Reason: ReasonSecretGone, Severity: reasons.Warning,
		Sentence: "The outcome of CreateVolume is in doubt, the claim is gone, and so is the Secret of the call. " +
			"csi-reclaimer repeats the call without it. Create the Secret again, or look for the volume in the storage " +
			"system. `kubectl reclaim settle` ends the tries."},
	{Reason: ReasonSourceGone, Severity: reasons.Warning,
		Sentence: "The outcome of CreateVolume is in doubt, and the driver does not find the snapshot or volume that the " +
			"data comes from. The volume may have been created before that was deleted. Look for the volume in the storage " +
			"system. `kubectl reclaim settle` ends the tries."},
	{Reason: ReasonSettled, Severity: reasons.Warning,
		Sentence: "An operator settled this claim's volume (`kubectl reclaim settle`), so its entry leaves the in-flight " +
			"log. What happens to the volume, if there is one, is up to them."},
})

// Reasons returns every reason in the order of declaration.
func Reasons() []Reason { return table.Reasons() }

// Sentence explains the reason and the remedy, if any, to people.
func (r Reason) Sentence() string { return r.About().Sentence }

// EventType returns the type of Events with this reason, Normal or Warning, empty for a reason without Events.
func (r Reason) EventType() string { return r.About().Severity.EventType() }

// About returns the explanation and severity of the reason, the zero value for an unknown word.
func (r Reason) About() reasons.About { return table.About(r) }
