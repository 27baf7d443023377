package inuse

import v1 "k8s.io/api/core/v1"

// Reason says why a decision is what it is. The same word is an Event's reason, a value in the log
// and a label of the metrics. What each means is its Sentence.
type Reason string

// Reasons for leaving an object alone.
const (
	ReasonUnknown       Reason = "Unknown"
	ReasonOff           Reason = "ProtectionOff"
	ReasonProtected     Reason = "Protected"
	ReasonNotHeld       Reason = "NotHeld"
	ReasonTwin          Reason = "Twin"
	ReasonLeftToBuiltIn Reason = "LeftToBuiltIn"
	ReasonContested     Reason = "FinalizerContested"
)

// Reasons for an object that is to go and stays.
const (
	ReasonInUse      Reason = "InUse"
	ReasonInUseEnded Reason = "InUseByEndedPod"
	ReasonBound      Reason = "Bound"
	ReasonAsking     Reason = "AskingForUsers"
	ReasonUnreadable Reason = "Unreadable"
	ReasonUnwritable Reason = "Unwritable"
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
		ReasonUnknown, ReasonOff, ReasonProtected, ReasonNotHeld, ReasonTwin, ReasonLeftToBuiltIn, ReasonContested,
		ReasonInUse, ReasonInUseEnded, ReasonBound, ReasonAsking, ReasonUnreadable, ReasonUnwritable,
		ReasonProtect, ReasonUnused, ReasonRelease, ReasonDryRun,
	}
}

// notice is how loudly a reason is told.
type notice uint8

const (
	// silent reasons are the normal course of things.
	silent notice = iota
	// quiet reasons are counted and not told.
	quiet
	// normal reasons keep an object that is to go, as they should.
	normal
	// warning reasons want a person's attention.
	warning
)

// Sentence returns what the reason means and what a person can do about it.
func (r Reason) Sentence() string {
	sentence, _ := r.about()
	return sentence
}

func (r Reason) notice() notice {
	_, loud := r.about()
	return loud
}

// EventType returns the type of the Events with this reason, Normal or Warning, empty where none is told.
func (r Reason) EventType() string {
	switch r.notice() {
	case silent, quiet:
	case normal:
		return v1.EventTypeNormal
	case warning:
		return v1.EventTypeWarning
	}
	return ""
}

func (r Reason) about() (sentence string, loud notice) {
	switch r {
	case ReasonUnknown:
		return "Nothing is known of the object.", silent
	case ReasonOff:
		return "This cluster is not served.", silent
	case ReasonProtected:
		return "The finalizer is on.", silent
	case ReasonNotHeld:
		return "The object is being deleted and not held by this finalizer.", silent
	case ReasonTwin:
		return "The PV is a second name of another PV's volume and is not protected.", silent
	case ReasonLeftToBuiltIn:
		return "Kubernetes' own controller may be at work; this one acts only if nobody does.", quiet
	case ReasonContested:
		return "Another program takes the finalizer off again and again, so it is not put on any more: the object can be deleted while it is in use.", warning
	case ReasonInUse:
		return "The claim is being deleted and a pod uses it. It goes when the pod is gone or has ended.", normal
	case ReasonInUseEnded:
		return "The claim is being deleted, and a pod that has ended still names it. It goes when the pod is deleted.", normal
	case ReasonBound:
		return "The PV is being deleted while it is bound to a claim. It goes when the claim is gone.", normal
	case ReasonAsking:
		return "The API server is asked for the pods that use the claim.", quiet
	case ReasonUnreadable:
		return "Who uses the claim could not be read from the API server, so it counts as used; it is tried again.", warning
	case ReasonUnwritable:
		return "The API server did not take a change; it is tried again.", warning
	case ReasonProtect:
		return "The object is protected against a deletion while it is in use.", silent
	case ReasonUnused:
		return "Nobody uses the object; it is let go.", silent
	case ReasonRelease:
		return "The finalizer is taken off, for nobody manages it any more.", silent
	case ReasonDryRun:
		return "Dry run, nothing is changed.", normal
	}
	return "", silent
}

// waits tells whether an object with this reason is counted as waiting.
func (r Reason) waits() bool { return r.notice() != silent }
