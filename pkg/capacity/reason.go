package capacity

// Reason explains a decision. Its value also appears in the log.
type Reason string

// Reasons for changing nothing.
const (
	// ReasonUnknown: the state of the class or of the segment is not known yet.
	ReasonUnknown Reason = "Unknown"
	// ReasonOwnerUnknown: the owner of the objects has not been found yet.
	ReasonOwnerUnknown Reason = "OwnerUnknown"
	// ReasonUpToDate: the object matches the driver's answer.
	ReasonUpToDate Reason = "UpToDate"
)

// Reasons for deleting an object, or for waiting once no object is left.
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
	// ReasonGetCapacityFailed: GetCapacity failed, and the object remains unchanged.
	ReasonGetCapacityFailed Reason = "Unanswered"
	// ReasonAPIWriteFailed: the API server did not accept a change.
	ReasonAPIWriteFailed Reason = "APIWriteFailed"
	// ReasonAPIReadFailed: a read from the API server failed.
	ReasonAPIReadFailed Reason = "APIReadFailed"
)
