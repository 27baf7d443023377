package server

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

type controller struct {
	csi.UnimplementedControllerServer
	*Server
}

func (c *controller) ControllerGetCapabilities(
	context.Context, *csi.ControllerGetCapabilitiesRequest,
) (*csi.ControllerGetCapabilitiesResponse, error) {
	r := &csi.ControllerGetCapabilitiesResponse{}
	for _, number := range c.config.Capabilities.numbers("controller", csi.ControllerServiceCapability_RPC_Type_value) {
		r.Capabilities = append(r.Capabilities, &csi.ControllerServiceCapability{Type: &csi.ControllerServiceCapability_Rpc{
			Rpc: &csi.ControllerServiceCapability_RPC{Type: csi.ControllerServiceCapability_RPC_Type(number)}}})
	}
	return r, nil
}

func (c *controller) CreateVolume(ctx context.Context, r *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	request, err := c.volumeRequest(r)
	if err != nil {
		return nil, err
	}
	v, created, err := c.backend.CreateVolume(request, c.config.Now())
	if err != nil {
		return nil, err
	}
	note(ctx, created, v.ID, "")
	return &csi.CreateVolumeResponse{Volume: toVolume(v)}, c.mounts.Fill(v)
}

func (c *controller) volumeRequest(r *csi.CreateVolumeRequest) (backend.VolumeRequest, error) {
	if err := checkName(r.GetName()); err != nil {
		return backend.VolumeRequest{}, err
	}
	list, err := accessList(r.GetVolumeCapabilities(), c.can(ControllerWriters))
	if err != nil {
		return backend.VolumeRequest{}, err
	}
	if err := c.checkParameters(r.GetParameters()); err != nil {
		return backend.VolumeRequest{}, err
	}
	if health, given := r.GetParameters()[healthParameter]; given {
		if _, known := healthOf(health); !known {
			return backend.VolumeRequest{},
				invalid("parameter %s: %q is not one of healthy, degraded, inaccessible, data-loss", healthParameter, health)
		}
	}
	if len(r.GetMutableParameters()) > 0 && !c.can(ModifyVolume) {
		return backend.VolumeRequest{}, invalid("mutable_parameters need the MODIFY_VOLUME capability")
	}
	if err := checkMutable(r.GetMutableParameters()); err != nil {
		return backend.VolumeRequest{}, err
	}
	if r.GetAccessibilityRequirements() != nil && !c.can(VolumeTopology) {
		return backend.VolumeRequest{},
			invalid("accessibility_requirements need the VOLUME_ACCESSIBILITY_CONSTRAINTS capability")
	}
	places, err := placesOf(r.GetAccessibilityRequirements())
	if err != nil {
		return backend.VolumeRequest{}, err
	}
	source, err := c.sourceOf(r.GetVolumeContentSource())
	if err != nil {
		return backend.VolumeRequest{}, err
	}
	return backend.VolumeRequest{
		Name: r.GetName(), Required: r.GetCapacityRange().GetRequiredBytes(), Limit: r.GetCapacityRange().GetLimitBytes(),
		Parameters: r.GetParameters(), Mutable: r.GetMutableParameters(), Access: list, Source: source,
		Places: places,
	}, nil
}

// checkParameters rejects unknown parameters if the driver is configured with a list of known ones.
func (c *controller) checkParameters(parameters map[string]string) error {
	if len(c.config.Parameters) > 0 {
		for _, key := range slices.Sorted(maps.Keys(parameters)) {
			if !slices.Contains(c.config.Parameters, key) {
				return invalid("parameter %q is not known: want one of %s", key, strings.Join(c.config.Parameters, ", "))
			}
		}
	}
	return checkMap("parameters", parameters)
}

func (c *controller) sourceOf(s *csi.VolumeContentSource) (backend.Source, error) {
	if s == nil {
		return backend.Source{}, nil
	}
	switch t := s.GetType().(type) {
	case *csi.VolumeContentSource_Snapshot:
		if !c.can(CreateDelSnapshot) {
			return backend.Source{}, invalid("a snapshot as source needs the CREATE_DELETE_SNAPSHOT capability")
		}
		return backend.Source{SnapshotID: t.Snapshot.GetSnapshotId()}, required("snapshot_id", t.Snapshot.GetSnapshotId())
	case *csi.VolumeContentSource_Volume:
		if !c.can(CloneVolume) {
			return backend.Source{}, invalid("a volume as source needs the CLONE_VOLUME capability")
		}
		return backend.Source{VolumeID: t.Volume.GetVolumeId()}, required("volume_id", t.Volume.GetVolumeId())
	}
	return backend.Source{}, invalid("volume_content_source.type is required")
}

