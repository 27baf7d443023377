package csidriver

import (
	"context"
	"errors"
	"maps"
	"strings"
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
	driver := &fakeDriver{controller: true}
	d := connected(t, driver)
	code := func(c codes.Code) error { return status.Error(c, "because") }
	cases := map[string]struct {
		answer error
		id     string
		want   errclass.Class
	}{
		"made":                            {nil, "vol-1", errclass.Done},
		"made, without saying which":      {nil, "", errclass.Uncertain},
		"made, by too long an answer":     {nil, strings.Repeat("v", maxAnswer), errclass.Uncertain},
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

// CSI has secrets of UTF-8 text, and a Secret has any bytes. Without a call, nothing may exist.
func TestBinarySecretMakesNoCall(t *testing.T) {
	driver := &fakeDriver{controller: true}
	d := connected(t, driver)
	for _, secrets := range []map[string]string{{"key": "\xff"}, {"\xff": "value"}} {
		ctx := driver.expect(t)
		_, created := d.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "pvc-1"}, secrets)
		deleted := d.DeleteVolume(ctx, "vol-1", secrets)
		for _, err := range []error{created, deleted} {
			if errclass.Of(err) != errclass.Refused || !strings.Contains(err.Error(), "is not UTF-8") {
				t.Errorf("%v is %v", err, errclass.Of(err))
			}
		}
		driver.mu.Lock()
		if driver.created != nil {
			t.Error("the driver was called")
		}
		driver.mu.Unlock()
	}
}

func (d *fakeDriver) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if code := r.GetParameters()["code"]; code != "" {
		return nil, status.Error(map[string]codes.Code{"argument": codes.InvalidArgument, "internal": codes.Internal}[code],
			"because")
	}
	return &csi.GetCapacityResponse{AvailableCapacity: int64(len(r.GetAccessibleTopology().GetSegments()))}, nil
}

func TestGetCapacity(t *testing.T) {
	d := connected(t, &fakeDriver{controller: true})
	answer, err := d.GetCapacity(t.Context(),
		&csi.GetCapacityRequest{AccessibleTopology: &csi.Topology{Segments: map[string]string{"zone": "a", "rack": "1"}}})
	if err != nil || answer.GetAvailableCapacity() != 2 {
		t.Errorf("%v, %v", answer, err)
	}
	for code, want := range map[string]errclass.Class{"argument": errclass.Refused, "internal": errclass.Uncertain} {
		if answer, err = d.GetCapacity(t.Context(),
			&csi.GetCapacityRequest{Parameters: map[string]string{"code": code}}); answer != nil || errclass.Of(err) != want {
			t.Errorf("%s: %v, %v", code, answer, err)
		}
	}
	if d.ReportsCapacity() {
		t.Error("a driver that does not advertise GET_CAPACITY is taken to tell it")
	}
}

func (d *fakeDriver) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	switch r.GetStartingToken() {
	case "old":
		return nil, status.Error(codes.Aborted, "begin again")
	case "broken":
		return nil, status.Error(codes.Internal, "because")
	}
	return &csi.ListVolumesResponse{Entries: []*csi.ListVolumesResponse_Entry{{Volume: &csi.Volume{VolumeId: "v",
		CapacityBytes: 7}}}, NextToken: "old"}, nil
}

func TestListVolumes(t *testing.T) {
	d := connected(t, &fakeDriver{controller: true})
	page, err := d.ListVolumes(t.Context(), &csi.ListVolumesRequest{})
	if err != nil || len(page.GetEntries()) != 1 || page.GetEntries()[0].GetVolume().GetCapacityBytes() != 7 ||
		page.GetNextToken() != "old" {
		t.Errorf("%v, %v", page, err)
	}
	for token, want := range map[string]errclass.Class{"old": errclass.InProgress, "broken": errclass.Uncertain} {
		if page, err = d.ListVolumes(t.Context(), &csi.ListVolumesRequest{StartingToken: token}); page != nil ||
			errclass.Of(err) != want {
			t.Errorf("token %s: %v, %v", token, page, err)
		}
	}
	if d.ListsVolumes() || d.TakesSnapshots() {
		t.Error("a driver that advertises neither is taken to list volumes, or to take snapshots")
	}
}

func TestSegments(t *testing.T) {
	here := map[string]string{"example.com/node": "n1"}
	at := func(topology *csi.Topology) func() (*csi.NodeGetInfoResponse, error) {
		return func() (*csi.NodeGetInfoResponse, error) {
			return &csi.NodeGetInfoResponse{NodeId: "n1", AccessibleTopology: topology}, nil
		}
	}
	asked := 0
	cases := map[string]struct {
		driver *fakeDriver
		want   map[string]string
		err    error
	}{
		"the driver says where it is": {&fakeDriver{topology: true, place: at(&csi.Topology{Segments: here})}, here, nil},
		"it has no topology":          {&fakeDriver{place: at(&csi.Topology{Segments: here})}, nil, ErrNowhere},
		"it says nothing":             {&fakeDriver{topology: true, place: at(nil)}, nil, ErrNowhere},
		"it names no segment":         {&fakeDriver{topology: true, place: at(&csi.Topology{})}, nil, ErrNowhere},
		"it has no node service": {&fakeDriver{topology: true, place: func() (*csi.NodeGetInfoResponse, error) {
			return nil, status.Error(codes.Unimplemented, "no")
		}}, nil, ErrNowhere},
		"it answers when it is asked again": {&fakeDriver{topology: true, place: func() (*csi.NodeGetInfoResponse, error) {
			if asked++; asked == 1 {
				return nil, status.Error(codes.Unavailable, "not yet")
			}
			return at(&csi.Topology{Segments: here})()
		}}, here, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := connected(t, c.driver).Segments(t.Context())
			if !maps.Equal(got, c.want) || !errors.Is(err, c.err) {
				t.Errorf("Segments = %v, %v", got, err)
			}
		})
	}
}
