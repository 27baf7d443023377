package reclaim

import (
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Facts is all knowledge about one PV at one moment. The zero value of every field means that the fact is not known,
// or speaks for keeping the volume.
type Facts struct {
	Rules Rules

	// Leading is true if this replica holds its Lease or leader election is off. Otherwise another replica may act, and
	// the records of this one do not count.
	Leading bool

	// PV comes from the watch cache or, if PVRead is set, from a live read. If End says that the PV is gone, it is the
	// last observed state.
	PV     volume.PV
	PVRead session.Read
	End    End

	Memory

	// Brake reports whether the brake stops all deletions.
	Brake Brake

	// Claim is the result of a live read of the PV's claim, and ClaimRead that read.
	Claim     pvclaim.Result
	ClaimRead session.Read

	// Attachments counts the VolumeAttachments that name this PV or one of Siblings.
	Attachments int
	// AttachmentsCurrent reports that Attachments includes everything that the API server held when the deletion became
	// due, not only the events that the watch has delivered.
	AttachmentsCurrent bool

	// Siblings are the other PVs that name the same volume. If some of them keep it, a few of those are enough.
	Siblings []volume.PV
	// SiblingsRead is the oldest of the live reads of Siblings. It is zero if at least one of them is from the cache.
	SiblingsRead session.Read
	// SiblingNeeded names a PV of Siblings, or none, whose policy and phase permit the deletion of the volume, but whose
	// claim, or another claim that names the PV, existed when it was read.
	SiblingNeeded string
	// PVsListed is a live list that showed Siblings to be complete. Only a PV that is gone needs it, since nothing
	// prevents another PV from taking over its volume.
	PVsListed session.Read

	// NodesListed is a live list of the nodes with the topology segments of this one, and OnlyNode reports that it
	// returned this node alone; both are for Rules.Local.
	NodesListed session.Read
	OnlyNode    bool

	// Log is the in-flight log's state for the volume of this PV, which counts only with Rules.Logged.
	Log volume.InFlight
	// LogProblem names the Lease, and the part of it that cannot be read, while Log is volume.InFlightUnreadable.
	LogProblem string

	// SecretsRead reports that the deletion's Secret was read, or that none is named.
	SecretsRead bool
}

// Memory is the knowledge of this process about one PV that objects do not show.
type Memory struct {
	// Done is the work that this process has already done for the PV, and History the PV as this process observed it.
	Done    Done
	History History
	// Contested is true if others keep removing our finalizer from this PV, or from several PVs of the driver, so that
	// this PV no longer gets it. DriverContested is true if they do so from several, so that no PV gets it.
	Contested, DriverContested bool
	// ClaimEndedAt is the time when the watch of claims showed the end of the claim that the PV names. It is zero if the
	// watch has not, or has since shown a claim that names the PV, and for a PV that is gone. It stands for a read at
	// that time and expires like one, because only a read finds a claim that the watch has not shown yet, such as one
	// restored from a backup.
	ClaimEndedAt time.Time
}

// End describes a PV that is gone from the API server. The zero value means that the PV exists.
type End struct {
	Gone bool
	// Final is true if the last state is known. Otherwise the watch was interrupted, and the PV may have changed before
	// it went.
	Final bool
	// Shared is true if another PV named the same volume when the PV went, or has named it since.
	Shared bool
}

// History is the history of a PV since a process first observed it, empty before that.
type History struct {
	// SeenAlive is true if the PV was observed before it was terminating.
	SeenAlive bool
	// SeenReleased is true if its volume was to be deleted before the PV was terminating, so that a peer which deletes
	// such volumes had its chance.
	SeenReleased bool
	// SeenProtected is true if a finalizer that counts was observed on the PV, and this process has not removed it since.
	SeenProtected bool
	// Stripped is true if another program or a person removed our finalizer while the PV was terminating.
	Stripped bool
}

// Brake is the state of the brake, unknown in the zero value.
type Brake uint8

const (
	// BrakeUnknown stops deletions until the state is known.
	BrakeUnknown Brake = iota
	// BrakeOff permits deletions, as far as the brake is concerned.
	BrakeOff
	// BrakeOn stops deletions until a person resumes them.
	BrakeOn
)

// Done is the work that a process has done for one PV, so that a stale cache causes no step twice. It is kept by UID
// until the PV's end is observed.
type Done struct {
	// Protected and Removed are true if our finalizer was added, or removed, in a write that PV does not reflect yet.
	Protected, Removed bool
	// VolumeDeleted is true if the storage system answered that the volume, which belonged to Claim, is gone. Sent is true
	// if DeleteVolume was sent for a volume of Claim and not answered for certain, so that the volume may be gone.
	VolumeDeleted, Sent bool
	Claim               volume.ClaimRef
	// PVDeleted is true if the API server accepted the PV's deletion, or the PV was gone.
	PVDeleted bool
	// Finalized is true if our finalizers are known to be gone after we removed them.
	Finalized bool
}

// pvReadLast reports whether the PV was read live, after all other reads.
func (s Facts) pvReadLast(now time.Time) bool {
	return s.PVRead.Fresh(now) && s.PVRead.Order > s.ClaimRead.Order && s.PVRead.Order > s.SiblingsRead.Order &&
		s.PVRead.Order > s.NodesListed.Order
}

// Underway reports whether the volume is to be deleted, or is deleted while work on the PV is left.
func (s Facts) Underway() bool {
	if s.Done.VolumeDeleted {
		return !s.End.Gone && finish(s).Action != Wait
	}
	return s.Rules.due(s.PV) || s.End.Gone && s.PV.Deletable()
}

// elsewhere reports whether, in node deployment, the PV does not belong to this node alone.
func (s Facts) elsewhere() bool {
	return s.Rules.Local && s.PV.Reach != volume.ReachHere && !s.Done.VolumeDeleted
}

// notYetBound reports whether the PV controller has still to bind the PV, as far as its phase is known. It binds no PV
// that is terminating.
func (s Facts) notYetBound() bool {
	pv := s.PV
	return pv.Phase == volume.PhaseUnknown || pv.Phase != volume.PhaseBound && !pv.Released() && !pv.Terminating
}

// adoptable reports whether an owner replaces the companion's finalizer on the PV with its own.
func (s Facts) adoptable() bool {
	return s.Rules.Role == volume.RoleOwner && s.PV.HasCompanionFinalizer && !s.Contested && !s.Done.Protected
}

// mayMissAttachments reports whether the watch may lack an attachment of the volume, by the PV or another of its PVs.
// The attacher removes its finalizer before a PV goes, so a PV that is gone does not show whether it was attached. For
// a driver without ControllerPublishVolume it adds none, and the watch alone shows the attachments, which attach
// nothing.
func (s Facts) mayMissAttachments() bool {
	attached := s.PV.WasAttached || s.End.Gone ||
		slices.ContainsFunc(s.Siblings, func(other volume.PV) bool { return other.WasAttached })
	return attached && !s.AttachmentsCurrent && !s.Rules.NeverAttached
}

// settledWhenGone reports whether no work is left for the volume of a PV that is gone: it is deleted, or was to be
// kept.
func (s Facts) settledWhenGone() bool {
	pv := s.PV
	switch {
	case s.Done.VolumeDeleted || pv.Policy != volume.PolicyDelete || !pv.Claimed() || s.Rules.ignores(pv) ||
		s.Rules.Mode == ModeRelease:
		return true
	case s.protected() && s.Rules.Mode != ModeHonor:
		return true
	}
	// The peer of an observer deletes the volume before it removes its finalizer.
	return s.Rules.Role == volume.RoleObserver && (s.protected() || s.History.SeenProtected)
}

// provenUnprotected reports whether the PV itself permits the deletion of its volume although the PV is gone: this
// process observed the PV from before its deletion to its end, released and without a finalizer that counts. It ended
// without a companion's, too, because the release of that finalizer keeps the volume.
func (s Facts) provenUnprotected() bool {
	return s.Rules.ReclaimUnprotected && s.Rules.Mode == ModeHonor && !s.protected() && !s.PV.HasCompanionFinalizer &&
		s.PV.Released() && s.End.Final && s.History.SeenAlive && !s.History.SeenProtected && !s.PV.Held
}

func (s Facts) protected() bool { return s.Rules.Protects(s.PV) }

// claimState returns the state of the claim according to a live read that still counts.
func (s Facts) claimState(now time.Time) pvclaim.State {
	if !s.ClaimRead.Fresh(now) {
		return pvclaim.Unknown
	}
	return stateOf(s.Claim, s.PV)
}

// stateOf returns the state of a PV's claim. The claim of a provisioned PV is also gone when it is bound to another PV.
// This does not hold for a static PV, because its claim may be bound elsewhere by a mistake that an administrator
// corrects.
func stateOf(c pvclaim.Result, pv volume.PV) pvclaim.State {
	state := c.State(pv.Name, pv.Claim)
	if state == pvclaim.Exists && pv.Provisioned() && c.VolumeName != "" && c.VolumeName != pv.Name {
		return pvclaim.Gone
	}
	return state
}

// claimEnded reports whether the watch has just shown the end of the claim, so that it need not be read.
func (s Facts) claimEnded(now time.Time) bool {
	return !s.ClaimEndedAt.IsZero() && now.Sub(s.ClaimEndedAt) <= session.LiveFor
}

// ClaimNeedsVolume reports whether, by a live read, a PV's claim keeps the PV's volume: it exists, or another claim of
// its name names the PV. A claim that was not read, or was read for another claimRef, keeps it too.
func ClaimNeedsVolume(pv volume.PV, claim pvclaim.Result) bool {
	return stateOf(claim, pv) != pvclaim.Gone
}

// shared reports whether another PV still needs the volume.
func (s Facts) shared() bool {
	return slices.ContainsFunc(s.Siblings, func(other volume.PV) bool { return keepsFrom(other, s.PV) })
}

// keepsFrom reports whether a PV keeps its volume from being deleted under another PV. Two PVs that are both to be
// deleted do not wait for each other, and a PV waits for its own twin only if that has a hold.
func keepsFrom(other, pv volume.PV) bool {
	return other.Held || other.Keeps() && !other.IsTwinOf(pv)
}

// sharedByCase reports whether all other PVs of the volume write its handle in another case, so that they may be PVs of
// another volume.
func (s Facts) sharedByCase() bool {
	return len(s.Siblings) > 0 &&
		!slices.ContainsFunc(s.Siblings, func(other volume.PV) bool { return other.Handle == s.PV.Handle })
}

// mayBeTooLate reports whether the PV keeps its volume for this reason after a DeleteVolume that may have deleted it.
func (s Facts) mayBeTooLate(why Reason) bool {
	return s.Done.Sent && !s.Done.VolumeDeleted &&
		(s.changedSinceDeleted() || why == ReasonSharedHandle || why == ReasonClaimNamesPV)
}

// changedSinceDeleted reports whether the PV was changed to keep its volume after the deletion had begun. No deletion
// begins on a PV with a hold.
func (s Facts) changedSinceDeleted() bool {
	return s.PV.Policy != volume.PolicyDelete || s.PV.Claim != s.Done.Claim || s.PV.Phase == volume.PhaseBound || s.PV.Held
}
