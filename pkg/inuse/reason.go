package inuse

import "github.com/csi-reclaimer/csi-reclaimer/pkg/internal/reasons"

// Reason is why a decision is what it is. The same word is an Event's reason, a value in the log
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

// Reasons for an object that is terminating and stays.
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

// table has a row for every reason there is, in the order of their declaration.
var table = reasons.NewTable([]reasons.Row[Reason]{
	{Reason: ReasonUnknown, Sentence: "Nothing is known of the object."},
	{Reason: ReasonOff, Sentence: "This cluster is not served."},
	{Reason: ReasonProtected, Sentence: "The object has the finalizer."},
	{Reason: ReasonNoFinalizer, Sentence: "The object is terminating and does not have this finalizer."},
	{Reason: ReasonTwin, Sentence: "The PV is a second name of another PV's volume and is not protected."},
	{Reason: ReasonLeftToBuiltIn, Severity: reasons.Counted,
		Sentence: "Kubernetes' own controller may be at work; this one acts only if nobody does."},
	{Reason: ReasonContested, Severity: reasons.Warning,
		Sentence: "Another program removes the finalizer again and again, so it is not added again: the object can be " +
			"deleted while it is in use."},
	{Reason: ReasonInUse, Severity: reasons.Normal,
		Sentence: "The claim is terminating and a pod uses it. It is deleted when the pod is gone or has ended."},
	{Reason: ReasonInUseEnded, Severity: reasons.Normal,
		Sentence: "The claim is terminating, and a pod that has ended still names it. It is deleted when the pod is."},
	{Reason: ReasonBound, Severity: reasons.Normal,
		Sentence: "The PV is terminating and bound to a claim. It is deleted when the claim is gone."},
	{Reason: ReasonReadingUsers, Severity: reasons.Counted,
		Sentence: "The pods that use the claim are read from the API server."},
	{Reason: ReasonAPIReadFailed, Severity: reasons.Warning,
		Sentence: "Who uses the claim could not be read from the API server, so it counts as used; it is tried again."},
	{Reason: ReasonAPIWriteFailed, Severity: reasons.Warning,
		Sentence: "The API server did not accept a change; it is tried again."},
	{Reason: ReasonProtect, Sentence: "The object is protected against a deletion while it is in use."},
	{Reason: ReasonUnused, Sentence: "Nobody uses the object; the finalizer is removed."},
	{Reason: ReasonRelease, Sentence: "The finalizer is removed, as no other controller manages it."},
	{Reason: ReasonDryRun, Severity: reasons.Normal, Sentence: "Dry run, nothing is changed."},
})

// Reasons returns every reason there is, in the order of their declaration.
func Reasons() []Reason { return table.Reasons() }

// Sentence returns what the reason means and what a person can do about it.
func (r Reason) Sentence() string { return r.About().Sentence }

// EventType returns the type of the Events with this reason, Normal or Warning, empty for a reason without Events.
func (r Reason) EventType() string { return r.About().Severity.EventType() }

// About returns what the reason means and how severe it is, the zero value for a word that is none of the reasons.
func (r Reason) About() reasons.About { return table.About(r) }
