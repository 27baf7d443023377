package csidriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrNowhere: the driver reports no topology segments for its node.
var ErrNowhere = errors.New("the driver does not say in which place of its topology it is")

// Segments returns the driver's topology segments: accessible_topology of NodeGetInfo (CSI spec, "NodeGetInfo"). Like
// Connect, it waits until the driver answers or ctx ends. It returns ErrNowhere if the driver has no topology,
// reports no segment, or does not implement NodeGetInfo.
func (d *Driver) Segments(ctx context.Context) (map[string]string, error) {
	if !d.HasTopology() {
		return nil, fmt.Errorf("%w: it does not report VOLUME_ACCESSIBILITY_CONSTRAINTS", ErrNowhere)
	}
	d.mu.Lock()
	d.place = true
	d.mu.Unlock()
	if err := d.introduce(ctx); err != nil {
		return nil, err
	}
	segments := d.Facts().Segments
	if len(segments) == 0 {
		return nil, fmt.Errorf("%w: its NodeGetInfo has no accessible_topology", ErrNowhere)
	}
	return segments, nil
}

// askPlace returns the driver's topology segments once it answers, and none for a driver without NodeGetInfo.
func (d *Driver) askPlace(ctx context.Context) (map[string]string, error) {
	var info *csi.NodeGetInfoResponse
	if err := d.until(ctx, "return its topology", func(ctx context.Context) (answered bool, err error) {
		info, err = csi.NewNodeClient(d.conn).NodeGetInfo(ctx, &csi.NodeGetInfoRequest{})
		if status.Code(err) == codes.Unimplemented {
			return true, nil // waiting does not help
		}
		return true, err
	}); err != nil {
		return nil, err
	}
	return info.GetAccessibleTopology().GetSegments(), nil
}
