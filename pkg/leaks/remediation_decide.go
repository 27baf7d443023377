package leaks

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Step is the next step of a remediation. Its zero value is Refuse.
type Step uint8

const (
	// Refuse changes nothing and ends the remediation.
	Refuse Step = iota
	// CreatePV creates the PV with policy Retain, which keeps the volume.
	CreatePV
	// WaitReleased waits until the PV controller has marked the PV Released.
	WaitReleased
	// TurnPolicy sets the PV's policy to Delete, which starts the deletion of the volume.
	TurnPolicy
	// Finished: the PV has its final policy, so the remediation is complete.
	Finished
)

// String returns the step as it appears in logs and tests.
func (s Step) String() string {
	return [...]string{"Refuse", "CreatePV", "WaitReleased", "TurnPolicy", "Finished"}[s]
}

// Why is the reason of a step, especially of a refusal.
type Why string

// Reasons of the steps that DecideRemediation returns.
const (
	// WhyUnknown: PVs or VolumeAttachments were not read, so another object may name the volume.
	WhyUnknown Why = "Unknown"
	// WhyNotReported and WhyNotSuspected: the volume is not in the report, or not as a suspect.
	WhyNotReported  Why = "NotReported"
	WhyNotSuspected Why = "NotSuspected"
	// WhyReportOld: the report is older than maxReportAge, or has no complete leak check.
	WhyReportOld Why = "ReportOld"
	// WhyNamed: a PV other than the remediation's own, or a VolumeAttachment, names the volume.
	WhyNamed Why = "Named"
	// WhyNameTaken: another PV already has the name of the remediation's PV.
	WhyNameTaken Why = "NameTaken"
	// WhyChanged: the remediation's PV exists, but is in use, terminating, or has another policy.
	WhyChanged Why = "Changed"
	// WhyTakenBack: the PV was deleted by another client during its remediation.
	WhyTakenBack Why = "TakenBack"
	// WhySuspected: the volume is suspected to be a leak, or already has the remediation's PV.
	WhySuspected Why = "LeakSuspected"
)

// Sentence returns the reason as a clause for messages, or the word itself for an unknown reason.
func (w Why) Sentence() string {
	switch w {
	case WhyUnknown:
		return "it is not known whether another object names it"
	case WhyNotReported:
		return "the report has no volume of that name; write it as the report does"
	case WhyNotSuspected:
		return "it is no suspect"
	case WhyReportOld:
		return "the report is too old; have a new one made"
	case WhyNamed:
		return "an object names it by now"
	case WhyNameTaken:
		return "the name of its PV is taken"
	case WhyChanged:
		return "its PV exists already, and is in use or terminating: see kubectl reclaim explain"
	case WhyTakenBack:
		return "its PV was created, and has been deleted since"
	case WhySuspected:
		return "nothing in the cluster accounts for it"
	}
	return string(w)
}

// maxReportAge is the maximum age of a report to act on.
const maxReportAge = 24 * time.Hour

// Case holds everything known about one remediation, for the pure function DecideRemediation. The zero value of every
// field means that the fact is unknown, or prevents the remediation.
type Case struct {
	Remediation Remediation
	// Fresh: this is the first decision, before the PV is created. If the PV is deleted after that, the remediation is
	// withdrawn and does not create it again.
	Fresh bool
	// Reported and Suspected are the report's data about the volume, and Completed is the end of its leak check.
	Reported, Suspected bool
	Completed           time.Time
	// Others: a PV other than the remediation's own names the volume, or a VolumeAttachment does inline, according to
	// live lists of both.
	Others Presence
	// Own is the result of a live read of the remediation's own PV.
	Own OwnPV
}

// OwnPV is the state of the remediation's PV in the API server.
type OwnPV struct {
	// Read tells that the read succeeded, Found that a PV has its name, and Made that this PV is the remediation's.
	Read, Found, Made bool
	PV                volume.PV
}

// DecideRemediation returns the next step and its reason. It is a pure function, which measures the report's age at
// now. The deletion of a volume starts only while no other object names the volume, and only after the PV controller
// itself has found that this PV's claim is gone.
func DecideRemediation(c Case, now time.Time) (Step, Why) {
	switch {
	case c.Others == Present:
		return Refuse, WhyNamed
	case c.Others != Absent || !c.Own.Read:
		return Refuse, WhyUnknown
	case c.Own.Found && !c.Own.Made:
		return Refuse, WhyNameTaken
	case c.Own.Found:
		return c.goOn() // its own PV accounts for the volume, so reports no longer have it
	case !c.Fresh:
		return Refuse, WhyTakenBack
	case !c.Reported:
		return Refuse, WhyNotReported
	case !c.Suspected:
		return Refuse, WhyNotSuspected
	case c.Completed.IsZero() || now.Sub(c.Completed) > maxReportAge:
		return Refuse, WhyReportOld
	}
	return CreatePV, WhySuspected
}

// goOn sets the policy of a PV for Reclaim only after the PV is marked Released under policy Retain.
func (c Case) goOn() (Step, Why) {
	pv := c.Own.PV
	switch {
	case c.Remediation == Reclaim && pv.Policy == volume.PolicyDelete:
		return Finished, WhySuspected // also if it is terminating, because its volume is deleted with it
	case pv.Terminating:
		return Refuse, WhyChanged
	case c.Remediation == Adopt:
		return Finished, WhySuspected
	case c.Remediation != Reclaim || pv.Policy != volume.PolicyRetain:
		return Refuse, WhyChanged
	case pv.Phase == volume.PhasePending || pv.Phase == volume.PhaseUnknown:
		return WaitReleased, WhySuspected
	case pv.Phase == volume.PhaseReleased:
		return TurnPolicy, WhySuspected
	}
	return Refuse, WhyChanged
}
