package leaks

import (
	"cmp"
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// Reason explains why a volume is suspected to be a leak, or why not. Its value appears in reports and in the log, as
// the reason of Events, and as a metric label.
type Reason = reasons.Word[family]

// family gives a Reason the meaning that this package declares.
type family struct{}

// About implements reasons.Family. An unknown word, as in the report of another version, is its own meaning.
func (family) About(word string) reasons.About {
	about := table.About(word)
	about.Sentence = cmp.Or(about.Sentence, word)
	return about
}

var table reasons.Table[family]

// Reasons of volumes that have an owner in the cluster.
var (
	// reasonPV: a PV names the volume, or did during the leak check.
	reasonPV       = table.Silent("HasPV", "A PV names it.")
	reasonSnapshot = table.Silent("IsSnapshot", "A VolumeSnapshotContent names it.")
)

// Reasons of volumes that are not suspected because an owner may exist.
var (
	reasonInFlight = table.Silent("InFlight",
		"The in-flight log has an entry for it: it gets its PV once the driver has answered.")
	reasonIncomplete = table.Silent("LeakCheckIncomplete", "Some objects that could account for it could not be read.")
	// reasonEphemeral: its name has the form that the kubelet gives ephemeral inline volumes.
	reasonEphemeral = table.Silent("MayBeEphemeral", "It is named like an ephemeral volume of a pod.")
	// reasonInUse: the driver lists it as published to a node, or a pod that names it inline has it attached.
	reasonInUse = table.Silent("InUse", "The driver, or a VolumeAttachment, reports it as attached to a node.")
	// reasonNamesDiffer: the driver has PVs, but lists the volume of none of them.
	reasonNamesDiffer = table.Silent("NamesDiffer",
		"The driver lists the volume of no PV, so its list and the PVs do not describe the same volumes.")
	reasonPVUnclear = table.Silent("PVUnclear",
		"It is unclear which of the listed volumes a PV of the driver names, or a VolumeAttachment without a PV.")
	// ReasonBeingMade: a claim or snapshot whose creation began before the volume was first listed may become its owner.
	ReasonBeingMade = table.Silent("MayBeBeingMade",
		"It may be the volume of a claim, or the storage of a snapshot, that is still being created.")
	// ReasonSeenTooSeldom and reasonSeenTooShort: no owner was found, but not often or not long enough for a suspicion.
	ReasonSeenTooSeldom = table.Silent("SeenTooSeldom", "No object accounts for it, but in too few leak checks so far.")
	reasonSeenTooShort  = table.Silent("SeenTooShort", "No object accounts for it, but not for long enough yet.")
)

// ReasonLeakSuspected is also the reason of Events: no owner was found, often and long enough for a suspicion.
var ReasonLeakSuspected = table.Warning("LeakSuspected", "Nothing in the cluster accounts for it.")

// reasonLeakCheckFailed is the reason of Events only: a leak check is incomplete, so it has no result.
var reasonLeakCheckFailed = table.Warning("LeakCheckFailed", "The leak check could not be completed.")

// Reasons returns the reasons of volumes without an owner, in the order of their declaration. They are the values of
// the label reason of csi_reclaimer_unaccounted_volumes.
func Reasons() []Reason {
	return slices.DeleteFunc(table.Reasons(), func(r Reason) bool { return accounted(r) || r == reasonLeakCheckFailed })
}
