package csidriver

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

func (d *fakeDriver) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if code := r.GetParameters()["code"]; code != "" {
		return nil, status.Error(map[string]codes.Code{"argument": codes.InvalidArgument, "internal": codes.Internal}[code],
			"because")
	}
	return &csi.GetCapacityResponse{AvailableCapacity: int64(len(r.GetAccessibleTopology().GetSegments()))}, nil
}

func TestGetCapacity(t *testing.T) {
	socket := socketPath(t)
	serve(t, socket, &fakeDriver{controller: true})
	d := connect(t, socket)
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
