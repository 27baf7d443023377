package statefulset

import (
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// Decision is the next step for one claim and its reason.
type Decision struct {
	Action Action
	Reason Reason
	// After bounds the duration of a wait, and is zero for a wait that only an event ends.
	After time.Duration
}

// Step implements session.State.
func (d Decision) Step() session.Step[Reason] {
	return session.Step[Reason]{Action: d.Action, Reason: d.Reason, After: d.After}
}

func wait(why Reason) Decision           { return Decision{Action: Wait, Reason: why} }
func step(a Action, why Reason) Decision { return Decision{Action: a, Reason: why} }

// Decide returns the next step for one claim. The caller carries it out, adds the result to the facts, and calls Decide
// again, which keeps the claim as long as any fact is unknown.
//
// now decides whether reads are too old and waits are over.
func Decide(f Facts, now time.Time) Decision {
	switch {
	case f.Claim.UID == "":
		return wait(ReasonNoClaim)
	case f.Rules.Removing:
		return removing(f)
	case f.Claim.Terminating:
		return terminating(f, now)
	case f.SetSeen == Unknown:
		return wait(ReasonNotManaged)
	case !f.given():
		return withoutSet(f, now)
	case f.Set.Terminating:
		return wait(ReasonSetTerminating)
	}
	if w := f.wanted(); w.differs(f.Claim) {
		return change(f, w, now)
	}
	switch {
	case f.Shared:
		return wait(ReasonNamesCollide)
	case f.Condemned():
		return condemned(f, now)
	}
	return wait(f.kept())
}

func removing(f Facts) Decision {
	if f.Claim.Marked {
		return step(PatchClaim, ReasonUninstalled)
	}
	return wait(ReasonUninstalled)
}

// withoutSet handles a claim whose name no set gives. Garbage collection deletes it if its owner was the set, or a pod
// that goes with the set. An orphaned pod stays, and its claim with it. A claim that its deleted set did not own in
// time is reported and stays, because nothing proves that no pod had it.
func withoutSet(f Facts, now time.Time) Decision {
	owner := f.addedPod()
	switch {
	case f.leftBehind() && f.settlingLeft(now) > 0:
		return Decision{Reason: ReasonNotManaged, After: f.settlingLeft(now)}
	case f.leftBehind():
		return wait(ReasonOwnerReferenceMissing)
	case f.Claim.Mark == (Mark{}):
		return wait(ReasonNotManaged)
	case f.owns(f.Claim.Mark.UID):
		return wait(ReasonSetDeleted)
	case owner != "" && !f.PodRead.Fresh(now):
		return step(ReadPod, ReasonSetGone)
	case owner != "" && !f.orphaned(owner):
		return wait(ReasonSetDeleted)
	case !f.SetRead.FreshAfter(f.PodRead, now):
		return step(ReadSet, ReasonSetGone)
	}
	return step(PatchClaim, ReasonSetGone)
}

// change handles a claim whose mark or owner references differ from the wanted ones. Each change needs a read of the
// set. If the replica is scaled away, an addition also needs a read of the pod: a claim that lost its pod under another
// policy stays, and a reference to a missing pod would delete the claim.
func change(f Facts, w wanted, now time.Time) Decision {
	why := ReasonPolicyApplied
	if w.Mark == (Mark{}) {
		why = ReasonPolicyRemoved
	}
	adds := w.adds(f.Claim)
	switch {
	case adds && f.Sight.Added == w.String() && f.Sight.Additions >= maxAdditions:
		return wait(ReasonContested)
	case adds && f.scaledAway() && !f.PodRead.Fresh(now):
		return step(ReadPod, why)
	case !f.SetRead.FreshAfter(f.PodRead, now):
		return step(ReadSet, why)
	}
	return step(PatchClaim, why)
}

// condemned handles a claim that the policy deletes, and whose mark and owner references are up to date.
func condemned(f Facts, now time.Time) Decision {
	decides := f
	if f.Maintained() {
		decides = f.asKubernetes()
	}
	if why := decides.keeper(); why != "" {
		return wait(why)
	}
	if f.PodSeen != Absent {
		return withPod(f, now)
	}
	if left := f.graceLeft(now); left > 0 {
		return Decision{Reason: ReasonScaleDownGrace, After: left}
	}
	return lastReads(f, DeleteClaim, ReasonScaledDown, now)
}

// withPod handles a condemned claim whose pod is not gone. Without the policy in Kubernetes, the claim is deleted as
// soon as its pod is terminating: the finalizer kubernetes.io/pvc-protection keeps the claim until the pod has ended,
// and the StatefulSet controller does not use a terminating claim for another pod.
func withPod(f Facts, now time.Time) Decision {
	if f.Set.Source != SourceAnnotation || !f.hasPod() || !f.Pod.Terminating || !f.Claim.Protected {
		return wait(ReasonPodRemains)
	}
	return lastReads(f, DeleteClaim, ReasonScaledDown, now)
}

// lastReads returns the deletion after reads of the claim, its pod and its set. The set comes last, because a person
// may just have changed it.
func lastReads(f Facts, deletion Action, why Reason, now time.Time) Decision {
	switch {
	case !f.ClaimRead.Fresh(now):
		return step(ReadClaim, why)
	case !f.PodRead.FreshAfter(f.ClaimRead, now):
		return step(ReadPod, why)
	case !f.SetRead.FreshAfter(f.PodRead, now):
		return step(ReadSet, why)
	}
	return step(deletion, why)
}

// keeper returns the reason that keeps a condemned claim regardless of time, empty for none.
func (f Facts) keeper() Reason {
	switch {
	case f.Set.Invalid != "":
		return ReasonInvalidPolicy
	case f.Claim.Hold:
		return ReasonClaimHeld
	case f.otherController():
		return ReasonConflictingController
	case f.OtherOwner() != "":
		return ReasonOtherOwner
	case f.OtherPod != "":
		return ReasonUsedByOtherPod
	}
	return ""
}

// terminating handles a claim that is being deleted. If the StatefulSet controller created a pod for the claim before
// it noticed, the pod is about to lose its data. The pod is deleted, so that its replacement gets a new claim, if an
// owner reference of volume-guard led to the deletion of the claim.
func terminating(f Facts, now time.Time) Decision {
	switch {
	case !f.given(), f.Set.Terminating, f.scaledAway(), f.Set.Policy.Keeps(), !f.usedBySet():
		return wait(ReasonClaimTerminating)
	case !f.marked(), f.Shared, f.Set.Source != SourceAnnotation, f.Set.Policy.WhenScaled != Delete, !f.ofOldPod():
		return wait(ReasonPodUsesTerminatingClaim)
	}
	return lastReads(f, DeletePod, ReasonPodUsesOldClaim, now)
}

// usedBySet reports whether a pod of the set uses the claim and is not terminating.
func (f Facts) usedBySet() bool {
	return f.hasPod() && !f.Pod.Terminating && slices.Contains(f.Pod.Claims, f.Claim.Name)
}

// ofOldPod reports whether volume-guard has added a former pod as an owner of the claim.
func (f Facts) ofOldPod() bool {
	owner := f.addedPod()
	return owner != "" && owner != f.Pod.UID
}

// kept returns the reason why the policy keeps a claim.
func (f Facts) kept() Reason {
	switch {
	case f.stale():
		return ReasonOwnerGone
	case f.otherController() && !f.Set.Policy.Keeps():
		return ReasonConflictingController
	case f.Set.InRange(f.Ordinal) && f.hasPod():
		return ReasonInUse
	case f.Set.InRange(f.Ordinal):
		return ReasonInRange
	case f.Set.Policy.WhenScaled == Retain:
		return ReasonRetained
	case f.PodSeen == Found:
		return ReasonPodRemains
	}
	return ReasonNeverUsed
}
