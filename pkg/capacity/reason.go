package capacity

// Reason is why a decision is what it is. The same word is a value in the log.
type Reason string

// Reasons for leaving an item as it is.
const (
	// ReasonUnknown: it is not known yet whether the item is to have an object.
	ReasonUnknown Reason = "Unknown"
	// ReasonOwnerUnknown: it is not known yet which object owns this one.
	ReasonOwnerUnknown Reason = "OwnerUnknown"
	// ReasonUpToDate: the object has what the driver answered.
	ReasonUpToDate Reason = "UpToDate"
)

// Reasons for deleting an object; with no object left, for doing nothing.
const (
	// ReasonClassGone: the driver has no such StorageClass.
	ReasonClassGone Reason = "ClassGone"
	// ReasonImmediateBinding: the class binds claims before any pod is scheduled.
	ReasonImmediateBinding Reason = "ImmediateBinding"
	// ReasonSegmentGone: the topology segment has no node with the driver.
	ReasonSegmentGone Reason = "PlaceGone"
	// ReasonDuplicate: another object has the same StorageClass and topology segment.
	ReasonDuplicate Reason = "Duplicate"
)

// Reasons for the other steps.
const (
	// ReasonDue: the capacity may have changed since the last GetCapacity.
	ReasonDue Reason = "Due"
	// ReasonMissing: the item has no object.
	ReasonMissing Reason = "Missing"
	// ReasonChanged: the driver's answer differs from the object.
	ReasonChanged Reason = "Changed"
	// ReasonNotOwned: the object is not garbage-collected with its owner.
	ReasonNotOwned Reason = "NotOwned"
)

// Reasons that only carrying out a step can find.
const (
	// ReasonGetCapacityFailed: GetCapacity failed. The object stays as it is.
	ReasonGetCapacityFailed Reason = "Unanswered"
	// ReasonAPIWriteFailed: the API server did not accept a change.
	ReasonAPIWriteFailed Reason = "APIWriteFailed"
	// ReasonAPIReadFailed: a read from the API server failed.
	ReasonAPIReadFailed Reason = "APIReadFailed"
)
