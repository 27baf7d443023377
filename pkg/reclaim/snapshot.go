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

	// PV is the PV, from the watch cache or, when PVReadAt is set, from a live read.
	PV PV
	// PVReadAt is when the live read of PV was sent. Zero: PV is from the cache.
	PVReadAt time.Time

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
	// SiblingsReadAt is when the oldest of the live reads of Siblings was sent. Zero: at
	// least one of them is from the cache.
	SiblingsReadAt time.Time

	// SecretsRead tells that the deletion's Secret was read, or that none is named.
	SecretsRead bool

	// Done is what this process has already done for the PV.
	Done Done
}

// ClaimFacts is what a live read of a claim found. The zero value: it was not read.
type ClaimFacts struct {
	// ReadAt is when the read was sent.
	ReadAt time.Time
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

// live tells whether every read that a deletion rests on was made, is younger than
// liveFor, and that the PV's own read is the last of them.
func (s Snapshot) live(now time.Time) bool {
	if !fresh(s.PVReadAt, now) || s.PVReadAt.Before(s.Claim.ReadAt) {
		return false
	}
	return len(s.Siblings) == 0 || !s.PVReadAt.Before(s.SiblingsReadAt)
}

// liveFor is how long a live read counts. It bounds the time between what was seen and
// the driver's call; a read that is older is repeated.
const liveFor = 5 * time.Second

func fresh(readAt, now time.Time) bool {
	return !readAt.IsZero() && now.Sub(readAt) <= liveFor
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
	case !fresh(c.ReadAt, now) || c.Of != s.PV.Claim:
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
