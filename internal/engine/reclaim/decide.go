package reclaim

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Decision is the next step for one PV and its reason.
type Decision struct {
	Action Action
	Reason Reason
	// Timed is true if no event is sure to end this wait, so that the clock ends it.
	Timed bool
	// Quiet is the time for which this wait counts but has no Event yet, 0 if it has one now.
	Quiet time.Duration
	// Over is true if the PV is gone, and no work is left for its volume.
	Over bool
}

func wait(why Reason) Decision           { return Decision{Action: Wait, Reason: why} }
func step(a Action, why Reason) Decision { return Decision{Action: a, Reason: why} }
func over(why Reason) Decision           { return Decision{Action: Wait, Reason: why, Over: true} }

// Decide returns the next step for one PV, and keeps the volume whenever a fact is unknown. It is a pure function: a
// step adds to the facts, and Decide is called again with them.
//
// now is the time that the age of reads is measured at.
func Decide(s Facts, now time.Time) Decision {
	d := decide(s, now)
	if !s.Rules.Logged || !d.Action.destroys() {
		return d
	}
	// While an entry is open, a CreateVolume may still arrive or be repeated after a restart. Without the PV or its
	// finalizer, no object would show whose volume the call creates or finds.
	switch s.Log {
	case volume.InFlightSettled:
		return d
	case volume.InFlightOpen:
		return wait(ReasonInFlight)
	case volume.InFlightUnreadable:
		// The repair of the log closes no entry, so no event shows it.
		return Decision{Action: Wait, Reason: ReasonLogUnreadable, Timed: true}
	case volume.InFlightUnknown:
	}
	return wait(ReasonLogNotRead)
}

func decide(s Facts, now time.Time) Decision {
	switch {
	case s.Rules.Role == volume.RoleUnknown || !s.PV.OwnedBy(s.Rules.Driver):
		return Decision{Reason: ReasonNotOurs, Over: s.End.Gone}
	case !s.Leading:
		// Not Over, and not reported: the leader settles it.
		return Decision{Action: Wait, Reason: ReasonNotLeading, Timed: true}
	case s.elsewhere():
		return notHere(s)
	case s.End.Gone:
		return gone(s, now)
	case s.Rules.Role == volume.RoleObserver:
		return watchOnly(s)
	case s.Done.VolumeDeleted:
		return finish(s)
	case s.Rules.Mode == ModeRelease:
		return unprotect(s, ReasonFinalizersRemoved)
	case s.Rules.ignores(s.PV):
		return unprotect(s, ReasonStaticIgnored)
	case s.PV.Policy == volume.PolicyUnknown:
		return wait(ReasonPolicyUnknown)
	case s.Rules.Mode == ModeRollback:
		return rollBack(s, now)
	case s.PV.Policy != volume.PolicyDelete:
		return keep(s)
	case !s.PV.Claimed():
		return unclaimed(s)
	}
	return honor(s, now)
}

// notHere handles a PV that does not belong to this node alone. Only a PV's own node deletes its volume, protects it
// or removes its finalizer, so no node does for a PV that several nodes may reach.
func notHere(s Facts) Decision {
	pv := s.PV
	leaving := pv.Terminating || pv.Released() || s.End.Gone
	leaks := pv.Policy == volume.PolicyDelete && pv.Claimed() && leaving
	stuck := pv.Terminating && !s.End.Gone && len(s.Rules.Finalizers(pv)) > 0
	switch {
	case pv.Reach == volume.ReachUnclear && (leaks || stuck):
		return Decision{Reason: ReasonNodeUnclear, Over: s.End.Gone}
	case pv.Reach == volume.ReachUnclear:
		return Decision{Reason: ReasonNoNode, Over: s.End.Gone}
	}
	return Decision{Reason: ReasonOtherNode, Over: s.End.Gone}
}

// honor handles a claimed PV with policy Delete.
func honor(s Facts, now time.Time) Decision {
	pv := s.PV
	switch {
	case s.notYetBound():
		return wait(ReasonNotYetBound)
	// An admission policy may put the companion's finalizer back. It protects a released PV as well as the owner's, so
	// the deletion of the volume does not wait for its removal.
	case s.adoptable() && !pv.Terminating && !pv.Released():
		return step(AdoptPV, ReasonAdopt)
	case !s.protected() && pv.Terminating:
		return unprotected(s)
	case !s.protected() && !s.Contested:
		return protect(s)
	case !s.protected() && !pv.Released():
		return contested(s)
	case !pv.Released():
		return unreleased(s, now)
	case s.Rules.Role == volume.RoleCompanion && !pv.Terminating:
		return wait(ReasonLeftToPeer)
	}
	return reclaim(s, now)
}

