package reclaim

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
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
		Claim: pvclaim.Result{Of: pv.Claim}, ClaimRead: read(1, 2*time.Second),
		SecretsRead: true,
	}
}

// with returns altered released facts.
func with(alter ...func(*Facts)) Facts { return altered(released(), alter) }

func altered[T any](of T, alter []func(*T)) T {
	for _, a := range alter {
		a(&of)
	}
	return of
}

// done returns the record after the deletion of a PV's volume.
func done(pv volume.PV, pvDeleted, released bool) Done {
	return Done{VolumeDeleted: true, Claim: pv.Claim, PVDeleted: pvDeleted, Finalized: released}
}

// sibling returns another PV of the same volume that is to be deleted too, altered.
func sibling(alter ...func(*volume.PV)) volume.PV {
	pv := released().PV
	pv.Name, pv.UID = "other", "other-uid"
	return altered(pv, alter)
}

func terminating(pv *volume.PV)        { pv.Terminating = true }
func alive(pv *volume.PV)              { pv.Terminating = false }
func guarded(pv *volume.PV)            { pv.HasFinalizer = true }
func unguarded(pv *volume.PV)          { pv.HasFinalizer = false }
func guardedByCompanion(pv *volume.PV) { pv.HasCompanionFinalizer = true }
func withoutCompanion(pv *volume.PV)   { pv.HasCompanionFinalizer = false }
func held(pv *volume.PV)               { pv.Held = true }
func unclaimedPV(pv *volume.PV)        { pv.Claim = volume.ClaimRef{} }
func inTree(pv *volume.PV)             { pv.InTree = true }
func migratedToUs(pv *volume.PV)       { pv.MigratedTo = driver }
func wasAttached(pv *volume.PV)        { pv.WasAttached = true }

func in(phase volume.Phase) func(*volume.PV)   { return func(pv *volume.PV) { pv.Phase = phase } }
func of(policy volume.Policy) func(*volume.PV) { return func(pv *volume.PV) { pv.Policy = policy } }
func by(driver string) func(*volume.PV)        { return func(pv *volume.PV) { pv.ProvisionedBy = driver } }
func ofDriver(driver string) func(*volume.PV)  { return func(pv *volume.PV) { pv.Driver = driver } }
func handle(handle string) func(*volume.PV)    { return func(pv *volume.PV) { pv.Handle = handle } }
func claimUID(uid types.UID) func(*volume.PV)  { return func(pv *volume.PV) { pv.Claim.UID = uid } }
func reach(reach volume.Reach) func(*volume.PV) {
	return func(pv *volume.PV) { pv.Reach = reach }
}

// twinNamed makes a PV a twin of the released one.
func twinNamed(name string) func(*volume.PV) {
	return func(pv *volume.PV) { pv.TwinOf, pv.Name = released().PV.UID, name }
}

func terminatingFor(seconds int64) func(*volume.PV) {
	return func(pv *volume.PV) { pv.Terminating, pv.TerminatingSince = true, now().Unix()-seconds }
}

func pvIs(alter ...func(*volume.PV)) func(*Facts) {
	return func(s *Facts) { s.PV = altered(s.PV, alter) }
}

// claimFound has the read of the claim show one of this UID, which names a PV.
func claimFound(uid types.UID, pv string) func(*Facts) {
	return func(s *Facts) { s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = true, uid, pv }
}

// siblings are other PVs of the volume, as read live; cachedSiblings were not.
func siblings(pvs ...volume.PV) func(*Facts) {
	return func(s *Facts) { s.Siblings, s.SiblingsRead = pvs, read(2, 0) }
}

func cachedSiblings(pvs ...volume.PV) func(*Facts) { return func(s *Facts) { s.Siblings = pvs } }

func volumeGone(pvDeleted, finalized bool) func(*Facts) {
	return func(s *Facts) { s.Done = done(s.PV, pvDeleted, finalized) }
}

