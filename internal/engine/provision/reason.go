package provision

import "github.com/csi-reclaimer/csi-reclaimer/internal/reasons"

// Reason identifies why a decision was made, as an Event's reason, a value in the log and a label of the metrics.
type Reason = reasons.Word[family]

// family gives a Reason the meaning that this package declares.
type family struct{}

// About implements reasons.Family.
func (family) About(word string) reasons.About { return table.About(word) }

var table reasons.Table[family]

// Reasons for leaving a claim alone.
var (
	ReasonNotOurs   = table.Silent("NotOurs", "Another driver provisions this claim.")
	ReasonNotNeeded = table.Silent("NotNeeded",
		"The claim needs no new volume: it is bound, terminating or gone, or has one of another name.")
	ReasonNotWanted  = table.Silent("NotWanted", "The claim's StorageClass does not exist, or no node is selected yet.")
	ReasonOtherNode  = table.Silent("OtherNode", "The node that is selected for the claim provisions its volume.")
	ReasonNotLeading = table.Silent("NotLeading", "This replica does not hold the lease.")
	// ReasonLeftToPopulator means that a volume populator provisions the claim (KEP-1495).
	ReasonLeftToPopulator = table.Normal("LeftToPopulator",
		"The claim's data source is of a kind that csi-reclaimer does not provision from. A volume populator, if one is "+
			"installed for that kind, provisions and fills the volume.")
)

// Reasons for acting.
var (
	ReasonProvision = table.Silent("Provision", "The claim gets a volume.")
	ReasonFinish    = table.Silent("FinishProvisioning",
		"CreateVolume was called for this claim, and its outcome is not known yet. The request is repeated until it is.")
	ReasonStored      = table.Silent("VolumeStored", "The volume has its PersistentVolume.")
	ReasonNothingMade = table.Silent("NothingMade", "The driver created no volume.")
	ReasonNotBegun    = table.Silent("NotBegun", "The claim needs no new volume, and the driver was not called.")
	ReasonDiscard     = table.Normal("VolumeNotAsRequested",
		"The driver created a volume that differs from the request. The volume is deleted, and requested again if the claim "+
			"still needs one.")
	ReasonNodeSelection = table.Silent("NodeSelection",
		"The claim binds immediately; the first node that selects itself provisions its volume.")
)

// Reasons for waiting.
var (
	ReasonLogNotRead    = table.Silent("InFlightLogNotRead", "The in-flight log has not been read yet.")
	ReasonLogChanging   = table.Silent("InFlightLogChanging", "A write to the in-flight log is not confirmed yet.")
	ReasonLogUnreadable = table.Warning("InFlightLogUnreadable",
		"A part of the in-flight log cannot be read, so it is not known whether CreateVolume was called for this claim, or "+
			"with this claim or snapshot as the source. A claim without a volume waits, and a source keeps its finalizer. Look "+
			"at the Leases with the label csi-reclaimer.io/in-flight-log, and delete a copy. If the volume of an entry that "+
			"cannot be read does not exist in the storage system, remove the annotation.")
	ReasonLogFull = table.Warning("InFlightLogFull",
		"The Lease of the in-flight log for this volume is full: too many volumes are in flight whose outcome is not known. "+
			"New volumes wait until the driver answers for some of them. `kubectl reclaim status` counts the volumes in "+
			"flight, and names the oldest.")
	ReasonLogShare = table.Warning("InFlightLogShareUsed",
		"The claims of this namespace, or of this StorageClass, have all the volumes in flight that they may have. New "+
			"volumes of theirs wait until the driver answers for some of them. `kubectl reclaim status` counts the volumes in "+
			"flight, and names the oldest.")
	ReasonTooLarge = table.Warning("RequestTooLarge",
		"The CreateVolume request is larger than the in-flight log can hold, so the driver is not called. Shorten the "+
			"parameters, mount options or allowedTopologies of the StorageClass. If the driver has a topology segment for each "+
			"node, run csi-reclaimer with --strict-topology, or with --immediate-topology=false for immediate binding.")
	ReasonNotQuiet = table.Silent("WaitingForLateCalls",
		"A call that was not answered may still arrive; until then the entry of the in-flight log stays.")
	ReasonNameTaken = table.Warning("PersistentVolumeNameTaken",
		"The name of this claim's PersistentVolume belongs to another claim, to a PersistentVolume that is terminating or "+
			"on another node, or to another volume. Provisioning continues when the name is free. Delete the claim if "+
			"its own PersistentVolume is the one that is terminating (TerminatingUnbound). `kubectl reclaim settle` ends the "+
			"tries for a volume in flight.")
	ReasonHasAnother = table.Warning("VolumeHasPersistentVolume",
		"The driver returned a volume that differs from the request, and another PersistentVolume or claim may own it. The "+
			"volume is kept. `kubectl reclaim settle` ends the tries, and csi-reclaimer then asks the driver again.")
)

