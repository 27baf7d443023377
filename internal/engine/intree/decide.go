package intree

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Decision is the next step for one PV and its twin, with its reason.
type Decision struct {
	Action Action
	Reason Reason
	// Timed means that no event is sure to end this wait, so it is retried by the clock.
	Timed bool
	// After, if not zero, is the longest duration of this wait.
	After time.Duration
	// Quiet means that this wait counts, but has no Event yet.
	Quiet bool
}

// Step implements session.State.
func (d Decision) Step() session.Step[Reason] {
	return session.Step[Reason]{Action: d.Action, Reason: d.Reason, After: d.After}
}

func wait(why Reason) Decision           { return Decision{Action: Wait, Reason: why} }
func timed(why Reason) Decision          { return Decision{Action: Wait, Reason: why, Timed: true} }
func step(a Action, why Reason) Decision { return Decision{Action: a, Reason: why} }

// Decide returns the next step for one PV and its twin. Carrying out a step adds facts, with which Decide is called
// again. It keeps the volume whenever a fact is unknown.
//
// now is the time against which the age of live reads is judged.
func Decide(f Facts, now time.Time) Decision {
	switch {
	case f.PV.UID == "":
		return orphan(f, now)
	case !f.PV.Provisioned():
		return wait(ReasonNotOurs)
	case f.Other == OtherUnknown:
		return wait(ReasonNotSynced)
	}
	d, due := decidePV(f, now)
	if due {
		return decideTwin(f, now)
	}
	// A twin through which the volume must no longer be deleted is ended before any other step.
	if f.twin() {
		if first, ended := endTwin(f, d.Reason); !ended {
			return first
		}
	}
	return f.withHold(d)
}

// decidePV returns the next step for the PV itself. due means that, as far as the PV shows, its volume is to be
// deleted.
func decidePV(f Facts, now time.Time) (_ Decision, due bool) {
	pv := f.PV
	switch {
	case f.Tombstone.VolumeDeleted:
		return finish(f), false
	case f.RemovingFinalizers:
		return removeFinalizers(f), false
	case pv.Writer == WriterOther, f.Other == OtherPresent && !f.otherIdle(now):
		return yield(f, now), false
	}
	return decideAlone(f, now)
}

// decideAlone is decidePV for a PV that is not left to another program.
func decideAlone(f Facts, now time.Time) (_ Decision, due bool) {
	pv := f.PV
	switch {
	case pv.MigratedTo != "":
		return migrated(f), false
	case pv.Policy == volume.PolicyUnknown:
		return wait(ReasonPolicyUnknown), false
	case pv.Policy != volume.PolicyDelete:
		return keep(f), false
	case !pv.Terminating:
		return protect(f), false
	}
	return terminating(f, now)
}

// finish completes the work once the volume is deleted.
func finish(f Facts) Decision {
	pv := f.PV
	why := ReasonVolumeDeleted
	if pv.Policy != volume.PolicyDelete || pv.Claim != f.Tombstone.Claim || pv.Phase == volume.PhaseBound ||
		pv.Held {
		why = ReasonTooLateToKeep
	}
	if len(f.removable()) > 0 {
		return step(RemoveFinalizerByUID, why)
	}
	return wait(ReasonVolumeGone)
}

// removeFinalizers removes our finalizer for good, from a PV in any state. If another program manages the finalizer
// now, a terminating PV is left to that program, unless its policy keeps the volume.
func removeFinalizers(f Facts) Decision {
	if f.PV.Writer != WriterSelf || f.Other == OtherPresent && f.PV.Terminating && !f.PV.keepsVolume() {
		return wait(ReasonFinalizersRemoved)
	}
	return step(RemoveFinalizer, ReasonFinalizersRemoved)
}

