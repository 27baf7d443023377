package capacity

// Reason says why a decision is what it is. The same word is a value in the log.
type Reason string

// Reasons for leaving a item as it is.
const (
	// ReasonUnknown: it is not known yet whether the item is to have an object.
	ReasonUnknown Reason = "Unknown"
	// ReasonOwnerUnknown: it is not known yet who is to own the object.
	ReasonOwnerUnknown Reason = "OwnerUnknown"
	// ReasonUpToDate: the object says what the driver said.
	ReasonUpToDate Reason = "UpToDate"
)

// Reasons for deleting an object; with no object left, for doing nothing.
const (
	// ReasonClassGone: the driver has no such StorageClass.
	ReasonClassGone Reason = "ClassGone"
	// ReasonImmediateBinding: the class binds claims before any pod is scheduled.
	ReasonImmediateBinding Reason = "ImmediateBinding"
	// ReasonSegmentGone: no node with the driver is there.
	ReasonSegmentGone Reason = "PlaceGone"
	// ReasonDuplicate: another object says the same.
	ReasonDuplicate Reason = "Duplicate"
)

// Reasons for the other steps.
const (
	// ReasonDue: what is left may have changed since the driver was asked.
	ReasonDue Reason = "Due"
	// ReasonMissing: the item has no object.
	ReasonMissing Reason = "Missing"
	// ReasonChanged: the driver says something else than the object.
	ReasonChanged Reason = "Changed"
	// ReasonNotOwned: the object does not go with its owner.
	ReasonNotOwned Reason = "NotOwned"
)

// Reasons that only carrying out a step can find.
const (
	// ReasonGetCapacityFailed: the driver did not say what is left. The object stays as it is.
	ReasonGetCapacityFailed Reason = "Unanswered"
	// ReasonAPIWriteFailed: the API server did not take a change.
	ReasonAPIWriteFailed Reason = "APIWriteFailed"
	// ReasonAPIReadFailed: what has to be known could not be read.
	ReasonAPIReadFailed Reason = "APIReadFailed"
)
