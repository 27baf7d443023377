package pv

import "github.com/csi-reclaimer/csi-reclaimer/pkg/protect"

// Snapshot is all that is known about one PV at one moment. With its zero value nothing is done.
type Snapshot struct {
	Duty protect.Duty
	PV   PV
}

// Decide says what to do about one PV. It is a pure function.
func Decide(s Snapshot) protect.Decision {
	if s.PV.Twin && !s.PV.Terminating {
		return protect.Rest(protect.ReasonTwin)
	}
	d, settled := s.Duty.Settle(s.PV.Object)
	switch {
	case settled:
		return d
	case s.PV.Phase == PhaseBound, s.PV.Phase == PhaseUnknown:
		return protect.Rest(protect.ReasonBound)
	case !s.Duty.Acts():
		return protect.Later(protect.ReasonLeftToBuiltIn)
	}
	return protect.Step(protect.DropFinalizer, protect.ReasonUnused)
}
