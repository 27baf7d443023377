package intree

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Snapshot is all that is known about one PV and its twin at one moment. The zero value of every
// field means that the fact is not known, or speaks for keeping the volume.
type Snapshot struct {
	// Manages says who manages the finalizer in this cluster.
	Manages Manages
	// LeftSince is since when the PV has been left to the other program although that would have done
	// something about it. Zero: it is not so.
	LeftSince time.Time
	// Releasing: the finalizers of ours are taken off, and nothing is deleted: the way out.
	Releasing bool

	// PV is the PV, from the watch cache or, when PVRead is set, from a live read. Without a UID
	// it is not there, and Twin is looked at alone.
	PV     PV
	PVRead Read

	// Twin is the PV that has the name of PV's twin, if TwinFound. Whether it is the twin is
	// another question.
	Twin      PV
	TwinFound bool

	// Claim is what a live read of the PV's claim found.
	Claim ClaimFacts
	// Attachments is what a live list of the VolumeAttachments showed.
	Attachments AttachmentFacts
	// Original is what a live read of the PV that Twin belongs to found, where PV is not there.
	Original OriginalFacts

	// Siblings are the other PVs that name the same volume, twins among them.
	Siblings []PV
	// SiblingsRead is the oldest of the live reads of Siblings. Zero: at least one of them is from
	// the cache.
	SiblingsRead Read

	// Done is set once the volume was deleted.
	Done Done
	// Failure is what became of earlier tries.
	Failure Failure
}

// Manages says who puts the finalizer on in-tree PVs and takes it off. The zero value is not
// known, in which nothing is done.
type Manages uint8

const (
	// ManagesUnknown does nothing.
	ManagesUnknown Manages = iota
	// ManagesNobody: no PV carries a finalizer that another program put on.
	ManagesNobody
	// ManagesOther: another program does, which also has the volumes deleted:
	// kube-controller-manager from 1.31 on.
	ManagesOther
)

// Read is a live read of the API server. The zero value: none was made.
type Read struct {
	// Sent is when the request was sent; what it shows is at least as new.
	Sent time.Time
	// Order numbers the reads of one run from 1. Times alone do not tell which read came last
	// where a clock is coarse.
	Order int
}

// fresh tells whether the read was made and still counts.
func (r Read) fresh(now time.Time) bool {
	return r.Order > 0 && now.Sub(r.Sent) <= liveFor
}

// liveFor is how long a live read counts. It bounds the time between what was seen and what is
// done about it; a read that is older is repeated.
const liveFor = 5 * time.Second

// ClaimFacts is what a live read of a claim found. The zero value: it was not read.
type ClaimFacts struct {
	Read Read
	// Of is the claimRef the read was made for.
	Of volume.ClaimRef
	// Found: there is a claim of that name. UID and VolumeName are its own.
	Found      bool
	UID        types.UID
	VolumeName string
}

// AttachmentFacts is what a live list of VolumeAttachments showed. The zero value: none was made.
type AttachmentFacts struct {
	Read Read
	// Count is how many name the PV or another PV of its volume.
	Count int
}

// OriginalFacts is what a live read of a twin's original found. The zero value: it was not read.
type OriginalFacts struct {
	Read Read
	// Gone: no PV has the name, or it belongs to a PV of another UID.
	Gone bool
}

// Done is what was seen of the end of a twin that had its volume deleted. The zero value: nothing.
type Done struct {
	// VolumeDeleted: the PV controller deleted the twin that was armed.
	VolumeDeleted bool
	// Claim is whose volume it was.
	Claim volume.ClaimRef
}

// Failure is what became of tries to delete the volume. It lives in memory: after a restart the
// delays begin anew. The zero value: none failed.
type Failure struct {
	// Until is when the next try may begin.
	Until time.Time
	// Message is what the PV controller said, and PluginGone that it found no plugin.
	Message    string
	PluginGone bool
}

func (f Failure) reason() Reason {
	if f.PluginGone {
		return ReasonPluginGone
	}
	return ReasonVolumeFailedDelete
}

// claimState is what the facts say about the claim that the PV belongs to.
type claimState uint8

const (
	claimUnknown claimState = iota
	claimExists
	// claimNamesPV: another claim has the name now, and spec.volumeName of that one is the PV.
	claimNamesPV
	claimGone
)

// claimState judges the claim. Other than for CSI volumes, one that is bound to another PV counts
// as alive: the PV controller takes the claim away from a twin with policy Retain (unbindVolume)
// instead of releasing it. Another claim of the name that names the PV is one that was restored from a backup.
func (s Snapshot) claimState(now time.Time) claimState {
	c := s.Claim
	switch {
	case !c.Read.fresh(now) || c.Of != s.PV.Claim:
		return claimUnknown
	case c.Found && c.UID != s.PV.Claim.UID && c.VolumeName == s.PV.Name:
		return claimNamesPV
	case !c.Found, c.UID != s.PV.Claim.UID:
		return claimGone
	}
	return claimExists
}

// pvReadLast tells whether the PV was read live, and after everything else was.
func (s Snapshot) pvReadLast(now time.Time) bool {
	return s.PVRead.fresh(now) && s.PVRead.Order > s.Claim.Read.Order &&
		s.PVRead.Order > s.Attachments.Read.Order && s.PVRead.Order > s.SiblingsRead.Order
}

// shared tells whether another PV still needs the volume. Two that are both to be deleted do not wait
// for each other, nor for each other's twins.
func (s Snapshot) shared() bool {
	return slices.ContainsFunc(s.Siblings, func(other PV) bool {
		return !other.deletable() && !twinOf(other, s.PV) &&
			!slices.ContainsFunc(s.Siblings, func(third PV) bool { return third.deletable() && twinOf(other, third) })
	})
}

// patience is how long another program that manages the finalizer may take to do its part for one PV.
// kube-controller-manager does so within seconds of each change, looks at every PV again each 15
// seconds, and has a new leader within 20.
const patience = 2 * time.Minute

// idle tells whether the other program does not do its part for the PV, so that it is no reason to stand
// down: it was seen to manage another PV, long ago perhaps.
func (s Snapshot) idle(now time.Time) bool {
	return !s.LeftSince.IsZero() && now.Sub(s.LeftSince) >= patience
}

// twin tells whether there is a twin of the PV.
func (s Snapshot) twin() bool { return s.TwinFound && twinOf(s.Twin, s.PV) }

// ours returns the finalizers that are to go when nothing needs them any more: ours, and on a PV
// that is not migrated those of the CSI side, for which nobody else answers.
func (s Snapshot) ours() []string {
	var on []string
	if s.PV.Guard == WriterUs {
		on = append(on, Finalizer)
	}
	if s.PV.MigratedTo == "" && !s.Releasing {
		on = append(on, s.PV.csiFinalizers()...)
	}
	return on
}

// protection returns what Protect changes.
func (s Snapshot) protection() (add, drop []string) {
	if s.PV.Guard == WriterNone {
		add = []string{Finalizer}
	}
	return add, s.PV.csiFinalizers()
}
