package pvc

import "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"

// Facts is all that is known about one claim at one moment. With its zero value nothing is done.
type Facts struct {
	Duty inuse.Duty
	// Ended says whether pods that have ended hold their claims.
	Ended TerminatedPods
	Claim Claim
	// Seen is who uses the claim as the watch of pods shows it. It may be behind, so it proves use
	// only, never that there is none.
	Seen Usage
	// Read is who uses the claim as a live list showed it that was asked for after the claim was
	// seen to be terminating.
	Read Reading
}

// Reading is what a live list showed. The zero value: none was made.
type Reading struct {
	Made bool
	// Err is why the list failed: then everything may be in use.
	Err error
	Usage
}

// Usage says which pods use a claim. The zero value: none.
type Usage struct {
	// By is a pod that runs, or may, empty for none.
	By string
	// ByEnded is a pod that has ended (Succeeded or Failed), empty for none.
	ByEnded string
}

// Decide says what to do about one claim. It is a pure function.
//
// Until it is proven that Kubernetes' own controller is off, a claim that this one would hold, for a
// pod that has ended, is no need that somebody left unanswered.
func Decide(f Facts) inuse.Decision {
	d, settled := f.Duty.Settle(f.Claim.Object)
	if settled {
		return d
	}
	if d, used := f.held(f.Seen); used {
		return d
	}
	switch {
	case !f.Duty.Acts():
		return inuse.Later(inuse.ReasonLeftToBuiltIn)
	case !f.Read.Made:
		return inuse.Step(inuse.ReadUsers, inuse.ReasonUnused)
	case f.Read.Err != nil:
		d := inuse.Later(inuse.ReasonAPIReadFailed)
		d.Detail = f.Read.Err.Error()
		return d
	}
	if d, used := f.held(f.Read.Usage); used {
		// The watch may never have shown the pod, and then not show its end.
		d.Timed = true
		return d
	}
	return inuse.Step(inuse.RemoveFinalizer, inuse.ReasonUnused)
}

// held reports whether use keeps the claim.
func (f Facts) held(by Usage) (d inuse.Decision, used bool) {
	switch {
	case by.By != "":
		d = inuse.Rest(inuse.ReasonInUse)
		d.Detail = "Pod " + by.By + "."
	case by.ByEnded != "" && f.Ended != ReleaseTerminated:
		d = inuse.Rest(inuse.ReasonInUseEnded)
		d.Detail = "Pod " + by.ByEnded + "."
	case by.ByEnded != "" && !f.Duty.Alone:
		// Proof that no other program does the work wakes it.
		d = inuse.Rest(inuse.ReasonLeftToBuiltIn)
	default:
		return inuse.Decision{}, false
	}
	return d, true
}
