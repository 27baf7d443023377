package reclaim

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// as changes the role, and the finalizer to the one that the role adds.
func as(role volume.Role) func(*Facts) {
	return func(s *Facts) {
		s.Rules.Role = role
		if role == volume.RoleCompanion {
			s.PV.HasFinalizer, s.PV.HasCompanionFinalizer = false, true
		}
	}
}

func TestDecideAsCompanion(t *testing.T) {
	companion := as(volume.RoleCompanion)
	check(t, decisions{
		{"released, terminating, protected: deletes the volume", with(companion, pvIs(terminating)),
			do(DeleteVolume, ReasonReclaim)},
		{"released before it was terminating: deletes the volume, for nothing shows that the peer has",
			with(companion, seen(History{SeenAlive: true, SeenReleased: true, SeenProtected: true}), pvIs(terminating)),
			do(DeleteVolume, ReasonReclaim)},
		{"released, terminating, another claim of the name names the PV: keeps",
			with(companion, claimFound("newer", "pv"), pvIs(terminating)), looking(ReasonClaimNamesPV)},
		{"released, not terminating: the peer deletes it", with(companion), waiting(ReasonLeftToPeer)},
		{"bound, only the owner's finalizer: adds its own, as the peer removes the owner's",
			with(companion, pvIs(in(volume.PhaseBound), guarded, withoutCompanion)), do(AddFinalizer, ReasonProtect)},
		{"terminating, only the owner's finalizer: does not count",
			with(companion, pvIs(terminating, guarded, withoutCompanion)), waiting(ReasonDeletionUnprotected)},
		{"Retain, released: drops its own", with(companion, pvIs(of(volume.PolicyRetain))),
			do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		{"Retain, only the owner's finalizer: leaves it",
			with(companion, pvIs(of(volume.PolicyRetain), guarded, withoutCompanion)), waiting(ReasonPolicyKeepsVolume)},
		{"volume deleted: lets go", with(companion, volumeGone(false, false), pvIs(terminating)),
			do(FinalizePV, ReasonVolumeDeleted)},
		{"contested, released, not terminating: the peer deletes it", with(companion, contestedPV, pvIs(withoutCompanion)),
			waiting(ReasonLeftToPeer)},
		{"rolled back, released, not terminating: takes the finalizer off, the peer deletes",
			with(companion, mode(ModeRollback)), do(RemoveFinalizer, ReasonRolledBack)},
		{"rolled back, released, terminating: finishes", with(companion, mode(ModeRollback), pvIs(terminating)),
			do(DeleteVolume, ReasonReclaim)},
	})
}

func TestDecideAsObserver(t *testing.T) {
	observer := as(volume.RoleObserver)
	check(t, decisions{
		{"released: the peer deletes it", with(observer), waiting(ReasonLeftToPeer)},
		{"released, terminating: the peer deletes it", with(observer, pvIs(terminating)), waiting(ReasonLeftToPeer)},
		{"bound, unprotected: the peer protects it", with(observer, pvIs(in(volume.PhaseBound), unguarded)),
			waiting(ReasonLeftToPeer)},
		{"Retain, protected: the peer drops it", with(observer, pvIs(of(volume.PolicyRetain))), waiting(ReasonLeftToPeer)},
		{"terminating, unprotected: says so", with(observer, pvIs(terminating, unguarded)),
			waiting(ReasonDeletionUnprotected)},
		{"terminating with a stale finalizer: says so", with(observer, pvIs(terminating, guardedByCompanion)),
			waiting(ReasonStaleFinalizer)},
		{"gone, the peer had protected it: nothing",
			with(observer, goneFinally, seen(History{SeenAlive: true, SeenProtected: true}), pvIs(unguarded)),
			ended(ReasonGone)},
		{"gone, only a companion's finalizer had protected it: says so", with(vanished, role(volume.RoleObserver),
			pvIs(guardedByCompanion)), ended(ReasonVolumeLeftBehind)},
		{"gone, the peer had protected it beside a stale finalizer: nothing", with(vanished, role(volume.RoleObserver),
			pvIs(guarded, guardedByCompanion)), ended(ReasonGone)},
	})
}

func TestDecideByMode(t *testing.T) {
	release, rollback := mode(ModeRelease), mode(ModeRollback)
	check(t, decisions{
		{"release, protected: drops for any PV", with(release), do(RemoveFinalizer, ReasonFinalizersRemoved)},
		{"release, terminating and bound: drops", with(release, pvIs(terminating, in(volume.PhaseBound))),
			do(RemoveFinalizer, ReasonFinalizersRemoved)},
		{"release, unprotected: nothing", with(release, pvIs(unguarded)), waiting(ReasonFinalizersRemoved)},
		{"rollback, released and protected, another claim of the name names the PV: keeps",
			with(rollback, claimFound("newer", "pv")), looking(ReasonClaimNamesPV)},
		{"rollback, bound: drops", with(rollback, pvIs(in(volume.PhaseBound))), do(RemoveFinalizer, ReasonRolledBack)},
		{"rollback, released and protected: deletes the volume first", with(rollback), do(DeleteVolume, ReasonReclaim)},
		{"rollback, released and terminating and protected: finishes, it would leak", with(rollback, pvIs(terminating)),
			do(DeleteVolume, ReasonReclaim)},
		{"rollback, released, unprotected: deletes, as provisioners did", with(rollback, pvIs(unguarded)),
			do(DeleteVolume, ReasonReclaim)},
		{"rollback, terminating, unprotected: nothing, as provisioners did", with(rollback, pvIs(terminating, unguarded)),
			waiting(ReasonRolledBack)},
		{"rollback, Retain and terminating while bound: drops",
			with(rollback, pvIs(of(volume.PolicyRetain), in(volume.PhaseBound), terminating)),
			do(RemoveFinalizer, ReasonRolledBack)},
		{"rollback, a policy that is not known: keeps everything", with(rollback, pvIs(of(volume.PolicyUnknown))),
			waiting(ReasonPolicyUnknown)},
	})
}

func TestDecideByScope(t *testing.T) {
	wide := func(s *Facts) { s.Rules.Scope, s.PV.Policy = ScopeBoundAny, volume.PolicyRetain }
	check(t, decisions{
		{"Retain, bound, unprotected: protects", with(wide, pvIs(in(volume.PhaseBound), unguarded)),
			do(AddFinalizer, ReasonProtect)},
		{"Retain, bound, protected: keeps it so", with(wide, pvIs(in(volume.PhaseBound))), waiting(ReasonPolicyKeepsVolume)},
		{"Retain, released, protected: keeps it so, the policy may turn", with(wide), waiting(ReasonPolicyKeepsVolume)},
		{"Retain, terminating and bound: stays", with(wide, pvIs(terminating, in(volume.PhaseBound))),
			waiting(ReasonRetainBound)},
		{"Retain, terminating and released: drops", with(wide, pvIs(terminating)),
			do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		{"Retain, not claimed: drops", with(wide, pvIs(claimUID(""))), do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		{"Retain, protected by a companion: adopts", with(wide, pvIs(unguarded, guardedByCompanion)),
			do(AdoptPV, ReasonAdopt)},
		{"Retain, unprotected and terminating: too late, and it keeps its volume", with(wide, pvIs(terminating, unguarded)),
			waiting(ReasonPolicyKeepsVolume)},
	})
}

func TestDecideAboutStops(t *testing.T) {
	ignoringStatic := func(s *Facts) { s.Rules.IgnoreStatic, s.PV.ProvisionedBy = true, "" }
	check(t, decisions{
		{"held: waits, despite proof", with(pvIs(held)), waiting(ReasonHeld)},
		{"held and unprotected: protects", with(pvIs(held, unguarded)), do(AddFinalizer, ReasonProtect)},
		{"held and Retain: drops", with(pvIs(held, of(volume.PolicyRetain))), do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		{"held, the volume is deleted already: lets go, and says so", with(volumeGone(false, false), pvIs(held)),
			do(DeletePV, ReasonTooLateToKeep)},
		{"braked: waits", with(brake(BrakeOn)), waiting(ReasonDeletionsPaused)},
		{"the brake is not known: waits", with(brake(BrakeUnknown)), waiting(ReasonDeletionsPaused)},
		{"braked, the volume is deleted: lets go", with(brake(BrakeOn), volumeGone(false, false)),
			do(DeletePV, ReasonVolumeDeleted)},
		{"braked and unprotected: protects", with(brake(BrakeOn), pvIs(unguarded)), do(AddFinalizer, ReasonProtect)},
		{"a driver that never attaches: no look at attachments",
			with(func(s *Facts) { s.Rules.NeverAttached = true }, pvIs(wasAttached)), do(DeleteVolume, ReasonReclaim)},
		{"its own twin names the volume: no reason to wait",
			with(siblings(sibling(twinNamed("pv-reclaim"), of(volume.PolicyRetain)))), do(DeleteVolume, ReasonReclaim)},
		{"a copy of its twin names the volume, for another claim: keeps",
			with(siblings(sibling(twinNamed("other"), of(volume.PolicyRetain)))), looking(ReasonSharedHandle)},
		{"static PVs are ignored, protected before: drops", with(ignoringStatic), do(RemoveFinalizer, ReasonStaticIgnored)},
		{"static PVs are ignored, unprotected: nothing", with(ignoringStatic, pvIs(unguarded)), waiting(ReasonStaticIgnored)},
		{"static PVs are ignored, this one is dynamic", with(ignoringStatic, pvIs(by(driver))),
			do(DeleteVolume, ReasonReclaim)},
	})
}

func TestDecideAboutContest(t *testing.T) {
	contest := func(s *Facts) { s.Contested, s.DriverContested, s.PV.HasFinalizer = true, true, false }
	alone := func(s *Facts) { s.DriverContested = false }
	check(t, decisions{
		{"bound, unprotected: no war", with(contest, pvIs(in(volume.PhaseBound))), waiting(ReasonFinalizerContested)},
		{"bound, unprotected, contested alone: no war",
			with(contest, alone, pvIs(in(volume.PhaseBound))),
			waiting(ReasonPVContested)},
		{"released, unprotected, contested alone: deletes all the same",
			with(contest, alone), do(DeleteVolume, ReasonReclaim)},
		{"released, unprotected, not terminating: deletes all the same", with(contest), do(DeleteVolume, ReasonReclaim)},
		{"released, terminating, unprotected: nothing while it lives", with(contest, pvIs(terminating)),
			waiting(ReasonDeletionUnprotected)},
		{"bound, still protected: nothing", with(contest, pvIs(in(volume.PhaseBound), guarded)), waiting(ReasonBound)},
	})
}

// vanished are the facts of a PV that is gone, was never protected, and whose volume is to be deleted.
func vanished(s *Facts) {
	*s = proven()
	s.PV.HasFinalizer, s.PV.Terminating, s.PVRead, s.AttachmentsCurrent = false, true, session.Read{}, true
	s.End, s.History = End{Gone: true, Final: true}, History{SeenAlive: true}
}

func TestDecideAboutGonePV(t *testing.T) {
	hadSibling := func(s *Facts) { s.End.Shared = true }
	check(t, decisions{
		{"never protected, all proven: deletes the volume", with(vanished), do(DeleteVolume, ReasonUnprotectedReclaim)},
		{"never protected, beside a peer, switched on: deletes the volume", with(vanished, role(volume.RoleObserver)),
			do(DeleteVolume, ReasonUnprotectedReclaim)},
		{"switched off: says so", with(vanished, func(s *Facts) { s.Rules.ReclaimUnprotected = false }),
			ended(ReasonVolumeLeftBehind)},
		{"its volume was deleted: nothing", with(vanished, func(s *Facts) { s.Done.VolumeDeleted = true }),
			ended(ReasonGone)},
		{"Retain: nothing", with(vanished, pvIs(of(volume.PolicyRetain))), ended(ReasonGone)},
		{"not claimed: nothing", with(vanished, pvIs(claimUID(""))), ended(ReasonGone)},
		{"still protected when it went: the last finalizer was removed", with(vanished, pvIs(guarded)),
			ended(ReasonReclaimAbandoned)},
		{"the finalizer was removed before: abandoned", with(vanished, stripped), ended(ReasonReclaimAbandoned)},
		{"protected once, removal not seen: says so", with(vanished, func(s *Facts) { s.History.SeenProtected = true }),
			ended(ReasonVolumeLeftBehind)},
		{"bound when it went: says so", with(vanished, pvIs(in(volume.PhaseBound))), ended(ReasonVolumeLeftBehind)},
		{"its last state is not known: says so", with(vanished, func(s *Facts) { s.End.Final = false }),
			ended(ReasonVolumeLeftBehind)},
		{"first seen when it was terminating: says so", with(vanished, func(s *Facts) { s.History.SeenAlive = false }),
			ended(ReasonVolumeLeftBehind)},
		{"held: says so", with(vanished, pvIs(held)), ended(ReasonVolumeLeftBehind)},
		{"another PV had the volume: the other PV decides", with(vanished, hadSibling),
			ended(ReasonLeftToSibling)},
		{"another PV has the volume: the other PV decides", with(vanished, cachedSiblings(sibling())),
			ended(ReasonLeftToSibling)},
		{"another PV has the handle in capitals, maybe of another volume: says so",
			with(vanished, hadSibling, cachedSiblings(sibling(handle("VOL-1")))), ended(ReasonVolumeLeftBehind)},
		{"one other PV has the same handle, one in capitals: the other PV decides",
			with(vanished, cachedSiblings(sibling(handle("VOL-1")), sibling())), ended(ReasonLeftToSibling)},
		{"braked: waits", with(vanished, brake(BrakeOn)), waiting(ReasonDeletionsPaused)},
		{"attachments not caught up with: catches up", with(vanished, func(s *Facts) { s.AttachmentsCurrent = false }),
			do(ListAttachments, ReasonReclaim)},
		{"attached: waits for its end", with(vanished, attached), looking(ReasonAttached)},
		{"no handle of this driver", with(vanished, pvIs(handle(""))), ended(ReasonVolumeLeftBehind)},
		{"other PVs not looked for: looks", with(vanished, func(s *Facts) { s.PVsListed = session.Read{} }),
			do(ListPVs, ReasonReclaim)},
		{"other PVs looked for too long ago: looks again",
			with(vanished, func(s *Facts) { s.PVsListed.Sent = now().Add(-session.LiveFor - 1) }), do(ListPVs, ReasonReclaim)},
		{"the claim was read before the other PVs: reads it again", with(vanished, func(s *Facts) { s.PVsListed.Order = 3 }),
			do(ReadClaim, ReasonReclaim)},
		{"the claim lives: keeps, looks again by the clock", with(vanished, claimFound("claim-uid", "")),
			looking(ReasonClaimStillExists)},
		{"another claim of the name names the PV: keeps, looks again by the clock", with(vanished, claimFound("newer", "pv")),
			looking(ReasonClaimNamesPV)},
		{"another claim of the name does not name the PV: deletes the volume", with(vanished, claimFound("newer", "")),
			do(DeleteVolume, ReasonUnprotectedReclaim)},
		{"rolled back: says so", with(vanished, mode(ModeRollback)), ended(ReasonVolumeLeftBehind)},
		{"rolled back, protected at the end: nothing", with(vanished, mode(ModeRollback), pvIs(guarded)), ended(ReasonGone)},
		{"finalizers are removed, unprotected at the end: nothing", with(vanished, mode(ModeRelease)), ended(ReasonGone)},
		{"beside a peer, protected at the end: nothing", with(vanished, role(volume.RoleObserver), pvIs(guarded)),
			ended(ReasonGone)},
		{"the claim was read too long ago: reads it again",
			with(vanished, claimReadLongAgo),
			do(ReadClaim, ReasonReclaim)},
		{"the claim was not read: reads it", with(vanished, claimRenamed),
			do(ReadClaim, ReasonReclaim)},
		{"released by hand of an operator: nothing", with(vanished, mode(ModeRelease), pvIs(guarded)), ended(ReasonGone)},
		{"static PVs are ignored: nothing", with(vanished, func(s *Facts) { s.Rules.IgnoreStatic = true }, pvIs(by(""))),
			ended(ReasonGone)},
		{"contested, protected at the end: undecided, says so", with(vanished, contestedPV, pvIs(guarded)),
			ended(ReasonVolumeLeftBehind)},
	})
}
