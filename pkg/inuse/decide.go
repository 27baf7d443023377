package inuse

import "cmp"

// Action is one step; the zero value is Wait.
type Action string

const (
	// Wait does nothing now.
	Wait Action = ""
	// ReadUsers reads the users of the object from the API server.
	ReadUsers Action = "ReadUsers"
	// AddFinalizer adds the finalizer.
	AddFinalizer Action = "AddFinalizer"
	// RemoveFinalizer removes the finalizer, after which a terminating object is deleted. It fails if the object has
	// changed since it was read.
	RemoveFinalizer Action = "RemoveFinalizer"
)

// String returns the action's name for logs.
func (a Action) String() string { return cmp.Or(string(a), "Wait") }

// Decision is the next step for one object, with its reason.
type Decision struct {
	Action Action
	Reason Reason
	// Timed means that no event is sure to end this wait, so the object is decided on again after a delay.
	Timed bool
	// Detail is information about this object that the reason's sentence does not give.
	Detail string
}

// writes reports whether the step changes the object.
func (d Decision) writes() bool { return d.Action == AddFinalizer || d.Action == RemoveFinalizer }

// due reports whether the object still needs a step.
func (d Decision) due() bool {
	return d.Action != Wait || d.Reason == ReasonLeftToBuiltIn || d.Reason == reasonReadingUsers ||
		d.Reason == ReasonAPIReadFailed
}

// Rest returns the decision to wait for an event.
func Rest(why Reason) Decision { return Decision{Reason: why} }

// Later returns the decision to wait for a time.
func Later(why Reason) Decision { return Decision{Reason: why, Timed: true} }

// Step returns the decision to act.
func Step(a Action, why Reason) Decision { return Decision{Action: a, Reason: why} }

// Duty indicates whether this process has to act for one object; the zero value means that it does not.
type Duty struct {
	// Mode indicates whether this cluster is protected at all.
	Mode Mode
	// Alone means that no other program does the work. The proof is a need that such a program would have answered.
	Alone bool
	// Unanswered means that a need of this object has stood for Config.Patience.
	Unanswered bool
	// Added and Removed mean that our own write added or removed the finalizer, but the recorded object does not show it
	// yet.
	Added, Removed bool
	// Adds counts our additions of the finalizer to this object.
	Adds int
}

// maxAdds bounds the additions of the finalizer to one object from which others remove it.
const maxAdds = 3

// Acts reports whether this process has to do the work of a controller that manages the finalizer.
func (d Duty) Acts() bool { return d.Mode == ModeFull && (d.Alone || d.Unanswered) }

// Settle is a pure function that decides every case except a terminating object with the finalizer: whether that object
// is in use is left to the caller, and settled is false.
func (d Duty) Settle(o Object) (_ Decision, settled bool) {
	switch {
	case d.Mode != ModeFull:
		return Rest(ReasonOff), true
	case o.UID == "":
		return Rest(reasonUnknown), true
	case o.Terminating && !o.Protected:
		return Rest(ReasonNoFinalizer), true
	case o.Terminating && d.Removed:
		return Rest(ReasonUnused), true
	case o.Terminating:
		return Decision{}, false
	case o.Protected:
		return Rest(ReasonProtected), true
	case d.Added:
		return Rest(ReasonProtect), true
	case d.Adds >= maxAdds:
		return Rest(reasonContested), true
	case !d.Acts():
		return Later(ReasonLeftToBuiltIn), true
	}
	return Step(AddFinalizer, ReasonProtect), true
}
