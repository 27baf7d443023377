//go:build unix

package suite

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"
)

// ErrInterrupted is the cause of the end of a test that a signal ends.
var ErrInterrupted = errors.New("interrupted")

// Interruptible returns a context that ends at the first SIGINT or SIGTERM, so that tests clean up. The next signal has
// its default action. stop restores that action at once.
func Interruptible() (ctx context.Context, stop context.CancelFunc) {
	ctx, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// Context returns the context of a test, which ends with the test, after the limit, or with interrupted, which is nil
// for a suite that does not handle signals this way.
func Context(interrupted context.Context, t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	if interrupted == nil {
		interrupted = context.Background()
	}
	bounded, end := context.WithTimeout(t.Context(), limit)
	ctx, cancel := context.WithCancelCause(bounded)
	unhook := context.AfterFunc(interrupted, func() { cancel(ErrInterrupted) })
	t.Cleanup(func() { unhook(); cancel(nil); end() })
	return ctx
}
