package server

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

// pageOf validates the common fields of list requests and parses the token.
func pageOf(list string, r interface {
	GetMaxEntries() int32
	GetStartingToken() string
}) (from string, limit int, err error) {
	if r.GetMaxEntries() < 0 {
		return "", 0, invalid("max_entries %d is negative", r.GetMaxEntries())
	}
	from, err = after(list, r.GetStartingToken())
	return from, int(r.GetMaxEntries()), err
}

func (c *controller) ListVolumes(_ context.Context, r *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	from, limit, err := pageOf(volumeList, r)
	if err != nil {
		return nil, err
	}
	page, more := c.backend.Volumes(from, limit)
	answer := &csi.ListVolumesResponse{}
	for _, v := range page {
		status := &csi.ListVolumesResponse_VolumeStatus{PublishedNodeIds: c.publishedNodes(v)}
		c.addCondition(status, v, ControllerCondition)
		answer.Entries = append(answer.Entries, &csi.ListVolumesResponse_Entry{Volume: toVolume(v), Status: status})
	}
	if more {
		answer.NextToken = token(volumeList, page[len(page)-1].ID)
	}
	return answer, nil
}

func (c *controller) ControllerGetVolume(_ context.Context,
	r *csi.ControllerGetVolumeRequest) (*csi.ControllerGetVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	v, err := c.backend.Volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	status := &csi.ControllerGetVolumeResponse_VolumeStatus{PublishedNodeIds: c.publishedNodes(v)}
	c.addCondition(status, v, ControllerCondition)
	return &csi.ControllerGetVolumeResponse{Volume: toVolume(v), Status: status}, nil
}

func (c *controller) publishedNodes(v backend.Volume) []string {
	if !c.can(ListPublishedNodes) {
		return nil
	}
	return v.Nodes()
}

func (c *controller) CreateSnapshot(ctx context.Context, r *csi.CreateSnapshotRequest) (*csi.CreateSnapshotResponse,
	error) {
	if err := checkName(r.GetName()); err != nil {
		return nil, err
	}
	if err := required("source_volume_id", r.GetSourceVolumeId()); err != nil {
		return nil, err
	}
	if err := checkMap("parameters", r.GetParameters()); err != nil {
		return nil, err
	}
	if r.GetAccessibilityRequirements() != nil && !c.can(SnapshotTopology) {
		return nil, invalid("accessibility_requirements need the SNAPSHOT_ACCESSIBILITY_CONSTRAINTS capability")
	}
	places, err := placesOf(r.GetAccessibilityRequirements())
	if err != nil {
		return nil, err
	}
	s, taken, err := c.backend.CreateSnapshot(backend.SnapshotRequest{
		Name: r.GetName(), VolumeID: r.GetSourceVolumeId(), Parameters: r.GetParameters(), Places: places,
	}, c.config.Now())
	if err != nil {
		return nil, err
	}
	note(ctx, taken, "", s.ID)
	return &csi.CreateSnapshotResponse{Snapshot: c.toSnapshot(s)}, c.mounts.keep(s)
}

func (c *controller) DeleteSnapshot(ctx context.Context, r *csi.DeleteSnapshotRequest) (*csi.DeleteSnapshotResponse,
	error) {
	if err := required("snapshot_id", r.GetSnapshotId()); err != nil {
		return nil, err
	}
	s, deleted, err := c.backend.DeleteSnapshot(r.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	note(ctx, deleted, s.VolumeID, "")
	return &csi.DeleteSnapshotResponse{}, nil
}

func (c *controller) GetSnapshot(_ context.Context, r *csi.GetSnapshotRequest) (*csi.GetSnapshotResponse, error) {
	if err := required("snapshot_id", r.GetSnapshotId()); err != nil {
		return nil, err
	}
	s, err := c.backend.Snapshot(r.GetSnapshotId())
	if err != nil {
		return nil, err
	}
	return &csi.GetSnapshotResponse{Snapshot: c.toSnapshot(s)}, nil
}

func (c *controller) ListSnapshots(_ context.Context, r *csi.ListSnapshotsRequest) (*csi.ListSnapshotsResponse, error) {
	from, limit, err := pageOf(snapshotList, r)
	if err != nil {
		return nil, err
	}
	page, more := c.backend.Snapshots(from, limit, backend.SnapshotFilter{ID: r.GetSnapshotId(),
		VolumeID: r.GetSourceVolumeId()})
	answer := &csi.ListSnapshotsResponse{}
	for _, s := range page {
		answer.Entries = append(answer.Entries, &csi.ListSnapshotsResponse_Entry{Snapshot: c.toSnapshot(s)})
	}
	if more {
		answer.NextToken = token(snapshotList, page[len(page)-1].ID)
	}
	return answer, nil
}

func (c *controller) toSnapshot(s backend.Snapshot) *csi.Snapshot {
	if !c.can(SnapshotTopology) {
		s.Topology = nil
	}
	return toSnapshot(s)
}
