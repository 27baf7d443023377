package request

// Reason says why there is no order, or why an answer is none. It is meant for Events, logs and
// metrics, and tells what helps.
type Reason string

// Reasons that have nothing to do with this driver.
const (
	// ReasonNotOurs: another provisioner answers for the claim or its class.
	ReasonNotOurs Reason = "NotOurs"
	// ReasonLeftToPopulator: the claim's data come from a kind of source that some other
	// controller knows, which also makes the volume (KEP-1495).
	ReasonLeftToPopulator Reason = "LeftToPopulator"
)

// Reasons that pass by themselves.
const (
	ReasonClassMissing           Reason = "ClassMissing"
	ReasonAttributesClassMissing Reason = "AttributesClassMissing"
	ReasonSourceMissing          Reason = "SourceMissing"
	ReasonSourceNotReady         Reason = "SourceNotReady"
	// ReasonSourceNotGranted: the source is in another namespace, where no ReferenceGrant allows it.
	ReasonSourceNotGranted Reason = "SourceNotGranted"
	ReasonNodeNotSelected  Reason = "NodeNotSelected"
	ReasonTopologyUnknown  Reason = "TopologyUnknown"
)

// Reasons that last until a person changes something.
const (
	ReasonClaimInvalid        Reason = "ClaimInvalid"
	ReasonClaimUnsupported    Reason = "ClaimUnsupported"
	ReasonClassUntranslatable Reason = "ClassUntranslatable"
	ReasonDriverIncapable     Reason = "DriverIncapable"
	ReasonParameterInvalid    Reason = "ParameterInvalid"
	ReasonSecretUnclear       Reason = "SecretUnclear"
	ReasonSourceDeleting      Reason = "SourceDeleting"
	ReasonSourceUnfit         Reason = "SourceUnfit"
	// ReasonSourceUnserved: the claim's data come from a kind of object that is not read here.
	ReasonSourceUnserved         Reason = "SourceUnserved"
	ReasonAttributesClassForeign Reason = "AttributesClassForeign"
	// ReasonAttributesClassUnserved: the claim names a VolumeAttributesClass, and there are none in this cluster, or
	// they are switched off.
	ReasonAttributesClassUnserved Reason = "AttributesClassUnserved"
	// ReasonAnswerWithoutVolume: the driver says that it made a volume and does not say which.
	ReasonAnswerWithoutVolume Reason = "AnswerWithoutVolume"
)

// ReasonNodeUnfit: the selected node cannot have the volume, or is gone.
const ReasonNodeUnfit Reason = "NodeUnfit"

// Reasons for which a volume that was made is not the one that was ordered.
const (
	ReasonAnswerTooSmall       Reason = "AnswerTooSmall"
	ReasonAnswerFromNoSource   Reason = "AnswerFromNoSource"
	ReasonAnswerFromOther      Reason = "AnswerFromOtherSource"
	ReasonAnswerUntranslatable Reason = "AnswerUntranslatable"
)

// Remedy is what helps against an Error. The zero value is the careful one.
type Remedy uint8

const (
	// RemedyWait: something is not there yet that others provide. Try again soon, then later
	// and later.
	RemedyWait Remedy = iota
	// RemedyChange: the answer stays the same until somebody changes the claim, the class or
	// the driver. Tell them, and try again slowly.
	RemedyChange
	// RemedyReschedule: ask the scheduler for another node, if it is certain that no CreateVolume
	// for this claim is going on; else as RemedyWait.
	RemedyReschedule
	// RemedyDiscard: the driver made a volume that must not be used. Delete the volume that the
	// answer names, with the order's Secret; then as RemedyChange.
	RemedyDiscard
	// RemedyIgnore: others do it. Nothing is to be done; see Announced.
	RemedyIgnore
)

// Announced reports whether the claim's owner gets an Event although nothing is to be done (RemedyIgnore): nobody else
// tells them whom the claim waits for.
func (r Reason) Announced() bool { return r == ReasonLeftToPopulator }

// Reasons returns all reasons there are, in the order in which they are documented.
func Reasons() []Reason {
	return []Reason{
		ReasonNotOurs, ReasonLeftToPopulator,
		ReasonClassMissing, ReasonAttributesClassMissing, ReasonSourceMissing, ReasonSourceNotReady, ReasonSourceNotGranted,
		ReasonNodeNotSelected, ReasonTopologyUnknown,
		ReasonClaimInvalid, ReasonClaimUnsupported, ReasonClassUntranslatable, ReasonDriverIncapable,
		ReasonParameterInvalid, ReasonSecretUnclear,
		ReasonSourceDeleting, ReasonSourceUnfit, ReasonSourceUnserved, ReasonAttributesClassForeign,
		ReasonAttributesClassUnserved, ReasonAnswerWithoutVolume,
		ReasonNodeUnfit,
		ReasonAnswerTooSmall, ReasonAnswerFromNoSource, ReasonAnswerFromOther, ReasonAnswerUntranslatable,
	}
}

// Remedy returns what helps, RemedyWait for a reason that this package does not know.
func (r Reason) Remedy() Remedy {
	switch r {
	case ReasonNotOurs, ReasonLeftToPopulator:
		return RemedyIgnore
	case ReasonClaimInvalid, ReasonClaimUnsupported, ReasonClassUntranslatable, ReasonDriverIncapable,
		ReasonParameterInvalid, ReasonSecretUnclear,
		ReasonSourceDeleting, ReasonSourceUnfit, ReasonSourceUnserved, ReasonAttributesClassForeign,
		ReasonAttributesClassUnserved, ReasonAnswerWithoutVolume:
		return RemedyChange
	case ReasonNodeUnfit:
		return RemedyReschedule
	case ReasonAnswerTooSmall, ReasonAnswerFromNoSource, ReasonAnswerFromOther, ReasonAnswerUntranslatable:
		return RemedyDiscard
	default:
		return RemedyWait
	}
}

// String returns the remedy as used in logs.
func (r Remedy) String() string {
	switch r {
	case RemedyChange:
		return "Change"
	case RemedyReschedule:
		return "Reschedule"
	case RemedyDiscard:
		return "Discard"
	case RemedyIgnore:
		return "Ignore"
	default:
		return "Wait"
	}
}
