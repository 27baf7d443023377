package server

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/csi-reclaimer/csi-reclaimer/mock-driver/backend"
)

// bytesPerInode is the default inode ratio of mkfs.ext4.
const bytesPerInode = 16 << 10

func (n *node) NodeGetVolumeStats(_ context.Context,
	r *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	if err := required("volume_id", r.GetVolumeId(), "volume_path", r.GetVolumePath()); err != nil {
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
	if err := required("volume_id", r.GetVolumeId(), "volume_path", r.GetVolumePath()); err != nil {
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
	if err != nil {
		return nil, err
	}
	note(ctx, grown, "", "")
	return &csi.NodeExpandVolumeResponse{CapacityBytes: v.Bytes}, nil
}

func (n *node) NodeGetVolumeHealth(_ context.Context,
	r *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	if err := required("volume_id", r.GetVolumeId()); err != nil {
		return nil, err
	}
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
