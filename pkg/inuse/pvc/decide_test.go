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
	cases := map[string]struct {
		change func(*Facts)
		action inuse.Action
		reason inuse.Reason
		timed  bool
	}{
		"not in use: released": {func(*Facts) {}, inuse.RemoveFinalizer, inuse.ReasonUnused, false},
		"nothing is known":     {func(s *Facts) { *s = Facts{} }, inuse.Wait, inuse.ReasonOff, false},
		"off": {func(s *Facts) { s.Duty.Mode = inuse.ModeOff }, inuse.Wait,
			inuse.ReasonOff, false},
		"not terminating, protected": {func(s *Facts) { s.Claim.Terminating = false }, inuse.Wait,
			inuse.ReasonProtected, false},
		"not terminating, without it": {func(s *Facts) { s.Claim.Terminating, s.Claim.Protected = false, false },
			inuse.AddFinalizer, inuse.ReasonProtect, false},
		"a pod uses it, as the watch shows": {func(s *Facts) { s.Seen = runs }, inuse.Wait, inuse.ReasonInUse, false},
		"a pod uses it, as only the list shows": {func(s *Facts) { s.Read.Usage = runs }, inuse.Wait, inuse.ReasonInUse,
			true},
		"not asked": {func(s *Facts) { s.Read = Reading{} }, inuse.ReadUsers,
			inuse.ReasonUnused, false},
		"the list failed": {func(s *Facts) { s.Read.Err = errors.New("forbidden") }, inuse.Wait,
			inuse.ReasonAPIReadFailed, true},
		"a pod that has ended, which releases": {func(s *Facts) { s.Seen, s.Read.Usage = ended, ended },
			inuse.RemoveFinalizer, inuse.ReasonUnused, false},
		"a pod that has ended, which holds": {func(s *Facts) { s.Seen, s.Ended = ended, HoldTerminated }, inuse.Wait,
			inuse.ReasonInUseEnded, false},
		"a pod that has ended, which holds, as only the list shows": {func(s *Facts) {
			s.Read.Usage, s.Ended = ended, HoldTerminated
		},
			inuse.Wait, inuse.ReasonInUseEnded, true},
		"an ended pod, without a setting": {func(s *Facts) { s.Seen, s.Ended = ended, TerminatedDefault },
			inuse.Wait, inuse.ReasonInUseEnded, false},
		"an ended pod and a running pod": {func(s *Facts) { s.Seen = Usage{By: "web-0", ByEnded: "job-1"} },
			inuse.Wait, inuse.ReasonInUse, false},
		"unused, others may be at work": {func(s *Facts) { s.Duty.Alone = false }, inuse.Wait,
			inuse.ReasonLeftToBuiltIn, true},
		"unused, and no answer": {func(s *Facts) { s.Duty.Alone, s.Duty.Unanswered = false, true },
			inuse.RemoveFinalizer, inuse.ReasonUnused, false},
		"a pod that has ended, which others may hold for": {func(s *Facts) {
			s.Duty.Alone, s.Duty.Unanswered, s.Seen = false, true, ended
		},
			inuse.Wait, inuse.ReasonLeftToBuiltIn, false},
		"a pod that has ended, which others may hold for, as only the list shows": {func(s *Facts) {
			s.Duty.Alone, s.Duty.Unanswered, s.Read.Usage = false, true, ended
		},
			inuse.Wait, inuse.ReasonLeftToBuiltIn, true},
		"released already": {func(s *Facts) { s.Duty.Removed = true }, inuse.Wait, inuse.ReasonUnused, false},
	}
	for sentence, c := range cases {
		t.Run(sentence, func(t *testing.T) {
			s := going()
			c.change(&s)
			d := Decide(s)
			if d.Action != c.action || d.Reason != c.reason || d.Timed != c.timed {
				t.Errorf("Decide = %+v, want %s %s, timed %v", d, c.action, c.reason, c.timed)
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
	if (Config{TerminatedPods: 9}).Validate() == nil {
		t.Error("a setting that is none is valid")
	}
	if names := slices.Sorted(slices.Values([]string{TerminatedDefault.String(),
		HoldTerminated.String()})); !slices.Equal(names, []string{"hold", "release"}) {
		t.Errorf("names %q", names)
	}
}
