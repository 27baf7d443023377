package leader

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
)

// nobody holds the Lease after Seize: that work has ended, so the next holder does not wait for it.
const nobody = "nobody"

// seizeTries bounds how often a Lease is read again that its holder renews meanwhile.
const seizeTries = 10

// Seize takes the Lease from its holder, waits until that holder must have stopped, and calls do. If
// that succeeds, Seize keeps the Lease for a time, so that running replicas do not start again.
// It is for work after which the program is removed, and is called instead of Run.
func (e *Elector) Seize(ctx context.Context, keep time.Duration, do func(ctx context.Context) error) error {
	if e == nil {
		return do(ctx)
	}
	// The holder may have the same identity, where a flag sets it.
	e.cfg.Identity = leadership.NewIdentity(e.cfg.Identity)
	e.keep = true
	wait, err := e.takeOver(ctx)
	if err != nil {
		return err
	}
	if wait > 0 {
		klog.FromContext(ctx).Info("Took the lease; waiting for its former holder to stop", "lease",
			klog.KRef(e.cfg.Namespace, e.cfg.Name), "wait", wait)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
	}
	err = e.Run(ctx, func(lease context.Context) error {
		all, end := context.WithCancel(lease)
		defer end()
		defer context.AfterFunc(ctx, end)()
		return do(all)
	})
	if err != nil || ctx.Err() != nil {
		return err
	}
	_, err = e.hold(ctx, func(lease *coordinationv1.Lease) bool {
		lease.Spec.HolderIdentity = ptr.To(nobody)
		lease.Spec.LeaseDurationSeconds = ptr.To(int32(keep.Seconds()))
		return true
	})
	return err
}

// takeOver makes this replica the Lease's holder and returns how long the former holder may still act: as
// long as others would wait for it if it did not renew its Lease.
func (e *Elector) takeOver(ctx context.Context) (wait time.Duration, err error) {
	found, err := e.hold(ctx, func(lease *coordinationv1.Lease) bool {
		switch ptr.Deref(lease.Spec.HolderIdentity, "") {
		case "":
			return false
		case nobody:
		default:
			wait = time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
		}
		lease.Spec.HolderIdentity = &e.cfg.Identity
		// The Lease is not renewed while waiting for the former holder.
		lease.Spec.LeaseDurationSeconds = ptr.To(int32((wait + e.cfg.LeaseDuration).Seconds()))
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
		return true
	})
	if !found {
		wait = 0
	}
	return wait, err
}

// hold renews the Lease with a change; there is nothing to change where change says so, or where there is no
// Lease.
func (e *Elector) hold(ctx context.Context, change func(*coordinationv1.Lease) bool) (changed bool, err error) {
	leases := e.client.CoordinationV1().Leases(e.cfg.Namespace)
	for range seizeTries {
		lease, err := leases.Get(ctx, e.cfg.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return false, nil
		case err != nil:
			return false, fmt.Errorf("read the Lease %s/%s: %w", e.cfg.Namespace, e.cfg.Name, err)
		case !change(lease):
			return false, nil
		}
		now := metav1.NowMicro()
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		switch {
		case err == nil:
			return true, nil
		case !apierrors.IsConflict(err):
			return false, fmt.Errorf("take the Lease %s/%s: %w", e.cfg.Namespace, e.cfg.Name, err)
		}
	}
	return false, fmt.Errorf("take the Lease %s/%s: it changed %d times meanwhile", e.cfg.Namespace, e.cfg.Name,
		seizeTries)
}
