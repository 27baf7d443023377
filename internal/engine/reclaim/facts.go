package reclaim

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"k8s.io/apimachinery/pkg/types"
)

// Facts is all that is known about one PV at one moment. The zero value of every field
// means that the fact is not known, or speaks for keeping the volume.
type Facts struct {
	// Rules are the settings.
	Rules Rules

	// Leading: this replica holds its Lease, or there is no leader election. Otherwise another one may
	// act by now, and what this one has recorded of the PV does not count.
	Leading bool

	// PV is the PV, from the watch cache or, when PVRead is set, from a live read. When End
	// says that it is gone it is the last that was seen of it.
	PV     volume.PV
	PVRead session.Read
	End    End

	// History is what this process has seen of the PV.
	History History
	// Contested: others remove our finalizer from this PV, or from several of the driver's, again and
	// again, so that it is not added any more. DriverContested: from several, so that it is added to none.
	Contested, DriverContested bool
	// Brake reports whether deletions are stopped for all PVs.
	Brake Brake

	// Claim is what a live read of the PV's claim found.
	Claim ClaimFacts
	// ClaimEndedAt is when the watch of claims has shown the end of the claim that the PV names. Zero: it has not, or has
	// shown a claim since that names the PV. It stands for a read of that moment, and counts as long: what the watch has
	// not shown yet, such as a claim that was restored from a backup, only a read finds. Of a PV that is gone it is not
	// known.
	ClaimEndedAt time.Time

	// Attachments counts the VolumeAttachments that name this PV or another PV of the
	// same handle.
	Attachments int
	// AttachmentsCurrent reports that Attachments holds everything that the API server had
	// when the deletion became due, not only what the watch has delivered.
	AttachmentsCurrent bool

	// Siblings are the other PVs that name the same volume.
	Siblings []volume.PV
	// SiblingsRead is the oldest of the live reads of Siblings. Zero: at least one of them
	// is from the cache.
	SiblingsRead session.Read
	// SiblingNeeded names one of Siblings whose policy and phase permit the deletion of the volume, but whose
	// claim existed when they were read, or was one that names it. Empty: none.
	SiblingNeeded string
	// PVsListed is a live read which showed that Siblings are all there are. Only a PV that
	// is gone needs it: nothing prevents another from taking over its volume.
	PVsListed session.Read

	// NodesListed is a live read of the nodes with the topology segments of this one, and OnlyNode reports that
	// it found this one and no other. Only where the rules say Local are they needed.
	NodesListed session.Read
	OnlyNode    bool

	// Log is what the in-flight log has for the volume of this PV. It counts where the rules say Logged.
	Log LogState
	// LogProblem is what cannot be read while Log is LogUnreadable, with the name of the Lease.
	LogProblem string

	// SecretsRead reports that the deletion's Secret was read, or that none is named.
	SecretsRead bool

	// Done is what this process has already done for the PV.
	Done Done
}

// LogState is what the in-flight log has for a volume. The zero value: it has not been read.
type LogState = volume.InFlight

// The states of the log.
const (
	LogUnknown    = volume.InFlightUnknown
	LogOpen       = volume.InFlightOpen
	LogSettled    = volume.InFlightSettled
	LogUnreadable = volume.InFlightUnreadable
)

// End is what is known of a PV that is gone from the API server. The zero value: it is there.
type End struct {
	Gone bool
	// Final: the last state is known. Otherwise the watch was interrupted, and the PV may
	// have changed before it went.
	Final bool
	// Shared: another PV named the same volume when the PV went, or since.
	Shared bool
}

// History is what a process has seen of a PV since it first saw it. The zero value: nothing.
type History struct {
	// SeenAlive: the PV was seen before it was terminating.
	SeenAlive bool
	// SeenReleased: its volume was to be deleted before it was terminating; a peer that
	// deletes such volumes had its chance.
	SeenReleased bool
	// SeenProtected: a finalizer that counts was seen on it, which this process did not remove
	// since.
	SeenProtected bool
	// Stripped: somebody else removed our finalizer while the PV was terminating.
	Stripped bool
}

// Brake reports whether deletions are stopped. The zero value is not known.
type Brake uint8

const (
	// BrakeUnknown stops deletions until it is known.
	BrakeUnknown Brake = iota
	// BrakeOff permits deletions.
	BrakeOff
	// BrakeOn stops deletions until a person resumes them.
	BrakeOn
)

// ClaimFacts is what a live read of a claim found. The zero value: it was not read.
type ClaimFacts struct {
	Read session.Read
	// Of is the claimRef the read was made for.
	Of volume.ClaimRef
	// Found: there is a claim of that name. UID and VolumeName are its own.
	Found      bool
	UID        types.UID
	VolumeName string
}

// Done is what a process has done for one PV, so that a stale cache causes no step
// twice. It is kept by UID until the PV's end is seen.
type Done struct {
	// Protected: our finalizer was added in a write that the PV, as it is known here, does not
	// show yet. Removed: it was removed in such a write.
	Protected, Removed bool
	// VolumeDeleted: the storage system answered that the volume is gone. Claim is whose it
	// was.
	VolumeDeleted bool
	Claim         volume.ClaimRef
	// PVDeleted: the API server accepted the PV's deletion, or the PV was gone.
	PVDeleted bool
	// Finalized: our finalizers are known to be gone after we removed them.
	Finalized bool
}

