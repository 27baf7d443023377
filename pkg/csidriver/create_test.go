package csidriver

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

func (d *fakeDriver) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	d.mu.Lock()
	err, id, giveUp := d.createErr, d.createID, d.giveUp
	d.created = r
	d.mu.Unlock()
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: id}}, answer(ctx, err, giveUp)
}

func TestCreateVolumeErrorClass(t *testing.T) {
	socket := socketPath(t)
	driver := &fakeDriver{controller: true}
	serve(t, socket, driver)
	d := connect(t, socket)
	code := func(c codes.Code) error { return status.Error(c, "because") }
	cases := map[string]struct {
		answer error
		id     string
		want   errclass.Class
	}{
		"made":                            {nil, "vol-1", errclass.Done},
		"made, without saying which":      {nil, "", errclass.Uncertain},
		"being made":                      {code(codes.Aborted), "", errclass.InProgress},
		"a wrong parameter":               {code(codes.InvalidArgument), "", errclass.Unfit},
		"a size it cannot make":           {code(codes.OutOfRange), "", errclass.Unfit},
		"no room":                         {code(codes.ResourceExhausted), "", errclass.Exhausted},
		"a source that is not there":      {code(codes.NotFound), "", errclass.Refused},
		"not allowed":                     {code(codes.PermissionDenied), "", errclass.Refused},
		"wrong secrets":                   {code(codes.Unauthenticated), "", errclass.Refused},
		"cannot create":                   {code(codes.Unimplemented), "", errclass.Refused},
		"not now":                         {code(codes.FailedPrecondition), "", errclass.Refused},
		"one of that name, not like this": {code(codes.AlreadyExists), "", errclass.Refused},
		"broken":                          {code(codes.Internal), "", errclass.Uncertain},
		"an unknown failure":              {code(codes.Unknown), "", errclass.Uncertain},
		"away":                            {code(codes.Unavailable), "", errclass.Uncertain},
		"says nothing until the end":      {errSilent, "", errclass.Uncertain},
		"had too little time":             {code(codes.DeadlineExceeded), "", errclass.Uncertain},
		"a code of a later gRPC":          {code(codes.Code(99)), "", errclass.Uncertain},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ctx := driver.expect(t)
			driver.mu.Lock()
			driver.createErr, driver.createID = c.answer, c.id
			driver.mu.Unlock()
			request := &csi.CreateVolumeRequest{Name: "pvc-1"}
			volume, err := d.CreateVolume(ctx, request, map[string]string{"key": "value"})
			if got := errclass.Of(err); got != c.want || (err == nil) != (volume.GetVolumeId() != "") {
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
