package intree

import (
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Facts is the known state of one PV and its twin at one moment. The zero value of every field means that the fact is
// unknown, or is a reason to keep the volume.
type Facts struct {
	// Other indicates whether another program manages the finalizer of this PV.
	Other Other
	// YieldedSince is the time since when the PV has been left to the other program although that program should have
	// acted on it; zero means that no such action is pending.
	YieldedSince time.Time
	// RemovingFinalizers is set while volume-guard is being uninstalled: our finalizers are removed and no volume is
	// deleted.
	RemovingFinalizers bool

	// PV comes from the watch cache or, when PVRead is set, from a live read. If PV.UID is empty, the PV does not exist
	// and Twin is decided on alone.
	PV     PV
	PVRead session.Read

	// Twin is the PV with the name of PV's twin, if TwinFound, but not necessarily the twin: see isTwinOf.
	Twin      PV
	TwinFound bool
	// TwinConflict is set when the API server refused to create the twin, because a PV of that name exists that the watch
	// cache does not show.
	TwinConflict bool

	// Claim is the result of a live read of the PV's claim, and ClaimRead that read.
	Claim     pvclaim.Result
	ClaimRead session.Read
	// Attachments is the number of VolumeAttachments that name the PV or another PV of its volume, according to the live
	// list AttachmentsRead.
	Attachments     int
	AttachmentsRead session.Read
	// OriginalGone is true if no PV has the name of the PV that Twin belongs to, or if the PV has another UID, according
	// to the live read OriginalRead. It is only read if PV does not exist.
	OriginalGone bool
	OriginalRead session.Read

	// Siblings are the other PVs that name the same volume, twins included.
	Siblings []PV
	// SiblingsRead is the oldest live read of Siblings and of the claims of all Siblings that are to be deleted too. Zero
	// means that at least one of them comes from the cache.
	SiblingsRead session.Read
	// SiblingNeeded names a sibling whose policy and phase permit the deletion of the volume, but whose claim, as read
	// live, keeps the volume, or is empty if no sibling is needed.
	SiblingNeeded string

	// Tombstone is set once the volume is deleted.
	Tombstone Tombstone
	// Failure is the outcome of earlier tries.
	Failure Failure
}

// Other indicates whether another program adds the finalizer to in-tree PVs and removes it. The zero value is unknown,
// for which no step is taken.
type Other uint8

const (
	// OtherUnknown permits no step.
	OtherUnknown Other = iota
	// OtherAbsent means that no PV has a finalizer added by another program.
	OtherAbsent
	// OtherPresent means that another program adds the finalizer, and also has the volumes deleted:
	// kube-controller-manager from 1.31 on.
	OtherPresent
)

// Tombstone records the end of a twin that had its volume deleted. The zero value means that no end was seen.
type Tombstone struct {
	// VolumeDeleted means that the PV controller deleted the twin while its policy was Delete.
	VolumeDeleted bool
	// Claim is the claim that the volume belonged to.
	Claim volume.ClaimRef
}

// Failure is the outcome of failed tries to delete the volume. It is kept in memory only, so the delays start again
// after a restart; the zero value means that no try failed.
type Failure struct {
	// Until is the earliest time of the next try.
	Until time.Time
	// Message is the PV controller's status.message, and PluginGone is true if the PV controller found no plugin.
	Message    string
	PluginGone bool
}

func (f Failure) reason() Reason {
	if f.PluginGone {
		return ReasonPluginGone
	}
	return ReasonVolumeFailedDelete
}

// claimState returns the state of the PV's claim according to a live read that still counts. Unlike for CSI volumes, a
// claim that is bound to another PV counts as existing, because the PV controller takes the claim away from a twin with
// policy Retain (unbindVolume) instead of releasing the twin.
func (f Facts) claimState(now time.Time) pvclaim.State {
	if !f.ClaimRead.Fresh(now) {
		return pvclaim.Unknown
	}
	return f.Claim.State(f.PV.Name, f.PV.Claim)
}

// Needed reports whether a live read of a PV's claim shows that the claim keeps the PV's volume: the claim exists, or
// another claim of the same name names the PV. A claim that was not read, or was read for another claimRef, keeps it
// too.
func Needed(pv PV, claim pvclaim.Result) bool {
	return claim.State(pv.Name, pv.Claim) != pvclaim.Gone
}

// pvReadLast reports whether the PV was read live, and later than all other facts.
func (f Facts) pvReadLast(now time.Time) bool {
	return f.PVRead.Fresh(now) && f.PVRead.Order > f.ClaimRead.Order &&
		f.PVRead.Order > f.AttachmentsRead.Order && f.PVRead.Order > f.SiblingsRead.Order
}

// shared reports whether another PV still needs the volume, or has a hold. PVs that are all to be deleted do not wait
// for each other, nor for each other's twins.
func (f Facts) shared() bool { return slices.ContainsFunc(f.Siblings, f.keeps) }

func (f Facts) keeps(other PV) bool {
	return other.Held || !other.deletable() && !isTwinOf(other, f.PV) &&
		!slices.ContainsFunc(f.Siblings, func(third PV) bool { return third.deletable() && isTwinOf(other, third) })
}

// NeededBy returns the names of the other PVs that keep the volume.
func (f Facts) NeededBy() (names []string) {
	for _, other := range f.Siblings {
		if f.keeps(other) || other.Name == f.SiblingNeeded {
			names = append(names, other.Name)
		}
	}
	return names
}

// holdIgnored reports whether the PV has a hold, and kube-controller-manager, which does not know holds, can delete the
// volume all the same: by way of a PV that is not terminating, or whose finalizer that program manages.
func (f Facts) holdIgnored() bool {
	return f.PV.Held && slices.ContainsFunc(append([]PV{f.PV}, f.Siblings...), func(pv PV) bool {
		return pv.Policy == volume.PolicyDelete && pv.MigratedTo == "" && !pv.PluginGone && !isTwinOf(pv, f.PV) &&
			(!pv.Terminating || pv.Writer == WriterOther || f.Other == OtherPresent)
	})
}

// IdleAfter is the time in which another program that manages the finalizer must act on one PV. kube-controller-manager
// acts within seconds of each change, syncs every PV again each 15 seconds, and has a new leader within 20.
const IdleAfter = 2 * time.Minute

// otherIdle reports whether the other program fails to act on the PV, so that this program acts instead. The other
// program was seen to manage some PV, perhaps long ago.
func (f Facts) otherIdle(now time.Time) bool {
	return !f.YieldedSince.IsZero() && now.Sub(f.YieldedSince) >= IdleAfter
}

// twin reports whether the PV has a twin.
func (f Facts) twin() bool { return f.TwinFound && isTwinOf(f.Twin, f.PV) }

// removable returns the finalizers to remove when nothing needs them any more: ours, and on a PV that is not migrated
// also the finalizers of the CSI side, which no other program manages.
func (f Facts) removable() []string {
	var finalizers []string
	if f.PV.Writer == WriterSelf {
		finalizers = append(finalizers, Finalizer)
	}
	if f.PV.MigratedTo == "" && !f.RemovingFinalizers {
		finalizers = append(finalizers, f.PV.csiFinalizers()...)
	}
	return finalizers
}

// protection returns the changes that AddFinalizer makes.
func (f Facts) protection() (add, remove []string) {
	if f.PV.Writer == WriterNone {
		add = []string{Finalizer}
	}
	return add, f.PV.csiFinalizers()
}
