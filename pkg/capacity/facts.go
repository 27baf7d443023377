package capacity

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Facts is all that is known about one item at one moment. The zero value of every field means
// that the fact is not known, or speaks for leaving the objects as they are.
type Facts struct {
	Class   Class
	Segment Presence
	// OwnerKnown: it is known which object is to own the objects, or that none is.
	OwnerKnown bool
	// Objects are those of the item, in the order of their names.
	Objects []Object

	// Capacity is what the driver said last, at the time Answered, which is zero if it said nothing yet.
	Capacity Capacity
	Answered time.Time
	// Stale: something happened since that may have changed it.
	Stale bool
	// PollInterval is how long an answer counts by itself. Required.
	PollInterval time.Duration
}

// Class is what is known of a StorageClass.
type Class uint8

const (
	// ClassUnknown: nothing.
	ClassUnknown Class = iota
	// ClassServed: the driver makes its volumes, and their capacity is to be known.
	ClassServed
	// ClassImmediate: the driver makes its volumes, and the scheduler is not asked where.
	ClassImmediate
	// ClassGone: the driver has no such class.
	ClassGone
)

// Presence is whether something is there.
type Presence uint8

const (
	// PresenceUnknown: it is unknown.
	PresenceUnknown Presence = iota
	// Present: it is there.
	Present
	// Absent: it is not.
	Absent
)

// Size is an amount of bytes, or none that is known.
type Size struct {
	Bytes int64
	Known bool
}

// Capacity is what a driver has left in one place.
type Capacity struct {
	// Left is what all volumes that are still to be made can have together.
	Available Size
	// Largest is what one of them can have.
	MaximumVolumeSize Size
}

// Object is what is kept of a CSIStorageCapacity. The zero value is none of ours.
type Object struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Item            WorkItem
	// Ours: its labels say that it is this driver's, and ours to keep.
	Ours bool
	// Terminating: it is being deleted.
	Terminating bool
	// Owners are the UIDs of its owners. Owned: who is to own our objects is among them, or nobody is
	// to own them.
	Owners []types.UID
	Owned  bool
	// Controlled: it has an owner that is its controller.
	Controlled bool
	Capacity   Capacity
}

// ours are the objects that are ours to change.
func (s Facts) ours() []Object {
	var ours []Object
	for _, o := range s.Objects {
		if o.Ours && !o.Terminating {
			ours = append(ours, o)
		}
	}
	return ours
}

// due reports whether the driver is to be asked: its last answer is old, as one that it never gave is. The work loop's
// delays are up to a fifth shorter than the interval, and then it is time.
func (s Facts) due(now time.Time) bool {
	return s.Stale || now.Sub(s.Answered) >= s.PollInterval*3/4
}
