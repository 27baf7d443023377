package reclaim

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Ask is the call of one step to the API server or to the driver. All of it is determined before anything is sent, and
// it does not depend on how the answer arrives.
type Ask struct {
	Decision
	PV volume.PV
	// Read is when, and in which order, a step that reads began.
	Read session.Read
	// Siblings are those that ReadSiblings reads.
	Siblings []volume.PV
	// Add and Remove are the finalizers that a write changes; with Bound, only while the PV is as it was read.
	Add, Remove []string
	Bound       bool
}

func (a Ask) writesFinalizers() bool { return len(a.Add) > 0 || len(a.Remove) > 0 }
func (a Ask) protects() bool         { return len(a.Add) > 0 }

// Outcome is how a step ended. The zero value is one of which nothing is known.
type Outcome uint8

const (
	// Unanswered: no answer came, or an error; the step may have had its effect.
	Unanswered Outcome = iota
	// OK: the step did what it was for.
	OK
	// Changed: the API server refused a write, for the object is not as it was read.
	Changed
	// Gone: there is no object of that UID.
	Gone
	// Restored: an admission policy added the finalizer again in the write that removes it.
	Restored
	// Refused: a person has to change something before it can succeed.
	Refused
	// Unclear: which Secret the deletion needs cannot be determined.
	Unclear
	// InProgress: the driver works on the volume.
	InProgress
	// Stale: the list is too long for one page, and the watch has not reached its version.
	Stale
	// NotSent: this replica does not hold its Lease.
	NotSent
	// Canceled: the program or the term as leader ended.
	Canceled
)

// refused reports whether the API server answered and changed nothing.
func (o Outcome) refused() bool { return o == Changed || o == Gone || o == Restored }

// Reply is the answer to an Ask. Only the fields of its Action are set.
type Reply struct {
	Outcome Outcome
	// PV is the PV that ReadPV read, or as a write of finalizers left it, if it was Found.
	PV    volume.PV
	Found bool
	// Claim is what ReadClaim found.
	Claim ClaimFacts
	// PVs are those that ListPVs listed, or the siblings that ReadSiblings found. Claims is what was found of the
	// claims of those siblings that are to be deleted, by the UID of the PV.
	PVs    []volume.PV
	Claims map[types.UID]ClaimFacts
	// Attached counts the VolumeAttachments that ListAttachments listed, by the name of the PV.
	Attached map[string]int
	// OnlyNode: ListNodes found this node and no other.
	OnlyNode bool
	// Missing names what would name or hold the Secret, but does not exist.
	Missing string
	// Version is the resourceVersion that a write produced.
	Version string
}
