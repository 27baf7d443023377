package pvc

import "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"

// Facts is the known state of one claim at one moment; no step is taken for the zero value.
type Facts struct {
	Duty inuse.Duty
	// Ended indicates whether pods that have ended hold their claims.
	Ended TerminatedPods
	Claim Claim
	// Seen is the use of the claim according to the watch of pods. The watch may lag, so it proves only use, never the
	// absence of use.
	Seen Usage
	// Read is the use of the claim according to a live list that was requested after the claim was seen to be terminating.
	Read Reading
}

// Reading is the result of a live list; the zero value means that no list was made.
type Reading struct {
	Made bool
	// Err is the error of the list, after which everything may be in use.
	Err error
	Usage
}

// Usage names pods that use a claim; the zero value means that no pod does.
type Usage struct {
	// By is a pod that runs, or may run, empty for none.
	By string
	// ByEnded is a pod that has ended (Succeeded or Failed), empty for none.
	ByEnded string
}

// Decide is a pure function that returns the next step for one claim.
//
// A claim of a pod that has ended may be held by Kubernetes' own controller, and until that controller is proven to be
// off, such a claim does not count as an unanswered need.
func Decide(f Facts) inuse.Decision {
	d, settled := f.Duty.Settle(f.Claim)
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
		// The watch may never have shown the pod, and then does not show its end.
		d.Timed = true
		return d
	}
	return inuse.Step(inuse.RemoveFinalizer, inuse.ReasonUnused)
}

// held reports whether a use keeps the claim.
func (f Facts) held(by Usage) (d inuse.Decision, used bool) {
	switch {
	case by.By != "":
		d = inuse.Rest(inuse.ReasonInUse)
		d.Detail = "Pod " + by.By + "."
	case by.ByEnded != "" && f.Ended != ReleaseTerminated:
		d = inuse.Rest(inuse.ReasonInUseEnded)
		d.Detail = "Pod " + by.ByEnded + "."
	case by.ByEnded != "" && !f.Duty.Alone:
		// The proof that no other program does the work enqueues the claim.
		d = inuse.Rest(inuse.ReasonLeftToBuiltIn)
	default:
		return inuse.Decision{}, false
	}
	return d, true
}
