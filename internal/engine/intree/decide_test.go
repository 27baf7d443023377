package intree

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

type want struct {
	Action Action
	Reason Reason
}

func (d Decision) want() want { return want{d.Action, d.Reason} }

func TestDecide(t *testing.T) {
	deleting := []func(*PV){in(volume.PhaseReleased), of(volume.PolicyDelete)}
	claimLives := func(s *Facts) { s.Claim.Found, s.Claim.UID = true, s.PV.Claim.UID }
	restored := func(s *Facts) { s.Claim.Found, s.Claim.UID, s.Claim.VolumeName = true, "newer", s.PV.Name }
	sharer := func(s *Facts) {
		other := sibling()
		other.Phase = volume.PhaseBound
		s.Siblings = []PV{other}
	}
	cases := map[string]struct {
		s    Facts
		want want
	}{
		// Ownership of the PV.
		"nothing is known": {Facts{}, want{Wait, ReasonNotOurs}},
		"no provisioner of the PV is known": {with(pvIs(func(pv *PV) { pv.ProvisionedBy = "" })),
			want{Wait, ReasonNotOurs}},
		"an external provisioner made it": {with(pvIs(func(pv *PV) { pv.ProvisionedBy = "nfs.example.com" })),
			want{Wait, ReasonNotOurs}},
		"it is not known which volume it is": {with(pvIs(func(pv *PV) { pv.Source = Source{} })),
			want{Wait, ReasonNotOurs}},
		"a twin is no PV to be protected": {with(pvIs(func(pv *PV) { pv.TwinOf = "another" })),
			want{Wait, ReasonNotOurs}},
		"it is not known who manages the finalizer": {with(func(s *Facts) { s.Other = OtherUnknown }),
			want{Wait, ReasonNotSynced}},
		"another manages the finalizer: its business": {with(func(s *Facts) { s.Other = OtherPresent }),
			want{Wait, ReasonControllerDeletes}},
		"another added it to this PV: its business": {with(pvIs(guarded(WriterOther))),
			want{Wait, ReasonControllerDeletes}},
		"another manages it, the PV is not deleted": {with(pvIs(alive, guarded(WriterNone)),
			func(s *Facts) { s.Other = OtherPresent }), want{Wait, ReasonManagedByController}},
		"another manages it, and has no plugin": {with(pvIs(guarded(WriterOther),
			func(pv *PV) { pv.PluginGone = true })), want{Wait, ReasonPluginGone}},
		"another manages it since: a twin with policy Delete is set to Retain": {with(twinIs(deleting...),
			func(s *Facts) { s.Other = OtherPresent }), want{SetTwinRetain, ReasonControllerDeletes}},
		"another manages it since: a twin is deleted": {with(twinIs(),
			func(s *Facts) { s.Other = OtherPresent }), want{DeleteTwin, ReasonControllerDeletes}},
		"another manages it, and has not added it for a while": {with(pvIs(alive, guarded(WriterNone)),
			leftFor(119*time.Second)), want{Wait, ReasonManagedByController}},
		"another manages it, and does not add it": {with(pvIs(alive, guarded(WriterNone)),
			leftFor(2*time.Minute)), want{AddFinalizer, ReasonProtect}},
		"another manages it, and did not delete for a while": {with(leftFor(119 * time.Second)),
			want{Wait, ReasonControllerDeletes}},
		"another manages it, and does not delete": {with(leftFor(2 * time.Minute)),
			want{CreateTwin, ReasonReclaim}},
		"another manages it, and does not delete: set to Delete": {with(leftFor(2*time.Minute),
			twinIs(deleting...)), want{Wait, ReasonTwinDeleting}},
		"another added it to this PV, and does not delete": {with(pvIs(guarded(WriterOther)),
			leftFor(2*time.Minute)), want{Wait, ReasonControllerIdle}},
		"another manages it, the policy is Retain: its matter": {with(pvIs(of(volume.PolicyRetain)),
			func(s *Facts) { s.Other = OtherPresent }), want{Wait, ReasonControllerDeletes}},
		"another manages it, and does not act on Retain": {with(pvIs(of(volume.PolicyRetain)), leftFor(2*time.Minute)),
			want{RemoveFinalizer, ReasonPolicyKeepsVolume}},
		"another manages it, and does not act on a migrated PV": {with(pvIs(migrate), leftFor(2*time.Minute)),
			want{Wait, ReasonMigratedUnprotected}},
		"another added it to this PV, Retain, not deleted": {with(pvIs(alive, guarded(WriterOther),
			of(volume.PolicyRetain)), leftFor(2*time.Minute)), want{Wait, ReasonManagedByController}},
		"another manages it, an administrator took it back": {with(pvIs(func(pv *PV) { pv.Claim.UID = "" }),
			func(s *Facts) { s.Other = OtherPresent }), want{Wait, ReasonNotClaimed}},
		"another manages it, never bound": {with(pvIs(in(volume.PhaseAvailable)),
			func(s *Facts) { s.Other = OtherPresent }), want{Wait, ReasonTerminatingUnbound}},
		"another manages it, no finalizer is on": {with(pvIs(guarded(WriterNone)),
			func(s *Facts) { s.Other = OtherPresent }), want{Wait, ReasonDeletionUnprotected}},

		// Adding and removing the finalizer.
		"Delete, in use, no finalizer: added": {with(pvIs(alive, in(volume.PhaseBound), guarded(WriterNone))),
			want{AddFinalizer, ReasonProtect}},
		"Delete, not claimed yet, no finalizer: added": {with(pvIs(alive, in(volume.PhaseAvailable), guarded(WriterNone),
			func(pv *PV) { pv.Claim = volume.ClaimRef{} })), want{AddFinalizer, ReasonProtect}},
		"Delete, in use, protected": {with(pvIs(alive, in(volume.PhaseBound))),
			want{Wait, ReasonProtected}},
		"Delete, protected, writer unknown": {with(pvIs(alive, in(volume.PhaseBound), guarded(WriterUnknown))),
			want{Wait, ReasonProtected}},
		"Delete, released: the PV controller deletes it": {with(pvIs(alive)), want{Wait, ReasonManagedByController}},
		"migration was taken back: F goes": {with(pvIs(alive, in(volume.PhaseBound),
			func(pv *PV) { pv.HasFinalizer = true })), want{AddFinalizer, ReasonProtect}},
		"migration was taken back: the companion's goes": {with(pvIs(alive, in(volume.PhaseBound),
			func(pv *PV) { pv.HasCompanionFinalizer = true })), want{AddFinalizer, ReasonProtect}},
		"Retain: off": {with(pvIs(alive, in(volume.PhaseBound),
			of(volume.PolicyRetain))), want{RemoveFinalizer, ReasonPolicyKeepsVolume}},
		"Recycle: off": {with(pvIs(alive, in(volume.PhaseBound),
			of(volume.PolicyRecycle))), want{RemoveFinalizer, ReasonPolicyKeepsVolume}},
		"Retain, F from before: off": {with(pvIs(alive, of(volume.PolicyRetain), guarded(WriterNone),
			func(pv *PV) { pv.HasFinalizer = true })), want{RemoveFinalizer, ReasonPolicyKeepsVolume}},
		"Retain without finalizer": {with(pvIs(alive, of(volume.PolicyRetain),
			guarded(WriterNone))), want{Wait, ReasonPolicyKeepsVolume}},
		"Retain, terminating, claim lives: stays": {with(pvIs(in(volume.PhaseBound), of(volume.PolicyRetain))),
			want{Wait, ReasonRetainBound}},
		"Retain, terminating, released: off": {with(pvIs(of(volume.PolicyRetain))),
			want{RemoveFinalizer, ReasonPolicyKeepsVolume}},
		"Retain, terminating, writer unknown": {with(pvIs(of(volume.PolicyRetain), guarded(WriterUnknown))),
			want{Wait, ReasonWriterUnknown}},
		"Retain, writer unknown": {with(pvIs(alive, of(volume.PolicyRetain),
			guarded(WriterUnknown))), want{Wait, ReasonPolicyKeepsVolume}},
		"a policy that is not known: stays": {with(pvIs(of(volume.PolicyUnknown))),
			want{Wait, ReasonPolicyUnknown}},
		"migrated: off": {with(pvIs(alive, in(volume.PhaseBound), migrate)),
			want{RemoveFinalizer, ReasonMigrated}},
		"migrated, F is left to the sidecar": {with(pvIs(alive, guarded(WriterNone), migrate,
			func(pv *PV) { pv.HasFinalizer = true })), want{Wait, ReasonMigrated}},
		"migrated, writer unknown": {with(pvIs(alive, guarded(WriterUnknown), migrate)),
			want{Wait, ReasonMigrated}},
		"migrated, terminating, writer unknown": {with(pvIs(guarded(WriterUnknown), migrate)),
			want{Wait, ReasonWriterUnknown}},
		"migrated while terminating, F is on: off": {with(pvIs(migrate, func(pv *PV) { pv.HasFinalizer = true })),
			want{RemoveFinalizer, ReasonMigrated}},
		"migrated while terminating, F is not on: stays": {with(pvIs(migrate)), want{Wait, ReasonMigratedUnprotected}},
		"migrated while terminating, Retain: off": {with(pvIs(migrate, of(volume.PolicyRetain))),
			want{RemoveFinalizer, ReasonMigrated}},
		"migrated while terminating, policy not known": {with(pvIs(migrate, of(volume.PolicyUnknown))),
			want{Wait, ReasonMigratedUnprotected}},

		// A PV that is being deleted, up to the creation of its twin.
		"terminating without finalizer": {with(pvIs(guarded(WriterNone))),
			want{Wait, ReasonDeletionUnprotected}},
		"terminating, writer of the finalizer unknown": {with(pvIs(guarded(WriterUnknown))),
			want{Wait, ReasonWriterUnknown}},
		"terminating, held by F from before alone": {with(pvIs(guarded(WriterNone),
			func(pv *PV) { pv.HasFinalizer = true })), want{CreateTwin, ReasonReclaim}},
		"terminating, in use": {with(pvIs(in(volume.PhaseBound))),
			want{Wait, ReasonTerminatingBound}},
		"terminating, an administrator took it back": {with(pvIs(func(pv *PV) { pv.Claim.UID = "" })),
			want{Wait, ReasonNotClaimed}},
		"terminating, available: never bound": {with(pvIs(in(volume.PhaseAvailable))),
			want{Wait, ReasonTerminatingUnbound}},
		"terminating, pending: never bound": {with(pvIs(in(volume.PhasePending))),
			want{Wait, ReasonTerminatingUnbound}},
		"terminating, phase not known": {with(pvIs(in(volume.PhaseUnknown))),
			want{Wait, ReasonNotReleased}},
		"held by a person": {with(pvIs(hold)), want{Wait, ReasonHeld}},
		"held, not terminating, no finalizer: added": {with(pvIs(hold, alive, in(volume.PhaseBound), guarded(WriterNone))),
			want{AddFinalizer, ReasonProtect}},
		"held, not terminating":           {with(pvIs(hold, alive, in(volume.PhaseBound))), want{Wait, ReasonHoldNotObeyed}},
		"held, not terminating, released": {with(pvIs(hold, alive)), want{Wait, ReasonHoldNotObeyed}},
		"held, left to the other program": {with(pvIs(hold), func(s *Facts) { s.Other = OtherPresent }),
			want{Wait, ReasonHoldNotObeyed}},
		"held, in use, left to the other program": {with(pvIs(hold, alive, in(volume.PhaseBound)),
			func(s *Facts) { s.Other = OtherPresent }), want{Wait, ReasonHoldNotObeyed}},
		"held, another added the finalizer": {with(pvIs(hold, guarded(WriterOther))), want{Wait, ReasonHoldNotObeyed}},
		"held, another does not delete now, and may later": {with(pvIs(hold), leftFor(2*time.Minute)),
			want{Wait, ReasonHoldNotObeyed}},
		"held, another PV of the volume is deleted by kube-controller-manager": {with(pvIs(hold), func(s *Facts) {
			other := sibling()
			alive(&other)
			s.Siblings = []PV{other}
		}), want{Wait, ReasonHoldNotObeyed}},
		"held, another PV of the volume is terminating too": {with(pvIs(hold), func(s *Facts) {
			s.Siblings = []PV{sibling()}
		}), want{Wait, ReasonHeld}},
		"held, another PV of the volume keeps it": {with(pvIs(hold), func(s *Facts) {
			other := sibling()
			alive(&other)
			other.Policy = volume.PolicyRetain
			s.Siblings = []PV{other}
		}), want{Wait, ReasonHeld}},
		"held, another PV of the volume is migrated": {with(pvIs(hold), func(s *Facts) {
			other := sibling()
			alive(&other)
			migrate(&other)
			s.Siblings = []PV{other}
		}), want{Wait, ReasonHeld}},
		"held, its twin is there": {with(pvIs(hold), twinIs(in(volume.PhaseBound)), func(s *Facts) {
			own := made()
			own.Policy = volume.PolicyDelete
			s.Siblings = []PV{own}
		}), want{Wait, ReasonHeld}},
		"held, Retain": {with(pvIs(hold, alive, of(volume.PolicyRetain), guarded(WriterNone))),
			want{Wait, ReasonPolicyKeepsVolume}},
		"held, Retain, left to the other program": {with(pvIs(hold, of(volume.PolicyRetain)),
			func(s *Facts) { s.Other = OtherPresent }), want{Wait, ReasonControllerDeletes}},
		"held, migrated": {with(pvIs(hold, alive, guarded(WriterNone), migrate)), want{Wait, ReasonMigrated}},
		"held, no plugin deletes it": {with(pvIs(hold, alive, in(volume.PhaseFailed),
			func(pv *PV) { pv.PluginGone = true })), want{Wait, ReasonManagedByController}},
		"all is proven: the twin is made": {with(), want{CreateTwin, ReasonReclaim}},
		"failed, all is proven: the twin is made": {with(pvIs(in(volume.PhaseFailed))),
			want{CreateTwin, ReasonReclaim}},
		"the claim was not read": {with(func(s *Facts) { s.Claim = ClaimFacts{} }),
			want{ReadClaim, ReasonReclaim}},
		"the claim was read too long ago": {with(func(s *Facts) { s.Claim.Read = read(1, 6*time.Second) }),
			want{ReadClaim, ReasonReclaim}},
		"another claim was read": {with(func(s *Facts) { s.Claim.Of.Name = "another" }),
			want{ReadClaim, ReasonReclaim}},
		"the claim lives": {with(claimLives), want{Wait, ReasonClaimStillExists}},
		"a claim of that name is a newer one, and names the PV": {with(restored), want{Wait, ReasonClaimNamesPV}},
		"a claim of that name is a newer one": {with(func(s *Facts) { s.Claim.Found, s.Claim.UID = true, "newer" }),
			want{CreateTwin, ReasonReclaim}},
		"attachments were not counted": {with(func(s *Facts) { s.Attachments = AttachmentFacts{} }),
			want{ReadAttachments, ReasonReclaim}},
		"attachments were counted too long ago": {with(func(s *Facts) { s.Attachments.Read = read(2, 6*time.Second) }),
			want{ReadAttachments, ReasonReclaim}},
		"attached": {with(func(s *Facts) { s.Attachments.Count = 1 }),
			want{Wait, ReasonAttached}},
		"another PV needs the volume": {with(sharer), want{Wait, ReasonSharedSource}},
		"another PV of the volume goes too": {with(func(s *Facts) { s.Siblings = []PV{sibling()} }),
			want{CreateTwin, ReasonReclaim}},
		"a claim keeps another PV of the volume": {with(func(s *Facts) {
			s.Siblings, s.SiblingNeeded = []PV{sibling()}, "other"
		}), want{Wait, ReasonSharedSource}},
		"released, a claim keeps another PV of the volume": {with(twinIs(in(volume.PhaseReleased)),
			func(s *Facts) { s.Siblings, s.SiblingNeeded = []PV{sibling()}, "other" }), want{Wait, ReasonSharedSource}},
		"another PV of the volume was not read": {with(func(s *Facts) {
			s.Siblings, s.SiblingsRead = []PV{sibling()}, session.Read{}
		}), want{ReadSiblings, ReasonReclaim}},
		"another PV of the volume was read too long ago": {with(func(s *Facts) {
			s.Siblings, s.SiblingsRead = []PV{sibling()}, read(3, 6*time.Second)
		}), want{ReadSiblings, ReasonReclaim}},
		"another PV that goes too has a twin": {with(func(s *Facts) { s.Siblings = []PV{sibling(), twinFor(sibling())} }),
			want{CreateTwin, ReasonReclaim}},
		"another PV that goes too has a hold": {with(func(s *Facts) {
			held := sibling()
			held.Held = true
			s.Siblings = []PV{held}
		}), want{Wait, ReasonSharedSource}},
		"a PV that calls itself the twin of none that goes": {with(func(s *Facts) {
			s.Siblings = []PV{twinFor(sibling())}
		}), want{Wait, ReasonSharedSource}},
		"the PV was not read": {with(func(s *Facts) { s.PVRead = session.Read{} }),
			want{ReadPV, ReasonReclaim}},
		"the PV was read too long ago": {with(func(s *Facts) { s.PVRead = read(4, 6*time.Second) }),
			want{ReadPV, ReasonReclaim}},
		"the PV was read before the claim": {with(func(s *Facts) { s.PVRead, s.Claim.Read = read(1, 0), read(4, 0) }),
			want{ReadPV, ReasonReclaim}},
		"the PV was read before the attachments": {with(func(s *Facts) {
			s.PVRead, s.Attachments.Read = read(2, 0), read(4, 0)
		}), want{ReadPV, ReasonReclaim}},
		"the PV was read before its siblings": {with(func(s *Facts) { s.PVRead, s.SiblingsRead = read(3, 0), read(4, 0) }),
			want{ReadPV, ReasonReclaim}},
		"a try failed a moment ago": {with(func(s *Facts) { s.Failure.Until = now().Add(time.Second) }),
			want{Wait, ReasonVolumeFailedDelete}},
		"a try failed, there is no plugin": {with(func(s *Facts) {
			s.Failure = Failure{Until: now().Add(time.Second), PluginGone: true}
		}), want{Wait, ReasonPluginGone}},
		"a try failed, and it is time for another": {with(func(s *Facts) { s.Failure.Until = now() }),
			want{CreateTwin, ReasonReclaim}},
		"the API server has a PV of the twin's name": {with(func(s *Facts) { s.TwinConflict = true }),
			want{ReadTwin, ReasonReclaim}},
		"a PV that is no twin has the name": {with(twinIs(func(pv *PV) { pv.TwinOf = "" })),
			want{Wait, ReasonTwinNameTaken}},
		"the twin of a PV that had the name before": {with(twinIs(func(pv *PV) { pv.TwinOf = "older" })),
			want{Wait, ReasonTwinNameTaken}},
		"the twin's name, of another volume": {with(twinIs(func(pv *PV) { pv.Source = Source{2} })),
			want{Wait, ReasonTwinNameTaken}},
		"the twin's name, of another provisioner": {with(twinIs(func(pv *PV) { pv.ProvisionedBy = "kubernetes.io/rbd" })),
			want{Wait, ReasonTwinNameTaken}},
		"a twin's label under another name": {with(twinIs(func(pv *PV) { pv.Name = "another" })),
			want{Wait, ReasonTwinNameTaken}},
		"a twin's label that names another original": {with(twinIs(func(pv *PV) { pv.Original = "another" })),
			want{Wait, ReasonTwinNameTaken}},
		"set to Delete, and no twin of ours: not touched": {with(twinIs(append(deleting,
			func(pv *PV) { pv.TwinOf = "" })...), pvIs(of(volume.PolicyRetain))),
			want{RemoveFinalizer, ReasonPolicyKeepsVolume}},

		// The lifecycle of the twin.
		"made, the PV controller has not synced it": {with(twinIs()),
			want{Wait, ReasonTwinNotReleased}},
		"made, before it has a phase": {with(twinIs(in(volume.PhaseUnknown))),
			want{Wait, ReasonTwinNotReleased}},
		"released, all is proven: set to Delete": {with(twinIs(in(volume.PhaseReleased))),
			want{SetTwinDelete, ReasonReclaim}},
		"released, nothing was read a second time": {with(twinIs(in(volume.PhaseReleased)),
			func(s *Facts) { s.Claim = ClaimFacts{} }), want{ReadClaim, ReasonReclaim}},
		"released, attachments were not counted again": {with(twinIs(in(volume.PhaseReleased)),
			func(s *Facts) { s.Attachments = AttachmentFacts{} }), want{ReadAttachments, ReasonReclaim}},
		"released, attached": {with(twinIs(in(volume.PhaseReleased)),
			func(s *Facts) { s.Attachments.Count = 1 }), want{Wait, ReasonAttached}},
		"released, another PV needs the volume": {with(twinIs(in(volume.PhaseReleased)),
			sharer), want{Wait, ReasonSharedSource}},
		"released, the PV was not read again": {with(twinIs(in(volume.PhaseReleased)),
			func(s *Facts) { s.PVRead = session.Read{} }), want{ReadPV, ReasonReclaim}},
		"released, the claim lives: deleted": {with(twinIs(in(volume.PhaseReleased)),
			claimLives), want{DeleteTwin, ReasonClaimStillExists}},
		"released, a newer claim names the PV: deleted": {with(twinIs(in(volume.PhaseReleased)),
			restored), want{DeleteTwin, ReasonClaimNamesPV}},
		"the PV controller took the claim away: deleted": {with(twinIs(in(volume.PhaseAvailable),
			func(pv *PV) { pv.Claim.UID = "" })), want{DeleteTwin, ReasonTwinChanged}},
		"available: deleted": {with(twinIs(in(volume.PhaseAvailable))),
			want{DeleteTwin, ReasonTwinChanged}},
		"the twin is in use": {with(twinIs(in(volume.PhaseBound))),
			want{Wait, ReasonTwinChanged}},
		"the twin is in use and set to Delete": {with(twinIs(in(volume.PhaseBound),
			of(volume.PolicyDelete))), want{SetTwinRetain, ReasonTwinChanged}},
		"migrated by itself": {with(twinIs(in(volume.PhaseReleased),
			migrate)), want{DeleteTwin, ReasonTwinChanged}},
		"a policy set by a user": {with(twinIs(in(volume.PhaseReleased),
			of(volume.PolicyRecycle))), want{SetTwinRetain, ReasonTwinChanged}},
		"set to Delete": {with(twinIs(deleting...)),
			want{Wait, ReasonTwinDeleting}},
		"set to Delete before it was released": {with(twinIs(of(volume.PolicyDelete))),
			want{Wait, ReasonTwinDeleting}},
		"set to Delete, another PV needs the volume: set to Retain": {with(twinIs(deleting...), sharer),
			want{SetTwinRetain, ReasonSharedSource}},
		"set to Delete, turned to Retain: set to Retain": {with(twinIs(deleting...),
			pvIs(of(volume.PolicyRetain))), want{SetTwinRetain, ReasonPolicyKeepsVolume}},
		"set to Retain, turned to Retain: deleted": {with(twinIs(in(volume.PhaseReleased)),
			pvIs(of(volume.PolicyRetain))), want{DeleteTwin, ReasonPolicyKeepsVolume}},
		"going, turned to Retain: the finalizer goes": {with(twinIs(in(volume.PhaseReleased), going),
			pvIs(of(volume.PolicyRetain))), want{RemoveFinalizer, ReasonPolicyKeepsVolume}},
		"set to Delete and going, turned to Retain: its end shows": {with(twinIs(append(deleting, going)...),
			pvIs(of(volume.PolicyRetain))), want{Wait, ReasonTwinTerminating}},
		"set to Delete and going, another manages it: set to Retain": {with(twinIs(append(deleting, going)...),
			func(s *Facts) { s.Other = OtherPresent }), want{SetTwinRetain, ReasonControllerDeletes}},
		"set to Delete and going, another's finalizer on it: set to Retain": {with(twinIs(append(deleting, going,
			guarded(WriterOther))...)), want{SetTwinRetain, ReasonTwinTerminating}},
		"going, another's finalizer on it: freed": {with(twinIs(in(volume.PhaseReleased), going,
			guarded(WriterOther))), want{RemoveTwinFinalizer, ReasonTwinTerminating}},
		"going, another manages it, its finalizer on: freed": {with(twinIs(in(volume.PhaseReleased), going,
			guarded(WriterOther)), func(s *Facts) { s.Other = OtherPresent }), want{RemoveTwinFinalizer,
			ReasonControllerDeletes}},
		"set to Delete and going, released: set to Retain": {with(releasing,
			twinIs(append(deleting, going)...)), want{SetTwinRetain, ReasonFinalizersRemoved}},
		"set to Delete, held by a person: set to Retain": {with(twinIs(deleting...),
			pvIs(func(pv *PV) { pv.Held = true })), want{SetTwinRetain, ReasonHeld}},
		"set to Delete, an administrator took it back: set to Retain": {with(twinIs(deleting...),
			pvIs(func(pv *PV) { pv.Claim.UID = "" })), want{SetTwinRetain, ReasonNotClaimed}},
		"set to Delete, the PV was bound anew: set to Retain": {with(twinIs(deleting...),
			pvIs(in(volume.PhaseBound), func(pv *PV) { pv.Claim.UID = "newer" })), want{SetTwinRetain, ReasonTerminatingBound}},
		"set to Delete, the PV was bound anew and released": {with(twinIs(deleting...),
			pvIs(func(pv *PV) { pv.Claim.UID = "newer" })), want{SetTwinRetain, ReasonTwinChanged}},
		"set to Delete, the finalizer was removed by hand": {with(twinIs(deleting...),
			pvIs(guarded(WriterNone))), want{SetTwinRetain, ReasonDeletionUnprotected}},
		"set to Delete, migrated: set to Retain": {with(twinIs(deleting...), pvIs(migrate)),
			want{SetTwinRetain, ReasonMigratedUnprotected}},
		"set to Delete and going": {with(twinIs(append(deleting, going)...)),
			want{Wait, ReasonTwinTerminating}},
		"failed: set to Retain": {with(twinIs(in(volume.PhaseFailed),
			of(volume.PolicyDelete))), want{SetTwinRetain, ReasonVolumeFailedDelete}},
		"failed and set to Retain: deleted": {with(twinIs(in(volume.PhaseFailed))),
			want{DeleteTwin, ReasonVolumeFailedDelete}},
		"failed, set to Retain and going": {with(twinIs(in(volume.PhaseFailed), going)),
			want{Wait, ReasonTwinTerminating}},
		"its end was seen: the finalizer goes": {with(deleted),
			want{RemoveFinalizerByUID, ReasonVolumeDeleted}},
		"its end was seen, and the finalizer gone": {with(deleted, pvIs(guarded(WriterNone))),
			want{Wait, ReasonVolumeGone}},
		"its end was seen, F from before goes": {with(deleted,
			pvIs(guarded(WriterNone), func(pv *PV) { pv.HasFinalizer = true })),
			want{RemoveFinalizerByUID, ReasonVolumeDeleted}},
		"its end was seen, turned to Retain since": {with(deleted, pvIs(of(volume.PolicyRetain))),
			want{RemoveFinalizerByUID, ReasonTooLateToKeep}},
		"its end was seen, held since": {with(deleted, pvIs(func(pv *PV) { pv.Held = true })),
			want{RemoveFinalizerByUID, ReasonTooLateToKeep}},
		"its end was seen, bound anew since": {with(deleted, pvIs(in(volume.PhaseBound))),
			want{RemoveFinalizerByUID, ReasonTooLateToKeep}},
		"its end was seen, of another claim since": {with(deleted,
			pvIs(func(pv *PV) { pv.Claim.UID = "newer" })), want{RemoveFinalizerByUID, ReasonTooLateToKeep}},
		"its end was seen, and there is one again: deleted": {with(deleted, twinIs()),
			want{DeleteTwin, ReasonVolumeDeleted}},
		"its end was seen, another manages it since: it has": {with(deleted,
			func(s *Facts) { s.Other = OtherPresent }), want{RemoveFinalizerByUID, ReasonVolumeDeleted}},

		// Release.
		"released, ours: off": {with(releasing),
			want{RemoveFinalizer, ReasonFinalizersRemoved}},
		"released, ours, in use: off": {with(releasing, pvIs(alive, in(volume.PhaseBound))),
			want{RemoveFinalizer, ReasonFinalizersRemoved}},
		"released, another's: stays": {with(releasing, pvIs(guarded(WriterOther))),
			want{Wait, ReasonFinalizersRemoved}},
		"released, writer unknown: stays": {with(releasing, pvIs(guarded(WriterUnknown))),
			want{Wait, ReasonFinalizersRemoved}},
		"released, nothing on": {with(releasing,
			pvIs(guarded(WriterNone), func(pv *PV) { pv.HasFinalizer = true })), want{Wait, ReasonFinalizersRemoved}},
		"released, another is deleting the volume: stays": {with(releasing,
			func(s *Facts) { s.Other = OtherPresent }), want{Wait, ReasonFinalizersRemoved}},
		"released, another does not delete what is kept: off": {with(releasing, pvIs(of(volume.PolicyRetain)),
			func(s *Facts) { s.Other = OtherPresent }), want{RemoveFinalizer, ReasonFinalizersRemoved}},
		"released, another manages it, not deleted: off": {with(releasing, pvIs(alive),
			func(s *Facts) { s.Other = OtherPresent }), want{RemoveFinalizer, ReasonFinalizersRemoved}},
		"released, a twin with policy Delete is set to Retain first": {with(releasing, twinIs(deleting...)),
			want{SetTwinRetain, ReasonFinalizersRemoved}},
		"released, a twin is deleted first": {with(releasing, twinIs()),
			want{DeleteTwin, ReasonFinalizersRemoved}},
		"released, an orphan is deleted": {orphaned(releasing), want{DeleteTwin, ReasonOrphan}},
		"an orphan, the original was not looked for": {orphaned(func(s *Facts) { s.Original = OriginalFacts{} }),
			want{ReadOriginal, ReasonOrphan}},
		"an orphan, looked for too long ago": {orphaned(func(s *Facts) { s.Original.Read = read(1, 6*time.Second) }),
			want{ReadOriginal, ReasonOrphan}},
		"no orphan: the original is there": {orphaned(func(s *Facts) { s.Original.Gone = false }),
			want{Wait, ReasonCacheStale}},
		"an orphan: deleted": {orphaned(), want{DeleteTwin, ReasonOrphan}},
		"an orphan with policy Delete: set to Retain": {orphaned(func(s *Facts) { s.Twin.Policy = volume.PolicyDelete }),
			want{SetTwinRetain, ReasonOrphan}},
		"an orphan that goes": {orphaned(func(s *Facts) { s.Twin.Terminating = true }),
			want{Wait, ReasonOrphan}},
		"an orphan in use": {orphaned(func(s *Facts) { s.Twin.Phase = volume.PhaseBound }),
			want{Wait, ReasonOrphan}},
		"a PV with a twin's label, under a name of its own": {orphaned(func(s *Facts) { s.Twin.Name = "mine" }),
			want{Wait, ReasonNotOurs}},
		"a PV with a twin's label, of no in-tree plugin": {orphaned(func(s *Facts) { s.Twin.ProvisionedBy = "" }),
			want{Wait, ReasonNotOurs}},
		"a PV with a twin's label, of no in-tree volume": {orphaned(func(s *Facts) { s.Twin.Source = Source{} }),
			want{Wait, ReasonNotOurs}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Decide(c.s, now()).want(); got != c.want {
				t.Errorf("Decide = %v %v, want %v %v", got.Action, got.Reason, c.want.Action, c.want.Reason)
			}
		})
	}
}

