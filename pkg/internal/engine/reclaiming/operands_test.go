package reclaiming

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Each operand of a condition counts by itself.

func TestEachOperandOfADecision(t *testing.T) {
	adopting := func(change func(*Facts)) Facts {
		return with(func(s *Facts) {
			s.PV.HasFinalizer, s.PV.HasCompanionFinalizer, s.PV.Phase = false, true, volume.PhaseBound
			change(s)
		})
	}
	kept := func(change func(*Facts)) Facts {
		return with(func(s *Facts) {
			s.PV.Policy, s.PV.Phase, s.Rules.Scope = volume.PolicyRetain, volume.PhaseBound, ScopeBoundAny
			change(s)
		})
	}
	observed := func(change func(*Facts)) Facts {
		return with(func(s *Facts) {
			s.Rules.Role, s.PV.Terminating, s.PV.HasFinalizer = volume.RoleObserver, true, false
			change(s)
		})
	}
	unclear := func(change func(*Facts)) Facts {
		return onNode(func(s *Facts) { s.PV.Reach = volume.ReachUnclear; change(s) })
	}
	gone := func(s *Facts) { s.End = End{Gone: true, Final: true} }
	check(t, decisions{
		"a volume of another driver: never deleted, though ours provisioned the PV": {
			with(func(s *Facts) { s.PV.Driver = "other" }), waiting(ReasonHandleUnknown)},
		"not ours and gone: settled": {with(func(s *Facts) { s.PV.ProvisionedBy = "other"; gone(s) }),
			ended(ReasonNotOurs)},

		"bound with a companion's finalizer: adopted": {adopting(func(*Facts) {}), do(AdoptPV, ReasonAdopt)},
		"adopted, and the cache lags: not a second time": {adopting(func(s *Facts) { s.Done.Protected = true }),
			waiting(ReasonBound)},
		"contested: not adopted": {adopting(func(s *Facts) { s.Contested = true }), waiting(ReasonBound)},

		"not clear whose, gone without another sign: reported": {
			unclear(func(s *Facts) { s.PV.Phase = volume.PhaseBound; gone(s) }), ended(ReasonNodeUnclear)},
		"not clear whose, not claimed: not reported": {unclear(func(s *Facts) { s.PV.Claim = volume.ClaimRef{} }),
			waiting(ReasonOtherNode)},
		"not clear whose, to be kept: not reported": {
			unclear(func(s *Facts) { s.PV.Policy = volume.PolicyRetain }), waiting(ReasonOtherNode)},
		"another node's, gone: settled": {
			onNode(func(s *Facts) { s.PV.Reach = volume.ReachElsewhere; gone(s) }), ended(ReasonOtherNode)},

		"others removed the finalizer of a PV that is terminating: abandoned": {
			with(func(s *Facts) { s.PV.Terminating, s.PV.HasFinalizer, s.History.Stripped = true, false, true }),
			waiting(ReasonReclaimAbandoned)},
		"its volume is deleted, no finalizer of ours: nothing to remove": {
			with(func(s *Facts) {
				s.PV.Terminating, s.PV.HasFinalizer, s.Done = true, false, done(s.PV, true, false)
			}), waiting(ReasonVolumeGone)},

		"observed, terminating without a finalizer: reported": {observed(func(*Facts) {}),
			waiting(ReasonDeletionUnprotected)},
		"observed, not terminating: the peer's": {observed(func(s *Facts) { s.PV.Terminating = false }),
			waiting(ReasonLeftToPeer)},
		"observed, to be kept: the peer's": {observed(func(s *Facts) { s.PV.Policy = volume.PolicyRetain }),
			waiting(ReasonLeftToPeer)},
		"observed, not claimed: the peer's": {observed(func(s *Facts) { s.PV.Claim = volume.ClaimRef{} }),
			waiting(ReasonLeftToPeer)},
		"observed, a companion's finalizer, not terminating: the peer's": {
			observed(func(s *Facts) { s.PV.HasCompanionFinalizer, s.PV.Terminating = true, false }),
			waiting(ReasonLeftToPeer)},

		"kept and in scope, unprotected: protected": {kept(func(s *Facts) { s.PV.HasFinalizer = false }),
			do(AddFinalizer, ReasonProtect)},
		"kept and in scope, protected, and the cache lags: not a second time": {
			kept(func(s *Facts) { s.PV.HasFinalizer, s.Done.Protected = false, true }), waiting(ReasonPolicyKeepsVolume)},
		"kept and in scope, contested: not protected": {
			kept(func(s *Facts) { s.PV.HasFinalizer, s.Contested = false, true }), waiting(ReasonPolicyKeepsVolume)},
		"kept, not yet bound: out of scope": {
			kept(func(s *Facts) { s.PV.HasFinalizer, s.PV.Phase = false, volume.PhasePending }),
			waiting(ReasonPolicyKeepsVolume)},
		"kept, a companion's finalizer: adopted": {
			kept(func(s *Facts) { s.PV.HasFinalizer, s.PV.HasCompanionFinalizer = false, true }),
			do(AdoptPV, ReasonAdopt)},
		"kept, adopted, and the cache lags: not a second time": {
			kept(func(s *Facts) {
				s.PV.HasFinalizer, s.PV.HasCompanionFinalizer, s.Done.Protected = false, true, true
			}), waiting(ReasonPolicyKeepsVolume)},
		"kept, a companion's finalizer, contested: not adopted": {
			kept(func(s *Facts) { s.PV.HasFinalizer, s.PV.HasCompanionFinalizer, s.Contested = false, true, true }),
			waiting(ReasonPolicyKeepsVolume)},
		"kept, a companion's own finalizer: not adopted by it": {
			kept(func(s *Facts) { s.Rules.Role, s.PV.HasCompanionFinalizer = volume.RoleCompanion, true }),
			waiting(ReasonPolicyKeepsVolume)},
		"kept and out of scope, a companion's finalizer: removed, not adopted": {
			kept(func(s *Facts) {
				s.Rules.Scope, s.PV.HasFinalizer, s.PV.HasCompanionFinalizer = ScopeBoundDelete, false, true
			}), do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
	})
}

// A new leader deletes nothing before it has read the brake's Lease, whatever the brake was in an earlier term.
func TestTheBrakeIsUnknownToANewLeader(t *testing.T) {
	b := NewBreaker(1, time.Minute)
	b.Lead(true)
	if b.Learn(false, now()); b.State != BrakeOff {
		t.Fatalf("the Lease says that it is off: %v", b.State)
	}
	b.Lead(false)
	b.Lead(true)
	if b.State != BrakeUnknown {
		t.Errorf("a new term begins with %v", b.State)
	}
}

// A replica that does not lead counts, and stops nothing; one that leads reports once that it does.
func TestTheBrakeTripsOnceAndForTheLeaderAlone(t *testing.T) {
	for _, leading := range []bool{false, true} {
		b := NewBreaker(1, time.Minute)
		b.Lead(true)
		b.Learn(false, now())
		b.Leading = leading
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

// A write that adds the finalizer and is refused changed nothing: the event of somebody else's finalizer ends a
// contest. One whose answer is lost may have been ours.
func TestWhatAWriteThatFailedLeavesExpected(t *testing.T) {
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
