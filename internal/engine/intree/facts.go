package intree

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Facts is all that is known about one PV and its twin at one moment. The zero value of every field means that the
// fact is not known, or speaks for keeping the volume.
type Facts struct {
	// Other is whether another program manages the finalizer of this PV.
	Other Other
	// YieldedSince is since when the PV has been left to the other program although that program would have acted on
	// it. Zero: it is not so.
	YieldedSince time.Time
	// RemovingFinalizers: our finalizers are removed and no volume is deleted, because volume-guard is uninstalled.
	RemovingFinalizers bool

	// PV is the PV, from the watch cache or, when PVRead is set, from a live read. Without a UID there is none, and
	// Twin is decided on alone.
	PV     PV
	PVRead session.Read

	// Twin is the PV that has the name of PV's twin, if TwinFound. Whether it is the twin is another question.
	Twin      PV
	TwinFound bool
	// TwinConflict: the API server refused to create the twin, because a PV of that name exists that the watch cache
	// does not show.
	TwinConflict bool

	// Claim is what a live read of the PV's claim found.
	Claim ClaimFacts
	// Attachments is what a live list of the VolumeAttachments showed.
	Attachments AttachmentFacts
	// Original is what a live read of the PV that Twin belongs to found, where PV does not exist.
	Original OriginalFacts

	// Siblings are the other PVs that name the same volume, twins among them.
	Siblings []PV
	// SiblingsRead is the oldest of the live reads of Siblings, and of the claims of those that are to be deleted too.
	// Zero: at least one of them is from the cache.
	SiblingsRead session.Read
	// SiblingNeeded names one of Siblings whose policy and phase permit the deletion of the volume, but whose claim, as
	// read live, keeps the volume. Empty: there is none.
	SiblingNeeded string

	// Tombstone is set once the volume was deleted.
	Tombstone Tombstone
	// Failure is what became of earlier tries.
	Failure Failure
}

// Other is whether another program than this one adds the finalizer to in-tree PVs and removes it. The zero value is
// not known, in which nothing is done.
type Other uint8

const (
	// OtherUnknown does nothing.
	OtherUnknown Other = iota
	// OtherAbsent: no PV has a finalizer that another program added.
	OtherAbsent
	// OtherPresent: another program does, which also has the volumes deleted: kube-controller-manager from 1.31 on.
	OtherPresent
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

// AttachmentFacts is what a live list of VolumeAttachments showed. The zero value: none was made.
type AttachmentFacts struct {
	Read session.Read
	// Count is how many name the PV or another PV of its volume.
	Count int
}

// OriginalFacts is what a live read of a twin's original found. The zero value: it was not read.
type OriginalFacts struct {
	Read session.Read
	// Gone: no PV has the name, or it belongs to a PV of another UID.
	Gone bool
}

// Tombstone is what was seen of the end of a twin that had its volume deleted. The zero value: nothing.
type Tombstone struct {
	// VolumeDeleted: the PV controller deleted the twin whose policy was Delete.
	VolumeDeleted bool
	// Claim is whose volume it was.
	Claim volume.ClaimRef
}

// Failure is the outcome of tries to delete the volume. It is in memory only: after a restart the delays begin again.
// The zero value: none failed.
type Failure struct {
	// Until is when the next try may begin.
	Until time.Time
	// Message is the PV controller's, and PluginGone reports that it found no plugin.
	Message    string
	PluginGone bool
}

func (f Failure) reason() Reason {
	if f.PluginGone {
		return ReasonPluginGone
	}
	return ReasonVolumeFailedDelete
}

// claimState is what the facts show about the claim that the PV belongs to.
type claimState uint8

const (
	claimUnknown claimState = iota
	claimExists
	// claimNamesPV: another claim has the name now, and spec.volumeName of that one is the PV.
	claimNamesPV
	claimGone
)

func (f Facts) claimState(now time.Time) claimState {
	if !f.Claim.Read.Fresh(now) {
		return claimUnknown
	}
	return stateOf(f.Claim, f.PV)
}

// stateOf judges what a read found of a PV's claim. Other than for CSI volumes, a claim that is bound to another PV
// counts as existing: the PV controller takes the claim away from a twin with policy Retain (unbindVolume) instead of
// releasing it. Another claim of the name that names the PV is one that was restored from a backup.
func stateOf(c ClaimFacts, pv PV) claimState {
	switch {
	case c.Read.Order == 0 || c.Of != pv.Claim:
		return claimUnknown
	case c.Found && c.UID != pv.Claim.UID && c.VolumeName == pv.Name:
		return claimNamesPV
	case !c.Found, c.UID != pv.Claim.UID:
		return claimGone
	}
	return claimExists
}

// Needed reports whether a live read of a PV's claim shows that the claim keeps the PV's volume: it exists, or another
// one of its name names the PV. A claim that was not read, or read for another claimRef, keeps it too.
func Needed(pv PV, claim ClaimFacts) bool { return stateOf(claim, pv) != claimGone }

// pvReadLast reports whether the PV was read live, and after everything else was.
func (f Facts) pvReadLast(now time.Time) bool {
	return f.PVRead.Fresh(now) && f.PVRead.Order > f.Claim.Read.Order &&
		f.PVRead.Order > f.Attachments.Read.Order && f.PVRead.Order > f.SiblingsRead.Order
}

// shared reports whether another PV still needs the volume. Two that are both to be deleted do not wait for each
// other, nor for each other's twins.
func (f Facts) shared() bool {
	return slices.ContainsFunc(f.Siblings, func(other PV) bool {
		return !other.deletable() && !isTwinOf(other, f.PV) &&
			!slices.ContainsFunc(f.Siblings, func(third PV) bool { return third.deletable() && isTwinOf(other, third) })
	})
}

// IdleAfter is how long another program that manages the finalizer may take to do its part for one PV.
// kube-controller-manager does so within seconds of each change, syncs every PV again each 15 seconds, and has a new
// leader within 20.
const IdleAfter = 2 * time.Minute

// otherIdle reports whether the other program does not do its part for the PV, so that this program acts on it: the
// other was seen to manage another PV, long ago perhaps.
func (f Facts) otherIdle(now time.Time) bool {
	return !f.YieldedSince.IsZero() && now.Sub(f.YieldedSince) >= IdleAfter
}

// twin reports whether there is a twin of the PV.
func (f Facts) twin() bool { return f.TwinFound && isTwinOf(f.Twin, f.PV) }

// removable returns the finalizers to remove when nothing needs them any more: ours, and on a PV that is not migrated
// those of the CSI side, which no other program manages.
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

// protection returns what AddFinalizer changes.
func (f Facts) protection() (add, remove []string) {
	if f.PV.Writer == WriterNone {
		add = []string{Finalizer}
	}
	return add, f.PV.csiFinalizers()
}
