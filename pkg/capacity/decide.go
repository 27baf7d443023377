package capacity

import "time"

// Action is one step. The zero value is to do nothing.
type Action uint8

const (
	// Wait: nothing is to be done now.
	Wait Action = iota
	// Ask asks the driver what is left.
	Ask
	// Create makes the object of the spot.
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
	case Ask:
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

// Decision is what to do about a spot.
type Decision struct {
	Action Action
	Reason Reason
	// Object is the one to update or to delete.
	Object Object
	// Again is when to decide again if nothing happens, as a delay; 0 for never.
	Again time.Duration
	// Over: there is nothing at the spot, and nothing is to be there.
	Over bool
}

// Decide says what to do about one spot. It deletes only objects of ours, and none while a fact is
// unknown; what the driver did not tell anew changes no object.
func Decide(s Snapshot, now time.Time) Decision {
	ours := s.ours()
	switch {
	case s.Class == ClassUnknown || s.Place == PresenceUnknown:
		return Decision{Reason: ReasonUnknown}
	case s.Class == ClassGone:
		return drop(ours, ReasonClassGone)
	case s.Class == ClassImmediate:
		return drop(ours, ReasonImmediateBinding)
	case s.Place == Absent:
		return drop(ours, ReasonPlaceGone)
	case len(ours) > 1:
		return Decision{Action: Delete, Reason: ReasonDuplicate, Object: ours[len(ours)-1]}
	case !s.OwnerKnown:
		return Decision{Reason: ReasonOwnerUnknown}
	case s.due(now):
		return Decision{Action: Ask, Reason: ReasonDue}
	case len(ours) == 0:
		return Decision{Action: Create, Reason: ReasonMissing}
	case ours[0].Answer != s.Answer:
		return Decision{Action: Update, Reason: ReasonChanged, Object: ours[0]}
	case !ours[0].Owned:
		return Decision{Action: Update, Reason: ReasonNotOwned, Object: ours[0]}
	}
	return Decision{Reason: ReasonUpToDate, Again: s.PollInterval - now.Sub(s.Answered)}
}

// drop deletes what is not to be there, one object at a time.
func drop(ours []Object, why Reason) Decision {
	if len(ours) == 0 {
		return Decision{Reason: why, Over: true}
	}
	return Decision{Action: Delete, Reason: why, Object: ours[0]}
}
