package reclaim

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Ask is the call of one step to the API server or to the driver. It is determined in full before it is sent, and does
// not depend on how the answer arrives.
type Ask struct {
	Decision
	PV volume.PV
	// Read has the time and order at which a step that reads began.
	Read session.Read
	// Siblings are the PVs for ReadSiblings to read.
	Siblings []volume.PV
	// Add and Remove are the finalizers that a write changes. With Bound, the write fails if the PV has changed since it
	// was read.
	Add, Remove []string
	Bound       bool
}

func (a Ask) writesFinalizers() bool { return len(a.Add) > 0 || len(a.Remove) > 0 }
func (a Ask) protects() bool         { return len(a.Add) > 0 }

// Outcome is how a step ended. The zero value means that the effect of the step is unknown.
type Outcome uint8

const (
	// Unanswered means that no answer came, or an error did; the step may have had its effect.
	Unanswered Outcome = iota
	OK
	// Changed means that the API server refused a write, because the object has changed since it was read.
	Changed
	// Gone means that no object with this UID exists.
	Gone
	// Restored means that an admission policy added the finalizer again in the write that removes it.
	Restored
	// Refused means that a person has to change something before the step can succeed.
	Refused
	// Unclear means that the Secret for the deletion cannot be determined.
	Unclear
	// InProgress means that the driver is still working on the volume.
	InProgress
	// Stale means that the list is too long for one page, and the watch has not reached its version.
	Stale
	// NotSent means that this replica does not hold its Lease.
	NotSent
	// Canceled means that the program or the term as leader ended before the answer came.
	Canceled
)

// refused reports whether the API server answered without changing anything.
func (o Outcome) refused() bool { return o == Changed || o == Gone || o == Restored }

// Reply is the answer to an Ask, with only the fields of its Action set.
type Reply struct {
	Outcome Outcome
	// PV is the PV that ReadPV read or that a write of finalizers returned, if it was Found.
	PV    volume.PV
	Found bool
	Claim ClaimFacts
	// PVs is the result of ListPVs or ReadSiblings. Claims has the claims of the siblings that are to be deleted, by the
	// UID of the PV.
	PVs    []volume.PV
	Claims map[types.UID]ClaimFacts
	// Attached counts the VolumeAttachments that ListAttachments returned, by the name of the PV.
	Attached map[string]int
	// OnlyNode is true if ListNodes returned this node and no other.
	OnlyNode bool
	// Missing names the Secret, or the StorageClass that would name it, if it does not exist.
	Missing string
	Version string
}
