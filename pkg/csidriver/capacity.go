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

// GetCapacity asks the driver for its free capacity (CSI spec, "GetCapacity"). It returns the driver's answer, or an
// error with an errclass.Class if the driver fails or Config.Timeout passes. It does not modify the request.
func (d *Driver) GetCapacity(ctx context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	// No logger for csi-lib-utils, which would log the driver's error unfiltered.
	answer, err := csi.NewControllerClient(d.conn).GetCapacity(klog.NewContext(ctx, klog.Logger{}), request,
		d.ifKnown())
	err = plainly(err, nil)
	klog.FromContext(ctx).V(5).Info("GetCapacity was answered", "topology", request.GetAccessibleTopology().GetSegments(),
		"available", answer.GetAvailableCapacity(), "largest", answer.GetMaximumVolumeSize().GetValue(), "err", err)
	if err != nil {
		return nil, mark(fmt.Errorf("get the capacity: %w", err))
	}
	return answer, nil
}
