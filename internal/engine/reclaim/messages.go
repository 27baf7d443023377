package reclaim

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Action is one step; the zero value does nothing.
type Action uint8

const (
	// Wait does nothing now.
	Wait Action = iota
	AddFinalizer
	// AdoptPV adds the owner's finalizer to a PV and removes the companion's, in one write.
	AdoptPV
	// RemoveFinalizer removes our finalizers from the PV, which ends its protection, unless the PV has changed since it
	// was read.
	RemoveFinalizer
	// ListAttachments lists the VolumeAttachments, because the watch may be behind.
	ListAttachments
	ReadSecrets
	ReadClaim
	ReadSiblings
	// ListPVs lists the PVs, so that no other PV of the handle is overlooked.
	ListPVs
	ReadPV
	// ListNodes lists the nodes, to find others with the topology segments of this one.
	ListNodes
	DeleteVolume
	DeletePV
	// FinalizePV removes our finalizers from a PV whose volume is deleted, even if the PV has changed.
	FinalizePV
)

var actionNames = []string{
	Wait: "Wait", AddFinalizer: "AddFinalizer", AdoptPV: "AdoptPV", RemoveFinalizer: "RemoveFinalizer",
	ListAttachments: "ListAttachments", ReadSecrets: "ReadSecrets", ReadClaim: "ReadClaim", ReadSiblings: "ReadSiblings",
	ListPVs: "ListPVs", ReadPV: "ReadPV", ListNodes: "ListNodes", DeleteVolume: "DeleteVolume", DeletePV: "DeletePV",
	FinalizePV: "FinalizePV",
}

// String returns the action as used in logs.
func (a Action) String() string { return session.Name(a, actionNames) }

// writes reports whether the action changes the cluster or the storage system.
func (a Action) writes() bool { return session.KindOf(a) == session.Writes }

// destroys reports whether the action deletes a volume, a PV or its protection, or prepares that.
func (a Action) destroys() bool {
	switch a {
	case Wait, AddFinalizer, AdoptPV:
		return false
	default:
		return true
	}
}

// Protects reports whether the action belongs to the loop of first-time protection, which no deletion waits for.
func (a Action) Protects() bool { return a == AddFinalizer || a == AdoptPV }

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
	Claim pvclaim.Result
	// PVs is the result of ListPVs or ReadSiblings. Claims has the claims of the siblings that are to be deleted, by the
	// UID of the PV.
	PVs    []volume.PV
	Claims map[types.UID]pvclaim.Result
	// Attached counts the VolumeAttachments that ListAttachments returned, by the name of the PV.
	Attached map[string]int
	// OnlyNode is true if ListNodes returned this node and no other.
	OnlyNode bool
	// Missing names the Secret, or the StorageClass that would name it, if it does not exist.
	Missing string
	Version string
}

// Result determines the next decision on a PV after its session has ended.
type Result uint8

const (
	// Asks means that the session has not ended, and Ask is to be carried out.
	Asks Result = iota
	// Idle waits for the next event of the PV.
	Idle
	// Soon decides again a moment later, for a cause that ends by itself.
	Soon
	// Later decides again after Decision.Quiet.
	Later
	// Retry decides again after a delay that grows.
	Retry
	// Slow decides again after a longer delay, for a cause that a person has to remove.
	Slow
)

// Kind is the subject of a Report.
type Kind uint8

const (
	// None reports nothing.
	None Kind = iota
	// Waits reports why the PV waits.
	Waits
	// Counts counts the PV as waiting, and reports nothing yet.
	Counts
	// Would reports the step that a dry run ends before.
	Would
	// Failed reports a failed step. Only a new reason is reported again, because messages differ between tries.
	Failed
	// FailedByCause is Failed with every new error message reported again.
	FailedByCause
	// Besides reports a fact in addition to why the PV waits.
	Besides
)

// Report is a message to people about a PV.
type Report struct {
	Kind   Kind
	Reason Reason
	// Detail completes the reason's sentence, to which the caller adds the error of a step that failed.
	Detail string
}

// Step is the result of a decision or an answer.
type Step struct {
	Decision Decision
	Result   Result
	// Report is why the session ended, and Besides a report in addition.
	Report, Besides Report
	// TooLate are other PVs of the volume that were changed to keep it while it was being deleted, to be reported with
	// ReasonTooLateToKeep.
	TooLate []volume.PV
	// Protect is true if the PV is to get its finalizer, which is the work of another loop.
	Protect bool
	// Settled is true if the PV is gone, no work is left, and its record is dropped.
	Settled bool
}
