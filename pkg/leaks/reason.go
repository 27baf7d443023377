package leaks

import (
	"cmp"
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// Reason explains why a volume is suspected to be a leak, or why not. Its value appears in reports and in the log, as
// the reason of Events, and as a metric label.
type Reason string

// Reasons of volumes that have an owner in the cluster.
const (
	// ReasonPV: a PV names the volume, or did during the leak check.
	ReasonPV Reason = "HasPV"
	// ReasonSnapshot: the volume is the storage of a snapshot with a VolumeSnapshotContent.
	ReasonSnapshot Reason = "IsSnapshot"
)

// Reasons of volumes that are not suspected because an owner may exist.
const (
	// ReasonInFlight: the in-flight log has an entry that may be for the volume.
	ReasonInFlight Reason = "InFlight"
	// ReasonIncomplete: some objects that could account for the volume could not be read.
	ReasonIncomplete Reason = "LeakCheckIncomplete"
	// ReasonEphemeral: its name has the form that the kubelet gives ephemeral inline volumes.
	ReasonEphemeral Reason = "MayBeEphemeral"
	// ReasonInUse: the driver lists it as published to a node, although no object of this cluster uses it.
	ReasonInUse Reason = "InUse"
	// ReasonNamesDiffer: the driver has PVs, but lists the volume of none of them.
	ReasonNamesDiffer Reason = "NamesDiffer"
	// ReasonPVUnclear: it is unclear which volume a PV of the driver names, so it may be this one.
	ReasonPVUnclear Reason = "PVUnclear"
	// ReasonBeingMade: a claim or snapshot whose creation began before the volume was first listed may become its owner.
	ReasonBeingMade Reason = "MayBeBeingMade"
	// ReasonSeenTooSeldom and ReasonSeenTooShort: no owner was found, but not often or not long enough for a suspicion.
	ReasonSeenTooSeldom Reason = "SeenTooSeldom"
	ReasonSeenTooShort  Reason = "SeenTooShort"
)

// ReasonLeakSuspected is also the reason of Events: no owner was found, often and long enough for a suspicion.
const ReasonLeakSuspected Reason = "LeakSuspected"

// ReasonLeakCheckFailed is the reason of Events only: a leak check is incomplete, so it has no result.
const ReasonLeakCheckFailed Reason = "LeakCheckFailed"

// table has a row for every reason, in the order of their declaration.
var table = reasons.NewTable([]reasons.Row[Reason]{
	{Reason: ReasonPV, Sentence: "A PV names it."},
	{Reason: ReasonSnapshot, Sentence: "A VolumeSnapshotContent names it."},
	{Reason: ReasonInFlight,
		Sentence: "The in-flight log has an entry for it: it gets its PV once the driver has answered."},
	{Reason: ReasonIncomplete, Sentence: "Part of what could account for it could not be read."},
	{Reason: ReasonEphemeral, Sentence: "Its name is that of an ephemeral volume of a pod."},
	{Reason: ReasonInUse, Sentence: "The driver reports it as attached to a node."},
	{Reason: ReasonNamesDiffer,
		Sentence: "The driver lists the volume of no PV, so its list and the PVs do not describe the same volumes."},
	{Reason: ReasonPVUnclear, Sentence: "It is unclear which of the listed volumes a PV of the driver names."},
	{Reason: ReasonBeingMade,
		Sentence: "It may be the volume of a claim, or the storage of a snapshot, that is still being created."},
	{Reason: ReasonSeenTooSeldom, Sentence: "Nothing accounts for it, but in too few leak checks so far."},
	{Reason: ReasonSeenTooShort, Sentence: "Nothing accounts for it, but for too short a time so far."},
	{Reason: ReasonLeakSuspected, Severity: reasons.Warning, Sentence: "Nothing in the cluster accounts for it."},
	{Reason: ReasonLeakCheckFailed, Severity: reasons.Warning, Sentence: "The leak check could not be completed."},
})

// Reasons returns the reasons of volumes without an owner, in the order of their declaration. They are the values of
// the label reason of csi_reclaimer_unaccounted_volumes.
func Reasons() []Reason {
	return slices.DeleteFunc(table.Reasons(), func(r Reason) bool { return r.accounted() || r == ReasonLeakCheckFailed })
}

// About returns the reason's meaning and severity, or the zero value for an unknown reason.
func (r Reason) About() reasons.About { return table.About(r) }

// Sentence returns the reason's meaning, or the word itself for an unknown reason.
func (r Reason) Sentence() string { return cmp.Or(r.About().Sentence, string(r)) }
