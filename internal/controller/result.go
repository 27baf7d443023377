package controller

import (
	"context"
	"errors"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// Result specifies when a key is due again. The zero value means when it is enqueued again.
type Result struct {
	// Backoff, if its Max is not zero, makes the key due again after a delay that grows as long as the same Backoff is
	// returned in a row.
	Backoff Backoff
}

// Done is the Result of a key that only an event makes due again.
func Done() Result { return Result{} }

// Soon is the Result of a state that ends by itself in a moment, such as a conflict or a lagging cache.
func Soon() Result {
	return Result{Backoff{First: 200 * time.Millisecond, Max: 5 * time.Second}}
}

// longest bounds a delay, because users choose delays that overflow, such as a grace period of 68 years.
const longest = 365 * 24 * time.Hour

// After is the Result of a key that is due when d has passed, or in a year: never earlier, and up to a quarter later.
func After(d time.Duration) Result {
	// The queue leaves out up to a fifth of each delay.
	d = min(max(d, 0), longest)*5/4 + time.Millisecond
	return Result{Backoff{First: d, Max: d}}
}

// Every is the Result of a key that is polled: due after d, or up to a fifth earlier, so that many keys do not stay in
// step. A d of 0 is Done.
func Every(d time.Duration) Result { return Result{Backoff{First: d, Max: d}} }

// Retry is the Result of a try that failed for a reason that may pass.
func (b Backoff) Retry() Result { return Result{b} }

// slower multiplies the first delay if a person has to act first.
const slower = 10

// Slow is the Result of a try that fails again until a person acts.
func (b Backoff) Slow() Result {
	return Result{Backoff{First: min(slower*b.First, b.Max), Max: b.Max}}
}

// Failure is the meaning of an error for the next try.
type Failure uint8

const (
	// Ended means that nothing is left to try: the object is gone, or the lease or the program ended, so that the next
	// leader continues.
	Ended Failure = iota
	// Transient means that it ends by itself in a moment and is not worth a report.
	Transient
	// Retryable means that it may pass.
	Retryable
	// Lasting means that it stays until a person acts.
	Lasting
)

// FailureOf returns the meaning of an error. ctx is the reconciler's context, and after its end the error is a
// consequence of it.
func FailureOf(ctx context.Context, err error) Failure {
	switch class := errclass.Of(err); {
	case err == nil, ctx.Err() != nil, errors.Is(err, kube.ErrGone):
		return Ended
	case errors.Is(err, kube.ErrChanged), class == errclass.InProgress:
		// The change's own event enqueues the key; the delay covers an event that came before the answer.
		return Transient
	case class == errclass.Refused, class == errclass.NotFound, class == errclass.Unfit:
		return Lasting
	}
	return Retryable
}

// Result returns when a failed try is due again.
func (f Failure) Result(retries Backoff) Result {
	switch f {
	case Ended:
		return Done()
	case Transient:
		return Soon()
	case Lasting:
		return retries.Slow()
	case Retryable:
	}
	return retries.Retry()
}
