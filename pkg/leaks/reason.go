package leaks

import (
	"cmp"
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// Reason is why a volume is suspected to be a leak, or why it is not. The same word is in reports, in the log, the
// reason of Events and a label of metrics.
type Reason string

// Reasons for which a volume is accounted for.
const (
	// ReasonPV: a PV names it, or did during the leak check.
	ReasonPV Reason = "HasPV"
	// ReasonSnapshot: it is the storage of a snapshot that has a VolumeSnapshotContent.
	ReasonSnapshot Reason = "IsSnapshot"
)

// Reasons for which something may account for a volume, so that it is not suspected.
const (
	// ReasonInFlight: the in-flight log has an entry for it.
	ReasonInFlight Reason = "InFlight"
	// ReasonIncomplete: part of what could account for it could not be read.
	ReasonIncomplete Reason = "LeakCheckIncomplete"
	// ReasonEphemeral: it is named as the kubelet names ephemeral inline volumes.
	ReasonEphemeral Reason = "MayBeEphemeral"
	// ReasonInUse: the driver lists it as published to a node, although this cluster has no use of it.
	ReasonInUse Reason = "InUse"
	// ReasonNamesDiffer: there are PVs, and the driver lists the volume of none of them.
	ReasonNamesDiffer Reason = "NamesDiffer"
	// ReasonPVUnclear: which volume a PV of the driver names is unclear, so it may be this one.
	ReasonPVUnclear Reason = "PVUnclear"
	// ReasonBeingMade: a claim or snapshot whose creation began before the volume was seen may become its owner.
	ReasonBeingMade Reason = "MayBeBeingMade"
	// ReasonSeenTooSeldom and ReasonSeenTooShort: nothing accounts for it, but not for long enough.
	ReasonSeenTooSeldom Reason = "SeenTooSeldom"
	ReasonSeenTooShort  Reason = "SeenTooShort"
)

// ReasonLeakSuspected: nothing accounts for it, and has not for long enough. It has Events.
const ReasonLeakSuspected Reason = "LeakSuspected"

// ReasonLeakCheckFailed: a leak check could not be completed, so it has no result. It has Events.
const ReasonLeakCheckFailed Reason = "LeakCheckFailed"

// table has a row for every reason there is, in the order of their declaration.
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

// Reasons returns the reasons of volumes that are not accounted for, in the order of their declaration: the values of
// the label of csi_reclaimer_unaccounted_volumes.
func Reasons() []Reason {
	return slices.DeleteFunc(table.Reasons(), func(r Reason) bool { return r.accounted() || r == ReasonLeakCheckFailed })
}

// About returns what the reason means and how severe it is, the zero value for a word that is none of the reasons.
func (r Reason) About() reasons.About { return table.About(r) }

// Sentence returns what the reason means, the word itself for one that is none of the reasons.
func (r Reason) Sentence() string { return cmp.Or(r.About().Sentence, string(r)) }
