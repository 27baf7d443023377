package controller

import (
	"context"
	"errors"

	"k8s.io/klog/v2"
)

// Decision is the next step for an object.
type Decision interface {
	// Waits reports whether no step is due now.
	Waits() bool
	// Words returns the action and its reason for the log.
	Words() (action, reason string)
}

// errSteps is the error of work that has taken its most steps and would take another.
var errSteps = errors.New("too many steps: each result is outdated when the next read returns")

// Steps works on one object from its wake-up to its next wait: it decides and acts until no step is due, or a step
// fails or ends the work. It returns the last decision and the error of its step. decide gathers the facts of the
// moment and decides. do carries out one step and learns from it; over leaves nothing to decide, and an error carries
// its reason (reasons.Because).
func Steps[D Decision](ctx context.Context, most int, decide func() D,
	do func(ctx context.Context, d D) (over bool, err error)) (D, error) {
	for taken := 0; ; taken++ {
		d := decide()
		if logger := klog.FromContext(ctx).V(5); logger.Enabled() {
			action, reason := d.Words()
			logger.Info("Decided", "action", action, "reason", reason)
		}
		switch {
		case d.Waits():
			return d, nil
		case taken == most:
			return d, errSteps
		}
		if over, err := do(ctx, d); over || err != nil {
			return d, err
		}
	}
}
