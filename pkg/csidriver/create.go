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

// errNameless: the driver made a volume and does not say which.
var errNameless = errors.New("the driver answers with a volume that has no id")

// CreateVolume asks the driver for the volume that the request names, and returns once the
// driver answered or the timeout passed. A driver makes one volume for a name, however often it
// is asked (CSI spec, "CreateVolume"); asked again, it answers which it made.
//
// The request is not changed and carries no secrets: they come apart, may be nil, and are never
// logged. An error carries its errclass.Class. One that is Uncertain or InProgress may have made
// the volume, or may still be making it; an answer without a volume's id is Uncertain too. After
// the other classes this call has made nothing; Unfit: besides, there is no volume of
// that name.
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
	// Without a logger for csi-lib-utils, which would log the driver's error as it came.
	answer, err := csi.NewControllerClient(d.conn).CreateVolume(forLibrary(ctx), full, d.ifKnown())
	err = plainly(err, secrets)
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
