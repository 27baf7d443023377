package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// quietFor is the time without a finding after which a release ends, because API servers observe within seconds that
	// an admission policy is gone.
	quietFor = 5 * time.Second
	// listEvery is the interval of its lists.
	listEvery = time.Second
	// findings bounds the passes that may find an object.
	findings = 30
	// progressEvery is the interval at which a release logs its progress.
	progressEvery = 5 * time.Second
)

// Release calls release, which removes the additions of a controller from objects. A release consists of writes, so
// Release fails in a dry run before the call. purpose begins each error.
func Release[R any](ctx context.Context, purpose string, dryRun bool,
	release func(context.Context) (R, error)) (done R, err error) {
	if dryRun {
		return done, fmt.Errorf("%s: Config.DryRun is set, and a dry run writes nothing: release without DryRun", purpose)
	}
	if done, err = release(ctx); err != nil {
		err = fmt.Errorf("%s: %w", purpose, err)
	}
	return done, err
}

// UntilQuiet is the loop of a release that removes the additions of an admission policy from objects. Each pass lists
// all objects, releases the ones with the addition, and reports whether it found any. The release ends when no pass has
// found one for some seconds, because by then the API servers have observed that the policy is gone. Until then, they
// may still refuse a write by the policy, so a pass of the first seconds that a write is Forbidden to has found an
// object. The error is the error of a pass, restored if passes find objects again and again, or the error of ctx.
func UntilQuiet(ctx context.Context, clock clock.Clock, restored error,
	pass func(context.Context) (found bool, err error)) error {
	start := clock.Now()
	quiet := start
	for try := 0; ; try++ {
		early := clock.Since(start) < quietFor
		found, err := pass(ctx)
		if early && apierrors.IsForbidden(err) {
			found, err = true, nil
		}
		now := clock.Now()
		switch {
		case err != nil:
			return err
		case found:
			quiet = now
		case now.Sub(quiet) >= quietFor:
			return nil
		}
		if found && try >= findings {
			return restored
		}
		if !Pause(ctx, clock, listEvery) {
			return ctx.Err()
		}
	}
}

// Watched calls do, in place of Run, with filled caches that are kept up to date until do returns.
func Watched(ctx context.Context, c *Controller, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer cancel()
	watch.Go(func() { c.Watch(ctx) })
	if err := c.WaitSynced(ctx); err != nil {
		return err
	}
	return do(ctx)
}

// Each calls do for each of all, for at most workers at a time and also after an error, until ctx ends. It returns all
// errors in the order of all.
func Each[T any](ctx context.Context, workers int, all []T, do func(T) error) error {
	errs := make([]error, len(all))
	var group errgroup.Group
	group.SetLimit(workers)
	for i, one := range all {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			errs[i] = do(one)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errors.Join(append(errs, ctx.Err())...)
}

// Progress logs the progress of long work at intervals, and is not safe for concurrent use.
type Progress struct {
	// Clock is the time of the log. Required.
	Clock clock.PassiveClock
	last  time.Time
}

// Log logs the message, unless one was logged a moment ago.
func (p *Progress) Log(ctx context.Context, message string, keysAndValues ...any) {
	if now := p.Clock.Now(); now.Sub(p.last) >= progressEvery {
		p.last = now
		klog.FromContext(ctx).Info(message, keysAndValues...)
	}
}
