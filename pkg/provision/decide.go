package provision

import "time"

// Decision is the next step for one claim, and why.
type Decision struct {
	Action Action
	Reason Reason
	// Timed: no event is sure to end this wait, so it is looked at again by the clock.
	Timed bool
	// Over: nothing is left to be done, and what is remembered of the claim can be forgotten.
	Over bool
}

func wait(why Reason) Decision           { return Decision{Action: Wait, Reason: why} }
func timed(why Reason) Decision          { return Decision{Action: Wait, Reason: why, Timed: true} }
func over(why Reason) Decision           { return Decision{Action: Wait, Reason: why, Over: true} }
func step(a Action, why Reason) Decision { return Decision{Action: a, Reason: why} }

// Decide says what to do next for one claim. It is a pure function: carrying out a step adds to
// what is known, and Decide is asked again with that. It keeps volume and claim whenever a fact
// is unknown.
//
// now is the time by which reads are judged too old.
func Decide(s Snapshot, now time.Time) Decision {
	switch {
	case s.Claim.UID == "":
		return wait(ReasonNotOurs)
	case !s.Claim.Ours && !s.Tried:
		// The finalizer has one name for all drivers: whoever put it on takes it off.
		return over(ReasonNotOurs)
	case s.Claim.At == AtElsewhere && !s.Claim.Protected && !s.Tried:
		return over(ReasonOtherNode)
	case s.needless():
		return cleanUp(s, now)
	}
	return provide(s, now)
}

// provide handles a claim that lives and is to get its volume. It deletes none that could be it.
func provide(s Snapshot, now time.Time) Decision {
	switch {
	case s.PV == PVStored, s.Claim.bound():
		return release(s, ReasonStored)
	case s.PV == PVTerminating, s.PV == PVOther:
		return timed(ReasonNameTaken)
	case s.Volume == VolumeMade && s.Unfit:
		return discard(s, now)
	case s.Volume == VolumeMade:
		// The class is not needed for this any more.
		return step(StorePV, ReasonProvision)
	case s.Wanted && s.Claim.At != AtNone:
		return begin(s)
	case !s.Claim.Protected:
		return wait(ReasonNotBegun)
	case s.Volume == VolumeNone && (s.Failed || s.ClassGone || s.Claim.At == AtNone):
		return step(LetGo, ReasonNothing)
	case s.ClassGone && s.Tried && s.Ordered:
		return step(CreateVolume, ReasonFinish)
	case s.ClassGone:
		return wait(ReasonOutcomeUnknown)
	}
	return wait(ReasonLeftToLibrary)
}

// begin handles a claim whose volume the library asks for now. What to ask for is settled first: a
// claim for which that fails is never held.
func begin(s Snapshot) Decision {
	switch {
	case s.NameInHand:
		return timed(ReasonNameTaken)
	case !s.Ordered:
		return step(Compose, ReasonProvision)
	case s.Claim.At != AtCluster && s.PV == PVUnknown && s.Volume == VolumeUnknown:
		// Another node that was selected before may have stored the PV, which no cache shows here.
		return step(ReadPV, ReasonProvision)
	case s.Protects && !s.Claim.Protected:
		return step(Protect, ReasonProvision)
	}
	return step(CreateVolume, ReasonProvision)
}

// discard handles a volume that is not the one that was asked for. The claim lives, but nobody uses
// this volume for it: it has no PV, as a live read shows, and gets none. One that another claim may
// have by its name is kept.
func discard(s Snapshot, now time.Time) Decision {
	switch {
	case s.Shared || !s.Claim.namedAlone():
		return timed(ReasonHasAnother)
	case s.PV == PVUnknown || !s.pvFresh(now):
		return step(ReadPV, ReasonDiscard)
	}
	return step(DeleteVolume, ReasonDiscard)
}

// cleanUp handles a claim that needs no volume made for it any more: it is being deleted, is gone,
// is bound to another PV, another driver's by now, or another node's. What was begun for it and has no PV is
// deleted, and only then is the claim let go. A live read shows that there is no PV, and only
// Provision creates one, which never runs at the same time.
func cleanUp(s Snapshot, now time.Time) Decision {
	switch {
	case s.hasPV():
		return release(s, ReasonStored)
	case s.Volume == VolumeNone:
		return release(s, ReasonNothing)
	case !s.held() && !s.Tried && s.Wanted && s.PV == PVElsewhere:
		return timed(ReasonNameTaken)
	case !s.held() && !s.Tried:
		return over(ReasonNotBegun)
	case s.NameInHand:
		return timed(ReasonNameTaken)
	case s.PV == PVUnknown || !s.pvFresh(now):
		return step(ReadPV, ReasonCleanUp)
	case s.Volume == VolumeMade && (s.Shared || s.anothersPV() && s.PVHandle == s.Handle),
		s.anothersPV() && !s.Claim.namedAlone():
		return release(s, ReasonHasAnother)
	case s.Claim.bound() && s.PV != PVElsewhere:
		// Its PV's life is over, and this process has called the driver meanwhile, or the PV may have been
		// another node's: the volume may be one that was to be kept, or have been made anew since.
		return unknown(s)
	case s.Volume == VolumeMade:
		return step(DeleteVolume, ReasonCleanUp)
	case s.Ordered:
		// The driver makes one volume for a name: it tells which it made, or makes the one that is
		// deleted next.
		return step(CreateVolume, ReasonCleanUp)
	case !s.ClassGone:
		return step(Compose, ReasonCleanUp)
	}
	return unknown(s)
}

// unknown holds a claim of which nobody can tell whether a volume is left. One that is gone can only
// be told of.
func unknown(s Snapshot) Decision {
	if s.Claim.Gone {
		return over(ReasonOutcomeUnknown)
	}
	return wait(ReasonOutcomeUnknown)
}

// release lets the claim go if we hold it, and else is the end.
func release(s Snapshot, why Reason) Decision {
	if s.held() && (s.Claim.Ours || s.hasPV()) {
		return step(LetGo, why)
	}
	return over(why)
}
