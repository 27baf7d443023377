package app

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/leader"
)

// Controller is a part of a program that works while this replica leads.
type Controller interface {
	// Watch keeps the Controller's caches up to date until ctx ends, and writes nothing to the cluster.
	Watch(ctx context.Context)
	// Run works until ctx ends or Stop is called.
	Run(ctx context.Context) error
	// Stop begins no new work, and Run returns when the calls in progress have ended.
	Stop()
	// Synced reports whether the caches are filled.
	Synced() bool
}

// RunControllers runs the controllers while the elector holds its Lease. After ctx ends, their calls in progress have
// the grace period to end, during which the Lease is kept. A controller that fails ends the others, and
// RunControllers returns its error. Without controllers it waits for ctx.
func RunControllers[C Controller](ctx context.Context, controllers []C, grace time.Duration,
	elector *leader.Elector) error {
	if len(controllers) == 0 {
		<-ctx.Done()
		return nil
	}
	// The watches outlive the election, so that a waiting replica keeps its caches warm.
	watch, stopWatch := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stopWatch()
	for _, c := range controllers {
		watching.Go(func() { c.Watch(watch) })
	}

	act := func(lease context.Context) error {
		unhook := context.AfterFunc(ctx, func() {
			klog.FromContext(ctx).Info("Stopping: waiting for calls in progress",
				"grace", grace)
		})
		defer unhook()
		all, work := errgroup.WithContext(lease)
		for _, c := range controllers {
			all.Go(func() error {
				own, cutOff := context.WithCancel(work)
				defer cutOff()
				unhook := context.AfterFunc(ctx, func() { stopWithin(own, grace, c, cutOff) })
				defer unhook()
				return ignoreEnd(ctx, c.Run(own))
			})
		}
		return all.Wait()
	}
	return elector.Run(ctx, act)
}

// stopWithin stops a controller, and cancels its calls after the grace period.
func stopWithin(work context.Context, grace time.Duration, c Controller, cutOff func()) {
	if !c.Synced() {
		cutOff() // nothing is in progress
		return
	}
	c.Stop()
	bound, cancel := context.WithTimeout(work, grace)
	defer cancel()
	<-bound.Done()
	cutOff()
}

// ignoreEnd drops the error of a requested shutdown.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
