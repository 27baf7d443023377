package server

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

func (c *controller) ControllerPublishVolume(
	ctx context.Context, r *csi.ControllerPublishVolumeRequest,
) (*csi.ControllerPublishVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "node_id", r.GetNodeId()); err != nil {
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
	if err != nil {
		return nil, err
	}
	note(ctx, attached, "", "")
	return &csi.ControllerPublishVolumeResponse{PublishContext: map[string]string{"device": "mock-" +
		digest(r.GetVolumeId())}}, nil
}

// ControllerUnpublishVolume succeeds for unknown volumes and nodes, because they cannot be attached.
func (c *controller) ControllerUnpublishVolume(
	ctx context.Context, r *csi.ControllerUnpublishVolumeRequest,
) (*csi.ControllerUnpublishVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	if c.backend.VolumeName(r.GetVolumeId()) == "" {
		return &csi.ControllerUnpublishVolumeResponse{}, nil
	}
	_, detached, err := c.backend.Detach(r.GetVolumeId(), r.GetNodeId())
	if err != nil {
		return nil, err
	}
	note(ctx, detached, "", "")
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}
