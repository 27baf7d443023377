package leaks

import (
	"slices"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// leaked returns the facts of a suspected volume, with the change applied.
func leaked(change func(*facts)) facts {
	s := facts{
		Rules: suspicionRules{Sightings: 3, Grace: time.Hour},
		PV:    absent, Snapshot: absent, InFlight: absent, Unclear: absent, Maker: absent, NamesMatch: true,
		Sightings: 3, FirstSeen: noon.Add(-time.Hour),
	}
	if change != nil {
		change(&s)
	}
	return s
}

func TestDecide(t *testing.T) {
	for sentence, c := range map[string]struct {
		snapshot facts
		want     Reason
	}{
		"nothing accounts for it, often and long enough": {leaked(nil), ReasonLeakSuspected},
		"nothing is known": {facts{}, reasonIncomplete},
		"a PV names it":    {leaked(func(s *facts) { s.PV = present }), reasonPV},
		"a PV names it, and nothing else is known": {facts{PV: present}, reasonPV},
		"whether a PV names it is not known":       {leaked(func(s *facts) { s.PV = presenceUnknown }), reasonIncomplete},
		"it is a snapshot's":                       {leaked(func(s *facts) { s.Snapshot = present }), reasonSnapshot},
		"whether it is a snapshot's is not known": {leaked(func(s *facts) { s.Snapshot = presenceUnknown }),
			reasonIncomplete},
		"a PV does not tell its volume": {leaked(func(s *facts) { s.Unclear = present }), reasonPVUnclear},
		"whether all PVs tell is not known": {leaked(func(s *facts) { s.Unclear = presenceUnknown }),
			reasonIncomplete},
		"the in-flight log has it": {leaked(func(s *facts) { s.InFlight = present }), reasonInFlight},
		"its presence in the in-flight log is unknown": {leaked(func(s *facts) { s.InFlight = presenceUnknown }),
			reasonIncomplete},
		"a claim may be its maker": {leaked(func(s *facts) { s.Maker = present }), ReasonBeingMade},
		"whether one is being made is not known": {leaked(func(s *facts) { s.Maker = presenceUnknown }),
			reasonIncomplete},
		"no PV's volume is in the list": {leaked(func(s *facts) { s.NamesMatch = false }), reasonNamesDiffer},
		"it is attached":                {leaked(func(s *facts) { s.InUse = true }), reasonInUse},
		"it is named like a pod's own":  {leaked(func(s *facts) { s.Ephemeral = true }), reasonEphemeral},
		"it was seen once too seldom":   {leaked(func(s *facts) { s.Sightings = 2 }), ReasonSeenTooSeldom},
		"it was seen once, and the rules ask for no more": {
			leaked(func(s *facts) { s.Rules.Sightings, s.Sightings = 1, 1 }), ReasonSeenTooSeldom},
		"it was seen twice, and the rules ask for nothing": {
			leaked(func(s *facts) { s.Rules, s.Sightings = suspicionRules{}, 2 }), ReasonLeakSuspected},
		"it was seen often, but not for long": {
			leaked(func(s *facts) { s.FirstSeen = s.FirstSeen.Add(time.Nanosecond) }), reasonSeenTooShort},
		"since when is not known": {leaked(func(s *facts) { s.FirstSeen = time.Time{} }), reasonSeenTooShort},
		"the clock went back":     {leaked(func(s *facts) { s.FirstSeen = noon.Add(time.Hour) }), reasonSeenTooShort},
		"it is attached, and its maker is not known": {
			leaked(func(s *facts) { s.InUse, s.Maker = true, presenceUnknown }), reasonIncomplete},
		"a PV names it, and it was seen for a hundred leak checks": {
			leaked(func(s *facts) { s.PV, s.Sightings = present, 100 }), reasonPV},
	} {
		got := decide(c.snapshot, noon)
		if got.Reason != c.want || got.Suspected != (c.want == ReasonLeakSuspected) {
			t.Errorf("%s: %+v, want %s", sentence, got, c.want)
		}
	}
}

// TestSuspicionNeedsAllFacts tries every combination of facts.
func TestSuspicionNeedsAllFacts(t *testing.T) {
	presences, either := []existence{presenceUnknown, present, absent}, []bool{false, true}
	suspected, all := 0, 0
	for _, pv := range presences {
		for _, snapshot := range presences {
			for _, unclear := range presences {
				for _, maker := range presences {
					for bits := range 8 {
						for sightings := range 4 {
							for _, old := range either {
								s := leaked(func(s *facts) {
									s.PV, s.Snapshot, s.Unclear, s.Maker = pv, snapshot, unclear, maker
									s.NamesMatch, s.InUse, s.Ephemeral = bits&1 != 0, bits&2 != 0, bits&4 != 0
									s.Sightings = sightings
									if !old {
										s.FirstSeen = noon
									}
								})
								all++
								got := decide(s, noon)
								want := pv == absent && snapshot == absent && unclear == absent && maker == absent && bits == 1 &&
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
	for _, reason := range []Reason{reasonPV, reasonSnapshot} {
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
