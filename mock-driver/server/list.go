package server

import (
	"context"
	"encoding/base64"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

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

// Kinds of lists. A list accepts only its own tokens and tokens for anyList.
const (
	volumeList   = "volumes"
	snapshotList = "snapshots"
	healthList   = "health"
	anyList      = "any"
)

// token returns a token for the page after an id. It is self-contained, so it survives a restart, and has a checksum,
// so that an arbitrary text is not a valid token.
func token(list, after string) string {
	text := list + " " + after
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%08x %s", crc32.ChecksumIEEE([]byte(text)), text))
}

// FirstPageToken returns a token for the first page of any list, equivalent to an empty token.
func FirstPageToken() string { return token(anyList, "") }

// after returns the id in a token, and "" for the empty token. Any token that this driver did not create yields
// Aborted, as the specification requires.
func after(list, t string) (string, error) {
	if t == "" {
		return "", nil
	}
	data, err := base64.RawURLEncoding.DecodeString(t)
	if err == nil {
		_, text, _ := strings.Cut(string(data), " ")
		kind, id, ok := strings.Cut(text, " ")
		// Compare the whole text, because base64 can encode the same bytes in several ways.
		if ok && (kind == list || kind == anyList) && t == token(kind, id) {
			return id, nil
		}
	}
	return "", status.Error(codes.Aborted, "unknown starting_token: begin again without one")
}

// healthParameter is the parameter, or mutable parameter, of CreateVolume that sets the reported health of a volume.
const healthParameter = "health"

// healthOf parses the health parameter into entries; a healthy volume has none.
func healthOf(value string) (entries []*csi.VolumeHealth_VolumeHealthEntry, known bool) {
	entry := func(status csi.VolumeHealthErrorType, reason string) ([]*csi.VolumeHealth_VolumeHealthEntry, bool) {
		return []*csi.VolumeHealth_VolumeHealthEntry{{Status: status, Reason: reason,
			Message: "asked for by the parameter " + healthParameter}}, true
	}
	switch value {
	case "", "healthy":
		return nil, true
	case "degraded":
		return entry(csi.VolumeHealthErrorType_DEGRADED, "MockDegraded")
	case "inaccessible":
		return entry(csi.VolumeHealthErrorType_INACCESSIBLE, "MockInaccessible")
	case "data-loss":
		return entry(csi.VolumeHealthErrorType_DATA_LOSS, "MockDataLoss")
	}
	return nil, false
}

// toHealth returns the health of a volume. Its mutable parameter takes precedence, as in the specification.
func toHealth(v backend.Volume) *csi.VolumeHealth {
	value, mutable := v.Mutable[healthParameter]
	if !mutable {
		value = v.Parameters[healthParameter]
	}
	entries, _ := healthOf(value)
	return &csi.VolumeHealth{VolumeId: v.ID, HealthStatuses: entries}
}

func (c *controller) ControllerGetVolumeHealth(
	_ context.Context, r *csi.ControllerGetVolumeHealthRequest,
) (*csi.ControllerGetVolumeHealthResponse, error) {
	v, err := c.backend.Volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.ControllerGetVolumeHealthResponse{VolumeHealth: toHealth(v)}, nil
}

// ControllerListVolumeHealth lists only unhealthy volumes, as the specification requires.
func (c *controller) ControllerListVolumeHealth(
	_ context.Context, r *csi.ControllerListVolumeHealthRequest,
) (*csi.ControllerListVolumeHealthResponse, error) {
	from, limit, err := pageOf(healthList, r)
	if err != nil {
		return nil, err
	}
	answer := &csi.ControllerListVolumeHealthResponse{}
	volumes, _ := c.backend.Volumes(from, 0)
	for _, v := range volumes {
		health := toHealth(v)
		if len(health.GetHealthStatuses()) == 0 {
			continue
		}
		if limit > 0 && len(answer.Entries) == limit {
			answer.NextToken = token(healthList, answer.Entries[limit-1].GetVolumeId())
			break
		}
		answer.Entries = append(answer.Entries, health)
	}
	return answer, nil
}

// conditionField is the number of the field volume_condition, reserved since v1.13, in all three messages that had
// it.
const conditionField protowire.Number = 2

// addCondition adds the VolumeCondition{bool abnormal = 1; string message = 2} of drivers before v1.13, which older
// clients still read.
func (s *Server) addCondition(m proto.Message, v backend.Volume, capability Capability) {
	if !s.can(capability) {
		return
	}
	statuses := toHealth(v).GetHealthStatuses()
	message := "volume is healthy"
	if len(statuses) > 0 {
		message = statuses[0].GetReason()
	}
	var condition []byte
	condition = protowire.AppendTag(condition, 1, protowire.VarintType)
	condition = protowire.AppendVarint(condition, protowire.EncodeBool(len(statuses) > 0))
	condition = protowire.AppendTag(condition, 2, protowire.BytesType)
	condition = protowire.AppendString(condition, message)

	var field []byte
	field = protowire.AppendTag(field, conditionField, protowire.BytesType)
	field = protowire.AppendBytes(field, condition)
	m.ProtoReflect().SetUnknown(field)
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
