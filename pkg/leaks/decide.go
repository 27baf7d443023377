package leaks

import "time"

// Verdict is the result of a leak check for one volume, with its reason.
type Verdict struct {
	Suspected bool
	Reason    Reason
}

// Decide returns whether a listed volume is suspected to be a leak. It is a pure function: an unknown fact prevents a
// suspicion, and the grace period is measured up to now.
func Decide(s Facts, now time.Time) Verdict {
	if why, against := s.against(); against {
		return Verdict{Reason: why}
	}
	switch {
	case s.Sightings < max(s.Rules.Sightings, leastSightings):
		return Verdict{Reason: ReasonSeenTooSeldom}
	case s.FirstSeen.IsZero() || now.Sub(s.FirstSeen) < s.Rules.Grace:
		return Verdict{Reason: ReasonSeenTooShort}
	}
	return Verdict{Suspected: true, Reason: ReasonLeakSuspected}
}

// against returns the reason that prevents a suspicion regardless of time and sightings. A leak check with such a
// reason is not a sighting.
func (s Facts) against() (why Reason, against bool) {
	switch {
	case s.PV == Present:
		return ReasonPV, true
	case s.Snapshot == Present:
		return ReasonSnapshot, true
	case s.InFlight == Present:
		return ReasonInFlight, true
	case s.PV != Absent || s.Snapshot != Absent || s.InFlight != Absent || s.Unclear == PresenceUnknown ||
		s.Maker == PresenceUnknown:
		return ReasonIncomplete, true
	case s.Ephemeral:
		return ReasonEphemeral, true
	case s.InUse:
		return ReasonInUse, true
	case !s.NamesMatch:
		return ReasonNamesDiffer, true
	case s.Unclear != Absent:
		return ReasonPVUnclear, true
	case s.Maker != Absent:
		return ReasonBeingMade, true
	}
	return "", false
}

// accounted reports whether the volume has an owner in the cluster and needs no record.
func accounted(r Reason) bool { return r == ReasonPV || r == ReasonSnapshot }