func (c *controller) DeleteVolume(ctx context.Context, r *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	_, deleted, err := c.backend.DeleteVolume(r.GetVolumeId())
	return noted(ctx, &csi.DeleteVolumeResponse{}, deleted, err)
}

func (c *controller) ValidateVolumeCapabilities(
	_ context.Context, r *csi.ValidateVolumeCapabilitiesRequest,
) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if len(r.GetVolumeCapabilities()) == 0 {
		return nil, invalid("volume_capabilities are required")
	}
	v, err := c.backend.Volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	for _, wanted := range r.GetVolumeCapabilities() {
		a, err := access(wanted, c.can(ControllerWriters))
		if err != nil {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: status.Convert(err).Message()}, nil
		}
		if !v.Serves(a) {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: "the volume was created for another access type"}, nil
		}
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: r.GetVolumeContext(), VolumeCapabilities: r.GetVolumeCapabilities(),
		Parameters: r.GetParameters(), MutableParameters: r.GetMutableParameters(),
	}}, nil
}

func (c *controller) GetCapacity(_ context.Context, r *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if len(r.GetVolumeCapabilities()) > 0 {
		if _, err := accessList(r.GetVolumeCapabilities(), c.can(ControllerWriters)); err != nil {
			return nil, err
		}
	}
	answer := &csi.GetCapacityResponse{AvailableCapacity: c.backend.AvailableAt(r.GetAccessibleTopology().GetSegments())}
	if c.config.MaxVolumeBytes > 0 {
		answer.MaximumVolumeSize = wrapperspb.Int64(c.config.MaxVolumeBytes)
	}
	return answer, nil
}

func (c *controller) ControllerExpandVolume(
	ctx context.Context, r *csi.ControllerExpandVolumeRequest,
) (*csi.ControllerExpandVolumeResponse, error) {
	if r.GetCapacityRange() == nil {
		return nil, invalid("capacity_range is required")
	}
	block := false
	if r.GetVolumeCapability() != nil {
		a, err := access(r.GetVolumeCapability(), c.can(ControllerWriters))
		if err != nil {
			return nil, err
		}
		block = a.Block
	}
	limits := r.GetCapacityRange()
	v, grown, err := c.backend.Expand(r.GetVolumeId(), limits.GetRequiredBytes(), limits.GetLimitBytes(),
		c.can(ExpansionOffline))
	return noted(ctx, &csi.ControllerExpandVolumeResponse{CapacityBytes: v.Bytes,
		NodeExpansionRequired: c.can(NodeExpand) && !block}, grown, err)
}

func (c *controller) ControllerModifyVolume(
	ctx context.Context, r *csi.ControllerModifyVolumeRequest,
) (*csi.ControllerModifyVolumeResponse, error) {
	if _, err := c.backend.Volume(r.GetVolumeId()); err != nil {
		return nil, err
	}
	if len(r.GetMutableParameters()) == 0 {
		return nil, invalid("mutable_parameters are required")
	}
	if err := checkMutable(r.GetMutableParameters()); err != nil {
		return nil, err
	}
	_, modified, err := c.backend.Modify(r.GetVolumeId(), r.GetMutableParameters())
	return noted(ctx, &csi.ControllerModifyVolumeResponse{}, modified, err)
}

func (c *controller) ControllerPublishVolume(
	ctx context.Context, r *csi.ControllerPublishVolumeRequest,
) (*csi.ControllerPublishVolumeResponse, error) {
	if err := required("node_id", r.GetNodeId()); err != nil {
		return nil, err
	}
	a, err := access(r.GetVolumeCapability(), c.can(ControllerWriters))
	if err != nil {
		return nil, err
	}
	if r.GetReadonly() && !c.can(PublishReadonly) {
		return nil, invalid("readonly needs the PUBLISH_READONLY capability")
	}
	_, attached, err := c.backend.Attach(r.GetVolumeId(), r.GetNodeId(), backend.Attachment{Access: a,
		ReadOnly: r.GetReadonly()})
	return noted(ctx, &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"device": "mock-" +
		digest(r.GetVolumeId())}}, attached, err)
}

// ControllerUnpublishVolume succeeds for unknown volumes and nodes, because they cannot be attached.
func (c *controller) ControllerUnpublishVolume(
	ctx context.Context, r *csi.ControllerUnpublishVolumeRequest,
) (*csi.ControllerUnpublishVolumeResponse, error) {
	if c.backend.VolumeName(r.GetVolumeId()) == "" {
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	}
	_, detached, err := c.backend.Detach(r.GetVolumeId(), r.GetNodeId())
	return noted(ctx, &csi.ControllerUnpublishVolumeResponse{}, detached, err)
}
