package csidriver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"
)

// ListsVolumes reports whether the driver lists its volumes (LIST_VOLUMES).
func (d *Driver) ListsVolumes() bool {
	return d.Has(csi.ControllerServiceCapability_RPC_LIST_VOLUMES)
}

// TakesSnapshots reports whether the driver creates and deletes snapshots (CREATE_DELETE_SNAPSHOT).
func (d *Driver) TakesSnapshots() bool {
	return d.Has(csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT)
}

// ListVolumes asks the driver for one page of its volumes, and returns once the driver has answered or the timeout
// has passed (CSI spec, "ListVolumes"). It does not modify the request. An error carries its errclass.Class.
// InProgress (ABORTED) means that the driver no longer accepts the starting_token, and the caller begins a new list.
func (d *Driver) ListVolumes(ctx context.Context, request *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	// No logger for csi-lib-utils, which would log the driver's error and the volumes' attributes unfiltered.
	answer, err := csi.NewControllerClient(d.conn).ListVolumes(klog.NewContext(ctx, klog.Logger{}), request,
		d.ifKnown())
	err = plainly(err, nil)
	klog.FromContext(ctx).V(5).Info("ListVolumes was answered", "volumes", len(answer.GetEntries()), "more",
		answer.GetNextToken() != "", "err", err)
	if err != nil {
		return nil, mark(fmt.Errorf("list volumes: %w", err))
	}
	return answer, nil
}
