package app

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/cmd/internal/health"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/permission"
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

// Election decides when this replica works, as leader.Elector does.
type Election interface {
	PermissionChecker
	// Check returns an error if only a restart can help.
	Check() error
	// Run calls lead once this replica may work. The context of lead ends when it may not work any more.
	Run(ctx context.Context, lead func(ctx context.Context) error) error
}

// Process is the work of a program. All fields but Checkers are required.
type Process[C Controller] struct {
	Controllers []C
	Election    Election
	// State gets the health of the election, and the number of missing permissions.
	State *health.State
	// Checkers find missing permissions, in addition to the election. Lacking is called with them at the start and after
	// each change.
	Checkers []PermissionChecker
	Lacking  func(missing []permission.Permission)
	// Grace is the time that calls in progress have to end after the end of Run's ctx.
	Grace time.Duration
}

// Run runs the controllers while the election is won. After ctx ends, their calls in progress have the grace period to
// end, during which the Lease is kept. A controller that fails ends the others, and Run returns its error. Without
// controllers it waits for ctx. The search for missing permissions is counted by running, and ends with background.
func (p Process[C]) Run(ctx, background context.Context, running *sync.WaitGroup) error {
	p.State.Watch(p.Election.Check)
	checkers := append(slices.Clone(p.Checkers), PermissionChecker(p.Election))
	running.Go(func() { watchPermissions(background, checkers, p.lack) })
	return p.runControllers(ctx)
}

// lack reports the missing permissions, whether the program can work without them or not.
func (p Process[C]) lack(missing []permission.Permission) {
	p.State.Miss(len(missing))
	p.Lacking(missing)
}

func (p Process[C]) runControllers(ctx context.Context) error {
	if len(p.Controllers) == 0 {
		<-ctx.Done()
		return nil
	}
	// The watches outlive the election, so that a waiting replica keeps its caches warm.
	watch, stopWatch := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stopWatch()
	for _, c := range p.Controllers {
		watching.Go(func() { c.Watch(watch) })
	}

	act := func(lease context.Context) error {
		unhook := context.AfterFunc(ctx, func() {
			klog.FromContext(ctx).Info("Stopping: waiting for calls in progress", "grace", p.Grace)
		})
		defer unhook()
		all, work := errgroup.WithContext(lease)
		for _, c := range p.Controllers {
			all.Go(func() error {
				own, cutOff := context.WithCancel(work)
				defer cutOff()
				unhook := context.AfterFunc(ctx, func() { stopWithin(own, p.Grace, c, cutOff) })
				defer unhook()
				return ignoreEnd(ctx, c.Run(own))
			})
		}
		return all.Wait()
	}
	return p.Election.Run(ctx, act)
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
