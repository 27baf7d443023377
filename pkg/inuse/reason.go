package inuse

import "github.com/csi-reclaimer/csi-reclaimer/internal/reasons"

// Reason explains a decision. The same word is an Event's reason, a value in the log and a label of the metrics; its
// Sentence gives the meaning.
type Reason = reasons.Word[family]

// family gives a Reason the meaning that this package declares.
type family struct{}

// About implements reasons.Family.
func (family) About(word string) reasons.About { return table.About(word) }

var table reasons.Table[family]

// Reasons for leaving an object alone.
var (
	reasonUnknown       = table.Silent("Unknown", "The object is unknown.")
	ReasonOff           = table.Silent("ProtectionOff", "The protection controller is off.")
	ReasonProtected     = table.Silent("Protected", "The object has the finalizer.")
	ReasonNoFinalizer   = table.Silent("NoFinalizer", "The object is terminating and does not have this finalizer.")
	ReasonTwin          = table.Silent("Twin", "The PV is a second name of another PV's volume and is not protected.")
	ReasonLeftToBuiltIn = table.Counted("LeftToBuiltIn",
		"Kubernetes' own controller may manage the object; volume-guard acts only if that controller does not.")
	reasonContested = table.Warning("FinalizerContested",
		"Another program removes the finalizer again and again, so it is not added again: the object can be deleted while "+
			"it is in use.")
)

// Reasons for an object that is terminating and stays.
var (
	ReasonInUse = table.Normal("InUse",
		"The claim is terminating and a pod uses it. It is deleted when the pod is gone or has ended.")
	ReasonInUseEnded = table.Normal("InUseByEndedPod",
		"The claim is terminating, and a terminated pod still names it. It is deleted when the pod is deleted.")
	ReasonBound = table.Normal("Bound",
		"The PV is terminating and bound to a claim. It is deleted when the claim is gone.")
	reasonReadingUsers  = table.Counted("ReadingUsers", "The pods that use the claim are read from the API server.")
	ReasonAPIReadFailed = table.Warning("APIReadFailed",
		"volume-guard could not read from the API server whether the claim is in use, so the claim counts as in use. "+
			"volume-guard tries again.")
	reasonAPIWriteFailed = table.Warning("APIWriteFailed", "A write to the API server failed; volume-guard tries again.")
)

// Reasons for acting.
var (
	ReasonProtect = table.Silent("Protect", "The finalizer is added, so that the object is kept while it is in use.")
	ReasonUnused  = table.Silent("Unused", "The object is not in use; the finalizer is removed.")
	reasonRelease = table.Silent("Release", "The finalizer is removed, because no other controller manages it.")
	reasonDryRun  = table.DryRun()
)

// Reasons returns every reason, in the order of their declaration.
func Reasons() []Reason { return table.Reasons() }
