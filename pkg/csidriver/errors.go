package csidriver

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/outcome"
)

// ErrDriverName is wrapped when a driver answers GetPluginInfo with a name that is none.
var ErrDriverName = errors.New("invalid driver name")

// mark gives a driver's answer the class its gRPC code has in the CSI spec ("Error
// Scheme", and the tables of each call). Codes the spec leaves open stay Uncertain: a
// driver that timed out or broke may have done the work.
func mark(err error) error {
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.Aborted:
		return outcome.Mark(outcome.InProgress, err)
	case codes.NotFound:
		return outcome.Mark(outcome.NotFound, err)
	case codes.FailedPrecondition, codes.InvalidArgument, codes.Unimplemented,
		codes.PermissionDenied, codes.Unauthenticated, codes.OutOfRange:
		return outcome.Mark(outcome.Refused, err)
	default:
		return outcome.Mark(outcome.Uncertain, err)
	}
}