// yield leaves a PV to the program that, as far as the PV shows, manages its finalizer and therefore acts first.
func yield(f Facts, now time.Time) Decision {
	switch {
	case f.PV.PluginGone:
		return wait(ReasonPluginGone)
	case f.otherIdle(now) && f.PV.Terminating:
		return wait(ReasonControllerIdle)
	}
	d, _ := f.byOther(now)
	switch d.Reason {
	case ReasonNotClaimed, ReasonTerminatingUnbound, ReasonDeletionUnprotected:
		return d // true of every program that manages the finalizer
	default:
		d = wait(ReasonManagedByController)
	}
	if f.PV.Terminating {
		d.Reason = ReasonControllerDeletes
	}
	if !f.YieldedSince.IsZero() {
		d.After = max(0, f.YieldedSince.Add(IdleAfter).Sub(now))
	}
	return d
}

// byOther decides on the PV like the other program, for which the finalizer is its own, and which knows no holds.
func (f Facts) byOther(now time.Time) (_ Decision, due bool) {
	if f.PV.Writer != WriterNone {
		f.PV.Writer = WriterSelf
	}
	f.PV.Held = false
	return decideAlone(f, now)
}

// otherActs reports whether the other program would act on the PV now: as this program would, if it were alone. That
// program also leaves a migrated PV without protection, and by itself retries the deletion of a PV in phase Failed,
// which is reported by this program only if it acts on the PV itself.
func (f Facts) otherActs(now time.Time) bool {
	if f.PV.Phase == volume.PhaseFailed && f.PV.deletable() &&
		(f.PV.Writer == WriterOther || f.PV.Writer == WriterUnknown) {
		return false
	}
	d, due := f.byOther(now)
	return due || d.Action != Wait || d.Reason == ReasonMigratedUnprotected
}

// migrated handles a PV that a CSI driver's sidecar is responsible for: our finalizer is removed, as in
// modifyDeletionFinalizers. It stays only if the volume would leak without it, because the sidecar's finalizer is
// missing and can no longer be added.
func migrated(f Facts) Decision {
	pv := f.PV
	switch {
	case pv.Writer == WriterNone:
		return wait(ReasonMigrated)
	case pv.Terminating && pv.Writer == WriterUnknown:
		return wait(ReasonWriterUnknown)
	case pv.Writer == WriterUnknown:
		return wait(ReasonMigrated)
	case pv.Terminating && !pv.keepsVolume() && len(pv.csiFinalizers()) == 0:
		return wait(ReasonMigratedUnprotected)
	}
	return step(RemoveFinalizer, ReasonMigrated)
}

// keep handles a PV whose policy keeps the volume, which needs no finalizer. While the PV is terminating and bound, the
// finalizers stay, because none could be added again if the policy were set back to Delete.
func keep(f Facts) Decision {
	pv := f.PV
	switch {
	case pv.Writer == WriterUnknown && pv.Terminating:
		return wait(ReasonWriterUnknown)
	case len(f.removable()) == 0:
		return wait(ReasonPolicyKeepsVolume)
	case pv.Terminating && pv.Phase == volume.PhaseBound:
		return wait(ReasonRetainBound)
	}
	return step(RemoveFinalizer, ReasonPolicyKeepsVolume)
}

// protect handles a PV with policy Delete that is not terminating. After its release, the PV controller of every
// version deletes its volume by itself.
func protect(f Facts) Decision {
	if add, remove := f.protection(); len(add)+len(remove) > 0 {
		return step(AddFinalizer, ReasonProtect)
	}
	if f.PV.deletable() {
		return wait(ReasonManagedByController)
	}
	return wait(ReasonProtected)
}

// terminating handles a PV with policy Delete that is terminating. A finalizer of the CSI side holds the PV as well as
// ours does; the PV can have it from the time before a migration was reverted.
func terminating(f Facts, now time.Time) (_ Decision, due bool) {
	pv := f.PV
	switch {
	case pv.Writer == WriterUnknown:
		return wait(ReasonWriterUnknown), false
	case len(f.removable()) == 0:
		return wait(ReasonDeletionUnprotected), false
	case !pv.Claimed():
		return wait(ReasonNotClaimed), false
	case pv.Phase == volume.PhaseBound:
		return patient(ReasonTerminatingBound, pv, now), false
	case pv.Phase == volume.PhaseUnknown:
		return wait(ReasonNotReleased), false
	case !pv.released():
		return patient(ReasonTerminatingUnbound, pv, now), false
	case pv.Held:
		return wait(ReasonHeld), false
	}
	return Decision{}, true
}

