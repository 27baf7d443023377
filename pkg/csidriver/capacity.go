package csidriver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"
)

// ReportsCapacity reports whether the driver has GET_CAPACITY.
func (d *Driver) ReportsCapacity() bool {
	return d.Has(csi.ControllerServiceCapability_RPC_GET_CAPACITY)
}

// GetCapacity asks the driver what it has left, and returns once the driver answered or the timeout
// passed (CSI spec, "GetCapacity"). The request is not changed. An error carries its errclass.Class.
func (d *Driver) GetCapacity(ctx context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	// Without a logger for csi-lib-utils, which would log the driver's error as it came.
	answer, err := csi.NewControllerClient(d.conn).GetCapacity(klog.NewContext(ctx, klog.Logger{}), request,
		d.ifKnown())
	err = plainly(err, nil)
	klog.FromContext(ctx).V(5).Info("GetCapacity was answered", "topology", request.GetAccessibleTopology().GetSegments(),
		"available", answer.GetAvailableCapacity(), "largest", answer.GetMaximumVolumeSize().GetValue(), "err", err)
	if err != nil {
		return nil, mark(fmt.Errorf("ask what is left: %w", err))
	}
	return answer, nil
}
