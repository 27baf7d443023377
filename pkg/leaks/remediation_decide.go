package leaks

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Step is what is to be done next for a remedy. The zero value is nothing.
type Step uint8

const (
	// Refuse: nothing is done.
	Refuse Step = iota
	// CreatePV makes the PV, which keeps the volume.
	CreatePV
	// WaitReleased waits until the PV controller has found that the PV's claim is gone.
	WaitReleased
	// TurnPolicy turns the PV's policy to Delete, by which the volume is deleted.
	TurnPolicy
	// Finished: the PV is as it is to be.
	Finished
)

// String names the step as logs and tests do.
func (s Step) String() string {
	return [...]string{"Refuse", "CreatePV", "WaitReleased", "TurnPolicy", "Finished"}[s]
}

// Why is why a remedy is refused, or done.
type Why string

// Reasons of remedies.
const (
	// WhyUnknown: what has to be known could not be read.
	WhyUnknown Why = "Unknown"
	// WhyNotReported and WhyNotSuspected: the report does not have the volume, or not as a suspect.
	WhyNotReported  Why = "NotReported"
	WhyNotSuspected Why = "NotSuspected"
	// WhyReportOld: the report is so old that much may have happened since.
	WhyReportOld Why = "ReportOld"
	// WhyHasPV: a PV names the volume by now.
	WhyHasPV Why = "HasPV"
	// WhyNameTaken: a PV has the name, and is not the one that would be made.
	WhyNameTaken Why = "NameTaken"
	// WhyChanged: the PV that was made is in use, or being deleted.
	WhyChanged Why = "Changed"
	// WhyTakenBack: the PV was deleted while its remedy was carried out.
	WhyTakenBack Why = "TakenBack"
	// WhySuspected: nothing accounts for the volume.
	WhySuspected Why = "LeakSuspected"
)

// Sentence says it in words, for people.
func (w Why) Sentence() string {
	switch w {
	case WhyUnknown:
		return "it is not known whether a PV names it"
	case WhyNotReported:
		return "the report has no volume of that name; write it as the report does"
	case WhyNotSuspected:
		return "it is no suspect"
	case WhyReportOld:
		return "the report is too old; have a new one made"
	case WhyHasPV:
		return "a PV names it by now"
	case WhyNameTaken:
		return "the name of its PV is taken"
	case WhyChanged:
		return "its PV exists already, and is in use or terminating: see kubectl reclaim explain"
	case WhyTakenBack:
		return "its PV was made, and somebody has deleted it since"
	case WhySuspected:
		return "nothing in the cluster accounts for it"
	}
	return string(w)
}

// maxReportAge is how old a report may be to act on.
const maxReportAge = 24 * time.Hour

// Case is all that is known about one remedy. The zero value of every field means that the fact is not known,
// or speaks against it.
type Case struct {
	Remediation Remediation
	// Fresh: this is the first decision, and no PV is created yet. If somebody deletes the PV that was created, the
	// remediation is withdrawn, and the PV is not created again.
	Fresh bool
	// Reported and Suspected are what the report says of the volume, and Completed is when its leak check ended.
	Reported, Suspected bool
	Completed           time.Time
	// Others: a PV other than the remedy's own names the volume, by a live list of all.
	Others Presence
	// Own is what a live read says of the PV with the name of the remedy's own.
	Own OwnPV
}

// OwnPV is what is known of the PV of a remedy.
type OwnPV struct {
	// Read: it was looked for. Found: there is one of its name. Made: it is the remedy's.
	Read, Found, Made bool
	PV                volume.PV
}

// DecideRemediation says what is to be done next. It is a pure function; now is the time by which the report is
// judged too old. A volume is put on its way to deletion only while nothing but our own PV names it, and only
// after the PV controller itself has found that this PV has no claim.
func DecideRemediation(c Case, now time.Time) (Step, Why) {
	switch {
	case c.Others == Present:
		return Refuse, WhyHasPV
	case c.Others != Absent || !c.Own.Read:
		return Refuse, WhyUnknown
	case c.Own.Found && !c.Own.Made:
		return Refuse, WhyNameTaken
	case c.Own.Found:
		return c.goOn() // its own PV accounts for it by now, so no report has it any more
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

// goOn has a PV that is to reclaim its volume be marked Released while it keeps that, and only then turned.
func (c Case) goOn() (Step, Why) {
	pv := c.Own.PV
	switch {
	case c.Remediation == Reclaim && pv.Policy == volume.PolicyDelete:
		return Finished, WhySuspected // also if it is on its way out: its volume goes with it
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
