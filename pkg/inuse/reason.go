package inuse

import "github.com/csi-reclaimer/csi-reclaimer/pkg/internal/reasons"

// Reason says why a decision is what it is. The same word is an Event's reason, a value in the log
// and a label of the metrics. What each means is its Sentence.
type Reason string

// Reasons for leaving an object alone.
const (
	ReasonUnknown       Reason = "Unknown"
	ReasonOff           Reason = "ProtectionOff"
	ReasonProtected     Reason = "Protected"
	ReasonNoFinalizer   Reason = "NoFinalizer"
	ReasonTwin          Reason = "Twin"
	ReasonLeftToBuiltIn Reason = "LeftToBuiltIn"
	ReasonContested     Reason = "FinalizerContested"
)

// Reasons for an object that is to go and stays.
const (
	ReasonInUse          Reason = "InUse"
	ReasonInUseEnded     Reason = "InUseByEndedPod"
	ReasonBound          Reason = "Bound"
	ReasonReadingUsers   Reason = "ReadingUsers"
	ReasonAPIReadFailed  Reason = "APIReadFailed"
	ReasonAPIWriteFailed Reason = "APIWriteFailed"
)

// Reasons for acting.
const (
	ReasonProtect Reason = "Protect"
	ReasonUnused  Reason = "Unused"
	ReasonRelease Reason = "Release"
	ReasonDryRun  Reason = "DryRun"
)

// Reasons returns every reason there is, in the order of their declaration.
func Reasons() []Reason {
	return []Reason{
		ReasonUnknown, ReasonOff, ReasonProtected, ReasonNoFinalizer, ReasonTwin, ReasonLeftToBuiltIn, ReasonContested,
		ReasonInUse, ReasonInUseEnded, ReasonBound, ReasonReadingUsers, ReasonAPIReadFailed, ReasonAPIWriteFailed,
		ReasonProtect, ReasonUnused, ReasonRelease, ReasonDryRun,
	}
}

// Sentence returns what the reason means and what a person can do about it.
func (r Reason) Sentence() string { return r.About().Sentence }

// EventType returns the type of the Events with this reason, Normal or Warning, empty where there are none.
func (r Reason) EventType() string { return r.About().Severity.EventType() }

// About returns how severe the reason is, and what it means.
func (r Reason) About() reasons.About {
	sentence, severity := r.describe()
	return reasons.About{Severity: severity, Sentence: sentence}
}

func (r Reason) describe() (sentence string, severity reasons.Severity) {
	switch r {
	case ReasonUnknown:
		return "Nothing is known of the object.", reasons.Silent
	case ReasonOff:
		return "This cluster is not served.", reasons.Silent
	case ReasonProtected:
		return "The object has the finalizer.", reasons.Silent
	case ReasonNoFinalizer:
		return "The object is terminating and does not have this finalizer.", reasons.Silent
	case ReasonTwin:
		return "The PV is a second name of another PV's volume and is not protected.", reasons.Silent
	case ReasonLeftToBuiltIn:
		return "Kubernetes' own controller may be at work; this one acts only if nobody does.", reasons.Counted
	case ReasonContested:
		return "Another program removes the finalizer again and again, so it is not added again: the object can be " +
			"deleted while it is in use.", reasons.Warning
	case ReasonInUse:
		return "The claim is terminating and a pod uses it. It is deleted when the pod is gone or has ended.", reasons.Normal
	case ReasonInUseEnded:
		return "The claim is terminating, and a pod that has ended still names it. It is deleted when the pod is.",
			reasons.Normal
	case ReasonBound:
		return "The PV is terminating and bound to a claim. It is deleted when the claim is gone.", reasons.Normal
	case ReasonReadingUsers:
		return "The pods that use the claim are read from the API server.", reasons.Counted
	case ReasonAPIReadFailed:
		return "Who uses the claim could not be read from the API server, so it counts as used; it is tried again.",
			reasons.Warning
	case ReasonAPIWriteFailed:
		return "The API server did not accept a change; it is tried again.", reasons.Warning
	case ReasonProtect:
		return "The object is protected against a deletion while it is in use.", reasons.Silent
	case ReasonUnused:
		return "Nobody uses the object; the finalizer is removed.", reasons.Silent
	case ReasonRelease:
		return "The finalizer is removed, as no other controller manages it.", reasons.Silent
	case ReasonDryRun:
		return "Dry run, nothing is changed.", reasons.Normal
	}
	return "", reasons.Silent
}
