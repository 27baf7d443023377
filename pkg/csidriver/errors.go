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
)

// ErrDriverName is wrapped when a driver answers GetPluginInfo with a name that is none.
var ErrDriverName = errors.New("invalid driver name")

// ErrLeaseExpired: the call was not sent, because this process does not hold its leader election lease any more
// (Config.Lease).
var ErrLeaseExpired = errors.New("the leader election lease is not held")

const (
	// maxWords bounds what is repeated of a driver's message, in bytes. gRPC lets up to 16 MiB
	// through; an Event has room for one.
	maxWords = 2048
	// maxHandle bounds what is repeated of a volume handle, in bytes. The CSI spec allows 128
	// ("Size Limits"), the API server whatever fits into an object.
	maxHandle = 256
	// minSecret is the shortest value of a Secret that is hidden, in bytes: shorter ones occur
	// everywhere in a text, and the gaps would reveal them.
	minSecret = 4
)

// plainly returns a driver's error with the same code and a message that can be shown to
// people: bounded, valid UTF-8, and without the secrets that the call carried. Details, which
// drivers may attach, are left out. No error stays none.
func plainly(err error, secrets map[string]string) error {
	s := status.Convert(err) // OK for no error
	return status.Error(s.Code(), text.Truncate(hide(s.Message(), secrets), maxWords))
}

// hide replaces the values of secrets in a text. Values that a driver repeats in another form
// (quoted, cut in two) are not found.
func hide(text string, secrets map[string]string) string {
	values := slices.Collect(maps.Values(secrets))
	// One value may be part of another: the longest goes first.
	slices.SortFunc(values, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	for _, value := range values {
		if value = strings.TrimSpace(value); len(value) >= minSecret {
			text = strings.ReplaceAll(text, value, "***")
		}
	}
	return text
}

// mark gives a driver's answer the class its gRPC code has in the CSI spec ("Error
// Scheme", and the tables of each call). Codes the spec leaves open stay Uncertain: a
// driver that timed out or broke may have done the work.
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

// markCreate does so for CreateVolume ("CreateVolume Errors"). The specification has a driver
// answer OK where a volume of that name exists and fits the request, so that InvalidArgument and
// OutOfRange, which judge the request, also mean that there is none. FailedPrecondition,
// PermissionDenied, Unauthenticated, Unimplemented and NotFound (of the content source) refuse the
// call before the driver looks for a volume: this call created nothing, an earlier one may have. AlreadyExists
// is a volume of that name that does not fit: this call made nothing either, and the volume is another's, unless an
// earlier call made it.
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
