// Package errclass names how a call to a storage system can end.
//
// It is the vocabulary between the client that makes the call (package csidriver, or a vendor's
// own client of their cloud) and the controller that decides what comes next (package reclaim):
// the client marks an error with a Class, the controller asks Of. Nothing here knows gRPC.
package errclass

import (
	"errors"
	"fmt"
)

// Class says what an error means for the next step. The zero value is Uncertain: the
// work may or may not have happened, so it is tried again, later and later.
type Class int

const (
	// Uncertain: the work may have happened. Retried with exponential back-off.
	Uncertain Class = iota
	// Done: the call succeeded. Of(nil) is Done.
	Done
	// InProgress: the storage system is already at work on this volume. Retried soon,
	// and nothing a person must know of.
	InProgress
	// Refused: the same call will be refused again until a person changes something.
	// Retried slowly.
	Refused
	// NotFound: the storage system does not know the volume, where it should have
	// answered success. Retried slowly, unless the user chose to take it for success.
	NotFound
	// Exhausted: there is no room where it was asked for, and the call made nothing. Another
	// place may have room.
	Exhausted
	// Unfit: the storage system has looked at what is asked for, has nothing of that name, and
	// cannot make it as it is asked for. Retried slowly.
	Unfit
)

// String returns the class as used in logs and metrics.
func (c Class) String() string {
	switch c {
	case Uncertain:
		return "Uncertain"
	case Done:
		return "Done"
	case InProgress:
		return "InProgress"
	case Refused:
		return "Refused"
	case NotFound:
		return "NotFound"
	case Exhausted:
		return "Exhausted"
	case Unfit:
		return "Unfit"
	}
	return fmt.Sprintf("Class(%d)", int(c))
}

// Mark attaches the class to err. It returns nil when err is nil.
func Mark(c Class, err error) error {
	if err == nil {
		return nil
	}
	return &marked{class: c, err: err}
}

// Of returns the class that the outermost Mark in err's chain gave, Done for a nil error,
// and Uncertain for an error without a mark. An error is never Done, even if its mark is.
func Of(err error) Class {
	if err == nil {
		return Done
	}
	var m *marked
	if errors.As(err, &m) && m.class != Done {
		return m.class
	}
	return Uncertain
}

type marked struct {
	class Class
	err   error
}

func (m *marked) Error() string { return m.err.Error() }
func (m *marked) Unwrap() error { return m.err }
