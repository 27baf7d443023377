package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"testing"
)

// as returns changed released facts in another role.
func as(role volume.Role, change func(*Facts)) Facts {
	return with(func(s *Facts) {
		s.Rules.Role = role
		if role == volume.RoleCompanion {
			s.PV.HasFinalizer, s.PV.HasCompanionFinalizer = false, true
		}
		change(s)
	})
}

func TestDecideAsCompanion(t *testing.T) {
	check(t, decisions{
		"released, terminating, protected: deletes the volume": {
			as(volume.RoleCompanion, func(s *Facts) { s.PV.Terminating = true }), do(DeleteVolume, ReasonReclaim)},
		"released before it was terminating: deletes the volume, for nothing shows that the peer has": {
			as(volume.RoleCompanion, func(s *Facts) {
				s.PV.Terminating, s.History = true, History{SeenAlive: true, SeenReleased: true, SeenProtected: true}
			}), do(DeleteVolume, ReasonReclaim)},
		"released, terminating, another claim of the name names the PV: keeps": {
			as(volume.RoleCompanion, func(s *Facts) {
				s.PV.Terminating = true
				s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = true, "newer", "pv"
			}), looking(ReasonClaimNamesPV)},
		"released, not terminating: the peer deletes it": {
			as(volume.RoleCompanion, func(*Facts) {}), waiting(ReasonLeftToPeer)},
		"bound, only the owner's finalizer: adds its own, as the peer removes the owner's": {
			as(volume.RoleCompanion, func(s *Facts) {
				s.PV.Phase, s.PV.HasFinalizer, s.PV.HasCompanionFinalizer = volume.PhaseBound, true, false
			}), do(AddFinalizer, ReasonProtect)},
		"terminating, only the owner's finalizer: does not count": {
			as(volume.RoleCompanion, func(s *Facts) {
				s.PV.Terminating, s.PV.HasFinalizer, s.PV.HasCompanionFinalizer = true, true, false
			}), waiting(ReasonDeletionUnprotected)},
		"Retain, released: drops its own": {
			as(volume.RoleCompanion, func(s *Facts) { s.PV.Policy = volume.PolicyRetain }),
			do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		"Retain, only the owner's finalizer: leaves it": {
			as(volume.RoleCompanion, func(s *Facts) {
				s.PV.Policy, s.PV.HasFinalizer, s.PV.HasCompanionFinalizer = volume.PolicyRetain, true, false
			}), waiting(ReasonPolicyKeepsVolume)},
		"volume deleted: lets go": {
			as(volume.RoleCompanion, func(s *Facts) { s.PV.Terminating, s.Done = true, done(s.PV, false, false) }),
			do(FinalizePV, ReasonVolumeDeleted)},
		"contested, released, not terminating: the peer deletes it": {
			as(volume.RoleCompanion, func(s *Facts) { s.PV.HasCompanionFinalizer, s.Contested = false, true }),
			waiting(ReasonLeftToPeer)},
		"rolled back, released, not terminating: takes the finalizer off, the peer deletes": {
			as(volume.RoleCompanion, func(s *Facts) { s.Rules.Mode = ModeRollback }), do(RemoveFinalizer, ReasonRolledBack)},
		"rolled back, released, terminating: finishes": {
			as(volume.RoleCompanion, func(s *Facts) { s.Rules.Mode, s.PV.Terminating = ModeRollback, true }),
			do(DeleteVolume, ReasonReclaim)},
	})
}

func TestDecideAsObserver(t *testing.T) {
	check(t, decisions{
		"released: the peer deletes it": {as(volume.RoleObserver, func(*Facts) {}), waiting(ReasonLeftToPeer)},
		"released, terminating: the peer deletes it": {
			as(volume.RoleObserver, func(s *Facts) { s.PV.Terminating = true }), waiting(ReasonLeftToPeer)},
		"bound, unprotected: the peer protects it": {
			as(volume.RoleObserver, func(s *Facts) { s.PV.Phase, s.PV.HasFinalizer = volume.PhaseBound, false }),
			waiting(ReasonLeftToPeer)},
		"Retain, protected: the peer drops it": {
			as(volume.RoleObserver, func(s *Facts) { s.PV.Policy = volume.PolicyRetain }), waiting(ReasonLeftToPeer)},
		"terminating, unprotected: says so": {
			as(volume.RoleObserver, func(s *Facts) { s.PV.Terminating, s.PV.HasFinalizer = true, false }),
			waiting(ReasonDeletionUnprotected)},
		"terminating with a stale finalizer: says so": {
			as(volume.RoleObserver, func(s *Facts) { s.PV.Terminating, s.PV.HasCompanionFinalizer = true, true }),
			waiting(ReasonStaleFinalizer)},
		"gone, the peer had protected it: nothing": {
			as(volume.RoleObserver, func(s *Facts) {
				s.End, s.History, s.PV.HasFinalizer = End{Gone: true, Final: true}, History{SeenAlive: true, SeenProtected: true},
					false
			}), ended(ReasonGone)},
	})
}

func TestDecideByMode(t *testing.T) {
	release := func(s *Facts) { s.Rules.Mode = ModeRelease }
	rollback := func(s *Facts) { s.Rules.Mode = ModeRollback }
	both := func(first func(*Facts), then func(*Facts)) Facts {
		return with(func(s *Facts) { first(s); then(s) })
	}
	check(t, decisions{
		"release, protected: drops for any PV": {with(release), do(RemoveFinalizer, ReasonFinalizersRemoved)},
		"release, terminating and bound: drops": {
			both(release, func(s *Facts) { s.PV.Terminating, s.PV.Phase = true, volume.PhaseBound }),
			do(RemoveFinalizer, ReasonFinalizersRemoved)},
		"release, unprotected: nothing": {
			both(release, func(s *Facts) { s.PV.HasFinalizer = false }), waiting(ReasonFinalizersRemoved)},
		"rollback, released and protected, another claim of the name names the PV: keeps": {
			both(rollback, func(s *Facts) { s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = true, "newer", "pv" }),
			looking(ReasonClaimNamesPV)},
		"rollback, bound: drops": {
			both(rollback, func(s *Facts) { s.PV.Phase = volume.PhaseBound }), do(RemoveFinalizer, ReasonRolledBack)},
		"rollback, released and protected: deletes the volume first": {with(rollback), do(DeleteVolume, ReasonReclaim)},
		"rollback, released and terminating and protected: finishes, it would leak": {
			both(rollback, func(s *Facts) { s.PV.Terminating = true }), do(DeleteVolume, ReasonReclaim)},
		"rollback, released, unprotected: deletes, as provisioners did": {
			both(rollback, func(s *Facts) { s.PV.HasFinalizer = false }), do(DeleteVolume, ReasonReclaim)},
		"rollback, terminating, unprotected: nothing, as provisioners did": {
			both(rollback, func(s *Facts) { s.PV.Terminating, s.PV.HasFinalizer = true, false }), waiting(ReasonRolledBack)},
		"rollback, Retain and terminating while bound: drops": {
			both(rollback, func(s *Facts) {
				s.PV.Policy, s.PV.Phase, s.PV.Terminating = volume.PolicyRetain, volume.PhaseBound, true
			}), do(RemoveFinalizer, ReasonRolledBack)},
		"rollback, a policy that is not known: keeps everything": {
			both(rollback, func(s *Facts) { s.PV.Policy = volume.PolicyUnknown }), waiting(ReasonPolicyUnknown)},
	})
}

func TestDecideByScope(t *testing.T) {
	wide := func(change func(*Facts)) Facts {
		return with(func(s *Facts) { s.Rules.Scope, s.PV.Policy = ScopeBoundAny, volume.PolicyRetain; change(s) })
	}
	check(t, decisions{
		"Retain, bound, unprotected: protects": {
			wide(func(s *Facts) { s.PV.Phase, s.PV.HasFinalizer = volume.PhaseBound, false }), do(AddFinalizer, ReasonProtect)},
		"Retain, bound, protected: keeps it so": {
			wide(func(s *Facts) { s.PV.Phase = volume.PhaseBound }), waiting(ReasonPolicyKeepsVolume)},
		"Retain, released, protected: keeps it so, the policy may turn": {
			wide(func(*Facts) {}), waiting(ReasonPolicyKeepsVolume)},
		"Retain, terminating and bound: stays": {
			wide(func(s *Facts) { s.PV.Terminating, s.PV.Phase = true, volume.PhaseBound }), waiting(ReasonRetainBound)},
		"Retain, terminating and released: drops": {
			wide(func(s *Facts) { s.PV.Terminating = true }), do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		"Retain, not claimed: drops": {
			wide(func(s *Facts) { s.PV.Claim.UID = "" }), do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		"Retain, protected by a companion: adopts": {
			wide(func(s *Facts) { s.PV.HasFinalizer, s.PV.HasCompanionFinalizer = false, true }), do(AdoptPV, ReasonAdopt)},
		"Retain, unprotected and terminating: too late, and it keeps its volume": {
			wide(func(s *Facts) { s.PV.Terminating, s.PV.HasFinalizer = true, false }), waiting(ReasonPolicyKeepsVolume)},
	})
}

func TestDecideAboutStops(t *testing.T) {
	static := func(change func(*Facts)) Facts {
		return with(func(s *Facts) { s.Rules.IgnoreStatic, s.PV.ProvisionedBy = true, ""; change(s) })
	}
	check(t, decisions{
		"held: waits, despite proof": {with(func(s *Facts) { s.PV.Held = true }), waiting(ReasonHeld)},
		"held and unprotected: protects": {
			with(func(s *Facts) { s.PV.Held, s.PV.HasFinalizer = true, false }), do(AddFinalizer, ReasonProtect)},
		"held and Retain: drops": {
			with(func(s *Facts) { s.PV.Held, s.PV.Policy = true, volume.PolicyRetain }),
			do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		"held, the volume is deleted already: lets go, and says so": {
			with(func(s *Facts) { s.PV.Held, s.Done = true, done(s.PV, false, false) }), do(DeletePV, ReasonTooLateToKeep)},
		"braked: waits": {with(func(s *Facts) { s.Brake = BrakeOn }),
			waiting(ReasonDeletionsPaused)},
		"the brake is not known: waits": {with(func(s *Facts) { s.Brake = BrakeUnknown }),
			waiting(ReasonDeletionsPaused)},
		"braked, the volume is deleted: lets go": {with(func(s *Facts) {
			s.Brake, s.Done = BrakeOn,
				done(s.PV, false, false)
		}), do(DeletePV, ReasonVolumeDeleted)},
		"braked and unprotected: protects": {with(func(s *Facts) {
			s.Brake, s.PV.HasFinalizer = BrakeOn,
				false
		}), do(AddFinalizer, ReasonProtect)},
		"a driver that never attaches: no look at attachments": {with(func(s *Facts) {
			s.PV.WasAttached,
				s.Rules.NeverAttached = true, true
		}), do(DeleteVolume, ReasonReclaim)},
		"its own twin names the volume: no reason to wait": {
			with(func(s *Facts) {
				twin := sibling()
				twin.TwinOf, twin.Policy, twin.Name, twin.Claim = s.PV.UID, volume.PolicyRetain, "pv-reclaim", s.PV.Claim
				s.Siblings, s.SiblingsRead = []volume.PV{twin}, read(2, 0)
			}), do(DeleteVolume, ReasonReclaim)},
		"a copy of its twin names the volume, for another claim: keeps": {
			with(func(s *Facts) {
				other := sibling()
				other.TwinOf, other.Policy = s.PV.UID, volume.PolicyRetain
				s.Siblings, s.SiblingsRead = []volume.PV{other}, read(2, 0)
			}), looking(ReasonSharedHandle)},
		"static PVs are ignored, protected before: drops": {static(func(*Facts) {}),
			do(RemoveFinalizer, ReasonStaticIgnored)},
		"static PVs are ignored, unprotected: nothing": {static(func(s *Facts) { s.PV.HasFinalizer = false }),
			waiting(ReasonStaticIgnored)},
		"static PVs are ignored, this one is dynamic": {
			static(func(s *Facts) { s.PV.ProvisionedBy = driver }), do(DeleteVolume, ReasonReclaim)},
	})
}

func TestDecideAboutContest(t *testing.T) {
	contested := func(change func(*Facts)) Facts {
		return with(func(s *Facts) { s.Contested, s.DriverContested, s.PV.HasFinalizer = true, true, false; change(s) })
	}
	check(t, decisions{
		"bound, unprotected: no war": {contested(func(s *Facts) { s.PV.Phase = volume.PhaseBound }),
			waiting(ReasonFinalizerContested)},
		"bound, unprotected, contested alone: no war": {
			contested(func(s *Facts) { s.PV.Phase, s.DriverContested = volume.PhaseBound, false }), waiting(ReasonPVContested)},
		"released, unprotected, contested alone: deletes all the same": {
			contested(func(s *Facts) { s.DriverContested = false }), do(DeleteVolume, ReasonReclaim)},
		"released, unprotected, not terminating: deletes all the same": {contested(func(*Facts) {}),
			do(DeleteVolume, ReasonReclaim)},
		"released, terminating, unprotected: nothing while it lives": {
			contested(func(s *Facts) { s.PV.Terminating = true }), waiting(ReasonDeletionUnprotected)},
		"bound, still protected: nothing": {
			contested(func(s *Facts) { s.PV.Phase, s.PV.HasFinalizer = volume.PhaseBound, true }), waiting(ReasonBound)},
	})
}

// vanished returns changed facts of a PV that is gone, was never protected, and whose volume is to be deleted.
func vanished(change func(*Facts)) Facts {
	s := proven()
	s.PV.HasFinalizer, s.PV.Terminating, s.PVRead, s.AttachmentsCurrent = false, true, session.Read{}, true
	s.End, s.History = End{Gone: true, Final: true}, History{SeenAlive: true}
	change(&s)
	return s
}

func TestDecideAboutGonePV(t *testing.T) {
	check(t, decisions{
		"never protected, all proven: deletes the volume": {vanished(func(*Facts) {}),
			do(DeleteVolume, ReasonUnprotectedReclaim)},
		"never protected, beside a peer, switched on: deletes the volume": {
			vanished(func(s *Facts) { s.Rules.Role = volume.RoleObserver }), do(DeleteVolume, ReasonUnprotectedReclaim)},
		"switched off: says so": {
			vanished(func(s *Facts) { s.Rules.ReclaimUnprotected = false }), ended(ReasonVolumeLeftBehind)},
		"its volume was deleted: nothing": {vanished(func(s *Facts) { s.Done.VolumeDeleted = true }), ended(ReasonGone)},
		"Retain: nothing": {vanished(func(s *Facts) { s.PV.Policy = volume.PolicyRetain }),
			ended(ReasonGone)},
		"not claimed: nothing": {vanished(func(s *Facts) { s.PV.Claim.UID = "" }), ended(ReasonGone)},
		"still protected when it went: the last finalizer was removed": {
			vanished(func(s *Facts) { s.PV.HasFinalizer = true }), ended(ReasonReclaimAbandoned)},
		"the finalizer was removed before: abandoned": {
			vanished(func(s *Facts) { s.History.Stripped = true }), ended(ReasonReclaimAbandoned)},
		"protected once, removal not seen: says so": {
			vanished(func(s *Facts) { s.History.SeenProtected = true }), ended(ReasonVolumeLeftBehind)},
		"bound when it went: says so": {
			vanished(func(s *Facts) { s.PV.Phase = volume.PhaseBound }), ended(ReasonVolumeLeftBehind)},
		"its last state is not known: says so": {
			vanished(func(s *Facts) { s.End.Final = false }), ended(ReasonVolumeLeftBehind)},
		"first seen when it was terminating: says so": {
			vanished(func(s *Facts) { s.History.SeenAlive = false }), ended(ReasonVolumeLeftBehind)},
		"held: says so": {vanished(func(s *Facts) { s.PV.Held = true }), ended(ReasonVolumeLeftBehind)},
		"another PV had the volume: the other PV decides": {
			vanished(func(s *Facts) { s.End.Shared = true }), ended(ReasonLeftToSibling)},
		"another PV has the volume: the other PV decides": {
			vanished(func(s *Facts) { s.Siblings = []volume.PV{sibling()} }), ended(ReasonLeftToSibling)},
		"another PV has the handle in capitals, maybe of another volume: says so": {vanished(func(s *Facts) {
			other := sibling()
			other.Handle = "VOL-1"
			s.Siblings, s.End.Shared = []volume.PV{other}, true
		}), ended(ReasonVolumeLeftBehind)},
		"one other PV has the same handle, one in capitals: the other PV decides": {vanished(func(s *Facts) {
			other := sibling()
			other.Handle = "VOL-1"
			s.Siblings = []volume.PV{other, sibling()}
		}), ended(ReasonLeftToSibling)},
		"braked: waits": {vanished(func(s *Facts) { s.Brake = BrakeOn }), waiting(ReasonDeletionsPaused)},
		"attachments not caught up with: catches up": {vanished(func(s *Facts) { s.AttachmentsCurrent = false }),
			do(ListAttachments, ReasonReclaim)},
		"attached: waits for its end": {vanished(func(s *Facts) { s.Attachments = 1 }),
			looking(ReasonAttached)},
		"no handle of this driver": {vanished(func(s *Facts) { s.PV.Handle = "" }),
			ended(ReasonVolumeLeftBehind)},
		"other PVs not looked for: looks": {vanished(func(s *Facts) { s.PVsListed = session.Read{} }),
			do(ListPVs, ReasonReclaim)},
		"other PVs looked for too long ago: looks again": {
			vanished(func(s *Facts) { s.PVsListed.Sent = now().Add(-session.LiveFor - 1) }), do(ListPVs, ReasonReclaim)},
		"the claim was read before the other PVs: reads it again": {
			vanished(func(s *Facts) { s.PVsListed.Order = 3 }), do(ReadClaim, ReasonReclaim)},
		"the claim lives: keeps, looks again by the clock": {
			vanished(func(s *Facts) { s.Claim.Found, s.Claim.UID = true, "claim-uid" }), looking(ReasonClaimStillExists)},
		"another claim of the name names the PV: keeps, looks again by the clock": {
			vanished(func(s *Facts) { s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = true, "newer", "pv" }),
			looking(ReasonClaimNamesPV)},
		"another claim of the name does not name the PV: deletes the volume": {
			vanished(func(s *Facts) { s.Claim.Found, s.Claim.UID = true, "newer" }), do(DeleteVolume, ReasonUnprotectedReclaim)},
		"rolled back: says so": {
			vanished(func(s *Facts) { s.Rules.Mode = ModeRollback }), ended(ReasonVolumeLeftBehind)},
		"rolled back, protected at the end: nothing": {
			vanished(func(s *Facts) { s.Rules.Mode, s.PV.HasFinalizer = ModeRollback, true }), ended(ReasonGone)},
		"finalizers are removed, unprotected at the end: nothing": {
			vanished(func(s *Facts) { s.Rules.Mode = ModeRelease }), ended(ReasonGone)},
		"beside a peer, protected at the end: nothing": {
			vanished(func(s *Facts) { s.Rules.Role, s.PV.HasFinalizer = volume.RoleObserver, true }), ended(ReasonGone)},
		"the claim was read too long ago: reads it again": {
			vanished(func(s *Facts) { s.Claim.Read.Sent = now().Add(-session.LiveFor - 1) }), do(ReadClaim, ReasonReclaim)},
		"the claim was not read: reads it": {
			vanished(func(s *Facts) { s.PV.Claim.Name = "renamed" }), do(ReadClaim, ReasonReclaim)},
		"released by hand of an operator: nothing": {
			vanished(func(s *Facts) { s.Rules.Mode, s.PV.HasFinalizer = ModeRelease, true }), ended(ReasonGone)},
		"static PVs are ignored: nothing": {
			vanished(func(s *Facts) { s.Rules.IgnoreStatic, s.PV.ProvisionedBy = true, "" }), ended(ReasonGone)},
		"contested, protected at the end: undecided, says so": {
			vanished(func(s *Facts) { s.Contested, s.PV.HasFinalizer = true, true }), ended(ReasonVolumeLeftBehind)},
	})
}
