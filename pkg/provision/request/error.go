package request

import (
	"errors"
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
)

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
	var e *Error
	if errors.As(err, &e) {
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
