package pvc

import (
	"errors"
	"slices"
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"
)

// going is a claim that is being deleted, with no known user, in a cluster without another controller.
func going() Facts {
	return Facts{
		Duty:  inuse.Duty{Mode: inuse.ModeFull, Alone: true},
		Ended: ReleaseTerminated,
		Claim: Claim{Namespace: "ns", Name: "data", UID: "u", Terminating: true, Protected: true},
		Read:  Reading{Made: true},
	}
}

func TestDecide(t *testing.T) {
	runs, ended := Usage{By: "web-0"}, Usage{ByEnded: "job-1"}
	seen := func(u Usage) func(*Facts) { return func(s *Facts) { s.Seen = u } }
	listed := func(u Usage) func(*Facts) { return func(s *Facts) { s.Read.Usage = u } }
	set := func(ended TerminatedPods) func(*Facts) { return func(s *Facts) { s.Ended = ended } }
	unanswered := func(s *Facts) { s.Duty.Alone, s.Duty.Unanswered = false, true }
	with := func(alter ...func(*Facts)) Facts {
		s := going()
		for _, a := range alter {
			a(&s)
		}
		return s
	}
	rest, later := inuse.Rest, inuse.Later
	released, protected := inuse.Step(inuse.RemoveFinalizer, inuse.ReasonUnused),
		inuse.Step(inuse.AddFinalizer, inuse.ReasonProtect)
	for _, c := range []struct {
		sentence string
		facts    Facts
		want     inuse.Decision
	}{
		{"not in use: released", with(), released},
		{"nothing is known", Facts{}, rest(inuse.ReasonOff)},
		{"off", with(func(s *Facts) { s.Duty.Mode = inuse.ModeOff }), rest(inuse.ReasonOff)},
		{"not terminating, protected", with(func(s *Facts) { s.Claim.Terminating = false }), rest(inuse.ReasonProtected)},
		{"not terminating, without it",
			with(func(s *Facts) { s.Claim.Terminating, s.Claim.Protected = false, false }), protected},
		{"a pod uses it, as the watch shows", with(seen(runs)), rest(inuse.ReasonInUse)},
		{"a pod uses it, as only the list shows", with(listed(runs)), later(inuse.ReasonInUse)},
		{"not asked", with(func(s *Facts) { s.Read = Reading{} }), inuse.Step(inuse.ReadUsers, inuse.ReasonUnused)},
		{"the list failed", with(func(s *Facts) { s.Read.Err = errors.New("forbidden") }),
			later(inuse.ReasonAPIReadFailed)},
		{"a pod that has ended, which releases", with(seen(ended), listed(ended)), released},
		{"a pod that has ended, which holds", with(seen(ended), set(HoldTerminated)), rest(inuse.ReasonInUseEnded)},
		{"a pod that has ended, which holds, as only the list shows", with(listed(ended), set(HoldTerminated)),
			later(inuse.ReasonInUseEnded)},
		{"an ended pod, without a setting", with(seen(ended), set(TerminatedDefault)), rest(inuse.ReasonInUseEnded)},
		{"an ended pod and a running pod", with(seen(Usage{By: "web-0", ByEnded: "job-1"})), rest(inuse.ReasonInUse)},
		{"unused, others may be at work", with(func(s *Facts) { s.Duty.Alone = false }), later(inuse.ReasonLeftToBuiltIn)},
		{"unused, and no answer", with(unanswered), released},
		{"a pod that has ended, which others may hold for", with(unanswered, seen(ended)), rest(inuse.ReasonLeftToBuiltIn)},
		{"a pod that has ended, which others may hold for, as only the list shows", with(unanswered, listed(ended)),
			later(inuse.ReasonLeftToBuiltIn)},
		{"released already", with(func(s *Facts) { s.Duty.Removed = true }), rest(inuse.ReasonUnused)},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			d := Decide(c.facts)
			if d.Detail = ""; d != c.want {
				t.Errorf("Decide = %+v, want %+v", d, c.want)
			}
		})
	}
}

// TestRemovalInEveryState checks every combination of the facts for the conditions of each release, and of each write.
func TestRemovalInEveryState(t *testing.T) {
	bools := []bool{false, true}
	usages := []Usage{{}, {By: "web-0"}, {ByEnded: "job-1"}, {By: "web-0", ByEnded: "job-1"}}
	var s Facts
	let, seen := 0, 0
	each := func() {
		seen++
		d := Decide(s)
		writes := d.Action == inuse.AddFinalizer || d.Action == inuse.RemoveFinalizer
		if writes && (s.Duty.Mode != inuse.ModeFull || !s.Duty.Alone && !s.Duty.Unanswered) {
			t.Fatalf("%s although it is not on us: %+v", d.Action, s)
		}
		if d.Action != inuse.RemoveFinalizer {
			return
		}
		let++
		c, inUse := s.Claim, s.Seen.By != "" || s.Read.By != ""
		byEnded := s.Seen.ByEnded != "" || s.Read.ByEnded != ""
		switch {
		case !c.Terminating || !c.Protected || s.Duty.Removed:
			t.Fatalf("there is nothing to take off: %+v", s)
		case !s.Read.Made || s.Read.Err != nil:
			t.Fatalf("released without a live list: %+v", s)
		case inUse:
			t.Fatalf("released while a pod uses it: %+v", s)
		case byEnded && (s.Ended != ReleaseTerminated || !s.Duty.Alone):
			t.Fatalf("released while a pod that has ended holds it: %+v", s)
		}
	}
	for _, s.Duty.Mode = range []inuse.Mode{inuse.ModeOff, inuse.ModeFull} {
		for _, s.Duty.Alone = range bools {
			for _, s.Duty.Unanswered = range bools {
				for _, s.Duty.Added = range bools {
					for _, s.Duty.Removed = range bools {
						for _, s.Ended = range []TerminatedPods{TerminatedDefault, ReleaseTerminated, HoldTerminated} {
							for _, s.Claim = range claims() {
								for _, s.Seen = range usages {
									for _, s.Read = range readings(usages) {
										each()
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if let == 0 || let == seen {
		t.Errorf("%d of %d were released: this test shows nothing", let, seen)
	}
}

func claims() (all []Claim) {
	for _, terminating := range []bool{false, true} {
		for _, protected := range []bool{false, true} {
			all = append(all, Claim{Name: "data", UID: "u", Terminating: terminating, Protected: protected})
		}
	}
	return all
}

func readings(usages []Usage) []Reading {
	all := []Reading{{}, {Made: true, Err: errors.New("forbidden")}}
	for _, u := range usages {
		all = append(all, Reading{Made: true, Usage: u}, Reading{Made: true, Err: errors.New("forbidden"), Usage: u})
	}
	return all
}

func TestTerminatedPodsNames(t *testing.T) {
	for _, set := range []TerminatedPods{ReleaseTerminated, HoldTerminated} {
		if got, err := ParseTerminatedPods(set.String()); err != nil || got != set {
			t.Errorf("ParseTerminatedPods(%q) = %v, %v", set.String(), got, err)
		}
	}
	if _, err := ParseTerminatedPods("keep"); err == nil {
		t.Error("a setting that is none")
	}
	if (Config{TerminatedPods: "keep"}).Validate() == nil {
		t.Error("a setting that is none is valid")
	}
	if names := slices.Sorted(slices.Values([]string{TerminatedDefault.String(),
		HoldTerminated.String()})); !slices.Equal(names, []string{"hold", "release"}) {
		t.Errorf("names %q", names)
	}
}
