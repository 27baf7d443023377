package request

// Reason explains why no plan exists or an answer is unusable. It appears in Events, logs and metrics, and determines
// the Remediation.
type Reason string

// Reasons of claims that other programs handle.
const (
	// ReasonNotOurs means that another provisioner handles the claim or its class.
	ReasonNotOurs Reason = "NotOurs"
	// ReasonLeftToPopulator means that another controller knows the kind of the claim's data source and also creates the
	// volume (KEP-1495).
	ReasonLeftToPopulator Reason = "LeftToPopulator"
)

// Reasons that may pass without a change by a person.
const (
	ReasonClassMissing           Reason = "ClassMissing"
	ReasonAttributesClassMissing Reason = "AttributesClassMissing"
	ReasonSourceMissing          Reason = "SourceMissing"
	ReasonSourceNotReady         Reason = "SourceNotReady"
	// ReasonSourceNotGranted means that the source is in another namespace, whose ReferenceGrants do not allow it.
	ReasonSourceNotGranted Reason = "SourceNotGranted"
	ReasonNodeNotSelected  Reason = "NodeNotSelected"
	ReasonTopologyUnknown  Reason = "TopologyUnknown"
)

// Reasons that last until a person makes a change.
const (
	ReasonClaimInvalid        Reason = "ClaimInvalid"
	ReasonClaimUnsupported    Reason = "ClaimUnsupported"
	ReasonClassUntranslatable Reason = "ClassUntranslatable"
	ReasonDriverIncapable     Reason = "DriverIncapable"
	ReasonParameterInvalid    Reason = "ParameterInvalid"
	ReasonSecretUnclear       Reason = "SecretUnclear"
	ReasonSourceDeleting      Reason = "SourceDeleting"
	ReasonSourceUnfit         Reason = "SourceUnfit"
	// ReasonSourceUnserved means that the source of the claim's data is of a kind that csi-reclaimer does not read.
	ReasonSourceUnserved         Reason = "SourceUnserved"
	ReasonAttributesClassForeign Reason = "AttributesClassForeign"
	// ReasonAttributesClassUnserved means that the claim names a VolumeAttributesClass, but the cluster does not serve
	// them or they are disabled.
	ReasonAttributesClassUnserved Reason = "AttributesClassUnserved"
	// ReasonAnswerWithoutVolume means that the driver reports success without a volume id.
	ReasonAnswerWithoutVolume Reason = "AnswerWithoutVolume"
)

// ReasonNodeUnfit means that the selected node cannot have the volume, or is gone.
const ReasonNodeUnfit Reason = "NodeUnfit"

// Reasons for which a created volume does not match the request.
const (
	ReasonAnswerTooSmall       Reason = "AnswerTooSmall"
	ReasonAnswerFromNoSource   Reason = "AnswerFromNoSource"
	ReasonAnswerFromOther      Reason = "AnswerFromOtherSource"
	ReasonAnswerUntranslatable Reason = "AnswerUntranslatable"
)

// Remediation is the remedy for an Error. The zero value is the safest one.
type Remediation uint8

const (
	// RemediationWait means that other programs have to provide a missing object, so retry with a growing delay.
	RemediationWait Remediation = iota
	// RemediationChange means that the result stays the same until a person changes the claim, the class or the driver, so
	// report it and retry slowly.
	RemediationChange
	// RemediationReschedule means that the scheduler has to select another node, if no CreateVolume for this claim can be
	// in progress; otherwise treat it as RemediationWait.
	RemediationReschedule
	// RemediationDiscard means that the driver created an unusable volume. Delete the volume in the answer with the plan's
	// Secret, and then treat it as RemediationChange.
	RemediationDiscard
	// RemediationIgnore means that another program provisions the claim, so no action is needed; see Announced.
	RemediationIgnore
)

// Announced reports whether the claim's owner gets an Event although no action is needed (RemediationIgnore), because
// no other program reports the cause of the claim's wait.
func (r Reason) Announced() bool { return r == ReasonLeftToPopulator }

// Reasons returns all reasons, in the order of their documentation.
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

// Remediation returns the remediation of a reason, RemediationWait if this package does not know the reason.
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

// String returns the name of the remediation for logs.
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