// unprotected handles a PV that is terminating without our finalizer. The API server accepts no new finalizer, so only
// a warning is possible while the PV exists.
func unprotected(s Facts) Decision {
	if s.History.Stripped {
		return wait(ReasonReclaimAbandoned)
	}
	return wait(ReasonDeletionUnprotected)
}

func protect(s Facts) Decision {
	if s.Done.Protected {
		return wait(ReasonProtect)
	}
	return step(AddFinalizer, ReasonProtect)
}

// contested handles a PV that others keep removing our finalizer from.
func contested(s Facts) Decision {
	if s.DriverContested {
		return wait(ReasonFinalizerContested)
	}
	return wait(ReasonPVContested)
}

// unreleased handles a protected PV whose claim exists, as far as the PV controller has shown.
func unreleased(s Facts, now time.Time) Decision {
	why := ReasonTerminatingBound
	switch {
	case !s.PV.Terminating:
		return wait(ReasonBound)
	case s.PV.Phase != volume.PhaseBound:
		why = ReasonTerminatingUnbound
	}
	return Decision{Action: Wait, Reason: why, Quiet: session.Quiet(s.PV.TerminatingSince, now)}
}

// finish deletes the PV and removes its finalizers after the volume is deleted. The PV goes last, so that an
// administrator can rescue a volume by changing the policy up to that point.
func finish(s Facts) Decision {
	why := ReasonVolumeDeleted
	if s.changedSinceDeleted() {
		why = ReasonTooLateToKeep
	}
	switch {
	case !s.PV.Terminating && !s.Done.PVDeleted:
		return step(DeletePV, why)
	case len(s.Rules.finalizersAfterDeletion(s.PV)) > 0 && !s.Done.Finalized:
		return step(FinalizePV, why)
	}
	return wait(ReasonVolumeGone)
}

// watchOnly handles a PV that another program is responsible for.
func watchOnly(s Facts) Decision {
	pv := s.PV
	switch {
	case pv.HasCompanionFinalizer && pv.Terminating:
		return wait(ReasonStaleFinalizer)
	case pv.Policy == volume.PolicyDelete && pv.Claimed() && pv.Terminating && !s.protected():
		return wait(ReasonDeletionUnprotected)
	}
	return wait(ReasonLeftToPeer)
}

// unprotect removes our finalizer from a PV in any state.
func unprotect(s Facts, why Reason) Decision {
	if len(s.Rules.Finalizers(s.PV)) > 0 {
		return drop(s, why)
	}
	return wait(why)
}

// drop removes our finalizer from a PV whose volume is kept, once: a second write would fail on another
// resourceVersion and hide that the first removal was ours.
func drop(s Facts, why Reason) Decision {
	if s.Done.Removed {
		return wait(why)
	}
	return step(RemoveFinalizer, why)
}

// rollBack behaves like provisioners before the finalizer existed. A deletion that the finalizer has already permitted
// is still carried out, because the volume would leak otherwise.
func rollBack(s Facts, now time.Time) Decision {
	pv := s.PV
	due := pv.Deletable() && (pv.Terminating || s.Rules.Role == volume.RoleOwner)
	switch {
	case due && (s.protected() || !pv.Terminating):
		return reclaim(s, now)
	default:
		return unprotect(s, ReasonRolledBack)
	}
}

// keep handles a PV whose policy keeps its volume: it needs no finalizer of ours, unless the scope is PVs of every
// policy. While the PV is terminating and its claim exists, the finalizer stays, because none could be added again if
// the policy were set back to Delete.
func keep(s Facts) Decision {
	pv := s.PV
	inScope := s.Rules.Scope == ScopeBoundAny && pv.Claimed() && !pv.Terminating &&
		(pv.Phase == volume.PhaseBound || pv.Released())
	switch {
	case s.adoptable() && inScope:
		return step(AdoptPV, ReasonAdopt)
	case !s.protected() && inScope && !s.Contested && !s.Done.Protected:
		return step(AddFinalizer, ReasonProtect)
	case !s.protected() || inScope:
		return wait(ReasonPolicyKeepsVolume)
	case pv.Terminating && pv.Phase == volume.PhaseBound:
		return wait(ReasonRetainBound)
	}
	return drop(s, ReasonPolicyKeepsVolume)
}

// unclaimed handles a PV without a claim, which keeps its finalizer while it may still be claimed: until it
// terminates.
func unclaimed(s Facts) Decision {
	if s.PV.Terminating && s.protected() {
		return drop(s, ReasonNotClaimed)
	}
	return wait(ReasonNotClaimed)
}

