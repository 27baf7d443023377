package csidriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

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
	ctx, cancel := context.WithTimeout(ctx, d.cfg.Timeout)
	defer cancel()
	full := proto.CloneOf(request)
	full.Secrets = secrets
	name := text.Truncate(request.GetName(), maxHandle)
	logger := klog.FromContext(ctx).V(5)
	logger.Info("Calling CreateVolume", "volumeName", name, "secrets", len(secrets))
	ctx, endSpan := d.beginSpan(ctx, "csi.v1.Controller/CreateVolume")
	// No logger for csi-lib-utils, which would log the driver's error unfiltered.
	answer, err := csi.NewControllerClient(d.conn).CreateVolume(forLibrary(ctx), full, d.ifKnown())
	err = plainly(err, secrets)
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
