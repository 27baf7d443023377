package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/mounts"
)

// node is the service of one node. Without mounts it needs no root, because it only keeps records and creates an
// empty directory or file in place of a mount.
type node struct {
	csi.UnimplementedNodeServer
	*Server
	id     string
	mounts *mounts.Mounts
}

func (n *node) NodeGetCapabilities(context.Context,
	*csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	r := &csi.NodeGetCapabilitiesResponse{}
	for _, number := range n.config.Capabilities.numbers("node", csi.NodeServiceCapability_RPC_Type_value) {
		r.Capabilities = append(r.Capabilities, &csi.NodeServiceCapability{Type: &csi.NodeServiceCapability_Rpc{
			Rpc: &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_Type(number)}}})
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
	if err := n.mounts.Stage(r.GetVolumeId(), r.GetStagingTargetPath()); err != nil {
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
	if err := required("staging_target_path", r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if err := n.mounts.Unmount(r.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	_, unstaged, err := n.backend.Unstage(r.GetVolumeId(), r.GetStagingTargetPath())
	return noted(ctx, &csi.NodeUnstageVolumeResponse{}, unstaged, err)
}

func (n *node) NodePublishVolume(ctx context.Context,
	r *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
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
		err = n.mounts.Publish(r.GetVolumeId(), stagedAt, r.GetTargetPath(), r.GetReadonly())
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
	if err := required("target_path", r.GetTargetPath()); err != nil {
		return nil, err
	}
	if err := n.mounts.Unmount(r.GetTargetPath()); err != nil {
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
	return noted(ctx, &csi.NodeUnpublishVolumeResponse{}, unpublished, err)
}

// bytesPerInode is the default inode ratio of mkfs.ext4.
const bytesPerInode = 16 << 10

func (n *node) NodeGetVolumeStats(_ context.Context,
	r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := required("volume_path", r.GetVolumePath()); err != nil {
		return nil, err
	}
	v, err := n.backend.At(r.GetVolumeId(), r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	answer := &csi.NodeGetVolumeStatsResponse{Usage: []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: v.Bytes,
		Available: v.Bytes}}}
	if !mountedAsBlock(v, r.GetVolumePath()) {
		inodes := v.Bytes / bytesPerInode
		answer.Usage = append(answer.Usage, &csi.VolumeUsage{Unit: csi.VolumeUsage_INODES, Total: inodes, Available: inodes})
	}
	n.addCondition(answer, v, NodeCondition)
	return answer, nil
}

func mountedAsBlock(v backend.Volume, path string) bool {
	return v.Published[path].Access.Block || v.Staged[path].Access.Block
}

func (n *node) NodeExpandVolume(ctx context.Context, r *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse,
	error) {
	if err := required("volume_path", r.GetVolumePath()); err != nil {
		return nil, err
	}
	if r.GetVolumeCapability() != nil {
		if _, err := access(r.GetVolumeCapability(), n.can(NodeWriters)); err != nil {
			return nil, err
		}
	}
	v, err := n.backend.At(r.GetVolumeId(), r.GetVolumePath())
	if err != nil {
		return nil, err
	}
	limits := r.GetCapacityRange()
	if n.can(ControllerExpand) {
		// The volume's size is set by ControllerExpandVolume; a node only grows the file system.
		if limits.GetRequiredBytes() > v.Bytes {
			return nil, fmt.Errorf("volume %q has %d bytes, %d wanted: ControllerExpandVolume comes first: %w",
				v.ID, v.Bytes, limits.GetRequiredBytes(), backend.ErrOutOfRange)
		}
		return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Bytes}, nil
	}
	v, grown, err := n.backend.Expand(v.ID, limits.GetRequiredBytes(), limits.GetLimitBytes(), false)
	return noted(ctx, &csi.NodeExpandVolumeResponse{CapacityBytes: v.Bytes}, grown, err)
}

func (n *node) NodeGetVolumeHealth(_ context.Context,
	r *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	v, err := n.backend.Volume(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: toHealth(v)}, nil
}

func (n *node) NodeGetStorageHealth(context.Context,
	*csi.NodeGetStorageHealthRequest) (*csi.NodeGetStorageHealthResponse, error) {
	return &csi.NodeGetStorageHealthResponse{}, nil
}

// makeTarget creates an empty directory, or for a block volume an empty file, at a target path unless it exists, in a
// parent that the caller creates.
func makeTarget(path string, block bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return createTarget(path, block)
	case err != nil:
		return fmt.Errorf("look at target_path: %w", err)
	case block && !info.Mode().IsRegular(), !block && !info.IsDir():
		return invalid("target_path %q is there already, and is a %s", path, info.Mode().Type())
	}
	return nil
}

func createTarget(path string, block bool) error {
	if !block {
		if err := os.Mkdir(path, 0o750); err != nil {
			return fmt.Errorf("create target_path: %w", err)
		}
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("create target_path: %w", err)
	}
	return f.Close()
}

// removeTarget removes an empty target path, and returns an error for a directory with files, which remains.
func removeTarget(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove target_path: %w", err)
	}
	return nil
}

func mustBeDirectory(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return invalid("staging_target_path: %v", err)
	}
	if !info.IsDir() {
		return invalid("staging_target_path %q is not a directory", path)
	}
	return nil
}

// joined adds the error of an undo to the original error, which determines the code.
func joined(err, undo error) error {
	if undo == nil {
		return err
	}
	return fmt.Errorf("%w (and: %w)", err, undo)
}
