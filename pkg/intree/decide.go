package intree

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Decision is the next step for one PV and its twin, and why.
type Decision struct {
	Action Action
	Reason Reason
	// Timed: no event is sure to end this wait, so it is looked at again by the clock.
	Timed bool
	// After, if not zero, is how long until it is looked at again.
	After time.Duration
}

func wait(why Reason) Decision           { return Decision{Action: Wait, Reason: why} }
func timed(why Reason) Decision          { return Decision{Action: Wait, Reason: why, Timed: true} }
func step(a Action, why Reason) Decision { return Decision{Action: a, Reason: why} }

// Decide says what to do next about one PV and its twin. It is a pure function: carrying out a
// step adds to what is known, and Decide is asked again with that. It keeps the volume whenever a
// fact is unknown.
//
// now is the time by which reads are judged too old.
func Decide(s Snapshot, now time.Time) Decision {
	switch {
	case s.PV.UID == "":
		return orphan(s, now)
	case !s.PV.provisioned():
		return wait(ReasonNotOurs)
	case s.Manages == ManagesUnknown:
		return wait(ReasonNotSynced)
	}
	d, due := settle(s, now)
	if due {
		return byTwin(s, now)
	}
	// Before anything else is done: a twin that the volume may no longer be deleted by.
	if s.twin() {
		if first, atRest := retire(s, d.Reason); !atRest {
			return first
		}
	}
	return d
}

// settle says what the PV by itself asks for. due tells that it is the end of its volume, as far
// as it shows.
func settle(s Snapshot, now time.Time) (_ Decision, due bool) {
	pv := s.PV
	switch {
	case s.Done.VolumeDeleted:
		return letGo(s), false
	case s.Releasing:
		return release(s), false
	case pv.Guard == WriterOther, s.Manages == ManagesOther && !s.idle(now):
		return standDown(s, now), false
	case pv.MigratedTo != "":
		return migrated(s), false
	case pv.Policy == volume.PolicyUnknown:
		return wait(ReasonPolicyUnknown), false
	case pv.Policy != volume.PolicyDelete:
		return keep(s), false
	case !pv.Terminating:
		return protect(s), false
	}
	return terminating(s)
}

// letGo does what remains once the volume is deleted.
func letGo(s Snapshot) Decision {
	pv := s.PV
	why := ReasonVolumeDeleted
	if pv.Policy != volume.PolicyDelete || pv.Claim != s.Done.Claim || pv.Phase == volume.PhaseBound {
		why = ReasonTooLateToKeep
	}
	if len(s.ours()) > 0 {
		return step(ReleasePV, why)
	}
	return wait(ReasonVolumeGone)
}

// release takes our finalizer off, whatever the PV is like, for good. Where another program has
// taken over, a PV that is being deleted is in its hands.
func release(s Snapshot) Decision {
	if s.PV.Guard != WriterUs || s.Manages == ManagesOther && s.PV.Terminating {
		return wait(ReasonReleased)
	}
	return step(DropGuard, ReasonReleased)
}

// standDown handles a PV whose finalizer another program manages, as far as it shows: it goes first.
func standDown(s Snapshot, now time.Time) Decision {
	switch {
	case s.PV.PluginGone:
		return wait(ReasonPluginGone)
	case s.idle(now):
		return wait(ReasonControllerIdle)
	}
	d := wait(ReasonLeftToController)
	if s.PV.Terminating {
		d.Reason = ReasonControllerDeletes
	}
	if !s.LeftSince.IsZero() {
		d.After = s.LeftSince.Add(patience).Sub(now)
	}
	return d
}

// migrated handles a PV that a CSI driver's sidecar answers for: our finalizer goes, as in
// modifyDeletionFinalizers. Only where that would let a volume leak, for the sidecar's finalizer is not
// on and cannot be put on any more, it stays.
func migrated(s Snapshot) Decision {
	pv := s.PV
	switch {
	case pv.Guard == WriterNone:
		return wait(ReasonMigrated)
	case pv.Terminating && pv.Guard == WriterUnknown:
		return wait(ReasonWriterUnknown)
	case pv.Guard == WriterUnknown:
		return wait(ReasonMigrated)
	case pv.Terminating && pv.Policy != volume.PolicyRetain && pv.Policy != volume.PolicyRecycle && len(pv.csiFinalizers()) == 0:
		return wait(ReasonMigratedUnprotected)
	}
	return step(DropGuard, ReasonMigrated)
}

