package controller

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

const (
	// quietFor is for how long a release may find nothing until it ends: API servers observe within seconds that an
	// admission policy is gone.
	quietFor = 5 * time.Second
	// listEvery is how often it lists meanwhile.
	listEvery = time.Second
	// findings is how often it may find something and go on.
	findings = 30
	// progressEvery is how often a release logs how far it is.
	progressEvery = 5 * time.Second
)

// UntilQuiet is the loop of a release of what an admission policy adds to new objects. Each pass lists all objects,
// releases those that have it, and reports whether it found one. The release ends when no pass has for some seconds:
// the API servers have observed then that the policy is gone. The error is that of a pass, restored if passes find
// objects again and again, or that of ctx.
func UntilQuiet(ctx context.Context, clock clock.Clock, restored error,
	pass func(context.Context) (found bool, err error)) error {
	quiet := clock.Now()
	for try := 0; ; try++ {
		found, err := pass(ctx)
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
		timer := clock.NewTimer(listEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
		// Both may be ready: the end of the context comes first.
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Workers do independent work, so much of it at once. One goroutine calls Go, and then Wait.
type Workers struct {
	group errgroup.Group
	mu    sync.Mutex
	errs  []error
}

// NewWorkers returns so many Workers.
func NewWorkers(count int) *Workers {
	w := &Workers{}
	w.group.SetLimit(count)
	return w
}

// Go has a worker do something, and waits until one is free. An error keeps no other from its work.
func (w *Workers) Go(do func() error) {
	i := w.next()
	w.group.Go(func() error {
		err := do()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.errs[i] = err
		return nil
	})
}

// next returns the index of the next error.
func (w *Workers) next() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errs = append(w.errs, nil)
	return len(w.errs) - 1
}

// Wait waits until all is done, and returns all errors, in the order of Go.
func (w *Workers) Wait() error {
	_ = w.group.Wait() // the errors are in errs
	return errors.Join(w.errs...)
}

// Progress logs now and then how far long work is. It is not safe for concurrent use.
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
