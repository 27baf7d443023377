package server

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

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
	return &csi.CreateSnapshotResponse{Snapshot: c.toSnapshot(s)}, c.mounts.Keep(s)
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
