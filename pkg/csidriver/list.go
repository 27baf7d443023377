package csidriver

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/klog/v2"
)

// ListsVolumes reports whether the driver can be asked which volumes it has (LIST_VOLUMES).
func (d *Driver) ListsVolumes() bool {
	return d.Has(csi.ControllerServiceCapability_RPC_LIST_VOLUMES)
}

// TakesSnapshots reports whether the driver makes and deletes snapshots (CREATE_DELETE_SNAPSHOT).
func (d *Driver) TakesSnapshots() bool {
	return d.Has(csi.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT)
}

// ListVolumes asks the driver for one page of its volumes, and returns once the driver answered or the
// timeout passed (CSI spec, "ListVolumes"). The request is not changed. An error carries its
// errclass.Class: for a starting_token that the driver does not know any more it is InProgress (ABORTED),
// and the whole list is to be begun anew.
func (d *Driver) ListVolumes(ctx context.Context, request *csi.ListVolumesRequest) (*csi.ListVolumesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	// Without a logger for csi-lib-utils, which would log the driver's error as it came, and the volumes'
	// attributes.
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
