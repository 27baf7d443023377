package pv

import "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"

// Facts is all that is known about one PV at one moment. With its zero value nothing is done.
type Facts struct {
	Duty inuse.Duty
	PV   PV
}

// Decide says what to do about one PV. It is a pure function.
func Decide(f Facts) inuse.Decision {
	if f.PV.Twin && !f.PV.Terminating {
		return inuse.Rest(inuse.ReasonTwin)
	}
	d, settled := f.Duty.Settle(f.PV.Object)
	switch {
	case settled:
		return d
	case f.PV.Phase == PhaseBound, f.PV.Phase == PhaseUnknown:
		return inuse.Rest(inuse.ReasonBound)
	case !f.Duty.Acts():
		return inuse.Later(inuse.ReasonLeftToBuiltIn)
	}
	return inuse.Step(inuse.RemoveFinalizer, inuse.ReasonUnused)
}
