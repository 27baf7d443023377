package admission

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// probeInterval is the time between two tries of WaitUntilRemoved.
const probeInterval = 500 * time.Millisecond

// WaitUntilRemoved returns once the API server, after [RemoveDrivers] of these drivers, no longer adds csi-reclaimer's
// finalizers again in the write that removes them. It removes them from one PV of the drivers in dry runs, which change
// nothing, and returns when none came back for 5 seconds, so that other API servers have observed the change too. If no
// PV can show it, it returns at once. After a minute it fails with [reclaim.ErrFinalizerRestored], because another
// program adds the finalizer. It needs list and patch of PVs, and get of the objects that RemoveDrivers reads.
func WaitUntilRemoved(ctx context.Context, config *rest.Config, drivers []string) error {
	clients, err := kube.NewClients(config)
	if err != nil {
		return err
	}
	all, err := driverLists{clients.Admission, callTimeout}.read(ctx)
	if err != nil {
		return err
	}
	return waitUntilRemoved(ctx, clients, removal{drivers: drivers, listed: listedExcept(all, drivers)}, clock.RealClock{})
}

func waitUntilRemoved(ctx context.Context, clients kube.Clients, r removal, clock clock.Clock) error {
	began := clock.Now()
	var pv *v1.PersistentVolume
	for quiet := began; ; {
		var back bool
		var err error
		if pv, back, err = probe(ctx, clients, pv, r); err != nil {
			return err
		}
		now := clock.Now()
		switch {
		case pv == nil, !back && now.Sub(quiet) >= quietPeriod:
			return nil
		case back && now.Sub(began) >= propagationTimeout:
			return fmt.Errorf("PV %q: %w although no policy or webhook of csi-reclaimer lists its driver: look for another "+
				"policy or webhook that adds it", pv.Name, reclaim.ErrFinalizerRestored)
		case back:
			quiet = now
		}
		if !controller.Pause(ctx, clock, probeInterval) {
			return ctx.Err()
		}
	}
}

// probe removes the finalizers from a PV in a dry run, and reports in back whether one came back. If pv is nil or gone,
// it takes another PV, and returns nil if no PV can show it.
func probe(ctx context.Context, clients kube.Clients, pv *v1.PersistentVolume,
	r removal) (_ *v1.PersistentVolume, back bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		if pv == nil {
			if pv, err = findProbe(ctx, clients, r); pv == nil {
				return nil, false, err
			}
		}
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q,%q]}}`, pv.UID,
			volume.Finalizer, volume.CompanionFinalizer)
		after, err := clients.Core.PersistentVolumes().Patch(ctx, pv.Name, types.StrategicMergePatchType, patch,
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		switch {
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			pv = nil
		case err != nil:
			return nil, false, fmt.Errorf("patch finalizers of PV %q in a dry run: %w", pv.Name, err)
		default:
			return pv, len(r.finalizers(after)) > 0, nil
		}
	}
}

// findProbe returns a PV whose finalizer a policy that lists the drivers would add again, or nil.
func findProbe(ctx context.Context, clients kube.Clients, r removal) (pv *v1.PersistentVolume, _ error) {
	all := Drivers{volume.RoleOwner: r.drivers, volume.RoleCompanion: r.drivers}
	err := kube.EachPage(ctx, metav1.ListOptions{},
		func(ctx context.Context, o metav1.ListOptions) (string, error) {
			page, err := clients.Core.PersistentVolumes().List(ctx, o)
			if err != nil {
				return "", err
			}
			at := slices.IndexFunc(page.Items, func(pv v1.PersistentVolume) bool {
				bare := pv
				bare.Finalizers = nil
				return len(r.finalizers(&pv)) > 0 && len(missingFinalizers(&bare, all)) > 0
			})
			if at >= 0 {
				pv = &page.Items[at]
				return "", nil
			}
			return page.Continue, nil
		})
	if err != nil {
		return nil, fmt.Errorf("list PVs: %w", err)
	}
	return pv, nil
}
