package csidriver

import (
	"context"
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/outcome"
)

func (d *fakeDriver) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	d.mu.Lock()
	err, id := d.createErr, d.createID
	d.created = r
	d.mu.Unlock()
	if errors.Is(err, context.DeadlineExceeded) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id}}, err
}

func TestCreateVolumeTellsWhatTheAnswerMeans(t *testing.T) {
	socket := socketPath(t)
	driver := &fakeDriver{controller: true}
	serve(t, socket, driver)
	d := connect(t, socket)
	code := func(c codes.Code) error { return status.Error(c, "because") }
	cases := map[string]struct {
		answer error
		id     string
		want   outcome.Class
	}{
		"made":                            {nil, "vol-1", outcome.Done},
		"made, without saying which":      {nil, "", outcome.Uncertain},
		"being made":                      {code(codes.Aborted), "", outcome.InProgress},
		"a wrong parameter":               {code(codes.InvalidArgument), "", outcome.Unfit},
		"a size it cannot make":           {code(codes.OutOfRange), "", outcome.Unfit},
		"no room":                         {code(codes.ResourceExhausted), "", outcome.Exhausted},
		"a source that is not there":      {code(codes.NotFound), "", outcome.Refused},
		"not allowed":                     {code(codes.PermissionDenied), "", outcome.Refused},
		"wrong secrets":                   {code(codes.Unauthenticated), "", outcome.Refused},
		"cannot create":                   {code(codes.Unimplemented), "", outcome.Refused},
		"not now":                         {code(codes.FailedPrecondition), "", outcome.Refused},
		"one of that name, not like this": {code(codes.AlreadyExists), "", outcome.Refused},
		"broken":                          {code(codes.Internal), "", outcome.Uncertain},
		"an unknown failure":              {code(codes.Unknown), "", outcome.Uncertain},
		"away":                            {code(codes.Unavailable), "", outcome.Uncertain},
		"says nothing in time":            {context.DeadlineExceeded, "", outcome.Uncertain},
		"a code of a later gRPC":          {code(codes.Code(99)), "", outcome.Uncertain},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			driver.mu.Lock()
			driver.createErr, driver.createID = c.answer, c.id
			driver.mu.Unlock()
			request := &csi.CreateVolumeRequest{Name: "pvc-1"}
			volume, err := d.CreateVolume(t.Context(), request, map[string]string{"key": "value"})
			if got := outcome.Of(err); got != c.want || (err == nil) != (volume.GetVolumeId() != "") {
				t.Errorf("CreateVolume = %v, %v, which is %v, want %v", volume, err, got, c.want)
			}
			driver.mu.Lock()
			received := driver.created
			driver.mu.Unlock()
			if received.GetName() != "pvc-1" || received.GetSecrets()["key"] != "value" || request.Secrets != nil {
				t.Errorf("the driver got %v; the request became %v", received, request)
			}
		})
	}
}
