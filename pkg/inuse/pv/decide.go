package pv

import "github.com/csi-reclaimer/csi-reclaimer/pkg/inuse"

// Snapshot is all that is known about one PV at one moment. With its zero value nothing is done.
type Snapshot struct {
	Duty inuse.Duty
	PV   PV
}

// Decide says what to do about one PV. It is a pure function.
func Decide(s Snapshot) inuse.Decision {
	if s.PV.Twin && !s.PV.Terminating {
		return inuse.Rest(inuse.ReasonTwin)
	}
	d, settled := s.Duty.Settle(s.PV.Object)
	switch {
	case settled:
		return d
	case s.PV.Phase == PhaseBound, s.PV.Phase == PhaseUnknown:
		return inuse.Rest(inuse.ReasonBound)
	case !s.Duty.Acts():
		return inuse.Later(inuse.ReasonLeftToBuiltIn)
	}
	return inuse.Step(inuse.DropFinalizer, inuse.ReasonUnused)
}
