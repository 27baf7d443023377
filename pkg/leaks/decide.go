package leaks

import "time"

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
