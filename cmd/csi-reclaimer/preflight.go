package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagev1 "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/app"
	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/health"
	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
)

// waitForDeletion returns once the driver can delete volumes. No controller starts before that, because a finalizer
// on PVs whose volumes cannot be deleted would keep these PVs forever.
func waitForDeletion(ctx context.Context, o *options, driver *csidriver.Driver, state *health.State) error {
	if o.releaseFinalizers {
		return nil
	}
	logged := false
	for !driver.CanDelete() {
		if !logged {
			lacking := fmt.Sprintf("driver %q does not advertise CREATE_DELETE_VOLUME: no volume can be deleted, so no PV is "+
				"protected either. "+
				"If the driver never will, remove csi-reclaimer from the pod", driver.Name())
			state.Lack(lacking)
			klog.FromContext(ctx).Info("Preflight: "+lacking, "retryInterval", app.RecheckInterval)
			logged = true
		}
		if !controller.Pause(ctx, clock.RealClock{}, app.RecheckInterval) {
			return ctx.Err()
		}
		if err := driver.Refresh(ctx); err != nil {
			return err
		}
	}
	state.Lack()
	return nil
}

// requiresNoAttachment reports whether the CSIDriver sets attachRequired to false, so that no VolumeAttachment ever
// names one of the driver's volumes. If the CSIDriver cannot be read, volumes count as possibly attached.
func requiresNoAttachment(ctx context.Context, config *rest.Config, driver string) (bool, error) {
	client, err := storagev1.NewForConfig(config)
	if err != nil {
		return false, fmt.Errorf("create a client for CSIDrivers: %w", err)
	}
	bound, cancel := context.WithTimeout(ctx, app.RecheckInterval)
	defer cancel()
	o, err := client.CSIDrivers().Get(bound, driver, metav1.GetOptions{})
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case apierrors.IsNotFound(err):
		return false, nil // Kubernetes attaches volumes in this case
	case err != nil:
		klog.FromContext(ctx).Info("Preflight: the CSIDriver cannot be read, so VolumeAttachments are checked before each "+
			"deletion", "driver", driver, "err", err)
		return false, nil
	}
	return o.Spec.AttachRequired != nil && !*o.Spec.AttachRequired, nil
}
