package request

import (
	"errors"
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
)

// maxWords bounds the text of an error, in bytes: an Event has room for 1024, and names its
// claim and class besides.
const maxWords = 800

// Error is why a claim gets no volume, in a sentence for its owner: the object, the cause, and
// what to do. It holds no secret.
type Error struct {
	Reason Reason
	err    error
}

// Error returns the sentence, in at most 800 bytes.
func (e *Error) Error() string { return text.Truncate(e.err.Error(), maxWords) }

// Unwrap returns what the sentence was made from.
func (e *Error) Unwrap() error { return e.err }

// Remediation returns what helps.
func (e *Error) Remediation() Remediation { return e.Reason.Remediation() }

// ReasonOf returns the reason of an error, empty for one that is not of this package. nil has
// none either.
func ReasonOf(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// RemediationOf returns what helps against an error, RemediationWait for one that is not of this package.
func RemediationOf(err error) Remediation { return ReasonOf(err).Remediation() }

// refuse returns an *Error. %w keeps the cause.
func refuse(why Reason, format string, args ...any) error {
	return &Error{Reason: why, err: fmt.Errorf(format, args...)}
}
