// Package reasons is what the reasons of all packages have in common: their table, which says how severe
// each is and what it means, and errors that carry one. The words and their sentences belong to the
// packages that decide.
//
// It is pure: packages that decide import it.
package reasons

import (
	"errors"

	v1 "k8s.io/api/core/v1"
)

// Severity is how a reason is reported. The zero value is Silent.
type Severity uint8

const (
	// Silent reasons are the normal course of things. The object does not count as waiting.
	Silent Severity = iota
	// Counted reasons keep an object waiting: the waiting metric has them, Events do not.
	Counted
	// Normal reasons keep an object waiting as they should, and have Events of type Normal.
	Normal
	// Warning reasons need a person's attention.
	Warning
)

// Waits reports whether an object with a reason of this severity counts as waiting.
func (s Severity) Waits() bool { return s != Silent }

// EventType returns the type of the Events, Normal or Warning, empty where there are none.
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

// About is what a reason means.
type About struct {
	Severity Severity
	// Sentence is what the reason means and what a person can do about it.
	Sentence string
	// DetailFirst: an Event begins with its detail, such as the words of a driver, which readers may cut.
	DetailFirst bool
	// OnClaim: the Events of a PV are recorded on its claim too, because the user of the data watches the
	// claim.
	OnClaim bool
	// OnSet: the Events of a claim are recorded on its StatefulSet too, because the owner of the workload watches that.
	OnSet bool
}

// Reason is the word for why a decision is what it is.
type Reason interface {
	~string
	// About returns the zero value for a word that is none of the reasons.
	About() About
}

// reasonError is an error with the reason that it is reported under.
type reasonError[R ~string] struct {
	reason R
	err    error
}

func (e *reasonError[R]) Error() string { return e.err.Error() }
func (e *reasonError[R]) Unwrap() error { return e.err }

// Because attaches a reason to an error. It returns nil when err is nil.
func Because[R ~string](reason R, err error) error {
	if err == nil {
		return nil
	}
	return &reasonError[R]{reason, err}
}

// Of returns the reason that the outermost Because of that type in err's chain gave, otherwise where
// there is none.
func Of[R ~string](err error, otherwise R) R {
	var e *reasonError[R]
	if errors.As(err, &e) {
		return e.reason
	}
	return otherwise
}
