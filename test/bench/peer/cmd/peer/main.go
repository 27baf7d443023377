// Command peer deletes volumes of a CSI driver as the stock external-provisioner does: with the ProvisionController
// of sig-storage-lib-external-provisioner v10, which csi-reclaimer requires.
// With --provision it also makes plain ones. See package peer.
package main

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"

	"github.com/csi-reclaimer/csi-reclaimer/test/bench/peer/provisioner"
)

func main() { provisioner.Main(newController) }

func newController(_ context.Context, s provisioner.Settings) provisioner.Controller {
	return controller.NewProvisionController(klog.Background(), s.Client, s.Driver.Name(), library{s},
		append(retries(s), controller.LeaderElection(false), controller.AddFinalizer(s.AddFinalizer),
			controller.ResyncPeriod(s.Resync), controller.Threadiness(s.Threads), controller.MetricsPort(0))...)
}

// retries returns the option for delays after failures, none for the library's own.
func retries(s provisioner.Settings) []func(*controller.ProvisionController) error {
	if s.Retry == 0 {
		return nil
	}
	return []func(*controller.ProvisionController) error{
		//nolint:staticcheck // the library's type
		controller.RateLimiter(workqueue.NewItemExponentialFailureRateLimiter(s.Retry, provisioner.LongestRetry)),
	}
}

// library creates and deletes volumes by the driver, and refuses untested calls.
type library struct{ provisioner.Settings }

func (l library) ShouldProvision(context.Context, *v1.PersistentVolumeClaim) bool {
	return l.Provisions
}

func (l library) Provision(ctx context.Context, o controller.ProvisionOptions) (*v1.PersistentVolume,
	controller.ProvisioningState, error) {
	pv, err := l.CreateVolume(ctx, o.PVName, o.PVC, o.StorageClass)
	if err != nil {
		return nil, controller.ProvisioningInBackground, err
	}
	return pv, controller.ProvisioningFinished, nil
}

func (l library) Delete(ctx context.Context, pv *v1.PersistentVolume) error {
	if pv.Spec.CSI == nil {
		return &controller.IgnoredError{Reason: "not a CSI volume"}
	}
	return l.DeleteVolume(ctx, pv)
}
