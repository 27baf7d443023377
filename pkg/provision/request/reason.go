package request

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
)

// Reason explains why no plan exists or an answer is unusable. It appears in Events, logs and metrics, and determines
// the Remediation.
type Reason string

var (
	declared     []Reason
	remediations = map[Reason]Remediation{}
)

// declare adds a reason to the others, and returns it.
func declare(r Reason, m Remediation) Reason {
	declared, remediations[r] = append(declared, r), m
	return r
}

// Reasons of claims that other programs handle.
var (
	// ReasonNotOurs means that another provisioner handles the claim or its class.
	ReasonNotOurs = declare("NotOurs", RemediationIgnore)
	// ReasonLeftToPopulator means that another controller knows the kind of the claim's data source and also creates the
	// volume (KEP-1495).
	ReasonLeftToPopulator = declare("LeftToPopulator", RemediationIgnore)
)

// Reasons that may pass without a change by a person.
var (
	ReasonClassMissing           = declare("ClassMissing", RemediationWait)
	ReasonAttributesClassMissing = declare("AttributesClassMissing", RemediationWait)
	ReasonSourceMissing          = declare("SourceMissing", RemediationWait)
	ReasonSourceNotReady         = declare("SourceNotReady", RemediationWait)
	// ReasonSourceNotGranted means that the source is in another namespace, whose ReferenceGrants do not allow it.
	ReasonSourceNotGranted = declare("SourceNotGranted", RemediationWait)
	ReasonNodeNotSelected  = declare("NodeNotSelected", RemediationWait)
	ReasonTopologyUnknown  = declare("TopologyUnknown", RemediationWait)
)

// Reasons that last until a person makes a change.
var (
	ReasonClaimInvalid        = declare("ClaimInvalid", RemediationChange)
	ReasonClaimUnsupported    = declare("ClaimUnsupported", RemediationChange)
	ReasonClassUntranslatable = declare("ClassUntranslatable", RemediationChange)
	ReasonDriverIncapable     = declare("DriverIncapable", RemediationChange)
	ReasonParameterInvalid    = declare("ParameterInvalid", RemediationChange)
	ReasonSecretUnclear       = declare("SecretUnclear", RemediationChange)
	ReasonSourceDeleting      = declare("SourceDeleting", RemediationChange)
	ReasonSourceUnfit         = declare("SourceUnfit", RemediationChange)
	// ReasonSourceUnserved means that the source of the claim's data is of a kind that csi-reclaimer does not read.
	ReasonSourceUnserved         = declare("SourceUnserved", RemediationChange)
	ReasonAttributesClassForeign = declare("AttributesClassForeign", RemediationChange)
	// ReasonAttributesClassUnserved means that the claim names a VolumeAttributesClass, but the cluster does not serve
	// them or they are disabled.
	ReasonAttributesClassUnserved = declare("AttributesClassUnserved", RemediationChange)
	// ReasonAnswerWithoutVolume means that the driver reports success without a volume id.
	ReasonAnswerWithoutVolume = declare("AnswerWithoutVolume", RemediationChange)
)

// ReasonNodeUnfit means that the selected node cannot have the volume, or is gone.
var ReasonNodeUnfit = declare("NodeUnfit", RemediationReschedule)

// Reasons for which a created volume does not match the request.
var (
	ReasonAnswerTooSmall       = declare("AnswerTooSmall", RemediationDiscard)
	ReasonAnswerFromNoSource   = declare("AnswerFromNoSource", RemediationDiscard)
	ReasonAnswerUntranslatable = declare("AnswerUntranslatable", RemediationDiscard)
)

// Remediation is the remedy for an Error. The zero value is the safest one.
type Remediation string

const (
	// RemediationWait means that other programs have to provide a missing object, so retry with a growing delay.
	RemediationWait Remediation = ""
	// RemediationChange means that the result stays the same until a person changes the claim, the class or the driver, so
	// report it and retry slowly.
	RemediationChange Remediation = "Change"
	// RemediationReschedule means that the scheduler has to select another node, if no CreateVolume for this claim can be
	// in progress; otherwise treat it as RemediationWait.
	RemediationReschedule Remediation = "Reschedule"
	// RemediationDiscard means that the driver created an unusable volume. Delete the volume in the answer with the plan's
	// Secret, and then treat it as RemediationChange.
	RemediationDiscard Remediation = "Discard"
	// RemediationIgnore means that another program provisions the claim, so no action is needed; see Announced.
	RemediationIgnore Remediation = "Ignore"
)

// Announced reports whether the claim's owner gets an Event although no action is needed (RemediationIgnore), because
// no other program reports the cause of the claim's wait.
func (r Reason) Announced() bool { return r == ReasonLeftToPopulator }

// Reasons returns all reasons, in the order of their documentation.
func Reasons() []Reason { return slices.Clone(declared) }

// Remediation returns the remediation of a reason, RemediationWait if this package does not know the reason.
func (r Reason) Remediation() Remediation { return remediations[r] }

// String returns the name of the remediation for logs.
func (r Remediation) String() string { return cmp.Or(string(r), "Wait") }

// maxWords limits the text of an error, in bytes: an Event has room for 1024, and also names its claim and class.
const maxWords = 800

// Error explains why a claim gets no volume, in a sentence for its owner with the object, the cause and the remedy but
// no secret.
type Error struct {
	Reason Reason
	err    error
}

// Error returns the sentence, truncated to 800 bytes.
func (e *Error) Error() string { return text.Truncate(e.err.Error(), maxWords) }

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.err }

// Remediation returns the remediation of the error's reason.
func (e *Error) Remediation() Remediation { return e.Reason.Remediation() }

// ReasonOf returns the reason of an error, and an empty one for nil and for errors of other packages.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

// RemediationOf returns the remediation of an error, RemediationWait for errors of other packages.
func RemediationOf(err error) Remediation { return ReasonOf(err).Remediation() }

// refuse returns an *Error, which wraps the cause if the format has a %w.
func refuse(why Reason, format string, args ...any) error {
	return &Error{Reason: why, err: fmt.Errorf(format, args...)}
}
