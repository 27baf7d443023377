// Package reasons has the common parts of the reasons of all packages: their table, which gives the severity and the
// meaning of each, and errors that carry a reason. The words and their sentences belong to the packages that decide.
//
// A package declares a reason once, by a variable whose initial value adds the word, its severity and its sentence to
// the table of the package. So no reason is without a meaning or missing from a list. Constants would need a second
// place for the meaning. In return, the linter could check that a switch over reasons is exhaustive, but every such
// switch has a default.
//
// It is pure, because packages that decide import it.
package reasons

import (
	"errors"

	v1 "k8s.io/api/core/v1"
)

// Severity determines how a reason is reported; the zero value is Silent.
type Severity uint8

const (
	// Silent reasons are the normal course of things, and the object does not count as waiting.
	Silent Severity = iota
	// Counted reasons keep an object waiting, and appear in the waiting metric but not in Events.
	Counted
	// Normal reasons keep an object waiting as intended, and have Events of type Normal.
	Normal
	// Warning reasons need a person's attention.
	Warning
)

// Waits reports whether an object with a reason of this severity counts as waiting.
func (s Severity) Waits() bool { return s != Silent }

// EventType returns the type of the Events, Normal or Warning, and an empty string for a severity without Events.
func (s Severity) EventType() string {
	switch s {
	case Normal:
		return v1.EventTypeNormal
	case Warning:
		return v1.EventTypeWarning
	case Silent, Counted:
	}
	return ""
}

// About is the meaning of a reason.
type About struct {
	Severity Severity
	// Sentence gives the meaning of the reason and the action that a person can take.
	Sentence string
	// DetailFirst means that an Event begins with its detail, such as a message of the driver, because readers may cut the
	// end.
	DetailFirst bool
	// OnClaim means that the Events of a PV are recorded on its claim too, because the user of the data watches the claim.
	OnClaim bool
	// OnSet means that the Events of a claim are recorded on its StatefulSet too, because the owner of the workload
	// watches it.
	OnSet bool
}

// Reason is the word that explains a decision.
type Reason interface {
	~string
	// About returns the zero value for an unknown reason.
	About() About
}

// reasonError is an error with the reason under which it is reported.
type reasonError[R ~string] struct {
	reason R
	err    error
}

func (e *reasonError[R]) Error() string { return e.err.Error() }
func (e *reasonError[R]) Unwrap() error { return e.err }

// Because attaches a reason to an error, and returns nil if err is nil.
func Because[R ~string](reason R, err error) error {
	if err == nil {
		return nil
	}
	return &reasonError[R]{reason, err}
}

// Of returns the reason of type R that Because attached to err, from the outermost call if there are several. Without
// one, it returns otherwise.
func Of[R ~string](err error, otherwise R) R {
	if e, ok := errors.AsType[*reasonError[R]](err); ok {
		return e.reason
	}
	return otherwise
}