func mode(m Mode) func(*Facts)        { return func(s *Facts) { s.Rules.Mode = m } }
func role(r volume.Role) func(*Facts) { return func(s *Facts) { s.Rules.Role = r } }
func brake(b Brake) func(*Facts)      { return func(s *Facts) { s.Brake = b } }
func seen(h History) func(*Facts)     { return func(s *Facts) { s.History = h } }

func deposed(s *Facts)           { s.Leading = false }
func contestedPV(s *Facts)       { s.Contested = true }
func stripped(s *Facts)          { s.History.Stripped = true }
func attached(s *Facts)          { s.Attachments = 1 }
func current(s *Facts)           { s.AttachmentsCurrent = true }
func justProtected(s *Facts)     { s.Done.Protected = true }
func goneFinally(s *Facts)       { s.End = End{Gone: true, Final: true} }
func claimUnread(s *Facts)       { s.Claim, s.ClaimRead = pvclaim.Result{}, session.Read{} }
func claimReadLongAgo(s *Facts)  { s.ClaimRead.Sent = now().Add(-session.LiveFor - 1) }
func claimRenamed(s *Facts)      { s.PV.Claim.Name = "renamed" }
func claimEnded(s *Facts)        { s.ClaimEndedAt = now() }
func claimKeepsSibling(s *Facts) { s.SiblingNeeded = "other" }

func do(a Action, r Reason) Decision { return Decision{Action: a, Reason: r} }
func waiting(r Reason) Decision      { return Decision{Reason: r} }
func ended(r Reason) Decision        { return Decision{Reason: r, Over: true} }
func looking(r Reason) Decision      { return Decision{Reason: r, Timed: true} }

