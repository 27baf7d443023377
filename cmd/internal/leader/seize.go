package leader

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/leadership"
)

// The holder of the Lease after Seize. The next holder does not wait for it, because its work has ended.
const nobody = "nobody"

// seizeTries bounds the reads of a Lease that its holder keeps renewing.
const seizeTries = 10

// Seize takes the Lease from its holder, waits until that holder must have stopped, and calls do. If do succeeds,
// Seize keeps the Lease for the duration keep, so that running replicas do not start again. It serves work after
// which the program is removed, and is called instead of Run.
func (e *Elector) Seize(ctx context.Context, keep time.Duration, do func(ctx context.Context) error) error {
	if e == nil {
		return do(ctx)
	}
	// A flag may give the holder the same identity.
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
	if !controller.Pause(ctx, clock.RealClock{}, wait) {
		return ctx.Err()
	}
	err = e.Run(ctx, func(lease context.Context) error {
		all, end := context.WithCancel(lease)
		defer end()
		defer context.AfterFunc(ctx, end)()
		return do(all)
	})
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil: // Run returns no error then, although it may never have called do
		return ctx.Err()
	}
	_, err = e.hold(ctx, func(lease *coordinationv1.Lease) bool {
		lease.Spec.HolderIdentity = ptr.To(nobody)
		lease.Spec.LeaseDurationSeconds = ptr.To(int32(keep.Seconds()))
		return true
	})
	return err
}

// takeOver makes this replica the Lease's holder, and returns how long the former holder may still act, which is the
// time that other replicas would wait for it.
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
		// The Lease is not renewed while this replica waits for the former holder.
		lease.Spec.LeaseDurationSeconds = ptr.To(int32((wait + e.cfg.LeaseDuration).Seconds()))
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
		return true
	})
	if !found {
		wait = 0
	}
	return wait, err
}

// hold renews the Lease with a change. It writes nothing if change returns false, or if the Lease does not exist.
func (e *Elector) hold(ctx context.Context, change func(*coordinationv1.Lease) bool) (changed bool, err error) {
	leases := e.client.CoordinationV1().Leases(e.cfg.Namespace)
	for range seizeTries {
		lease, err := leases.Get(ctx, e.cfg.Name, metav1.GetOptions{})
		switch {
		case utilnet.IsTimeout(err): // of one request
			continue
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
		case !apierrors.IsConflict(err) && !utilnet.IsTimeout(err):
			return false, fmt.Errorf("take the Lease %s/%s: %w", e.cfg.Namespace, e.cfg.Name, err)
		}
	}
	return false, fmt.Errorf("take the Lease %s/%s: it changed, or had no answer, during each of %d tries",
		e.cfg.Namespace, e.cfg.Name, seizeTries)
}
