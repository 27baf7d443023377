package reclaim

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Snapshot is all that is known about one PV at one moment. The zero value of every field
// means that the fact is not known, or speaks for keeping the volume.
type Snapshot struct {
	// Driver is the name of the CSI driver that decides.
	Driver string

	// PV is the PV, from the watch cache or, when PVRead is set, from a live read.
	PV     PV
	PVRead Read

	// Claim is what a live read of the PV's claim found.
	Claim ClaimFacts

	// Attachments counts the VolumeAttachments that name this PV or another PV of the
	// same handle.
	Attachments int
	// AttachmentsCurrent tells that Attachments holds everything that the API server had
	// when the deletion became due, not only what the watch has delivered.
	AttachmentsCurrent bool

	// Siblings are the other PVs that name the same volume.
	Siblings []PV
	// SiblingsRead is the oldest of the live reads of Siblings. Zero: at least one of them
	// is from the cache.
	SiblingsRead Read

	// SecretsRead tells that the deletion's Secret was read, or that none is named.
	SecretsRead bool

	// Done is what this process has already done for the PV.
	Done Done
}

// Read is a live read of the API server. The zero value: none was made.
type Read struct {
	// Sent is when the request was sent; what it shows is at least as new.
	Sent time.Time
	// Order numbers the reads of one run from 1. Times alone do not tell which read came
	// last where a clock is coarse.
	Order int
}

// fresh tells whether the read was made and still counts.
func (r Read) fresh(now time.Time) bool {
	return r.Order > 0 && now.Sub(r.Sent) <= liveFor
}

// liveFor is how long a live read counts. It bounds the time between what was seen and
// the driver's call; a read that is older is repeated.
const liveFor = 5 * time.Second

// ClaimFacts is what a live read of a claim found. The zero value: it was not read.
type ClaimFacts struct {
	Read Read
	// Of is the claimRef the read was made for.
	Of ClaimRef
	// Found: there is a claim of that name. UID and VolumeName are its own.
	Found      bool
	UID        types.UID
	VolumeName string
}

// Done is what a process has done for one PV, so that it does nothing twice because its
// cache lags. It is kept by UID until the PV's end is seen.
type Done struct {
	// VolumeDeleted: the storage system answered that the volume is gone.
	VolumeDeleted bool
	// PVDeleted: the API server accepted the PV's deletion, or the PV was gone.
	PVDeleted bool
	// Released: our finalizers were seen to be off after we took them off.
	Released bool
}

// pvReadLast tells whether the PV was read live, and after everything else was.
func (s Snapshot) pvReadLast(now time.Time) bool {
	return s.PVRead.fresh(now) && s.PVRead.Order > s.Claim.Read.Order && s.PVRead.Order > s.SiblingsRead.Order
}

// claimState is what the facts say about the claim that the PV belongs to.
type claimState uint8

const (
	claimUnknown claimState = iota
	claimExists
	claimGone
)

// claimState judges the claim. It is gone when no claim of its name exists, when the name
// belongs to another claim now, or when a provisioned PV's claim is bound to another PV.
// The last does not hold for a static PV: its claim may be bound elsewhere by a mistake
// that an administrator will mend.
func (s Snapshot) claimState(now time.Time) claimState {
	c := s.Claim
	switch {
	case !c.Read.fresh(now) || c.Of != s.PV.Claim:
		return claimUnknown
	case !c.Found, c.UID != s.PV.Claim.UID:
		return claimGone
	case s.PV.dynamic() && c.VolumeName != "" && c.VolumeName != s.PV.Name:
		return claimGone
	}
	return claimExists
}

// shared tells whether another PV still needs the volume. Two PVs that are both to be
// deleted do not wait for each other.
func (s Snapshot) shared() bool {
	for _, other := range s.Siblings {
		if !other.deletable() {
			return true
		}
	}
	return false
}
