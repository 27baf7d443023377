package csidriver

import (
	"context"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

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
	socket := socketPath(t)
	serve(t, socket, &fakeDriver{controller: true})
	d := connect(t, socket)
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
