package leaks

import "github.com/csi-reclaimer/csi-reclaimer/pkg/internal/reasons"

// Reason says why a volume is a suspect, or why it is none. The same word is in reports, in the log, the
// reason of Events and a label of metrics.
type Reason string

// Reasons for which a volume is accounted for.
const (
	// ReasonPV: a PV names it, or did while the audit was made.
	ReasonPV Reason = "HasPV"
	// ReasonSnapshot: it is the storage of a snapshot that the cluster knows.
	ReasonSnapshot Reason = "IsSnapshot"
)

// Reasons for which something may account for a volume, so that it is no suspect.
const (
	// ReasonInFlight: the in-flight log has an entry for it.
	ReasonInFlight Reason = "InFlight"
	// ReasonIncomplete: not all was read that could account for it.
	ReasonIncomplete Reason = "AuditIncomplete"
	// ReasonEphemeral: it is named as the kubelet names volumes that live and die with a pod.
	ReasonEphemeral Reason = "MayBeEphemeral"
	// ReasonInUse: the driver says that it is attached to a node, though nothing here asked for that.
	ReasonInUse Reason = "InUse"
	// ReasonNamesDiffer: there are PVs, and the driver lists the volume of none of them.
	ReasonNamesDiffer Reason = "NamesDiffer"
	// ReasonPVUnclear: a PV of the driver does not tell which volume it names, so it may be this one.
	ReasonPVUnclear Reason = "PVUnclear"
	// ReasonBeingMade: a claim or snapshot whose making began before the volume was seen may become its owner.
	ReasonBeingMade Reason = "MayBeBeingMade"
	// ReasonSeenTooSeldom and ReasonSeenTooShort: nothing accounts for it, but not for long enough.
	ReasonSeenTooSeldom Reason = "SeenTooSeldom"
	ReasonSeenTooShort  Reason = "SeenTooShort"
)

// ReasonLeakSuspected: nothing accounts for it, and has not for long enough. It has Events.
const ReasonLeakSuspected Reason = "LeakSuspected"

// ReasonAuditFailed: an audit could not be completed, so it says nothing. It has Events.
const ReasonAuditFailed Reason = "AuditFailed"

// About returns how severe the reason is, and what it means.
func (r Reason) About() reasons.About {
	about := reasons.About{Sentence: r.Sentence()}
	if r == ReasonLeakSuspected || r == ReasonAuditFailed {
		about.Severity = reasons.Warning
	}
	return about
}

// Sentence says it in words, for people.
func (r Reason) Sentence() string {
	switch r {
	case ReasonPV:
		return "A PV names it."
	case ReasonSnapshot:
		return "A VolumeSnapshotContent names it."
	case ReasonInFlight:
		return "The in-flight log has an entry for it: it gets its PV once the driver has answered."
	case ReasonIncomplete:
		return "Not all was read that could account for it."
	case ReasonEphemeral:
		return "It is named like a volume that belongs to a pod alone."
	case ReasonInUse:
		return "The driver says that it is attached to a node."
	case ReasonNamesDiffer:
		return "The driver lists the volume of no PV, so its list and the PVs do not describe the same volumes."
	case ReasonPVUnclear:
		return "A PV of the driver does not tell which of the listed volumes it is about."
	case ReasonBeingMade:
		return "It may be the volume of a claim, or the storage of a snapshot, that is still being made."
	case ReasonSeenTooSeldom:
		return "Nothing accounts for it, in too few audits so far."
	case ReasonSeenTooShort:
		return "Nothing accounts for it, for too short a time so far."
	case ReasonLeakSuspected:
		return "Nothing in the cluster accounts for it."
	case ReasonAuditFailed:
		return "The audit could not be completed."
	}
	return string(r)
}

// Reasons lists all reasons of volumes that are not accounted for: the values of the label of
// csi_reclaimer_unaccounted_volumes.
func Reasons() []Reason {
	return []Reason{ReasonInFlight, ReasonIncomplete, ReasonEphemeral, ReasonInUse, ReasonNamesDiffer, ReasonPVUnclear,
		ReasonBeingMade,
		ReasonSeenTooSeldom, ReasonSeenTooShort, ReasonLeakSuspected}
}
