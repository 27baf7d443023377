package leadership

import (
	"context"
	"time"

	"k8s.io/utils/clock"
)

// checkEvery is the interval at which WhileHeld checks a holder on its own: timers stop while the machine is
// suspended, but the lease expires.
const checkEvery = time.Second

// WhileHeld returns a context that ends with ctx, or when the holder must not act any more (context.Cause is
// ErrExpired then). A nil holder may always act. The caller must call stop, which returns once the holder is no longer
// checked.
func WhileHeld(ctx context.Context, holder Holder, c clock.WithTicker) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if holder == nil {
		return ctx, func() { cancel(nil) }
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			left := holder.Left()
			if left <= 0 {
				cancel(ErrExpired)
				return
			}
			timer := c.NewTimer(min(left, checkEvery))
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
