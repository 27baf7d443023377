package server

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

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
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
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
