package capacity

import "time"

// Action is one step. The zero value is to do nothing.
type Action uint8

const (
	// Wait: nothing is to be done now.
	Wait Action = iota
	// GetCapacity asks the driver what is left.
	GetCapacity
	// Create makes the object of the item.
	Create
	// Update writes into an object what has changed.
	Update
	// Delete deletes an object.
	Delete
)

// String returns the action as used in logs.
func (a Action) String() string {
	switch a {
	case Wait:
		return "Wait"
	case GetCapacity:
		return "Ask"
	case Create:
		return "Create"
	case Update:
		return "Update"
	case Delete:
		return "Delete"
	}
	return "Unknown"
}

// Decision is what to do about a item.
type Decision struct {
	Action Action
	Reason Reason
	// Object is the one to update or to delete.
	Object Object
	// After is when to decide again if nothing happens, as a delay; 0 for never.
	After time.Duration
	// Over: there is nothing at the item, and nothing is to be there.
	Gone bool
}

// Waits, Writes and Words implement controller.Decision.
func (d Decision) Waits() bool                    { return d.Action == Wait }
func (d Decision) Writes() bool                   { return d.Action != Wait && d.Action != GetCapacity }
func (d Decision) Words() (action, reason string) { return d.Action.String(), string(d.Reason) }

// Decide says what to do about one item. It deletes only objects of ours, and none while a fact is
// unknown, and changes none without a new answer of the driver.
func Decide(s Facts, now time.Time) Decision {
	ours := s.ours()
	switch {
	case s.Class == ClassUnknown || s.Segment == PresenceUnknown:
		return Decision{Reason: ReasonUnknown}
	case s.Class == ClassGone:
		return drop(ours, ReasonClassGone)
	case s.Class == ClassImmediate:
		return drop(ours, ReasonImmediateBinding)
	case s.Segment == Absent:
		return drop(ours, ReasonSegmentGone)
	case len(ours) > 1:
		return Decision{Action: Delete, Reason: ReasonDuplicate, Object: ours[len(ours)-1]}
	case !s.OwnerKnown:
		return Decision{Reason: ReasonOwnerUnknown}
	case s.due(now):
		return Decision{Action: GetCapacity, Reason: ReasonDue}
	case len(ours) == 0:
		return Decision{Action: Create, Reason: ReasonMissing}
	case ours[0].Capacity != s.Capacity:
		return Decision{Action: Update, Reason: ReasonChanged, Object: ours[0]}
	case !ours[0].Owned:
		return Decision{Action: Update, Reason: ReasonNotOwned, Object: ours[0]}
	}
	return Decision{Reason: ReasonUpToDate, After: s.PollInterval - now.Sub(s.Answered)}
}

// drop deletes what is not to be there, one object at a time.
func drop(ours []Object, why Reason) Decision {
	if len(ours) == 0 {
		return Decision{Reason: why, Gone: true}
	}
	return Decision{Action: Delete, Reason: why, Object: ours[0]}
}
