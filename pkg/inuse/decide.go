package inuse

// Action is one step. The zero value is to do nothing.
type Action uint8

const (
	// Wait: nothing is to be done now.
	Wait Action = iota
	// ReadUsers reads who uses the object from the API server.
	ReadUsers
	// AddFinalizer adds the finalizer.
	AddFinalizer
	// RemoveFinalizer removes the finalizer, after which a terminating object is deleted: only if it
	// still is as it was read.
	RemoveFinalizer
)

// String returns the action as used in logs.
func (a Action) String() string {
	switch a {
	case Wait:
		return "Wait"
	case ReadUsers:
		return "ReadUsers"
	case AddFinalizer:
		return "AddFinalizer"
	case RemoveFinalizer:
		return "RemoveFinalizer"
	}
	return "Unknown"
}

// Decision is the next step for one object, and why.
type Decision struct {
	Action Action
	Reason Reason
	// Timed: no event is sure to end this wait, so it is decided on again after a delay.
	Timed bool
	// Detail adds to the reason's sentence what is known of this object.
	Detail string
}

// Waits reports whether nothing is to be done now, Writes whether the step changes the object.
func (d Decision) Waits() bool  { return d.Action == Wait }
func (d Decision) Writes() bool { return d.Action == AddFinalizer || d.Action == RemoveFinalizer }

// Words returns the action and its reason, for the log.
func (d Decision) Words() (action, reason string) { return d.Action.String(), string(d.Reason) }

// due reports whether the object needs something that is not done yet.
func (d Decision) due() bool {
	return d.Action != Wait || d.Reason == ReasonLeftToBuiltIn || d.Reason == ReasonReadingUsers ||
		d.Reason == ReasonAPIReadFailed
}

// Rest is the decision to do nothing until an event.
func Rest(why Reason) Decision { return Decision{Reason: why} }

// Later is the decision to do nothing for a time.
func Later(why Reason) Decision { return Decision{Reason: why, Timed: true} }

// Step is the decision to act.
func Step(a Action, why Reason) Decision { return Decision{Action: a, Reason: why} }

// Duty is what is known about whether it is on us to act for one object. Its zero value: it is
// not.
type Duty struct {
	// Mode says whether this cluster is to be served at all.
	Mode Mode
	// Alone: it is proven that no other program does the work, by a need that such a program would have
	// answered.
	Alone bool
	// Unanswered: what this object needs has been left undone for as long as Config.Patience.
	Unanswered bool
	// Added and Removed: the finalizer was added, or removed, in a write of ours that the
	// object as it is known does not show yet.
	Added, Removed bool
	// Adds counts how often we added the finalizer to this object.
	Adds int
}

// maxAdds is how often the finalizer is added to one object from which others remove it.
const maxAdds = 3

// Acts reports whether it is on us to do what everybody who does the work would do.
func (d Duty) Acts() bool { return d.Mode == ModeFull && (d.Alone || d.Unanswered) }

// Settle decides all but whether an object that is terminating and has the finalizer is used: that
// is left to the caller, and settled is false. It is a pure function.
func (d Duty) Settle(o Object) (_ Decision, settled bool) {
	switch {
	case d.Mode != ModeFull:
		return Rest(ReasonOff), true
	case o.UID == "":
		return Rest(ReasonUnknown), true
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
		return Rest(ReasonContested), true
	case !d.Acts():
		return Later(ReasonLeftToBuiltIn), true
	}
	return Step(AddFinalizer, ReasonProtect), true
}
