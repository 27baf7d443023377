// Package errclass classifies the outcomes of calls to a storage system.
//
// It is the vocabulary between the client (package csidriver, or a vendor's client of its own cloud) and the
// controller that decides the next step (package reclaim). The client marks an error with a Class, and the controller
// reads it with Of. The package is independent of gRPC.
//
// Stability: for embedders. Until version 1.0 it changes only with a minor release, and CHANGELOG.md lists each change.
package errclass

import (
	"errors"
	"fmt"
)

// Class is the meaning of an error for the next step. The zero value is Uncertain: the work may have happened or not,
// so it is retried with exponential backoff.
type Class int

const (
	// Uncertain: the work may have happened. It is retried with exponential backoff.
	Uncertain Class = iota
	// Done: the call succeeded. Of(nil) is Done.
	Done
	// InProgress: the storage system is already at work on this volume. The call is retried soon and is not reported.
	InProgress
	// Refused: the same call will fail until a person changes something. It is retried slowly.
	Refused
	// NotFound: the storage system does not know the volume, although it should have answered success. The call is
	// retried slowly, unless the user chose to treat the answer as success.
	NotFound
	// Exhausted: the requested segment has no room, and the call created nothing. Another segment may have room.
	Exhausted
	// Unfit: the storage system has examined the request, has no volume of that name, and cannot create one as
	// requested. The call is retried slowly.
	Unfit
)

// String returns the class as it appears in logs and metrics.
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

// Mark attaches the class to err. It returns nil if err is nil.
func Mark(c Class, err error) error {
	if err == nil {
		return nil
	}
	return &marked{class: c, err: err}
}

// Of returns the class of the outermost Mark in err's chain, Done for a nil error, and Uncertain for an error without
// a mark. A non-nil error is never Done, even if it is marked so.
func Of(err error) Class {
	if err == nil {
		return Done
	}
	if m, ok := errors.AsType[*marked](err); ok && m.class != Done {
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
