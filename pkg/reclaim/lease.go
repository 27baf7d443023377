package reclaim

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"
)

// ErrLeaseExpired: this replica must not act, because it does not hold its Lease, or did not renew it in
// time. What was asked was not begun.
var ErrLeaseExpired = errors.New("the leader election lease is not held")

// Lease says how long this replica may still act on behalf of all. It is what is known locally of the
// Lease by which replicas elect their leader: lease.Clock, or an implementation of the caller's. A process
// that was paused, or whose machine was suspended, finds out by it that another replica may act now, before
// client-go's election does.
//
// Its methods are safe for concurrent use, return at once, and ask nobody.
type Lease interface {
	// Left returns how long this replica may act without another renewal: the lease's duration, less
	// the time since the last renewal that succeeded was requested. Time counts in which the process
	// or the machine stood still. At zero or less this replica must not act: it does not lead yet,
	// does not lead any more, or did not renew in time. Left turns positive again only if no other
	// replica can have acted meanwhile.
	Left() time.Duration
}

// leaseCheck is how often a Lease is looked at while nothing else asks for it: timers stand still while the
// machine is suspended, and its time does not.
const leaseCheck = time.Second

// holds tells whether a replica with this Lease may act; without one, always.
func holds(l Lease) bool { return l == nil || l.Left() > 0 }

// whileHeld returns a context that ends with ctx, or when the Lease has run out (context.Cause is
// ErrLeaseExpired then). The caller calls stop, which returns when nothing watches the Lease any more.
func whileHeld(ctx context.Context, l Lease, c clock.WithTicker) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if l == nil {
		return ctx, func() { cancel(nil) }
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			left := l.Left()
			if left <= 0 {
				cancel(ErrLeaseExpired)
				return
			}
			timer := c.NewTimer(min(left, leaseCheck))
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C():
			}
		}
	}()
	return ctx, func() { cancel(nil); <-ended }
}

// mayAct is an error when this replica must not begin, write or report anything.
func (r *Reclaimer) mayAct() error {
	if holds(r.cfg.Lease) {
		return nil
	}
	return ErrLeaseExpired
}
