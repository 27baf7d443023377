package csidriver

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
)

// ErrDriverName is wrapped by errors about an invalid name in a driver's answer to GetPluginInfo.
var ErrDriverName = errors.New("invalid driver name")

// ErrLeaseExpired: the call was not sent, because this process no longer holds the leader election Lease
// (Config.Lease). It is the error of the first check, so that callers handle both alike.
var ErrLeaseExpired = leadership.ErrExpired

const (
	// maxWords bounds the part of a driver's message that is repeated, in bytes. gRPC allows messages of 16 MiB, far
	// more than an Event has room for.
	maxWords = 2048
	// maxHandle bounds the part of a volume handle that is repeated, in bytes. The CSI spec allows 128 ("Size Limits"),
	// the API server any length that fits into an object.
	maxHandle = 256
	// minSecret is the minimum length of a secret value to hide, in bytes. Shorter values occur in any text, and the
	// gaps would reveal them.
	minSecret = 4
)

// ofGRPC are the beginnings of messages with which gRPC gives the codes of answers to an answer that is too long, for
// this process or for the driver's (rpc_util.go, stream.go), and to a stream that breaks (internal/transport).
var ofGRPC = []string{"grpc: ", "trying to send message larger than max", "stream terminated by RST_STREAM"}

// codeOf returns the code of a driver's answer, and Unknown for a code of gRPC itself: the driver may have done the
// work.
func codeOf(s *status.Status) codes.Code {
	begins := func(text string) bool { return strings.HasPrefix(s.Message(), text) }
	if c := s.Code(); c != codes.ResourceExhausted && c != codes.PermissionDenied || !slices.ContainsFunc(ofGRPC, begins) {
		return c
	}
	return codes.Unknown
}

// plainly returns a driver's error with its code and a presentable message: bounded, valid UTF-8, and without
// the secrets of the call. It drops the details that drivers may attach. For a nil error it returns nil.
func plainly(err error, secrets map[string]string) error {
	s := status.Convert(err) // OK for a nil error
	return status.Error(codeOf(s), text.Truncate(hide(s.Message(), secrets), maxWords))
}

// hide replaces the values of secrets in a text. It does not find values that a driver repeats in another form, such
// as quoted or split.
func hide(text string, secrets map[string]string) string {
	values := slices.Collect(maps.Values(secrets))
	// A value may be part of another, so the longest is replaced first.
	slices.SortFunc(values, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	for _, value := range values {
		if value = strings.TrimSpace(value); len(value) >= minSecret {
			text = strings.ReplaceAll(text, value, "***")
		}
	}
	return text
}

// mark classifies a driver's answer by its gRPC code, as in the CSI spec ("Error Scheme", and the table of each
// call). Codes without a meaning in the spec are Uncertain, because a driver that timed out or broke may have done
// the work.
func mark(err error) error {
	switch status.Code(err) {
	case codes.Aborted:
		return errclass.Mark(errclass.InProgress, err)
	case codes.NotFound:
		return errclass.Mark(errclass.NotFound, err)
	case codes.FailedPrecondition, codes.InvalidArgument, codes.Unimplemented,
		codes.PermissionDenied, codes.Unauthenticated, codes.OutOfRange:
		return errclass.Mark(errclass.Refused, err)
	default:
		return errclass.Mark(errclass.Uncertain, err)
	}
}

// markCreate does the same for CreateVolume ("CreateVolume Errors"). If a volume of that name exists and fits the
// request, the spec requires OK. InvalidArgument and OutOfRange judge the request, so they imply that none exists.
// FailedPrecondition, PermissionDenied, Unauthenticated, Unimplemented and NotFound (of the content source) refuse
// the call before the driver looks for a volume: this call created nothing, but an earlier one may have.
// AlreadyExists reports a volume of that name that does not fit. This call did not create it either; unless an
// earlier call did, the volume belongs to another client.
func markCreate(err error) error {
	switch status.Code(err) {
	case codes.Aborted:
		return errclass.Mark(errclass.InProgress, err)
	case codes.InvalidArgument, codes.OutOfRange:
		return errclass.Mark(errclass.Unfit, err)
	case codes.ResourceExhausted:
		return errclass.Mark(errclass.Exhausted, err)
	case codes.FailedPrecondition, codes.Unimplemented, codes.PermissionDenied, codes.Unauthenticated, codes.NotFound,
		codes.AlreadyExists:
		return errclass.Mark(errclass.Refused, err)
	default:
		return errclass.Mark(errclass.Uncertain, err)
	}
}
