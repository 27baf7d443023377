package csidriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-lib-utils/connection"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/migration"
)

// maxAnswer bounds an answer of the driver, in bytes. gRPC allows 4 MiB, less than a driver needs that lists all its
// volumes in one page. A larger answer takes memory that the program may not have.
const maxAnswer = 16 << 20

// errNameless: CreateVolume succeeded without a volume_id in the answer.
var errNameless = errors.New("the driver answers with a volume that has no id")

// CreateVolume asks the driver for the volume that the request names, and returns once the driver has answered or the
// timeout has passed. CreateVolume is idempotent (CSI spec, "CreateVolume"): a driver creates one volume for a name
// and returns it again on repeated calls.
//
// The request is not modified and contains no secrets: they are a separate argument, may be nil, and are never
// logged. An error carries its errclass.Class. After Uncertain or InProgress the volume may exist or may still be
// created, and an answer without a volume_id is Uncertain too. Any other class means that this call created nothing,
// and Unfit also means that no volume of that name exists.
func (d *Driver) CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest,
	secrets map[string]string) (*csi.Volume, error) {
	if err := d.mayAct(); err != nil {
		return nil, fmt.Errorf("create volume %q: %w", text.Truncate(request.GetName(), maxHandle), err)
	}
	full := proto.CloneOf(request)
	full.Secrets = secrets
	name := text.Truncate(request.GetName(), maxHandle)
	logger := klog.FromContext(ctx).V(5)
	logger.Info("Calling CreateVolume", "volumeName", name, "secrets", len(secrets))
	ctx, endSpan := d.beginSpan(ctx, "csi.v1.Controller/CreateVolume")
	answer, err := send(ctx, d, csi.NewControllerClient(d.conn).CreateVolume, full, secrets)
	endSpan(err)
	logger.Info("CreateVolume was answered", "volumeName", name, "volumeHandle",
		text.Truncate(answer.GetVolume().GetVolumeId(), maxHandle), "err", err)
	switch {
	case err != nil:
		return nil, markCreate(fmt.Errorf("create volume %q: %w", name, err))
	case answer.GetVolume().GetVolumeId() == "":
		return nil, errclass.Mark(errclass.Uncertain, fmt.Errorf("create volume %q: %w", name, errNameless))
	}
	return answer.GetVolume(), nil
}

// DeleteVolume asks the driver to delete the volume with this handle, and returns once the driver has answered or the
// timeout has passed. nil means that the volume is gone (CSI spec, "DeleteVolume"). An error carries its
// errclass.Class, and after Uncertain the volume may be deleted. secrets may be nil and are never logged; a secret
// that the driver repeats in its error message is hidden.
func (d *Driver) DeleteVolume(ctx context.Context, handle string, secrets map[string]string) error {
	if err := d.mayAct(); err != nil {
		return fmt.Errorf("delete volume %q: %w", text.Truncate(handle, maxHandle), err)
	}
	logger := klog.FromContext(ctx).V(5)
	logger.Info("Calling DeleteVolume", "volumeHandle", text.Truncate(handle, maxHandle), "secrets", len(secrets))
	ctx, endSpan := d.beginSpan(ctx, "csi.v1.Controller/DeleteVolume")
	_, err := send(ctx, d, csi.NewControllerClient(d.conn).DeleteVolume,
		&csi.DeleteVolumeRequest{VolumeId: handle, Secrets: secrets}, secrets)
	endSpan(err)
	logger.Info("DeleteVolume was answered", "volumeHandle", text.Truncate(handle, maxHandle), "err", err)
	if err != nil {
		return mark(fmt.Errorf("delete volume %q: %w", text.Truncate(handle, maxHandle), err))
	}
	return nil
}

// mayAct returns ErrLeaseExpired if this process must no longer create or delete volumes.
func (d *Driver) mayAct() error {
	if d.cfg.Lease == nil || d.cfg.Lease.Left() > 0 {
		return nil
	}
	return ErrLeaseExpired
}

// send makes a call of the driver, which may take the timeout, and returns a presentable error.
func send[Q, A any](ctx context.Context, d *Driver, rpc func(context.Context, Q, ...grpc.CallOption) (A, error),
	request Q, secrets map[string]string) (A, error) {
	if err := checkSecrets(secrets); err != nil {
		var none A
		return none, err
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	// No logger for csi-lib-utils, which would log the driver's error and the volumes' attributes unfiltered.
	answer, err := rpc(forLibrary(ctx), request, d.ifKnown(), grpc.MaxCallRecvMsgSize(maxAnswer))
	return answer, plainly(err, secrets)
}

// checkSecrets returns an error with the code FailedPrecondition for secrets that no request can contain. gRPC would
// fail with Internal, which means that the driver may have done the work.
func checkSecrets(secrets map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(secrets)) {
		if !utf8.ValidString(key) || !utf8.ValidString(secrets[key]) {
			return status.Errorf(codes.FailedPrecondition, "the driver was not called: %q or its value in the Secret is not "+
				"UTF-8, as CSI requires; write it as text, such as base64, in the form that the driver documents", key)
		}
	}
	return nil
}

// forLibrary returns the context of a call for csi-lib-utils: without a logger, and with the value of its metric
// label migrated (package migration), which it uses only if its metrics have that label.
func forLibrary(ctx context.Context) context.Context {
	migrated := connection.AdditionalInfo{Migrated: strconv.FormatBool(migration.Marked(ctx))}
	return context.WithValue(klog.NewContext(ctx, klog.Logger{}), connection.AdditionalInfoKey, migrated)
}

// ReportsCapacity reports whether the driver has GET_CAPACITY.
func (d *Driver) ReportsCapacity() bool {
	return d.Has(csi.ControllerServiceCapability_RPC_GET_CAPACITY)
}

// GetCapacity asks the driver for its free capacity (CSI spec, "GetCapacity"). It returns the driver's answer, or an
// error with an errclass.Class if the driver fails or Config.Timeout passes. It does not modify the request.
func (d *Driver) GetCapacity(ctx context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	answer, err := send(ctx, d, csi.NewControllerClient(d.conn).GetCapacity, request, nil)
	klog.FromContext(ctx).V(5).Info("GetCapacity was answered", "topology", request.GetAccessibleTopology().GetSegments(),
		"available", answer.GetAvailableCapacity(), "largest", answer.GetMaximumVolumeSize().GetValue(), "err", err)
	if err != nil {
		return nil, mark(fmt.Errorf("get the capacity: %w", err))
	}
	return answer, nil
}

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
	answer, err := send(ctx, d, csi.NewControllerClient(d.conn).ListVolumes, request, nil)
	klog.FromContext(ctx).V(5).Info("ListVolumes was answered", "volumes", len(answer.GetEntries()), "more",
		answer.GetNextToken() != "", "err", err)
	if err != nil {
		return nil, mark(fmt.Errorf("list volumes: %w", err))
	}
	return answer, nil
}
