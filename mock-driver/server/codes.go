package server

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

// codeOf maps the backend's sentinels to the specification's codes. The backend meets gRPC only here.
func codeOf(err error) codes.Code {
	for _, m := range []struct {
		sentinel backend.Error
		code     codes.Code
	}{
		{backend.ErrVolumeNotFound, codes.NotFound},
		{backend.ErrSnapshotNotFound, codes.NotFound},
		{backend.ErrNodeNotFound, codes.NotFound},
		{backend.ErrNotHere, codes.NotFound},
		{backend.ErrIncompatible, codes.AlreadyExists},
		{backend.ErrInUse, codes.FailedPrecondition},
		{backend.ErrNotPrepared, codes.FailedPrecondition},
		{backend.ErrExceedsVolume, codes.FailedPrecondition},
		{backend.ErrOutOfRange, codes.OutOfRange},
		{backend.ErrExhausted, codes.ResourceExhausted},
		{backend.ErrInvalid, codes.InvalidArgument},
	} {
		if errors.Is(err, m.sentinel) {
			return m.code
		}
	}
	return codes.Internal
}

// asStatus returns err as a gRPC status, and leaves an existing status unchanged.
func asStatus(err error) error {
	if err == nil {
		return nil
	}
	if _, is := status.FromError(err); is {
		return err
	}
	return status.Error(codeOf(err), err.Error())
}

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}
