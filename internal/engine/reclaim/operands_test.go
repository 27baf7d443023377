package reclaim

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Each operand of a condition counts by itself.

func TestDecideByEachOperand(t *testing.T) {
	adopting := pvIs(unguarded, guardedByCompanion, in(volume.PhaseBound))
	kept := func(s *Facts) {
		s.PV.Policy, s.PV.Phase, s.Rules.Scope = volume.PolicyRetain, volume.PhaseBound, ScopeBoundAny
	}
	observed := func(s *Facts) {
		s.Rules.Role, s.PV.Terminating, s.PV.HasFinalizer = volume.RoleObserver, true, false
	}
	unclear := func(s *Facts) { onNode(s); s.PV.Reach = volume.ReachUnclear }
	check(t, decisions{
		{"a volume of another driver: never deleted, though ours provisioned the PV", with(pvIs(ofDriver("other"))),
			waiting(ReasonHandleUnknown)},
		{"not ours and gone: settled", with(goneFinally, pvIs(by("other"))), ended(ReasonNotOurs)},

		{"bound with a companion's finalizer: adopted", with(adopting), do(AdoptPV, ReasonAdopt)},
		{"adopted, and the cache lags: not a second time", with(adopting, justProtected), waiting(ReasonBound)},
		{"contested: not adopted", with(adopting, contestedPV), waiting(ReasonBound)},

		{"not clear whose, gone without another sign: reported", with(unclear, goneFinally, pvIs(in(volume.PhaseBound))),
			ended(ReasonNodeUnclear)},
		{"not clear whose, not claimed: not reported", with(unclear, pvIs(unclaimedPV)), waiting(ReasonNoNode)},
		{"not clear whose, to be kept: not reported", with(unclear, pvIs(of(volume.PolicyRetain))), waiting(ReasonNoNode)},
		{"another node's, gone: settled", with(onNode, goneFinally, pvIs(reach(volume.ReachElsewhere))),
			ended(ReasonOtherNode)},

		{"others removed the finalizer of a PV that is terminating: abandoned", with(stripped, pvIs(terminating, unguarded)),
			waiting(ReasonReclaimAbandoned)},
		{"its volume is deleted, no finalizer of ours: nothing to remove",
			with(volumeGone(true, false), pvIs(terminating, unguarded)), waiting(ReasonVolumeGone)},

		{"in flight, unprotected: protects",
			with(func(s *Facts) { s.Rules.Logged, s.Log = true, volume.InFlightOpen }, pvIs(unguarded)),
			do(AddFinalizer, ReasonProtect)},
		{"no claim of the name, despite other results of the read: deletes the volume",
			with(func(s *Facts) { s.Claim.VolumeName = "pv" }), do(DeleteVolume, ReasonReclaim)},
		{"a claim that keeps a sibling: waits for any siblings", with(claimKeepsSibling),
			looking(ReasonSharedHandle)},
		{"its volume is deleted, and a claim is bound to the PV: reported",
			with(volumeGone(false, false), pvIs(in(volume.PhaseBound))), do(DeletePV, ReasonTooLateToKeep)},

		{"observed, to be kept: the peer's", with(observed, pvIs(of(volume.PolicyRetain))), waiting(ReasonLeftToPeer)},
		{"observed, not claimed: the peer's", with(observed, pvIs(unclaimedPV)), waiting(ReasonLeftToPeer)},
		{"observed, a companion's finalizer, not terminating: the peer's", with(observed, pvIs(guardedByCompanion, alive)),
			waiting(ReasonLeftToPeer)},

		{"kept and in scope, protected, and the cache lags: not a second time", with(kept, justProtected, pvIs(unguarded)),
			waiting(ReasonPolicyKeepsVolume)},
		{"kept and in scope, contested: not protected", with(kept, contestedPV, pvIs(unguarded)),
			waiting(ReasonPolicyKeepsVolume)},
		{"kept, not yet bound: out of scope", with(kept, pvIs(unguarded, in(volume.PhasePending))),
			waiting(ReasonPolicyKeepsVolume)},
		{"kept, a companion's finalizer: adopted", with(kept, pvIs(unguarded, guardedByCompanion)), do(AdoptPV, ReasonAdopt)},
		{"kept, adopted, and the cache lags: not a second time",
			with(kept, justProtected, pvIs(unguarded, guardedByCompanion)), waiting(ReasonPolicyKeepsVolume)},
		{"kept, a companion's finalizer, contested: not adopted",
			with(kept, contestedPV, pvIs(unguarded, guardedByCompanion)), waiting(ReasonPolicyKeepsVolume)},
		{"kept, a companion's own finalizer: not adopted by it",
			with(kept, role(volume.RoleCompanion), pvIs(guardedByCompanion)), waiting(ReasonPolicyKeepsVolume)},
		{"kept and out of scope, a companion's finalizer: removed, not adopted",
			with(kept, func(s *Facts) { s.Rules.Scope = ScopeBoundDelete }, pvIs(unguarded, guardedByCompanion)),
			do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
	})
}

// A step without a write of finalizers expects no event: a removal at the same time is another program's, and a write
// of the other loop is still under way.
func TestNoExpectationWithoutFinalizerWrite(t *testing.T) {
	pv := released().PV
	tracker := NewTracker(owner())
	tracker.see(&pv)
	tracker.expect(Ask{Decision: do(ReadClaim, ReasonReclaim), PV: pv})
	if a := tracker.Records[pv.UID].read(); a.Adding != nil || a.Removing != nil {
		t.Errorf("expected: %+v", a)
	}
	tracker.expect(Ask{Decision: do(FinalizePV, ReasonVolumeDeleted), PV: pv, Remove: []string{volume.Finalizer}})
	tracker.Answered(Ask{Decision: do(ReadClaim, ReasonReclaim), PV: pv}, Reply{Outcome: Changed})
	if a := tracker.Records[pv.UID].read(); a.Removing == nil {
		t.Error("the answer to a read ends a write")
	}
}

// A new leader deletes no volume before it has read the brake's Lease, in any state of the brake in an earlier term.
func TestBrakeIsUnknownToNewLeader(t *testing.T) {
	b := NewBreaker(1, time.Minute)
	b.Lead(true)
	if b.Learn("lease", false, now()); b.State != BrakeOff {
		t.Fatalf("the Lease says that it is off: %v", b.State)
	}
	b.Lead(false)
	b.Lead(true)
	if b.State != BrakeUnknown {
		t.Errorf("a new term begins with %v", b.State)
	}
}

// A replica that does not lead counts without stopping deletions; a leader reports once that it stops them.
func TestBrakeTripsOnceForLeader(t *testing.T) {
	for _, leading := range []bool{false, true} {
		b := NewBreaker(1, time.Minute)
		b.Lead(true)
		b.Lead(leading)
		b.Learn("lease", false, now())
		if b.Count("a", now()) {
			t.Error("one volume is as many as are allowed")
		}
		if tripped := b.Count("b", now()); tripped != leading {
			t.Errorf("leading %t: tripped %t", leading, tripped)
		}
		if b.Count("c", now()) {
			t.Errorf("leading %t: trips again", leading)
		}
	}
}

// A refused write that adds the finalizer changed nothing, so another program's finalizer ends a contest. An
// unanswered write may have been ours.
func TestExpectationAfterFailedWrite(t *testing.T) {
	for outcome := Unanswered; outcome <= Canceled; outcome++ {
		pv := released().PV
		tracker := NewTracker(owner())
		tracker.see(&pv)
		ask := Ask{Decision: do(AddFinalizer, ReasonProtect), PV: pv, Add: []string{volume.Finalizer}}
		tracker.expect(ask)
		tracker.Answered(ask, Reply{Outcome: outcome, Version: "11"})
		refused := outcome == Changed || outcome == Gone || outcome == Restored
		if expected := tracker.Records[pv.UID].read().Adding != nil; expected == refused {
			t.Errorf("outcome %d: still expected: %t", outcome, expected)
		}
	}
}

// A removal that is not known to have happened does not count as ours, so the next removal is another program's.
// Neither loop's answer changes the expectation of the other.
func TestAnswerEndsOnlyItsOwnExpectation(t *testing.T) {
	for outcome := Unanswered; outcome <= Canceled; outcome++ {
		for _, adds := range []bool{true, false} {
			pv := released().PV
			tracker := NewTracker(owner())
			add := Ask{Decision: do(AddFinalizer, ReasonProtect), PV: pv, Add: []string{volume.Finalizer}}
			remove := Ask{Decision: do(RemoveFinalizer, ReasonFinalizersRemoved), PV: pv, Remove: []string{volume.Finalizer}}
			for _, a := range []Ask{add, remove} {
				tracker.expect(a)
				if tracker.Answered(a, Reply{Outcome: outcome}); len(tracker.Records) > 0 {
					t.Fatalf("outcome %d: a PV that is not known is recorded", outcome)
				}
			}
			tracker.see(&pv)
			if tracker.Answered(remove, Reply{Outcome: outcome}); tracker.Records[pv.UID].Activity != nil {
				t.Errorf("outcome %d: a write that was not expected leaves %+v", outcome, tracker.Records[pv.UID].Activity)
			}
			tracker.expect(add)
			tracker.expect(remove)
			ask := remove
			if adds {
				ask = add
			}
			tracker.Answered(ask, Reply{Outcome: outcome, Version: "11"})
			adding, removing := tracker.Records[pv.UID].read().Adding, tracker.Records[pv.UID].read().Removing
			switch {
			case adds && (removing == nil || removing.Version != ""):
				t.Errorf("outcome %d: the answer to the addition makes of the removal %+v", outcome, removing)
			case !adds && (adding == nil || adding.Version != ""):
				t.Errorf("outcome %d: the answer to the removal makes of the addition %+v", outcome, adding)
			case !adds && (removing != nil) != (outcome == OK):
				t.Errorf("outcome %d: of the removal is left %+v", outcome, removing)
			}
		}
	}
}

// A program that works on volumes waits for volumes that are to be deleted, up to the end of the PV.
func TestUnderway(t *testing.T) {
	bound, observed := pvIs(in(volume.PhaseBound)), role(volume.RoleObserver)
	gone := func(s *Facts) { s.End.Gone = true }
	for name, c := range map[string]struct {
		facts Facts
		want  bool
	}{
		"released":                              {with(), true},
		"in use":                                {with(bound), false},
		"another program's":                     {with(observed), false},
		"another program's, gone":               {with(observed, gone), true},
		"in use when it went":                   {with(bound, gone), false},
		"deleted, the PV is not":                {with(volumeGone(false, false)), true},
		"deleted, the PV has our finalizer":     {with(volumeGone(true, false)), true},
		"deleted, the PV's end is not seen yet": {with(volumeGone(true, true)), false},
		"deleted, the PV is gone":               {with(volumeGone(false, false), gone), false},
	} {
		if got := c.facts.Underway(); got != c.want {
			t.Errorf("%s: under way: %t", name, got)
		}
	}
}
