package controller

import (
	"context"
	"math/rand/v2"
	"time"

	"k8s.io/utils/clock"
)

// Backoff is a delay that doubles with each try in a row, from First up to Max; the zero value is no delay. As the
// settings of a controller (RetryStart, RetryMax), it returns the Results of failed tries.
type Backoff struct {
	First, Max time.Duration
}

// jitter is the largest part of each delay that is left out at random, so that simultaneous failures are not retried
// simultaneously.
const jitter = 0.2

// Delay returns the delay after the given number of earlier tries in a row, without jitter.
func (b Backoff) Delay(tries int) time.Duration {
	d := b.First
	for range tries {
		if d >= b.Max/2 {
			d = b.Max
			break
		}
		d *= 2
	}
	return min(d, b.Max)
}

// delay is Delay with jitter, where random is from [0, 1).
func (b Backoff) delay(tries int, random float64) time.Duration {
	d := b.Delay(tries)
	return d - time.Duration(jitter*random*float64(d))
}

func draw() float64 { return rand.Float64() }

// Pause waits for d, and returns false if ctx ends before.
func Pause(ctx context.Context, clock clock.Clock, d time.Duration) bool {
	timer := clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return ctx.Err() == nil // both may be ready, and the end of the context comes first
	}
}

// Repeat calls do, with a pause of d after each call, until ctx ends.
func Repeat(ctx context.Context, clock clock.Clock, d time.Duration, do func(context.Context)) {
	do(ctx)
	for Pause(ctx, clock, d) {
		do(ctx)
	}
}
