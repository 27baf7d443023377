package inuse

// Action is one step. The zero value is to do nothing.
type Action uint8

const (
	// Wait: nothing is to be done now.
	Wait Action = iota
	// ReadUsers asks the API server who uses the object.
	ReadUsers
	// AddFinalizer puts the finalizer on.
	AddFinalizer
	// DropFinalizer takes the finalizer off, which lets the object go: only if it still is as
	// it was read.
	DropFinalizer
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
	case DropFinalizer:
		return "DropFinalizer"
	}
	return "Unknown"
}

// Decision is the next step for one object, and why.
type Decision struct {
	Action Action
	Reason Reason
	// Timed: no event is sure to end this wait, so it is looked at again by the clock.
	Timed bool
	// Detail adds to the reason's sentence what is known of this object.
	Detail string
}

// due tells whether the object needs something that is not done yet.
func (d Decision) due() bool {
	return d.Action != Wait || d.Reason == ReasonLeftToBuiltIn || d.Reason == ReasonAsking || d.Reason == ReasonUnreadable
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
	// Alone: it is proven that nobody else does the work, by a need that anybody who does would have
	// answered and nobody did.
	Alone bool
	// Unanswered: what this object needs has been left undone for as long as Config.Patience.
	Unanswered bool
	// Added and Dropped: the finalizer was put on, or taken off, in a write of ours that the
	// object as it is known does not show yet.
	Added, Dropped bool
	// Adds counts how often we put the finalizer on this object.
	Adds int
}

// maxAdds is how often the finalizer is put on one object that others take it off again.
const maxAdds = 3

// Acts tells whether it is on us to do what everybody who does the work would do.
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
		return Rest(ReasonNotHeld), true
	case o.Terminating && d.Dropped:
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