// pvReadLast reports whether the PV was read live, and after everything else was.
func (s Facts) pvReadLast(now time.Time) bool {
	return s.PVRead.Fresh(now) && s.PVRead.Order > s.Claim.Read.Order && s.PVRead.Order > s.SiblingsRead.Order &&
		s.PVRead.Order > s.NodesListed.Order
}

// Underway reports whether the volume is to be deleted, or is and the PV still has our finalizer.
func (s Facts) Underway() bool {
	if s.Done.VolumeDeleted {
		return !s.End.Gone && finish(s).Action != Wait
	}
	return s.Rules.due(s.PV) || s.End.Gone && s.PV.Deletable()
}

// elsewhere reports whether the PV is not this node's alone, where each node decides on its own volumes.
func (s Facts) elsewhere() bool {
	return s.Rules.Local && s.PV.Reach != volume.ReachHere && !s.Done.VolumeDeleted
}

// adoptable reports whether an owner replaces the companion's finalizer on the PV by its own.
func (s Facts) adoptable() bool {
	return s.Rules.Role == volume.RoleOwner && s.PV.HasCompanionFinalizer && !s.Contested && !s.Done.Protected
}

// mayMissAttachments reports whether the watch may not show an attachment of the volume. The attacher removes its
// finalizer before a PV goes, so that of a PV that is gone nothing shows whether it was attached.
func (s Facts) mayMissAttachments() bool {
	return (s.PV.WasAttached || s.End.Gone) && !s.AttachmentsCurrent && !s.Rules.NeverAttached
}

// settledWhenGone reports whether nothing is left to do for the volume of a PV that is gone: it is deleted, or was not
// to be deleted.
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

// provenUnprotected reports whether the volume of a PV that is gone is to be deleted after it, as far as the PV shows:
// this process has seen the PV from before its deletion to its end, released and without a finalizer that counts.
func (s Facts) provenUnprotected() bool {
	return s.Rules.ReclaimUnprotected && s.Rules.Mode == ModeHonor && !s.protected() && s.PV.Released() &&
		s.End.Final && s.History.SeenAlive && !s.History.SeenProtected && !s.PV.Held
}

// protected reports whether a finalizer that counts holds the PV.
func (s Facts) protected() bool { return s.Rules.Protects(s.PV) }

// claimState is what the facts show about the claim that the PV belongs to.
type claimState uint8

const (
	claimUnknown claimState = iota
	claimExists
	// claimNamesPV: another claim has the name now, and spec.volumeName of that one is the PV.
	claimNamesPV
	claimGone
)

// claimState judges the claim. It is gone when no claim of its name exists, when the name
// belongs to another claim now, or when a provisioned PV's claim is bound to another PV.
// The last does not hold for a static PV: its claim may be bound elsewhere by a mistake
// that an administrator corrects.
//
// Another claim of the name that names this PV is what a restore from a backup leaves: the
// objects are created again, the claim with a new UID, and the PV's claimRef has the old one.
func (s Facts) claimState(now time.Time) claimState {
	c := s.Claim
	switch {
	case !c.Read.Fresh(now) || c.Of != s.PV.Claim:
		return claimUnknown
	case c.Found && c.UID != s.PV.Claim.UID && c.VolumeName == s.PV.Name:
		return claimNamesPV
	case !c.Found, c.UID != s.PV.Claim.UID:
		return claimGone
	case s.PV.Provisioned() && c.VolumeName != "" && c.VolumeName != s.PV.Name:
		return claimGone
	}
	return claimExists
}

// claimEnded reports whether the watch has just shown the end of the claim, so that it need not be read.
func (s Facts) claimEnded(now time.Time) bool {
	return !s.ClaimEndedAt.IsZero() && now.Sub(s.ClaimEndedAt) <= session.LiveFor
}

// ClaimNeedsVolume reports whether a live read of a PV's claim shows that the claim keeps the PV's volume: it
// exists, or another one of its name names the PV. A claim that was not read, or read for another claimRef, keeps it
// too.
func ClaimNeedsVolume(pv volume.PV, claim ClaimFacts) bool {
	claim.Read = session.Read{Order: 1}
	return Facts{PV: pv, Claim: claim}.claimState(time.Time{}) != claimGone
}

// shared reports whether another PV still needs the volume. Two PVs that are both to be
// deleted do not wait for each other, and a PV does not wait for its own twin.
func (s Facts) shared() bool {
	for _, other := range s.Siblings {
		if !other.Deletable() && !other.IsTwinOf(s.PV) {
			return true
		}
	}
	return false
}

// changedSinceDeleted reports whether somebody decided to keep the volume after it was gone.
func (s Facts) changedSinceDeleted() bool {
	return s.PV.Policy != volume.PolicyDelete || s.PV.Claim != s.Done.Claim || s.PV.Phase == volume.PhaseBound
}