// Reasons that only the call of a step can find.
var (
	// ReasonFailed is the reason of sig-storage-lib-external-provisioner's Event.
	ReasonFailed = table.Declare("ProvisioningFailed", reasons.About{
		Severity: reasons.Warning, DetailFirst: true, Sentence: "The volume could not be provisioned; csi-reclaimer tries " +
			"again."})
	// ReasonOutcomeUnknown means that a call failed, and the existence of a volume is unknown.
	ReasonOutcomeUnknown = table.Declare("ProvisioningOutcomeUnknown", reasons.About{
		Severity: reasons.Warning, DetailFirst: true, Sentence: "CreateVolume was called for this claim, and the driver " +
			"has not answered whether it created the volume. csi-reclaimer repeats the request until the driver does. You can " +
			"delete a claim that is not bound meanwhile: if the driver returns a volume, it gets a PersistentVolume, whose " +
			"reclaim policy then applies. `kubectl reclaim explain` shows the request and the way out."})
	ReasonAPIReadFailed  = table.Normal("APIReadFailed", "A read from the API server failed; csi-reclaimer tries again.")
	ReasonAPIWriteFailed = table.Normal("APIWriteFailed", "A write to the API server failed; csi-reclaimer tries again.")
	// ReasonPVRefused means that the API server refused the PersistentVolume, and will do so again.
	ReasonPVRefused = table.Warning("PersistentVolumeRefused",
		"The volume exists, and the API server refuses its PersistentVolume. csi-reclaimer tries again until the cause is "+
			"gone: an admission policy, a missing permission, or a value from the driver that is not valid. A claim that "+
			"is not bound can be deleted meanwhile, the volume stays. `kubectl reclaim settle` ends the tries and leaves the "+
			"volume to you.")
	// ReasonDriverChanged means that a refusal by another version of the driver settles no doubt.
	ReasonDriverChanged = table.Warning("DriverVersionChanged",
		"The outcome of CreateVolume is in doubt, and the driver was replaced by another version, which refuses the "+
			"request. The refusal does not show whether the earlier version created the volume. Look for the volume in the "+
			"storage system, or install the earlier version again. `kubectl reclaim settle` ends the tries.")
	// ReasonSecretGone means that the driver was called without the Secret, which no longer exists.
	ReasonSecretGone = table.Warning("ProvisionerSecretGone",
		"The claim is gone, and so is the Secret of a call whose outcome is in doubt. csi-reclaimer calls the driver "+
			"without it, which may then not find the volume. Look for the volume in the storage system, or create the Secret "+
			"again while csi-reclaimer tries. `kubectl reclaim settle` ends the tries.")
	// ReasonSourceGone means that the driver refused a request in doubt because its source is gone.
	ReasonSourceGone = table.Warning("VolumeSourceGone",
		"The outcome of CreateVolume is in doubt, and the driver does not find the snapshot or volume that the data comes "+
			"from. The volume may have been created before that was deleted. Look for the volume in the storage system. "+
			"`kubectl reclaim settle` ends the tries.")
	// ReasonSettled means that an operator settled the entry of the log.
	ReasonSettled = table.Warning("InFlightEntrySettled",
		"An operator settled this claim's volume (`kubectl reclaim settle`), so its entry leaves the in-flight log. The "+
			"operator is responsible for the volume, if it exists. If the claim needs a volume, provisioning begins again.")
)

// Reasons returns every reason in the order of declaration.
func Reasons() []Reason { return table.Reasons() }
