package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"testing"
	"time"
)

const driver = "disk.csi.example.com"

// now is the time of all decisions in the tables.
func now() time.Time { return time.Unix(1_000_000, 0) }

// leading returns the moment of all tables, of a replica that leads.
func leading() Moment { return Moment{Now: now(), Leading: true} }

// read returns a live read that was sent this long ago.
func read(order int, age time.Duration) session.Read {
	return session.Read{Sent: now().Add(-age), Order: order}
}

// owner returns the default rules of role owner.
func owner() Rules { return Rules{Driver: driver, Role: volume.RoleOwner, ReclaimUnprotected: true} }

// released returns facts that permit the deletion of the volume at once: no field speaks for keeping it.
func released() Facts {
	pv := volume.PV{
		Name: "pv", UID: "pv-uid", ResourceVersion: "10",
		Driver: driver, Handle: "vol-1", ProvisionedBy: driver,
		Policy: volume.PolicyDelete, Phase: volume.PhaseReleased,
		Claim:        volume.ClaimRef{Namespace: "ns", Name: "claim", UID: "claim-uid"},
		HasFinalizer: true,
	}
	return Facts{
		Rules: owner(), Leading: true, PV: pv, PVRead: read(3, time.Second), Brake: BrakeOff,
		Claim:       ClaimFacts{Read: read(1, 2*time.Second), Of: pv.Claim},
		SecretsRead: true,
	}
}

// with returns changed released facts.
func with(change func(*Facts)) Facts {
	s := released()
	change(&s)
	return s
}

// done returns the record after the deletion of a PV's volume.
func done(pv volume.PV, pvDeleted, released bool) Done {
	return Done{VolumeDeleted: true, Claim: pv.Claim, PVDeleted: pvDeleted, Finalized: released}
}

// sibling returns another PV of the same volume that is to be deleted too.
func sibling() volume.PV {
	pv := released().PV
	pv.Name, pv.UID = "other", "other-uid"
	return pv
}

func do(a Action, r Reason) Decision { return Decision{Action: a, Reason: r} }
func waiting(r Reason) Decision      { return Decision{Reason: r} }
func ended(r Reason) Decision        { return Decision{Reason: r, Over: true} }
func looking(r Reason) Decision      { return Decision{Reason: r, Timed: true} }

