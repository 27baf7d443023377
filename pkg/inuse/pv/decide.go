package pv

import "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"

// Facts is the known state of one PV at one moment; no step is taken for the zero value.
type Facts struct {
	Duty inuse.Duty
	PV   PV
}

// Decide is a pure function that returns the next step for one PV.
func Decide(f Facts) inuse.Decision {
	if f.PV.Twin && !f.PV.Terminating {
		return inuse.Rest(inuse.ReasonTwin)
	}
	d, settled := f.Duty.Settle(f.PV.Object)
	switch {
	case settled:
		return d
	case !f.PV.Free:
		return inuse.Rest(inuse.ReasonBound)
	case !f.Duty.Acts():
		return inuse.Later(inuse.ReasonLeftToBuiltIn)
	}
	return inuse.Step(inuse.RemoveFinalizer, inuse.ReasonUnused)
}
