package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	storagev1 "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/reclaim"
)

// lookAgain is how often something that is lacking is looked for again.
const lookAgain = 30 * time.Second

// waitForDeletion returns once the driver can delete volumes. A finalizer on PVs whose
// volumes cannot be deleted would keep them for ever, so nothing is begun before.
func waitForDeletion(ctx context.Context, o *options, driver *csidriver.Driver, state *health) error {
	if o.releaseFinalizers {
		return nil
	}
	said := false
	for !driver.CanDelete() {
		if !said {
			lacking := fmt.Sprintf("driver %q does not advertise CREATE_DELETE_VOLUME: no volume can be deleted, so no PV is protected either. "+
				"If the driver never will, remove csi-reclaimer from the pod", driver.Name())
			klog.FromContext(ctx).Info("Preflight: "+lacking, "lookingAgainEvery", lookAgain)
			state.lack(lacking)
			said = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookAgain):
		}
		if err := driver.Refresh(ctx); err != nil {
			return err
		}
	}
	state.lack()
	return nil
}

// neverAttached tells whether no VolumeAttachment ever names a volume of the driver: it does
// not attach, and its CSIDriver says so to the cluster. What cannot be read counts as attached.
func neverAttached(ctx context.Context, config *rest.Config, driver *csidriver.Driver) (bool, error) {
	if driver.Attaches() {
		return false, nil
	}
	client, err := storagev1.NewForConfig(config)
	if err != nil {
		return false, fmt.Errorf("make a client for CSIDrivers: %w", err)
	}
	bound, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	o, err := client.CSIDrivers().Get(bound, driver.Name(), metav1.GetOptions{})
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case apierrors.IsNotFound(err):
		return false, nil // as the cluster does, which attaches then
	case err != nil:
		klog.FromContext(ctx).Info("Preflight: the CSIDriver cannot be read, so VolumeAttachments are looked at before each deletion", "driver", driver.Name(), "err", err)
		return false, nil
	}
	return o.Spec.AttachRequired != nil && !*o.Spec.AttachRequired, nil
}

// asker tells which of its rights a controller lacks.
type asker interface {
	Missing(ctx context.Context) ([]reclaim.Right, error)
}

// missingRights returns what any of them lacks, each right once.
func missingRights(ctx context.Context, of []asker) ([]reclaim.Right, error) {
	var all []reclaim.Right
	for _, a := range of {
		missing, err := a.Missing(ctx)
		if err != nil {
			return nil, err
		}
		for _, right := range missing {
			if !slices.ContainsFunc(all, func(r reclaim.Right) bool {
				return r.Verb == right.Verb && r.Group == right.Group && r.Resource == right.Resource && r.Namespace == right.Namespace
			}) {
				all = append(all, right)
			}
		}
	}
	return all, nil
}

// preflight says what this program is not allowed to do, once for each change, and looks
// again for as long as something is lacking.
func preflight(ctx context.Context, of []asker, state *health) {
	var before []reclaim.Right
	for {
		missing, err := missingRights(ctx, of)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			klog.FromContext(ctx).Info("Preflight: what csi-reclaimer may do cannot be found out; it is looked at again", "err", err)
		case len(missing) == 0:
			state.lack()
			state.limp(false)
			if len(before) > 0 {
				klog.FromContext(ctx).Info("Preflight: all rights are granted now")
			}
			return
		default:
			if !slices.Equal(missing, before) {
				sayMissing(ctx, missing, state)
			}
			before = missing
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(lookAgain):
		}
	}
}

func sayMissing(ctx context.Context, missing []reclaim.Right, state *health) {
	var unsafe []string
	for _, right := range missing {
		klog.FromContext(ctx).Info("Preflight: "+right.String(), "noDeletionWithout", right.Unsafe)
		if right.Unsafe {
			unsafe = append(unsafe, right.String())
		}
	}
	state.lack(unsafe...)
	// Without all it watches provisioning never begins, which is no reason not to delete.
	state.limp(slices.ContainsFunc(missing, func(r reclaim.Right) bool { return r.Verb == "list" || r.Verb == "watch" }))
}
