package statefulset

import (
	"slices"
	"time"
)

// Decision is the next step for one claim, and why.
type Decision struct {
	Action Action
	Reason Reason
	// After, if not zero, is how long this wait lasts at most.
	After time.Duration
}

func wait(why Reason) Decision           { return Decision{Action: Wait, Reason: why} }
func step(a Action, why Reason) Decision { return Decision{Action: a, Reason: why} }

// Decide returns what to do next about one claim: carrying out a step adds to what is known, and Decide is called again
// with that. It keeps the claim whenever a fact is unknown.
//
// now is the time by which reads are judged too old, and waits over.
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

// removing handles a claim when volume-guard is uninstalled.
func removing(f Facts) Decision {
	if f.Claim.Marked {
		return step(PatchClaim, ReasonUninstalled)
	}
	return wait(ReasonUninstalled)
}

// withoutSet handles a claim that no set has. Garbage collection deletes one that the set owned, or a pod that goes
// with the set. A pod that was orphaned stays, and so does its claim. One that the set was to own, and did not, is
// reported and stays: nothing proves that no pod had it.
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

// change handles a claim whose mark or owner references are not as they should be. The set is read for each change.
// Of a replica that is scaled away, the pod is read before anything is added: a claim that has lost its pod under
// another policy stays, and a reference to a pod that is gone deletes the claim.
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

// condemned handles a claim that is as it should be, and that the policy has deleted.
func condemned(f Facts, now time.Time) Decision {
	if why := f.keeper(); why != "" {
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

// withPod handles a condemned claim whose pod is not gone. Where Kubernetes does not have the policy, the claim is
// deleted as soon as its pod is terminating: the finalizer kubernetes.io/pvc-protection keeps it until the pod has
// ended, and the StatefulSet controller does not use a claim that is terminating for another pod.
func withPod(f Facts, now time.Time) Decision {
	if f.Set.Source != SourceAnnotation || !f.hasPod() || !f.Pod.Terminating || !f.Claim.Protected {
		return wait(ReasonPodRemains)
	}
	return lastReads(f, DeleteClaim, ReasonScaledDown, now)
}

// lastReads returns a deletion once the claim was read, then its pod, and the set last: what a person may just have
// changed.
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

// keeper returns why a condemned claim is kept until somebody acts, empty for nothing.
func (f Facts) keeper() Reason {
	switch {
	case f.Set.Invalid != "":
		return ReasonInvalidPolicy
	case f.Claim.Hold:
		return ReasonClaimHeld
	case f.otherController():
		return ReasonConflictingController
	case f.otherOwner():
		return ReasonOtherOwner
	case f.OtherPod != "":
		return ReasonUsedByOtherPod
	}
	return ""
}

// terminating handles a claim that is being deleted. A pod that the StatefulSet controller has made for it before it
// noticed runs with data that it is about to lose. Where this project has deleted the claim by an owner reference, the
// pod is deleted, so that the next one gets a new claim.
func terminating(f Facts, now time.Time) Decision {
	switch {
	case !f.given(), f.Set.Terminating, f.scaledAway(), f.Set.Policy.Keeps(), !f.usedBySet():
		return wait(ReasonClaimTerminating)
	case !f.marked(), f.Shared, f.Set.Source != SourceAnnotation, f.Set.Policy.WhenScaled != Delete, !f.ofOldPod():
		return wait(ReasonPodUsesTerminatingClaim)
	}
	return lastReads(f, DeletePod, ReasonPodUsesOldClaim, now)
}

// usedBySet reports whether a pod of the set that is not terminating uses the claim.
func (f Facts) usedBySet() bool {
	return f.hasPod() && !f.Pod.Terminating && slices.Contains(f.Pod.Claims, f.Claim.Name)
}

// ofOldPod reports whether this project has made a pod that is gone the owner of the claim.
func (f Facts) ofOldPod() bool {
	owner := f.addedPod()
	return owner != "" && owner != f.Pod.UID
}

// kept returns why the policy keeps a claim.
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