func TestDecide(t *testing.T) {
	cases := decisions{
		{"released, all proven: deletes the volume", released(), do(DeleteVolume, ReasonReclaim)},
		{"released while terminating, the PV was deleted first: deletes the volume", with(pvIs(terminating)),
			do(DeleteVolume, ReasonReclaim)},
		{"failed, all proven: deletes the volume", with(pvIs(in(volume.PhaseFailed))), do(DeleteVolume, ReasonReclaim)},
		{"held by a companion's finalizer: counts as protected", with(pvIs(unguarded, guardedByCompanion, terminating)),
			do(DeleteVolume, ReasonReclaim)},
		{"released with a companion's finalizer: deletes the volume", with(pvIs(unguarded, guardedByCompanion)),
			do(DeleteVolume, ReasonReclaim)},
		{"released with both finalizers, one of which comes back: deletes the volume", with(pvIs(guardedByCompanion)),
			do(DeleteVolume, ReasonReclaim)},
		{"the zero value: nothing", Facts{}, waiting(ReasonNotOurs)},

		// The lease.
		{"the lease ran out: nothing, looked at again", with(deposed), looking(ReasonNotLeading)},
		{"the lease ran out after the volume was deleted: the PV stays for the next leader",
			with(deposed, volumeGone(true, false)), looking(ReasonNotLeading)},
		{"the lease ran out, the finalizer was removed: no report that others removed it",
			with(deposed, stripped, pvIs(unguarded, terminating)), looking(ReasonNotLeading)},
		{"the lease ran out, the PV is gone with the finalizer: no report, and not settled", with(deposed, goneFinally),
			looking(ReasonNotLeading)},
		{"the lease ran out, the PV is gone unprotected, all proven: keeps the volume",
			with(vanished, deposed), looking(ReasonNotLeading)},
		{"the lease ran out, the finalizer was contested: not reported",
			with(deposed, contestedPV, pvIs(unguarded, in(volume.PhaseBound))), looking(ReasonNotLeading)},
		{"the lease ran out, the PV is another driver's: not ours", with(deposed, pvIs(by("other"))), waiting(ReasonNotOurs)},

		// Ownership.
		{"dynamic of another driver, static fields ours: not ours", with(pvIs(by("other"))), waiting(ReasonNotOurs)},
		{"static of this driver: ours", with(pvIs(by(""))), do(DeleteVolume, ReasonReclaim)},
		{"static of another driver: not ours", with(pvIs(by(""), ofDriver("other"))), waiting(ReasonNotOurs)},
		{"in-tree provisioner that is not migrated: not ours", with(pvIs(by("kubernetes.io/aws-ebs"), ofDriver(""))),
			waiting(ReasonNotOurs)},
		{"in-tree provisioner that is migrated to us, handle not translated: nothing to ask for",
			with(pvIs(by("kubernetes.io/aws-ebs"), migratedToUs, ofDriver(""), handle(""))), waiting(ReasonHandleUnknown)},
		{"this driver's name is not known: nothing is ours",
			with(func(s *Facts) { s.Rules.Driver = "" }, pvIs(by(""), ofDriver(""))), waiting(ReasonNotOurs)},
		{"static, migrated to this driver: ours", with(pvIs(by(""), migratedToUs, inTree)), do(DeleteVolume, ReasonReclaim)},
		{"dynamic in-tree, migrated to this driver: ours", with(pvIs(by("kubernetes.io/aws-ebs"), migratedToUs, inTree)),
			do(DeleteVolume, ReasonReclaim)},
		{"static of an in-tree plugin that could be migrated, and is not: not ours", with(pvIs(by(""), inTree)),
			waiting(ReasonNotOurs)},
		{"a twin: left to its maker", with(func(s *Facts) { s.PV.TwinOf = "another" }), waiting(ReasonNotOurs)},
		{"the role is not known: nothing", with(role(volume.RoleUnknown)), waiting(ReasonNotOurs)},

		// Finished steps.
		{"volume deleted: deletes the PV next", with(volumeGone(false, false)), do(DeletePV, ReasonVolumeDeleted)},
		{"volume deleted, PV terminating: lets go", with(volumeGone(false, false), pvIs(terminating)),
			do(FinalizePV, ReasonVolumeDeleted)},
		{"volume deleted, PV's deletion accepted, the cache lags: lets go", with(volumeGone(true, false)),
			do(FinalizePV, ReasonVolumeDeleted)},
		{"all done, the cache lags: waits for the end", with(volumeGone(true, true)), waiting(ReasonVolumeGone)},
		{"volume deleted, then turned to Retain: goes on, the volume is gone",
			with(volumeGone(false, false), pvIs(of(volume.PolicyRetain))), do(DeletePV, ReasonTooLateToKeep)},
		{"volume deleted, then claimed anew: goes on, and says so",
			with(volumeGone(false, false), pvIs(claimUID("newer"), terminating)), do(FinalizePV, ReasonTooLateToKeep)},

		// Policy.
		{"policy unknown: keeps volume and finalizer", with(pvIs(of(volume.PolicyUnknown))), waiting(ReasonPolicyUnknown)},
		{"Retain, released, finalizer there: drops it", with(pvIs(of(volume.PolicyRetain))),
			do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		{"Recycle, bound, finalizer there: drops it", with(pvIs(of(volume.PolicyRecycle), in(volume.PhaseBound))),
			do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		{"Retain, terminating while bound: the finalizer stays, the policy may turn back",
			with(pvIs(of(volume.PolicyRetain), in(volume.PhaseBound), terminating)), waiting(ReasonRetainBound)},
		{"Retain, terminating and released: drops the finalizer", with(pvIs(of(volume.PolicyRetain), terminating)),
			do(RemoveFinalizer, ReasonPolicyKeepsVolume)},
		{"Retain, no finalizer: nothing", with(pvIs(of(volume.PolicyRetain), unguarded)), waiting(ReasonPolicyKeepsVolume)},

		// Claim.
		{"claimRef without UID, released: an administrator takes the volume back", with(pvIs(claimUID(""))),
			waiting(ReasonNotClaimed)},
		{"never claimed and terminating: drops the finalizer, keeps the volume",
			with(pvIs(unclaimedPV, terminating, in(volume.PhaseAvailable))), do(RemoveFinalizer, ReasonNotClaimed)},
		{"not claimed, terminating, no finalizer: nothing", with(pvIs(unclaimedPV, terminating, unguarded)),
			waiting(ReasonNotClaimed)},
		{"claim not read: reads it", with(claimUnread), do(ReadClaim, ReasonReclaim)},
		{"a sibling read too long ago: reads it again",
			with(cachedSiblings(sibling()), func(s *Facts) { s.SiblingsRead = read(2, session.LiveFor+1) }),
			do(ReadSiblings, ReasonReclaim)},
		{"the watch has shown the claim's end: reads none", with(claimUnread, claimEnded),
			do(DeleteVolume, ReasonReclaim)},
		{"the watch has shown it too long ago: reads the claim",
			with(claimUnread, func(s *Facts) { s.ClaimEndedAt = now().Add(-session.LiveFor - 1) }),
			do(ReadClaim, ReasonReclaim)},
		{"the watch has shown the end, but a read a claim that names the PV: keeps",
			with(claimFound("newer", "pv"), claimEnded), looking(ReasonClaimNamesPV)},
		{"claim read too long ago: reads it again",
			with(claimReadLongAgo), do(ReadClaim, ReasonReclaim)},
		{"another claim was read than the PV now names: reads again", with(claimRenamed),
			do(ReadClaim, ReasonReclaim)},
		{"claim found under its UID: keeps, looks again by the clock", with(claimFound("claim-uid", "")),
			looking(ReasonClaimStillExists)},
		{"claim of that name is another one: gone", with(claimFound("newer", "")), do(DeleteVolume, ReasonReclaim)},
		{"claim of that name is another one and names the PV: keeps, looks again by the clock",
			with(claimFound("newer", "pv")), looking(ReasonClaimNamesPV)},
		{"the same, while the PV is terminating", with(claimFound("newer", "pv"), pvIs(terminating)),
			looking(ReasonClaimNamesPV)},
		{"claim of that name is another one and names another PV: gone", with(claimFound("newer", "pv-2")),
			do(DeleteVolume, ReasonReclaim)},
		{"claim of a dynamic PV bound to another PV: gone", with(claimFound("claim-uid", "pv-2")),
			do(DeleteVolume, ReasonReclaim)},
		{"claim of a dynamic PV bound to this PV: alive", with(claimFound("claim-uid", "pv")),
			looking(ReasonClaimStillExists)},
		{"claim of a static PV bound to another PV: alive, someone will mend it",
			with(claimFound("claim-uid", "pv-2"), pvIs(by(""))), looking(ReasonClaimStillExists)},

		// Protection.
		{"bound, unprotected: adds the finalizer", with(pvIs(in(volume.PhaseBound), unguarded)),
			do(AddFinalizer, ReasonProtect)},
		{"released, unprotected: adds the finalizer before anything else", with(pvIs(unguarded)),
			do(AddFinalizer, ReasonProtect)},
		{"terminating, unprotected: too late for a finalizer, nothing is deleted while it lives",
			with(pvIs(unguarded, terminating)), waiting(ReasonDeletionUnprotected)},
		{"bound, protected: nothing", with(pvIs(in(volume.PhaseBound))), waiting(ReasonBound)},
		{"bound, protected, terminating", with(pvIs(in(volume.PhaseBound), terminating)), waiting(ReasonTerminatingBound)},
		{"bound, protected, terminating for a while: no Event yet",
			with(pvIs(in(volume.PhaseBound), terminating, terminatingFor(20))),
			Decision{Reason: ReasonTerminatingBound, Quiet: 40 * time.Second}},
		{"bound, protected, terminating for a minute: an Event",
			with(pvIs(in(volume.PhaseBound), terminating, terminatingFor(60))), waiting(ReasonTerminatingBound)},
		{"claimed, phase pending: waits for the PV controller", with(pvIs(in(volume.PhasePending))),
			waiting(ReasonNotYetBound)},
		{"claimed, pending, terminating: never bound", with(pvIs(in(volume.PhasePending), terminating)),
			waiting(ReasonTerminatingUnbound)},
		{"claimed, available, terminating for a while: no Event yet",
			with(pvIs(in(volume.PhaseAvailable), terminating, terminatingFor(20))),
			Decision{Reason: ReasonTerminatingUnbound, Quiet: 40 * time.Second}},
		{"claimed, pending, terminating, unprotected: too late for a finalizer",
			with(pvIs(in(volume.PhasePending), terminating, unguarded)), waiting(ReasonDeletionUnprotected)},
		{"claimed, phase unknown: nothing", with(pvIs(in(volume.PhaseUnknown))), waiting(ReasonNotYetBound)},
		{"claimed, phase unknown, terminating: nothing", with(pvIs(in(volume.PhaseUnknown), terminating)),
			waiting(ReasonNotYetBound)},

		// Conditions for the call of the driver.
		{"attached: waits for the event", with(attached), waiting(ReasonAttached)},
		{"attached as only a list showed: looks again by the clock", with(attached, current), looking(ReasonAttached)},
		{"was attached once: makes sure that the watch is not behind", with(pvIs(wasAttached)),
			do(ListAttachments, ReasonReclaim)},
		{"was attached once, and the watch is not behind", with(current, pvIs(wasAttached)), do(DeleteVolume, ReasonReclaim)},
		{"a sibling was attached once: makes sure that the watch is not behind", with(siblings(sibling(wasAttached))),
			do(ListAttachments, ReasonReclaim)},
		{"attached, with a sibling: looks again by the clock", with(cachedSiblings(sibling()), attached),
			looking(ReasonAttached)},
		{"a sibling that keeps the volume, as read live: waits, looks again by the clock",
			with(siblings(sibling(), sibling(of(volume.PolicyRetain)))), looking(ReasonSharedHandle)},
		{"a sibling in the cache that keeps the volume: waits for its event, and lists no attachments",
			with(cachedSiblings(sibling(), sibling(of(volume.PolicyRetain))), attached, pvIs(wasAttached)),
			waiting(ReasonSharedHandle)},
		{"a sibling to be deleted too, with a hold: waits", with(siblings(sibling(held))), looking(ReasonSharedHandle)},
		{"its own twin, with a hold: waits",
			with(siblings(sibling(in(volume.PhasePending), twinNamed("pv-reclaim"), held))), looking(ReasonSharedHandle)},
		{"a sibling that is bound: waits", with(siblings(sibling(in(volume.PhaseBound)))), looking(ReasonSharedHandle)},
		{"a sibling that no claim ever had: waits", with(siblings(sibling(claimUID("")))), looking(ReasonSharedHandle)},
		{"a sibling known from the cache alone: reads it", with(cachedSiblings(sibling())), do(ReadSiblings, ReasonReclaim)},
		{"a sibling to be deleted too: does not wait for it", with(siblings(sibling())), do(DeleteVolume, ReasonReclaim)},
		{"a sibling to be deleted too, whose claim keeps the volume: waits, looks again by the clock",
			with(siblings(sibling()), claimKeepsSibling),
			looking(ReasonSharedHandle)},
		{"a sibling read after the PV: reads the PV again, it comes last",
			with(cachedSiblings(sibling()), func(s *Facts) { s.SiblingsRead = read(4, 0) }), do(ReadPV, ReasonReclaim)},
		{"secrets not looked for: looks", with(func(s *Facts) { s.SecretsRead = false }), do(ReadSecrets, ReasonReclaim)},
		{"the PV known from the cache alone: reads it", with(func(s *Facts) { s.PVRead = session.Read{} }),
			do(ReadPV, ReasonReclaim)},
		{"the PV read too long ago: reads it again", with(func(s *Facts) { s.PVRead.Sent = now().Add(-session.LiveFor - 1) }),
			do(ReadPV, ReasonReclaim)},
		{"the PV read before the claim: reads it again, it comes last", with(func(s *Facts) { s.ClaimRead.Order = 4 }),
			do(ReadPV, ReasonReclaim)},
		{"no handle: nothing to ask for", with(pvIs(handle(""))), waiting(ReasonHandleUnknown)},
	}
	check(t, cases)
}

// decisions are tables of sentences.
type decisions []struct {
	name  string
	facts Facts
	want  Decision
}

func check(t *testing.T, cases decisions) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := Decide(c.facts, now()); got != c.want {
				t.Errorf("Decide = %v, want %v\nfacts: %+v", got, c.want, c.facts)
			}
		})
	}
}
