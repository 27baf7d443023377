package request

// Reason says why there is no plan, or why an answer is none. It is meant for Events, logs and
// metrics, and determines the Remediation.
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

// Reasons for which a volume that was made is not the one that was asked for.
const (
	ReasonAnswerTooSmall       Reason = "AnswerTooSmall"
	ReasonAnswerFromNoSource   Reason = "AnswerFromNoSource"
	ReasonAnswerFromOther      Reason = "AnswerFromOtherSource"
	ReasonAnswerUntranslatable Reason = "AnswerUntranslatable"
)

// Remediation is what helps against an Error. The zero value is the careful one.
type Remediation uint8

const (
	// RemediationWait: something is not there yet that others provide. Try again soon, then later
	// and later.
	RemediationWait Remediation = iota
	// RemediationChange: the answer stays the same until somebody changes the claim, the class or
	// the driver. Tell them, and try again slowly.
	RemediationChange
	// RemediationReschedule: ask the scheduler for another node, if it is certain that no CreateVolume
	// for this claim is going on; else as RemediationWait.
	RemediationReschedule
	// RemediationDiscard: the driver made a volume that must not be used. Delete the volume that the
	// answer names, with the plan's Secret; then as RemediationChange.
	RemediationDiscard
	// RemediationIgnore: others do it. Nothing is to be done; see Announced.
	RemediationIgnore
)

// Announced reports whether the claim's owner gets an Event although nothing is to be done (RemediationIgnore):
// no other program reports what the claim waits for.
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

// Remediation returns what helps, RemediationWait for a reason that this package does not know.
func (r Reason) Remediation() Remediation {
	switch r {
	case ReasonNotOurs, ReasonLeftToPopulator:
		return RemediationIgnore
	case ReasonClaimInvalid, ReasonClaimUnsupported, ReasonClassUntranslatable, ReasonDriverIncapable,
		ReasonParameterInvalid, ReasonSecretUnclear,
		ReasonSourceDeleting, ReasonSourceUnfit, ReasonSourceUnserved, ReasonAttributesClassForeign,
		ReasonAttributesClassUnserved, ReasonAnswerWithoutVolume:
		return RemediationChange
	case ReasonNodeUnfit:
		return RemediationReschedule
	case ReasonAnswerTooSmall, ReasonAnswerFromNoSource, ReasonAnswerFromOther, ReasonAnswerUntranslatable:
		return RemediationDiscard
	default:
		return RemediationWait
	}
}

// String returns the remediation as used in logs.
func (r Remediation) String() string {
	switch r {
	case RemediationChange:
		return "Change"
	case RemediationReschedule:
		return "Reschedule"
	case RemediationDiscard:
		return "Discard"
	case RemediationIgnore:
		return "Ignore"
	default:
		return "Wait"
	}
}
