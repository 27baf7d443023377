package capacity

import (
	"cmp"
	"time"
)

// Action is one step in the reconciliation of an item. Its zero value is Wait.
type Action string

const (
	// Wait does nothing until an event or the delay of the Decision.
	Wait Action = ""
	// GetCapacity asks the driver for its free capacity.
	GetCapacity Action = "Ask"
	// Create creates the item's object with the driver's last answer.
	Create Action = "Create"
	// Update writes new capacity or a missing owner into an object.
	Update Action = "Update"
	// Delete deletes an obsolete or duplicate object.
	Delete Action = "Delete"
)

// String returns the action as it appears in the log.
func (a Action) String() string { return cmp.Or(string(a), "Wait") }

// Decision is the next step for an item, with its reason.
type Decision struct {
	Action Action
	Reason Reason
	// Object is the object to update or delete, and empty for other actions.
	Object Object
	// After is the delay until the next decision if no event comes first; 0 means that only an event causes it.
	After time.Duration
	// Gone: the item has no object and needs none, so the tracker forgets it.
	Gone bool
}

// Waits and Words implement controller.Decision.
func (d Decision) Waits() bool                    { return d.Action == Wait }
func (d Decision) Words() (action, reason string) { return d.Action.String(), string(d.Reason) }

// Decide returns the next step for one item at time now. It deletes only the Controller's own objects, whose owner does
// not matter, and none while the class or the segment is unknown. It creates or updates an object only with a known
// owner, and from an answer of the driver that is still current.
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

func drop(ours []Object, why Reason) Decision {
	if len(ours) == 0 {
		return Decision{Reason: why, Gone: true}
	}
	return Decision{Action: Delete, Reason: why, Object: ours[0]}
}
