package leaks

import (
	"slices"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// leaked returns the facts of a suspected volume, with the change applied.
func leaked(change func(*Facts)) Facts {
	s := Facts{
		Rules: Rules{Sightings: 3, Grace: time.Hour},
		PV:    Absent, Snapshot: Absent, InFlight: Absent, Unclear: Absent, Maker: Absent, NamesMatch: true,
		Sightings: 3, FirstSeen: noon.Add(-time.Hour),
	}
	if change != nil {
		change(&s)
	}
	return s
}

func TestDecide(t *testing.T) {
	for sentence, c := range map[string]struct {
		snapshot Facts
		want     Reason
	}{
		"nothing accounts for it, often and long enough": {leaked(nil), ReasonLeakSuspected},
		"nothing is known": {Facts{}, ReasonIncomplete},
		"a PV names it":    {leaked(func(s *Facts) { s.PV = Present }), ReasonPV},
		"a PV names it, and nothing else is known": {Facts{PV: Present}, ReasonPV},
		"whether a PV names it is not known": {leaked(func(s *Facts) { s.PV = PresenceUnknown }),
			ReasonIncomplete},
		"it is a snapshot's": {leaked(func(s *Facts) { s.Snapshot = Present }),
			ReasonSnapshot},
		"whether it is a snapshot's is not known": {leaked(func(s *Facts) { s.Snapshot = PresenceUnknown }),
			ReasonIncomplete},
		"a PV does not tell its volume": {leaked(func(s *Facts) { s.Unclear = Present }),
			ReasonPVUnclear},
		"whether all PVs tell is not known": {leaked(func(s *Facts) { s.Unclear = PresenceUnknown }),
			ReasonIncomplete},
		"the in-flight log has it": {leaked(func(s *Facts) { s.InFlight = Present }),
			ReasonInFlight},
		"its presence in the in-flight log is unknown": {leaked(func(s *Facts) { s.InFlight = PresenceUnknown }),
			ReasonIncomplete},
		"a claim may be its maker": {leaked(func(s *Facts) { s.Maker = Present }),
			ReasonBeingMade},
		"whether one is being made is not known": {leaked(func(s *Facts) { s.Maker = PresenceUnknown }),
			ReasonIncomplete},
		"no PV's volume is in the list": {leaked(func(s *Facts) { s.NamesMatch = false }),
			ReasonNamesDiffer},
		"it is attached": {leaked(func(s *Facts) { s.InUse = true }), ReasonInUse},
		"it is named like a pod's own": {leaked(func(s *Facts) { s.Ephemeral = true }),
			ReasonEphemeral},
		"it was seen once too seldom": {leaked(func(s *Facts) { s.Sightings = 2 }),
			ReasonSeenTooSeldom},
		"it was seen once, and the rules ask for no more": {leaked(func(s *Facts) {
			s.Rules.Sightings, s.Sightings = 1,
				1
		}), ReasonSeenTooSeldom},
		"it was seen twice, and the rules ask for nothing": {leaked(func(s *Facts) {
			s.Rules, s.Sightings = Rules{},
				2
		}), ReasonLeakSuspected},
		"it was seen often, but not for long": {leaked(func(s *Facts) { s.FirstSeen = s.FirstSeen.Add(time.Nanosecond) }),
			ReasonSeenTooShort},
		"since when is not known": {leaked(func(s *Facts) { s.FirstSeen = time.Time{} }),
			ReasonSeenTooShort},
		"the clock went back": {leaked(func(s *Facts) { s.FirstSeen = noon.Add(time.Hour) }), ReasonSeenTooShort},
		"it is attached, and its maker is not known": {leaked(func(s *Facts) {
			s.InUse, s.Maker = true,
				PresenceUnknown
		}), ReasonIncomplete},
		"a PV names it, and it was seen for a hundred leak checks": {leaked(func(s *Facts) {
			s.PV, s.Sightings = Present,
				100
		}),
			ReasonPV},
	} {
		got := Decide(c.snapshot, noon)
		if got.Reason != c.want || got.Suspected != (c.want == ReasonLeakSuspected) {
			t.Errorf("%s: %+v, want %s", sentence, got, c.want)
		}
	}
}

// TestSuspicionNeedsAllFacts tries every combination of facts.
func TestSuspicionNeedsAllFacts(t *testing.T) {
	presences, either := []Presence{PresenceUnknown, Present, Absent}, []bool{false, true}
	suspected, all := 0, 0
	for _, pv := range presences {
		for _, snapshot := range presences {
			for _, unclear := range presences {
				for _, maker := range presences {
					for bits := range 8 {
						for sightings := range 4 {
							for _, old := range either {
								s := leaked(func(s *Facts) {
									s.PV, s.Snapshot, s.Unclear, s.Maker = pv, snapshot, unclear, maker
									s.NamesMatch, s.InUse, s.Ephemeral = bits&1 != 0, bits&2 != 0, bits&4 != 0
									s.Sightings = sightings
									if !old {
										s.FirstSeen = noon
									}
								})
								all++
								got := Decide(s, noon)
								want := pv == Absent && snapshot == Absent && unclear == Absent && maker == Absent && bits == 1 &&
									sightings == 3 && old
								if got.Suspected != want {
									t.Errorf("%+v: %+v", s, got)
								}
								if got.Suspected {
									suspected++
								}
								if got.Reason == "" || got.Reason.Sentence() == string(got.Reason) {
									t.Errorf("%+v: no reason, or none in words: %q", s, got.Reason)
								}
							}
						}
					}
				}
			}
		}
	}
	if suspected != 1 {
		t.Errorf("%d of %d are suspected, want the one for which nothing speaks", suspected, all)
	}
}

func TestReasons(t *testing.T) {
	for _, reason := range []Reason{ReasonPV, ReasonSnapshot} {
		if !accounted(reason) || slices.Contains(Reasons(), reason) {
			t.Errorf("%s is no reason of an unaccounted volume", reason)
		}
	}
	for _, reason := range Reasons() {
		if accounted(reason) || reason.Sentence() == string(reason) {
			t.Errorf("%s accounts for a volume, or has no sentence", reason)
		}
	}
}
