package leaks

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// step is the next step of a remediation. Its zero value is refuse.
type step uint8

const (
	// refuse changes nothing and ends the remediation.
	refuse step = iota
	// createPV creates the PV with policy Retain, which keeps the volume.
	createPV
	// waitReleased waits until the PV controller has marked the PV Released.
	waitReleased
	// turnPolicy sets the PV's policy to Delete, which starts the deletion of the volume.
	turnPolicy
	// Finished: the PV has its final policy, so the remediation is complete.
	Finished
)

// String returns the step as it appears in logs and tests.
func (s step) String() string {
	return [...]string{"Refuse", "CreatePV", "WaitReleased", "TurnPolicy", "Finished"}[s]
}

// refusal is the reason of a step, especially of a refusal.
type refusal string

// Reasons of the steps that decideRemediation returns.
const (
	// whyUnknown: PVs or VolumeAttachments were not read, so another object may name the volume.
	whyUnknown refusal = "Unknown"
	// whyNotReported and whyNotSuspected: the volume is not in the report, or not as a suspect.
	whyNotReported  refusal = "NotReported"
	whyNotSuspected refusal = "NotSuspected"
	// whyReportOld: the report is older than maxReportAge, or has no complete leak check.
	whyReportOld refusal = "ReportOld"
	// whyNamed: a PV other than the remediation's own, or a VolumeAttachment, names the volume.
	whyNamed refusal = "Named"
	// whyNameTaken: another PV already has the name of the remediation's PV.
	whyNameTaken refusal = "NameTaken"
	// whyChanged: the remediation's PV exists, but is in use, terminating, or has another policy.
	whyChanged refusal = "Changed"
	// whyTakenBack: the PV was deleted by another client during its remediation.
	whyTakenBack refusal = "TakenBack"
	// whySuspected: the volume is suspected to be a leak, or already has the remediation's PV.
	whySuspected refusal = "LeakSuspected"
)

// sentence returns the reason as a clause for messages, or the word itself for an unknown reason.
func (w refusal) sentence() string {
	switch w {
	case whyUnknown:
		return "it is not known whether another object names it"
	case whyNotReported:
		return "the report has no volume of that name; write it as the report does"
	case whyNotSuspected:
		return "it is no suspect"
	case whyReportOld:
		return "the report is too old; have a new one made"
	case whyNamed:
		return "an object names it by now"
	case whyNameTaken:
		return "the name of its PV is taken"
	case whyChanged:
		return "its PV exists already, and is in use or terminating: see kubectl reclaim explain"
	case whyTakenBack:
		return "its PV was created, and has been deleted since"
	case whySuspected:
		return "nothing in the cluster accounts for it"
	}
	return string(w)
}

// maxReportAge is the maximum age of a report to act on.
const maxReportAge = 24 * time.Hour

// situation holds everything known about one remediation, for the pure function decideRemediation. The zero value of
// every field means that the fact is unknown, or prevents the remediation.
type situation struct {
	Remediation Remediation
	// Fresh: this is the first decision, before the PV is created. If the PV is deleted after that, the remediation is
	// withdrawn and does not create it again.
	Fresh bool
	// Reported and Suspected are the report's data about the volume, and Completed is the end of its leak check.
	Reported, Suspected bool
	Completed           time.Time
	// Others: a PV other than the remediation's own names the volume, or a VolumeAttachment does inline, according to
	// live lists of both.
	Others existence
	// Own is the result of a live read of the remediation's own PV.
	Own ownPV
}

// ownPV is the state of the remediation's PV in the API server.
type ownPV struct {
	// Read tells that the read succeeded, Found that a PV has its name, and Made that this PV is the remediation's.
	Read, Found, Made bool
	PV                volume.PV
}

// decideRemediation returns the next step and its reason. It is a pure function, which measures the report's age at
// now. The deletion of a volume starts only while no other object names the volume, and only after the PV controller
// itself has found that this PV's claim is gone.
func decideRemediation(c situation, now time.Time) (step, refusal) {
	switch {
	case c.Others == present:
		return refuse, whyNamed
	case c.Others != absent || !c.Own.Read:
		return refuse, whyUnknown
	case c.Own.Found && !c.Own.Made:
		return refuse, whyNameTaken
	case c.Own.Found:
		return c.goOn() // its own PV accounts for the volume, so reports no longer have it
	case !c.Fresh:
		return refuse, whyTakenBack
	case !c.Reported:
		return refuse, whyNotReported
	case !c.Suspected:
		return refuse, whyNotSuspected
	case c.Completed.IsZero() || now.Sub(c.Completed) > maxReportAge:
		return refuse, whyReportOld
	}
	return createPV, whySuspected
}

// goOn sets the policy of a PV for Reclaim only after the PV is marked Released under policy Retain.
func (c situation) goOn() (step, refusal) {
	pv := c.Own.PV
	switch {
	case c.Remediation == Reclaim && pv.Policy == volume.PolicyDelete:
		return Finished, whySuspected // also if it is terminating, because its volume is deleted with it
	case pv.Terminating:
		return refuse, whyChanged
	case c.Remediation == Adopt:
		return Finished, whySuspected
	case c.Remediation != Reclaim || pv.Policy != volume.PolicyRetain:
		return refuse, whyChanged
	case pv.Phase == volume.PhasePending || pv.Phase == volume.PhaseUnknown:
		return waitReleased, whySuspected
	case pv.Phase == volume.PhaseReleased:
		return turnPolicy, whySuspected
	}
	return refuse, whyChanged
}
