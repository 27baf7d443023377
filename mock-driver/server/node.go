package server

import (
	"context"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

// node is the service of one node. Without mounts it needs no root, because it only keeps records and creates an
// empty directory or file in place of a mount.
type node struct {
	csi.UnimplementedNodeServer
	*Server
	id     string
	mounts *mounts
}

func (n *node) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, capability := range n.config.Capabilities.List() {
		service, name, _ := strings.Cut(string(capability), "/")
		number, known := csi.NodeServiceCapability_RPC_Type_value[name]
		if capability == NodeCondition {
			number, known = int32(nodeConditionNumber), true
		}
		if service == "node" && known {
			r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{
				Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_Type(number)}}})
		}
	}
	return r, nil
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	r := &csi.NodeGetInfoResponse{NodeId: n.id, MaxVolumesPerNode: int64(n.config.MaxVolumesPerNode)}
	if n.can(VolumeTopology) {
		r.AccessibleTopology = &csi.Topology{Segments: n.config.Topology}
	}
	return r, nil
}

func (n *node) NodeStageVolume(ctx context.Context, r *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse,
	error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := checkPath("staging_target_path", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	a, err := access(r.GetVolumeCapability(), n.can(NodeWriters))
	if err != nil {
		return nil, err
	}
	if err := n.attached(r.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := mustBeDirectory(r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := n.canMount(a); err != nil {
		return nil, err
	}
	m := backend.Mount{Node: n.id, Access: a, Context: digestMaps(r.GetPublishContext(), r.GetVolumeContext())}
	_, staged, err := n.backend.Stage(r.GetVolumeId(), r.GetStagingTargetPath(), m)
	if err != nil {
		return nil, err
	}
	if err := n.mounts.stage(r.GetVolumeId(), r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	note(ctx, staged, "", "")
	return &csi.NodeStageVolumeResponse{}, nil
}

// canMount rejects block volumes on a node with mounts, because its volumes are directories.
func (n *node) canMount(a backend.Access) error {
	if n.mounts != nil && a.Block {
		return invalid("volume_capability: the driver mounts directories, and has no block volumes")
	}
	return nil
}

// attached returns an error unless the volume is attached to this node, because a real node would have no device.
func (n *node) attached(id string) error {
	v, err := n.backend.Volume(id)
	if err != nil {
		return err
	}
	if _, attached := v.Attachments[n.id]; n.can(PublishUnpublish) && !attached {
		return status.Errorf(codes.FailedPrecondition, "volume %q is not published to node %q by ControllerPublishVolume",
			id, n.id)
	}
	return nil
}

func (n *node) NodeUnstageVolume(ctx context.Context,
	r *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "staging_target_path", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := n.mounts.unmount(r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	_, unstaged, err := n.backend.Unstage(r.GetVolumeId(), r.GetStagingTargetPath())
	if err != nil {
		return nil, err
	}
	note(ctx, unstaged, "", "")
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (n *node) NodePublishVolume(ctx context.Context,
	r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := checkPath("target_path", r.GetTargetPath()); err != nil {
		return nil, err
	}
	a, err := access(r.GetVolumeCapability(), n.can(NodeWriters))
	if err != nil {
		return nil, err
	}
	stagedAt := ""
	if n.can(NodeStage) {
		if stagedAt = r.GetStagingTargetPath(); stagedAt == "" {
			return nil, status.Error(codes.FailedPrecondition,
				"staging_target_path is required: the driver has the STAGE_UNSTAGE_VOLUME capability")
		}
	}
	if err := n.attached(r.GetVolumeId()); err != nil {
		return nil, err
	}
	if err := n.canMount(a); err != nil {
		return nil, err
	}
	m := backend.Mount{Node: n.id, Access: a, ReadOnly: r.GetReadonly(), Context: digestMaps(r.GetPublishContext(),
		r.GetVolumeContext())}
	_, published, err := n.backend.Publish(r.GetVolumeId(), r.GetTargetPath(), stagedAt, m)
	if err != nil {
		return nil, err
	}
	// The record comes first: after a kill in between, NodeUnpublishVolume still recognizes the path as the driver's.
	err = makeTarget(r.GetTargetPath(), a.Block)
	if err == nil {
		err = n.mounts.publish(r.GetVolumeId(), stagedAt, r.GetTargetPath(), r.GetReadonly())
	}
	if err != nil {
		if published {
			_, _, undo := n.backend.Unpublish(r.GetVolumeId(), r.GetTargetPath())
			err = joined(err, undo)
		}
		return nil, err
	}
	note(ctx, published, "", "")
	return &csi.NodePublishVolumeResponse{}, nil
}

func (n *node) NodeUnpublishVolume(ctx context.Context,
	r *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "target_path", r.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := n.mounts.unmount(r.GetTargetPath()); err != nil {
		return nil, err
	}
	v, err := n.backend.Volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if _, ours := v.Published[r.GetTargetPath()]; ours {
		if err := removeTarget(r.GetTargetPath()); err != nil {
			return nil, err
		}
	}
	_, unpublished, err := n.backend.Unpublish(r.GetVolumeId(), r.GetTargetPath())
	if err != nil {
		return nil, err
	}
	note(ctx, unpublished, "", "")
	return &csi.NodeUnpublishVolumeResponse{}, nil
}