func TestWaitsOfDecide(t *testing.T) {
	attached := with(func(s *Facts) { s.Attachments.Count = 1 })
	if d := Decide(attached, now()); !d.Timed {
		t.Error("the end of an attachment is no event that is watched, so the clock ends the wait")
	}
	needed := with(func(s *Facts) { s.Siblings, s.SiblingNeeded = []PV{sibling()}, "other" })
	if d := Decide(needed, now()); !d.Timed {
		t.Error("the end of another PV's claim is no event that is watched, so the clock ends the wait")
	}
	used := func(ago int64) Facts {
		return with(pvIs(in(volume.PhaseBound), func(pv *PV) { pv.TerminatingSince = now().Unix() - ago }))
	}
	if d := Decide(used(20), now()); !d.Quiet || d.After != 40*time.Second {
		t.Errorf("terminating and bound for 20s: %+v, want no Event for 40s more", d)
	}
	if d := Decide(used(60), now()); d.Quiet || d.After != 0 {
		t.Errorf("terminating and bound for a minute: %+v, want an Event now", d)
	}
	failed := with(func(s *Facts) { s.Failure.Until = now().Add(7 * time.Second) })
	if d := Decide(failed, now()); d.After != 7*time.Second {
		t.Errorf("the next try comes after %v, want 7s", d.After)
	}
}