func TestDecide(t *testing.T) {
	cases := decisions{
		"released, all proven: deletes the volume": {released(), do(DeleteVolume, ReasonReclaim)},
		"released while terminating, the PV was deleted first: deletes the volume": {
			with(func(s *Facts) { s.PV.Terminating = true }), do(DeleteVolume, ReasonReclaim)},
		"failed, all proven: deletes the volume": {
			with(func(s *Facts) { s.PV.Phase = volume.PhaseFailed }), do(DeleteVolume, ReasonReclaim)},
		"held by a companion's finalizer: counts as protected": {
			with(func(s *Facts) {
				s.PV.HasFinalizer, s.PV.HasCompanionFinalizer, s.PV.Terminating = false, true, true
			}), do(DeleteVolume, ReasonReclaim)},
		"held by a companion's finalizer, not terminating: adopts it first": {
			with(func(s *Facts) { s.PV.HasFinalizer, s.PV.HasCompanionFinalizer = false, true }), do(AdoptPV, ReasonAdopt)},
		"the zero value: nothing": {Facts{}, waiting(ReasonNotOurs)},

		// The lease.
		"the lease ran out: nothing, looked at again": {
			with(func(s *Facts) { s.Leading = false }), looking(ReasonNotLeading)},
		"the lease ran out after the volume was deleted: the PV stays for the next leader": {
			with(func(s *Facts) { s.Leading, s.Done = false, done(s.PV, true, false) }), looking(ReasonNotLeading)},
		"the lease ran out, the finalizer was removed: no report that others removed it": {
			with(func(s *Facts) {
				s.Leading, s.PV.HasFinalizer, s.PV.Terminating, s.History.Stripped = false, false, true, true
			}), looking(ReasonNotLeading)},
		"the lease ran out, the PV is gone with the finalizer: no report, and not settled": {
			with(func(s *Facts) { s.Leading, s.End = false, End{Gone: true, Final: true} }), looking(ReasonNotLeading)},
		"the lease ran out, the PV is gone unprotected, all proven: keeps the volume": {
			with(func(s *Facts) {
				s.Leading, s.PV.HasFinalizer, s.End, s.History = false, false, End{Gone: true, Final: true},
					History{SeenAlive: true}
				s.PVsListed, s.Claim.Read = read(1, time.Second), read(2, time.Second)
			}), looking(ReasonNotLeading)},
		"the lease ran out, the finalizer was contested: not reported": {
			with(func(s *Facts) {
				s.Leading, s.Contested, s.PV.HasFinalizer, s.PV.Phase = false, true, false, volume.PhaseBound
			}), looking(ReasonNotLeading)},
		"the lease ran out, the PV is another driver's: not ours": {
			with(func(s *Facts) { s.Leading, s.PV.ProvisionedBy = false, "other" }), waiting(ReasonNotOurs)},

		// Ownership.
		"dynamic of another driver, static fields ours: not ours": {
			with(func(s *Facts) { s.PV.ProvisionedBy = "other" }), waiting(ReasonNotOurs)},
		"static of this driver: ours": {
			with(func(s *Facts) { s.PV.ProvisionedBy = "" }), do(DeleteVolume, ReasonReclaim)},
		"static of another driver: not ours": {
			with(func(s *Facts) { s.PV.ProvisionedBy, s.PV.Driver = "", "other" }), waiting(ReasonNotOurs)},
		"in-tree provisioner that is not migrated: not ours": {
			with(func(s *Facts) { s.PV.ProvisionedBy, s.PV.Driver = "kubernetes.io/aws-ebs", "" }), waiting(ReasonNotOurs)},
		"in-tree provisioner that is migrated to us, handle not translated: nothing to ask for": {
			with(func(s *Facts) {
				s.PV.ProvisionedBy, s.PV.MigratedTo, s.PV.Driver, s.PV.Handle = "kubernetes.io/aws-ebs", driver, "", ""
			}), waiting(ReasonHandleUnknown)},
		"this driver's name is not known: nothing is ours": {
			with(func(s *Facts) { s.Rules.Driver, s.PV.ProvisionedBy, s.PV.Driver = "", "", "" }), waiting(ReasonNotOurs)},
		"static, migrated to this driver: ours": {
			with(func(s *Facts) { s.PV.ProvisionedBy, s.PV.MigratedTo, s.PV.InTree = "", driver, true }),
			do(DeleteVolume, ReasonReclaim)},
		"dynamic in-tree, migrated to this driver: ours": {
			with(func(s *Facts) {
				s.PV.ProvisionedBy, s.PV.MigratedTo, s.PV.InTree = "kubernetes.io/aws-ebs", driver, true
			}), do(DeleteVolume, ReasonReclaim)},
		"static of an in-tree plugin that could be migrated, and is not: not ours": {
			with(func(s *Facts) { s.PV.ProvisionedBy, s.PV.InTree = "", true }), waiting(ReasonNotOurs)},
		"a twin: left to its maker": {
			with(func(s *Facts) { s.PV.TwinOf = "another" }), waiting(ReasonNotOurs)},
		"the role is not known: nothing": {
			with(func(s *Facts) { s.Rules.Role = volume.RoleUnknown }), waiting(ReasonNotOurs)},

		// Finished steps.
		"volume deleted: deletes the PV next": {
			with(func(s *Facts) { s.Done = done(s.PV, false, false) }), do(DeletePV, ReasonVolumeDeleted)},
		"volume deleted, PV terminating: lets go": {
			with(func(s *Facts) { s.Done, s.PV.Terminating = done(s.PV, false, false), true }),
			do(FinalizePV, ReasonVolumeDeleted)},
		"volume deleted, PV's deletion accepted, the cache lags: lets go": {
			with(func(s *Facts) { s.Done = done(s.PV, true, false) }), do(FinalizePV, ReasonVolumeDeleted)},
		"all done, the cache lags: waits for the end": {
			with(func(s *Facts) { s.Done = done(s.PV, true, true) }), waiting(ReasonVolumeGone)},
		"volume deleted, then turned to Retain: goes on, the volume is gone": {
			with(func(s *Facts) { s.Done, s.PV.Policy = done(s.PV, false, false), volume.PolicyRetain }),
			do(DeletePV, ReasonTooLateToKeep)},
		"volume deleted, then claimed anew: goes on, and says so": {
			with(func(s *Facts) {
				s.Done, s.PV.Claim.UID, s.PV.Terminating = done(s.PV, false, false), "newer", true
			}), do(FinalizePV, ReasonTooLateToKeep)},

		// Policy.
		"policy unknown: keeps volume and finalizer": {
			with(func(s *Facts) { s.PV.Policy = volume.PolicyUnknown }), waiting(ReasonPolicyUnknown)},
		"Retain, released, finalizer there: drops it": {
			with(func(s *Facts) { s.PV.Policy = volume.PolicyRetain }), do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		"Recycle, bound, finalizer there: drops it": {
			with(func(s *Facts) { s.PV.Policy, s.PV.Phase = volume.PolicyRecycle, volume.PhaseBound }),
			do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		"Retain, terminating while bound: the finalizer stays, the policy may turn back": {
			with(func(s *Facts) {
				s.PV.Policy, s.PV.Phase, s.PV.Terminating = volume.PolicyRetain, volume.PhaseBound, true
			}), waiting(ReasonRetainBound)},
		"Retain, terminating and released: drops the finalizer": {
			with(func(s *Facts) { s.PV.Policy, s.PV.Terminating = volume.PolicyRetain, true }),
			do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		"Retain, no finalizer: nothing": {
			with(func(s *Facts) { s.PV.Policy, s.PV.HasFinalizer = volume.PolicyRetain, false }),
			waiting(ReasonPolicyKeepsVolume)},

		// Claim.
		"claimRef without UID, released: an administrator takes the volume back": {
			with(func(s *Facts) { s.PV.Claim.UID = "" }), waiting(ReasonNotClaimed)},
		"never claimed and terminating: drops the finalizer, keeps the volume": {
			with(func(s *Facts) {
				s.PV.Claim, s.PV.Terminating, s.PV.Phase = volume.ClaimRef{}, true, volume.PhaseAvailable
			}), do(RemoveFinalizer, ReasonNotClaimed)},
		"not claimed, terminating, no finalizer: nothing": {
			with(func(s *Facts) { s.PV.Claim, s.PV.Terminating, s.PV.HasFinalizer = volume.ClaimRef{}, true, false }),
			waiting(ReasonNotClaimed)},
		"claim not read: reads it": {
			with(func(s *Facts) { s.Claim = ClaimFacts{} }), do(ReadClaim, ReasonReclaim)},
		"a sibling read too long ago: reads it again": {
			with(func(s *Facts) { s.Siblings, s.SiblingsRead = []volume.PV{sibling()}, read(2, session.LiveFor+1) }),
			do(ReadSiblings, ReasonReclaim)},
		"the watch has shown the claim's end: reads none": {
			with(func(s *Facts) { s.Claim, s.ClaimEndedAt = ClaimFacts{}, now() }), do(DeleteVolume, ReasonReclaim)},
		"the watch has shown it too long ago: reads the claim": {
			with(func(s *Facts) { s.Claim, s.ClaimEndedAt = ClaimFacts{}, now().Add(-session.LiveFor-1) }),
			do(ReadClaim, ReasonReclaim)},
		"the watch has shown the end, but a read a claim that names the PV: keeps": {
			with(func(s *Facts) {
				s.ClaimEndedAt, s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = now(), true, "newer", "pv"
			}), looking(ReasonClaimNamesPV)},
		"claim read too long ago: reads it again": {
			with(func(s *Facts) { s.Claim.Read.Sent = now().Add(-session.LiveFor - 1) }), do(ReadClaim, ReasonReclaim)},
		"another claim was read than the PV now names: reads again": {
			with(func(s *Facts) { s.PV.Claim.Name = "renamed" }), do(ReadClaim, ReasonReclaim)},
		"claim found under its UID: keeps, looks again by the clock": {
			with(func(s *Facts) { s.Claim.Found, s.Claim.UID = true, "claim-uid" }),
			looking(ReasonClaimStillExists)},
		"claim of that name is another one: gone": {
			with(func(s *Facts) { s.Claim.Found, s.Claim.UID = true, "newer" }), do(DeleteVolume, ReasonReclaim)},
		"claim of that name is another one and names the PV: keeps, looks again by the clock": {
			with(func(s *Facts) { s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = true, "newer", "pv" }),
			looking(ReasonClaimNamesPV)},
		"the same, while the PV is terminating": {
			with(func(s *Facts) {
				s.PV.Terminating = true
				s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = true, "newer", "pv"
			}), looking(ReasonClaimNamesPV)},
		"claim of that name is another one and names another PV: gone": {
			with(func(s *Facts) { s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = true, "newer", "pv-2" }),
			do(DeleteVolume, ReasonReclaim)},
		"claim of a dynamic PV bound to another PV: gone": {
			with(func(s *Facts) { s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = true, "claim-uid", "pv-2" }),
			do(DeleteVolume, ReasonReclaim)},
		"claim of a dynamic PV bound to this PV: alive": {
			with(func(s *Facts) { s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = true, "claim-uid", "pv" }),
			looking(ReasonClaimStillExists)},
		"claim of a static PV bound to another PV: alive, someone will mend it": {
			with(func(s *Facts) {
				s.PV.ProvisionedBy = ""
				s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = true, "claim-uid", "pv-2"
			}), looking(ReasonClaimStillExists)},

		// Protection.
		"bound, unprotected: adds the finalizer": {
			with(func(s *Facts) { s.PV.Phase, s.PV.HasFinalizer = volume.PhaseBound, false }), do(AddFinalizer, ReasonProtect)},
		"released, unprotected: adds the finalizer before anything else": {
			with(func(s *Facts) { s.PV.HasFinalizer = false }), do(AddFinalizer, ReasonProtect)},
		"terminating, unprotected: too late for a finalizer, nothing is deleted while it lives": {
			with(func(s *Facts) { s.PV.HasFinalizer, s.PV.Terminating = false, true }), waiting(ReasonDeletionUnprotected)},
		"bound, protected: nothing": {with(func(s *Facts) { s.PV.Phase = volume.PhaseBound }), waiting(ReasonBound)},
		"bound, protected, terminating": {with(func(s *Facts) { s.PV.Phase, s.PV.Terminating = volume.PhaseBound, true }),
			waiting(ReasonTerminatingBound)},
		"bound, protected, terminating for a while: no Event yet": {with(func(s *Facts) {
			s.PV.Phase, s.PV.Terminating, s.PV.TerminatingSince = volume.PhaseBound, true, now().Unix()-20
		}), Decision{Reason: ReasonTerminatingBound, Quiet: 40 * time.Second}},
		"bound, protected, terminating for a minute: an Event": {with(func(s *Facts) {
			s.PV.Phase, s.PV.Terminating, s.PV.TerminatingSince = volume.PhaseBound, true, now().Unix()-60
		}), waiting(ReasonTerminatingBound)},
		"claimed, phase pending: waits for the PV controller": {
			with(func(s *Facts) { s.PV.Phase = volume.PhasePending }), waiting(ReasonNotYetBound)},
		"claimed, pending, terminating: never bound": {with(func(s *Facts) {
			s.PV.Phase, s.PV.Terminating = volume.PhasePending, true
		}), waiting(ReasonTerminatingUnbound)},
		"claimed, available, terminating for a while: no Event yet": {with(func(s *Facts) {
			s.PV.Phase, s.PV.Terminating, s.PV.TerminatingSince = volume.PhaseAvailable, true, now().Unix()-20
		}), Decision{Reason: ReasonTerminatingUnbound, Quiet: 40 * time.Second}},
		"claimed, pending, terminating, unprotected: too late for a finalizer": {with(func(s *Facts) {
			s.PV.Phase, s.PV.Terminating, s.PV.HasFinalizer = volume.PhasePending, true, false
		}), waiting(ReasonDeletionUnprotected)},
		"claimed, phase unknown: nothing": {
			with(func(s *Facts) { s.PV.Phase = volume.PhaseUnknown }), waiting(ReasonNotYetBound)},
		"claimed, phase unknown, terminating: nothing": {with(func(s *Facts) {
			s.PV.Phase, s.PV.Terminating = volume.PhaseUnknown, true
		}), waiting(ReasonNotYetBound)},

		// Conditions for the call of the driver.
		"attached: waits for the event": {with(func(s *Facts) { s.Attachments = 1 }), waiting(ReasonAttached)},
		"attached as only a list showed: looks again by the clock": {
			with(func(s *Facts) { s.Attachments, s.AttachmentsCurrent = 1, true }), looking(ReasonAttached)},
		"was attached once: makes sure that the watch is not behind": {
			with(func(s *Facts) { s.PV.WasAttached = true }), do(ListAttachments, ReasonReclaim)},
		"was attached once, and the watch is not behind": {
			with(func(s *Facts) { s.PV.WasAttached, s.AttachmentsCurrent = true, true }), do(DeleteVolume, ReasonReclaim)},
		"a sibling was attached once: makes sure that the watch is not behind": {
			with(func(s *Facts) {
				used := sibling()
				used.WasAttached = true
				s.Siblings, s.SiblingsRead = []volume.PV{used}, read(2, 0)
			}), do(ListAttachments, ReasonReclaim)},
		"attached, with a sibling: looks again by the clock": {
			with(func(s *Facts) { s.Siblings, s.Attachments = []volume.PV{sibling()}, 1 }), looking(ReasonAttached)},
		"a sibling that keeps the volume, as read live: waits, looks again by the clock": {
			with(func(s *Facts) {
				keeps := sibling()
				keeps.Policy = volume.PolicyRetain
				s.Siblings, s.SiblingsRead = []volume.PV{sibling(), keeps}, read(2, 0)
			}), looking(ReasonSharedHandle)},
		"a sibling in the cache that keeps the volume: waits for its event, and lists no attachments": {
			with(func(s *Facts) {
				keeps := sibling()
				keeps.Policy = volume.PolicyRetain
				s.Siblings, s.PV.WasAttached, s.Attachments = []volume.PV{sibling(), keeps}, true, 1
			}), waiting(ReasonSharedHandle)},
		"a sibling to be deleted too, with a hold: waits": {
			with(func(s *Facts) {
				held := sibling()
				held.Held = true
				s.Siblings, s.SiblingsRead = []volume.PV{held}, read(2, 0)
			}), looking(ReasonSharedHandle)},
		"its own twin, with a hold: waits": {
			with(func(s *Facts) {
				twin := sibling()
				twin.Phase, twin.TwinOf, twin.Name, twin.Held = volume.PhasePending, s.PV.UID, s.PV.Name+"-reclaim", true
				s.Siblings, s.SiblingsRead = []volume.PV{twin}, read(2, 0)
			}), looking(ReasonSharedHandle)},
		"a sibling that is bound: waits": {
			with(func(s *Facts) {
				bound := sibling()
				bound.Phase = volume.PhaseBound
				s.Siblings, s.SiblingsRead = []volume.PV{bound}, read(2, 0)
			}), looking(ReasonSharedHandle)},
		"a sibling that no claim ever had: waits": {
			with(func(s *Facts) {
				free := sibling()
				free.Claim.UID = ""
				s.Siblings, s.SiblingsRead = []volume.PV{free}, read(2, 0)
			}), looking(ReasonSharedHandle)},
		"a sibling known from the cache alone: reads it": {
			with(func(s *Facts) { s.Siblings = []volume.PV{sibling()} }), do(ReadSiblings, ReasonReclaim)},
		"a sibling to be deleted too: does not wait for it": {
			with(func(s *Facts) { s.Siblings, s.SiblingsRead = []volume.PV{sibling()}, read(2, 0) }),
			do(DeleteVolume, ReasonReclaim)},
		"a sibling to be deleted too, whose claim keeps the volume: waits, looks again by the clock": {
			with(func(s *Facts) {
				s.Siblings, s.SiblingsRead, s.SiblingNeeded = []volume.PV{sibling()}, read(2, 0), "other"
			}), looking(ReasonSharedHandle)},
		"a sibling read after the PV: reads the PV again, it comes last": {
			with(func(s *Facts) { s.Siblings, s.SiblingsRead = []volume.PV{sibling()}, read(4, 0) }), do(ReadPV, ReasonReclaim)},
		"secrets not looked for: looks": {with(func(s *Facts) { s.SecretsRead = false }), do(ReadSecrets, ReasonReclaim)},
		"the PV known from the cache alone: reads it": {
			with(func(s *Facts) { s.PVRead = session.Read{} }), do(ReadPV, ReasonReclaim)},
		"the PV read too long ago: reads it again": {
			with(func(s *Facts) { s.PVRead.Sent = now().Add(-session.LiveFor - 1) }), do(ReadPV, ReasonReclaim)},
		"the PV read before the claim: reads it again, it comes last": {
			with(func(s *Facts) { s.Claim.Read.Order = 4 }), do(ReadPV, ReasonReclaim)},
		"no handle: nothing to ask for": {
			with(func(s *Facts) { s.PV.Handle = "" }), waiting(ReasonHandleUnknown)},
	}
	check(t, cases)
}

// decisions are tables keyed by sentences.
type decisions map[string]struct {
	facts Facts
	want  Decision
}

func check(t *testing.T, cases decisions) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Decide(c.facts, now()); got != c.want {
				t.Errorf("Decide = %v, want %v\nfacts: %+v", got, c.want, c.facts)
			}
		})
	}
}