// reclaim orders the steps that delete one volume: first the facts that need no call, and last the live reads, close
// together, to keep the race window small. The PV's read comes after all others, because administrators rescue a
// volume by editing its PV. The reads are not sent concurrently, because a PV that was read before its claim's end may
// have been set to Retain before that end.
func reclaim(s Facts, now time.Time) Decision {
	if d, ready := prepare(s, now); !ready {
		return d
	}
	switch state := s.claimState(now); {
	case state == pvclaim.Exists:
		return Decision{Action: Wait, Reason: ReasonClaimStillExists, Timed: true}
	case state == pvclaim.NamesPV:
		return Decision{Action: Wait, Reason: ReasonClaimNamesPV, Timed: true}
	case state == pvclaim.Unknown && !s.claimEnded(now):
		return step(ReadClaim, ReasonReclaim)
	}
	switch {
	case len(s.Siblings) > 0 && !s.SiblingsRead.Fresh(now):
		return step(ReadSiblings, ReasonReclaim)
	case s.SiblingNeeded != "":
		return Decision{Action: Wait, Reason: ReasonSharedHandle, Timed: true}
	case !s.pvReadLast(now):
		return step(ReadPV, ReasonReclaim)
	}
	return step(DeleteVolume, ReasonReclaim)
}

// prepare returns the next step before the live reads of claim, siblings and PV, and ready once none is left.
func prepare(s Facts, now time.Time) (_ Decision, ready bool) {
	pv := s.PV
	switch {
	case pv.Held:
		return wait(ReasonHeld), false
	case s.Brake != BrakeOff:
		return wait(ReasonDeletionsPaused), false
	case pv.Driver != s.Rules.Driver || pv.Handle == "":
		return wait(ReasonHandleUnknown), false
	case s.shared():
		// The watch shows the end of this only if it has shown the beginning, which a live read may precede.
		return Decision{Action: Wait, Reason: ReasonSharedHandle, Timed: s.SiblingsRead != session.Read{}}, false
	case s.Attachments > 0:
		// The watch shows the end of an attachment that it has shown, but maybe not of one that only a list has shown. Nor
		// does each change of another PV of the volume wake this PV.
		return Decision{Action: Wait, Reason: ReasonAttached, Timed: s.AttachmentsCurrent || len(s.Siblings) > 0}, false
	case s.mayMissAttachments():
		return step(ListAttachments, ReasonReclaim), false
	case !s.SecretsRead:
		return step(ReadSecrets, ReasonReclaim), false
	case s.Rules.Local && !s.NodesListed.Fresh(now):
		return step(ListNodes, ReasonReclaim), false
	case s.Rules.Local && !s.OnlyNode:
		return Decision{Action: Wait, Reason: ReasonTopologyNotUnique, Timed: true}, false
	}
	return Decision{}, true
}

// gone handles a PV that is gone from the API server. If it had a finalizer of ours, no work is left. Otherwise its
// volume is deleted only if it is proven to be unneeded: this process observed the PV from before its deletion to its
// end, no finalizer ever held the PV, no other PV names the volume, and the claim is gone as well. Another PV decides
// about the volume only if it surely names the same one.
func gone(s Facts, now time.Time) Decision {
	switch {
	case s.settledWhenGone():
		return over(ReasonGone)
	case s.History.Stripped, s.protected() && !s.Contested:
		return over(ReasonReclaimAbandoned)
	case s.sharedByCase():
		return over(ReasonVolumeLeftBehind)
	case s.End.Shared || len(s.Siblings) > 0:
		return over(ReasonLeftToSibling)
	case !s.provenUnprotected():
		return over(ReasonVolumeLeftBehind)
	}
	return reclaimUnprotected(s, now)
}

// reclaimUnprotected orders the steps that delete the volume of a PV that is gone and was never protected.
func reclaimUnprotected(s Facts, now time.Time) Decision {
	d, ready := prepare(s, now)
	switch {
	case d.Reason == ReasonHandleUnknown:
		return over(ReasonVolumeLeftBehind)
	case !ready:
		return d
	case !s.PVsListed.Fresh(now):
		return step(ListPVs, ReasonReclaim)
	}
	// The claim is read after the PVs, because rebinding the volume begins with a new PV.
	switch state := s.claimState(now); {
	case state == pvclaim.Exists:
		return Decision{Action: Wait, Reason: ReasonClaimStillExists, Timed: true}
	case state == pvclaim.NamesPV:
		return Decision{Action: Wait, Reason: ReasonClaimNamesPV, Timed: true}
	case state == pvclaim.Unknown || s.ClaimRead.Order <= s.PVsListed.Order:
		return step(ReadClaim, ReasonReclaim)
	}
	return step(DeleteVolume, ReasonUnprotectedReclaim)
}
