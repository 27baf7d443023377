package controller

import (
	"context"
	"errors"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Decision is the next step for an object.
type Decision interface {
	// Waits reports whether no step is due now.
	Waits() bool
	// Writes reports whether the step changes anything; a dry run ends before it.
	Writes() bool
	// Words returns the action and its reason for the log.
	Words() (action, reason string)
}

// Session is the work on one object from its wake-up to its next wait.
type Session[D Decision] interface {
	// Decide gathers the facts of the moment and decides.
	Decide(now time.Time) D
	// Do carries out one step and learns from it; over ends the session, with nothing left to decide; an error carries its
	// reason (reasons.Because).
	Do(ctx context.Context, d D) (over bool, err error)
	// Wait ends the session with the reason for waiting. In a dry run, d may be the first step that writes.
	Wait(ctx context.Context, d D) Result
	// Fail ends the session with the error of the last step.
	Fail(ctx context.Context, d D, err error) Result
}

// Steps holds the settings of Reconcile.
type Steps struct {
	// Max bounds the steps of one session. Required.
	Max int
	// DryRun ends a session before the first step that writes.
	DryRun bool
	// Clock is the time of decisions. Required.
	Clock clock.PassiveClock
}

// ErrSteps is the error of a session that has taken Steps.Max steps and would take another.
var ErrSteps = errors.New("too many steps: each result is outdated when the next read returns")

// Reconcile decides and acts until no step is due, or a step fails.
func Reconcile[D Decision](ctx context.Context, s Session[D], steps Steps) Result {
	for taken := 0; ; taken++ {
		d := s.Decide(steps.Clock.Now())
		if logger := klog.FromContext(ctx).V(5); logger.Enabled() {
			action, reason := d.Words()
			logger.Info("Decided", "action", action, "reason", reason)
		}
		switch {
		case d.Waits(), steps.DryRun && d.Writes():
			return s.Wait(ctx, d)
		case taken == steps.Max:
			return s.Fail(ctx, d, ErrSteps)
		}
		over, err := s.Do(ctx, d)
		switch {
		case err != nil:
			return s.Fail(ctx, d, err)
		case over:
			return Done()
		}
	}
}
