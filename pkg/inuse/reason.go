package inuse

import "github.com/csi-reclaimer/csi-reclaimer/internal/reasons"

// Reason explains a decision. The same word is an Event's reason, a value in the log and a label of the metrics; its
// Sentence gives the meaning.
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

// table has one row for every reason, in the order of their declaration.
var table = reasons.NewTable([]reasons.Row[Reason]{
	{Reason: ReasonUnknown, Sentence: "Nothing is known of the object."},
	{Reason: ReasonOff, Sentence: "The protection controller is off."},
	{Reason: ReasonProtected, Sentence: "The object has the finalizer."},
	{Reason: ReasonNoFinalizer, Sentence: "The object is terminating and does not have this finalizer."},
	{Reason: ReasonTwin, Sentence: "The PV is a second name of another PV's volume and is not protected."},
	{Reason: ReasonLeftToBuiltIn, Severity: reasons.Counted,
		Sentence: "Kubernetes' own controller may manage the object; volume-guard acts only if that controller does not."},
	{Reason: ReasonContested, Severity: reasons.Warning,
		Sentence: "Another program removes the finalizer again and again, so it is not added again: the object can be " +
			"deleted while it is in use."},
	{Reason: ReasonInUse, Severity: reasons.Normal,
		Sentence: "The claim is terminating and a pod uses it. It is deleted when the pod is gone or has ended."},
	{Reason: ReasonInUseEnded, Severity: reasons.Normal,
		Sentence: "The claim is terminating, and a terminated pod still names it. It is deleted when the pod is deleted."},
	{Reason: ReasonBound, Severity: reasons.Normal,
		Sentence: "The PV is terminating and bound to a claim. It is deleted when the claim is gone."},
	{Reason: ReasonReadingUsers, Severity: reasons.Counted,
		Sentence: "The pods that use the claim are read from the API server."},
	{Reason: ReasonAPIReadFailed, Severity: reasons.Warning,
		Sentence: "volume-guard could not read from the API server whether the claim is in use, so the claim counts as in " +
			"use. volume-guard tries again."},
	{Reason: ReasonAPIWriteFailed, Severity: reasons.Warning,
		Sentence: "A write to the API server failed; volume-guard tries again."},
	{Reason: ReasonProtect, Sentence: "The finalizer is added, so that the object is kept while it is in use."},
	{Reason: ReasonUnused, Sentence: "The object is not in use; the finalizer is removed."},
	{Reason: ReasonRelease, Sentence: "The finalizer is removed, because no other controller manages it."},
	{Reason: ReasonDryRun, Severity: reasons.Normal, Sentence: "Dry run, nothing is changed."},
})

// Reasons returns every reason, in the order of their declaration.
func Reasons() []Reason { return table.Reasons() }

// Sentence returns the meaning of the reason and the action that a person can take.
func (r Reason) Sentence() string { return r.About().Sentence }

// EventType returns the type of the Events with this reason, Normal or Warning, or empty for a reason without Events.
func (r Reason) EventType() string { return r.About().Severity.EventType() }

// About returns the meaning and the severity of the reason, and the zero value for an unknown reason.
func (r Reason) About() reasons.About { return table.About(r) }