// keep handles a PV whose policy is to keep its volume: the finalizers have no business there. While
// it is terminating and its claim lives they stay anyway: none could be put back if the policy were
// turned to Delete again.
func keep(s Snapshot) Decision {
	pv := s.PV
	switch {
	case pv.Guard == WriterUnknown && pv.Terminating:
		return wait(ReasonWriterUnknown)
	case len(s.ours()) == 0:
		return wait(ReasonPolicyKeepsVolume)
	case pv.Terminating && pv.Phase == volume.PhaseBound:
		return wait(ReasonRetainBound)
	}
	return step(DropGuard, ReasonPolicyKeepsVolume)
}

// protect handles a PV with policy Delete that nobody has deleted. When it is released the PV
// controller deletes its volume by itself, whichever its version.
func protect(s Snapshot) Decision {
	if add, drop := s.protection(); len(add)+len(drop) > 0 {
		return step(Protect, ReasonProtect)
	}
	if s.PV.deletable() {
		return wait(ReasonLeftToController)
	}
	return wait(ReasonProtected)
}

// terminating handles a PV with policy Delete that is being deleted. A finalizer of the CSI side
// holds it as well as ours; that one it can have from before a migration was taken back.
func terminating(s Snapshot) (_ Decision, due bool) {
	pv := s.PV
	switch {
	case pv.Guard == WriterUnknown:
		return wait(ReasonWriterUnknown), false
	case len(s.ours()) == 0:
		return wait(ReasonDeletionUnprotected), false
	case !pv.claimed():
		return wait(ReasonNotClaimed), false
	case pv.Phase == volume.PhaseBound:
		return wait(ReasonTerminatingBound), false
	case !pv.released():
		return wait(ReasonNotReleased), false
	case pv.Held:
		return wait(ReasonHeld), false
	}
	return Decision{}, true
}

// byTwin is the life of a twin, up to the moment when it is seen to be gone: it is made to keep its
// volume, the PV controller looks at it and finds the claim gone, we look a second time, and only
// then it is turned to Delete.
func byTwin(s Snapshot, now time.Time) Decision {
	switch s.twinState() {
	case twinForeign:
		return timed(ReasonTwinNameTaken)
	case twinNone:
		if rest := s.Failure.Until.Sub(now); rest > 0 {
			return Decision{Reason: s.Failure.reason(), After: rest}
		}
		return check(s, MakeTwin, now)
	case twinMade:
		return wait(ReasonTwinMade)
	case twinReleased:
		return check(s, ArmTwin, now)
	case twinArmed:
		return armed(s)
	case twinEnding:
		if s.Twin.Guard != WriterNone {
			d, _ := retire(s, ReasonTwinEnding)
			return d
		}
		return wait(ReasonTwinEnding)
	case twinFailed:
		// Not left armed while nobody knows when the PV controller tries again.
		d, _ := retire(s, ReasonVolumeFailedDelete)
		return d
	case twinChanged:
		if d, atRest := retire(s, ReasonTwinChanged); !atRest {
			return d
		}
	}
	return wait(ReasonTwinChanged)
}

// armed handles a twin whose volume the PV controller is to delete.
func armed(s Snapshot) Decision {
	if s.shared() {
		return step(DisarmTwin, ReasonSharedSource)
	}
	return wait(ReasonTwinArmed)
}

// check has looked at live what a deletion depends on, before the next step of a twin's life. What
// costs nothing to know comes first. The PV is read after all else: whatever an administrator writes to
// rescue a volume is written there.
func check(s Snapshot, then Action, now time.Time) Decision {
	if s.shared() {
		return wait(ReasonSharedSource)
	}
	switch s.claimState(now) {
	case claimUnknown:
		return step(ReadClaim, ReasonReclaim)
	case claimExists:
		return claimKeeps(s, ReasonClaimAlive)
	case claimNamesPV:
		return claimKeeps(s, ReasonClaimNamesPV)
	case claimGone:
	}
	switch {
	case !s.Attachments.Read.fresh(now):
		return step(ReadAttachments, ReasonReclaim)
	case s.Attachments.Count > 0:
		return timed(ReasonAttached)
	case len(s.Siblings) > 0 && !s.SiblingsRead.fresh(now):
		return step(ReadSiblings, ReasonReclaim)
	case !s.pvReadLast(now):
		return step(ReadPV, ReasonReclaim)
	}
	return step(then, ReasonReclaim)
}

// claimKeeps handles a PV that is released although its claim lives, or another claim of that name names it. The PV
// controller would take a claim that lives away from a twin, so none is kept.
func claimKeeps(s Snapshot, why Reason) Decision {
	if s.twin() {
		if d, atRest := retire(s, why); !atRest {
			return d
		}
	}
	return timed(why)
}
