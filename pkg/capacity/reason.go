package capacity

// Reason explains a decision, and appears as a value in the log.
type Reason string

// Reasons to leave the objects of an item unchanged.
const (
	// ReasonUnknown: the state of the class or of the segment is not known yet.
	ReasonUnknown Reason = "Unknown"
	// ReasonOwnerUnknown: the owner of the objects has not been found yet.
	ReasonOwnerUnknown Reason = "OwnerUnknown"
	// ReasonUpToDate: the object matches the driver's answer and has its owner.
	ReasonUpToDate Reason = "UpToDate"
)

// Reasons for deleting an object, or for waiting once no object is left.
const (
	// ReasonClassGone: the StorageClass does not exist, or belongs to another driver.
	ReasonClassGone Reason = "ClassGone"
	// ReasonImmediateBinding: the class binds claims before any pod is scheduled.
	ReasonImmediateBinding Reason = "ImmediateBinding"
	// ReasonSegmentGone: the topology segment has no node with the driver.
	ReasonSegmentGone Reason = "PlaceGone"
	// ReasonDuplicate: another object has the same StorageClass and topology segment.
	ReasonDuplicate Reason = "Duplicate"
)

// Reasons to ask the driver, or to create or update an object.
const (
	// ReasonDue: the capacity may have changed since the last GetCapacity.
	ReasonDue Reason = "Due"
	// ReasonMissing: the item has no object, but needs one.
	ReasonMissing Reason = "Missing"
	// ReasonChanged: the driver's answer differs from the capacity in the object.
	ReasonChanged Reason = "Changed"
	// ReasonNotOwned: the object lacks its owner reference, so garbage collection would miss it.
	ReasonNotOwned Reason = "NotOwned"
)

// Reasons for a failure while a step is carried out.
const (
	// ReasonGetCapacityFailed: GetCapacity failed, and the object remains unchanged.
	ReasonGetCapacityFailed Reason = "Unanswered"
	// ReasonAPIWriteFailed: the API server did not accept a create, patch or delete.
	ReasonAPIWriteFailed Reason = "APIWriteFailed"
	// ReasonAPIReadFailed: a read from the API server failed, or the nodes are unknown.
	ReasonAPIReadFailed Reason = "APIReadFailed"
)