// patient returns a wait of a terminating PV that is the normal course of things for a while.
func patient(why Reason, pv PV, now time.Time) Decision {
	quiet := session.Quiet(pv.TerminatingSince, now)
	return Decision{Action: Wait, Reason: why, After: quiet, Quiet: quiet > 0}
}

// withHold replaces the reason of a wait in which a person may rely on a hold that keeps nothing.
func (f Facts) withHold(d Decision) Decision {
	switch d.Reason {
	case ReasonProtected, ReasonManagedByController, ReasonControllerDeletes, ReasonHeld:
		if f.holdIgnored() {
			d.Reason = ReasonHoldNotObeyed
		}
	default:
	}
	return d
}

// decideTwin takes a twin from its creation to its end. The twin is created with policy Retain, the PV controller finds
// its claim gone and releases it, and all facts are read a second time before its policy is set to Delete.
func decideTwin(f Facts, now time.Time) Decision {
	switch f.twinState() {
	case twinForeign:
		return timed(ReasonTwinNameTaken)
	case twinNone:
		if rest := f.Failure.Until.Sub(now); rest > 0 {
			return Decision{Reason: f.Failure.reason(), After: rest}
		}
		if f.TwinConflict {
			return step(ReadTwin, ReasonReclaim)
		}
		return prove(f, CreateTwin, now)
	case twinCreated:
		return wait(ReasonTwinNotReleased)
	case twinReleased:
		return prove(f, SetTwinDelete, now)
	case twinDeleting:
		if f.shared() {
			return step(SetTwinRetain, ReasonSharedSource)
		}
		return wait(ReasonTwinDeleting)
	case twinTerminating:
		if f.Twin.Writer != WriterNone {
			d, _ := endTwin(f, ReasonTwinTerminating)
			return d
		}
		return wait(ReasonTwinTerminating)
	case twinFailed:
		// The policy must not stay Delete while the time of the PV controller's next try is unknown.
		d, _ := endTwin(f, ReasonVolumeFailedDelete)
		return d
	case twinChanged:
		if d, ended := endTwin(f, ReasonTwinChanged); !ended {
			return d
		}
	}
	return wait(ReasonTwinChanged)
}

// prove reads live all facts that a deletion depends on, before the next step of a twin. The facts that need no call
// come first, and the PV is read last, because administrators rescue a volume by editing its PV.
func prove(f Facts, then Action, now time.Time) Decision {
	if f.shared() {
		return wait(ReasonSharedSource)
	}
	switch f.claimState(now) {
	case pvclaim.Unknown:
		return step(ReadClaim, ReasonReclaim)
	case pvclaim.Exists:
		return claimKeeps(f, ReasonClaimStillExists)
	case pvclaim.NamesPV:
		return claimKeeps(f, ReasonClaimNamesPV)
	case pvclaim.Gone:
	}
	switch {
	case !f.AttachmentsRead.Fresh(now):
		return step(ReadAttachments, ReasonReclaim)
	case f.Attachments > 0:
		return timed(ReasonAttached)
	case len(f.Siblings) > 0 && !f.SiblingsRead.Fresh(now):
		return step(ReadSiblings, ReasonReclaim)
	case f.SiblingNeeded != "":
		return timed(ReasonSharedSource)
	case !f.pvReadLast(now):
		return step(ReadPV, ReasonReclaim)
	}
	return step(then, ReasonReclaim)
}

// claimKeeps handles a released PV whose claim exists, or that another claim of the same name names. The PV controller
// would take an existing claim away from a twin, so the twin is ended.
func claimKeeps(f Facts, why Reason) Decision {
	if f.twin() {
		if d, ended := endTwin(f, why); !ended {
			return d
		}
	}
	return timed(why)
}
