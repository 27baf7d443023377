package leaks

import "time"

// existence is the result of a search for an object. Its zero value is unknown, which never counts as absent.
type existence uint8

const (
	// presenceUnknown: the reads did not show whether the object exists.
	presenceUnknown existence = iota
	// present: the object exists, or at least may exist.
	present
	// absent: complete reads after the volume was listed showed that the object does not exist.
	absent
)

// presence returns the result of a read that is known to be complete.
func presence(there bool) existence {
	if there {
		return present
	}
	return absent
}

// suspicionRules set how long a volume must remain unaccounted for.
type suspicionRules struct {
	// Sightings is the required number of consecutive complete leak checks, at least 2.
	Sightings int
	// Grace is the minimum time since the first of them.
	Grace time.Duration
}

// leastSightings is the lower bound for all rules, because a single sighting can be a volume that is deleted,
// together with its PV, between two reads of one leak check; the next one no longer lists it.
const leastSightings = 2

// facts holds everything known about one listed volume at the end of one leak check. The zero value of every field
// means that the fact is unknown, or prevents a suspicion. InUse and Ephemeral are the exceptions: few drivers report
// them, and they can only prevent a suspicion.
type facts struct {
	Rules suspicionRules

	// PV: a PV names the volume, or has named it since the leak check began.
	PV existence
	// Snapshot: a snapshot of the cluster has the volume's handle.
	Snapshot existence
	// InFlight: the in-flight log has an entry that may be for the volume.
	InFlight existence
	// Unclear: for some PV, or attached inline volume, of the driver it is unknown which listed volume it names.
	Unclear existence
	// Maker: a claim or snapshot has been in creation in every leak check since the volume was first listed, or earlier.
	Maker existence
	// NamesMatch: the driver lists the volume of at least one PV, or has no PVs.
	NamesMatch bool
	// InUse: the driver reports the volume as attached to a node, or a VolumeAttachment without a PV does.
	InUse bool
	// Ephemeral: the handle has the form of the kubelet's names for ephemeral inline volumes.
	Ephemeral bool

	// Sightings is the number of consecutive complete leak checks, including this one, in which nothing prevented a
	// suspicion. FirstSeen is the time at which the first of them had listed the volumes.
	Sightings int
	FirstSeen time.Time
}

// verdict is the result of a leak check for one volume, with its reason.
type verdict struct {
	Suspected bool
	Reason    Reason
}

// decide returns whether a listed volume is suspected to be a leak. It is a pure function: an unknown fact prevents a
// suspicion, and the grace period is measured up to now.
func decide(s facts, now time.Time) verdict {
	if why, against := s.against(); against {
		return verdict{Reason: why}
	}
	switch {
	case s.Sightings < max(s.Rules.Sightings, leastSightings):
		return verdict{Reason: ReasonSeenTooSeldom}
	case s.FirstSeen.IsZero() || now.Sub(s.FirstSeen) < s.Rules.Grace:
		return verdict{Reason: reasonSeenTooShort}
	}
	return verdict{Suspected: true, Reason: ReasonLeakSuspected}
}

// against returns the reason that prevents a suspicion regardless of time and sightings. A leak check with such a
// reason is not a sighting.
func (s facts) against() (why Reason, against bool) {
	switch {
	case s.PV == present:
		return reasonPV, true
	case s.Snapshot == present:
		return reasonSnapshot, true
	case s.InFlight == present:
		return reasonInFlight, true
	case s.PV != absent || s.Snapshot != absent || s.InFlight != absent || s.Unclear == presenceUnknown ||
		s.Maker == presenceUnknown:
		return reasonIncomplete, true
	case s.Ephemeral:
		return reasonEphemeral, true
	case s.InUse:
		return reasonInUse, true
	case !s.NamesMatch:
		return reasonNamesDiffer, true
	case s.Unclear != absent:
		return reasonPVUnclear, true
	case s.Maker != absent:
		return ReasonBeingMade, true
	}
	return "", false
}

// accounted reports whether the volume has an owner in the cluster and needs no record.
func accounted(r Reason) bool { return r == reasonPV || r == reasonSnapshot }
