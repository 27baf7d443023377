package leaks

import "time"

// Verdict is what is thought of one volume, and why.
type Verdict struct {
	// Suspected: it is taken for a leak.
	Suspected bool
	Reason    Reason
}

// Decide says whether a listed volume is taken for a leak. It is a pure function; now is the time by which
// the grace period is judged. An unknown fact speaks against a suspicion.
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

// against returns what speaks against a suspicion, however often and long the volume was seen. A leak check in
// which something does is no sighting.
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

// accounted reports whether the volume has an owner in the cluster, so that nothing is remembered of it.
func (r Reason) accounted() bool { return r == ReasonPV || r == ReasonSnapshot }
