// Package settings is what the Configs of all controllers have in common: defaults, and how they say what is wrong.
package settings

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
)

// Retries returns the bounds of the delay after a call that failed: those that are given, by default 1 second and 5
// minutes.
func Retries(first, longest time.Duration) (time.Duration, time.Duration) {
	return cmp.Or(first, time.Second), cmp.Or(longest, 5*time.Minute)
}

// Events returns where Events are recorded: nowhere by default, and in a dry run, because an Event is a write.
func Events(to record.EventRecorder, dryRun bool) record.EventRecorder {
	if to == nil || dryRun {
		return events.Discard{}
	}
	return to
}

// Clock returns a clock, by default the real one.
func Clock(c clock.WithTicker) clock.WithTicker {
	if c == nil {
		return clock.RealClock{}
	}
	return c
}

// Wrong is what is wrong with settings. The zero value is nothing.
type Wrong struct{ errs []error }

// If notes an error if something is bad.
func (w *Wrong) If(bad bool, format string, args ...any) {
	if bad {
		w.errs = append(w.errs, fmt.Errorf(format, args...))
	}
}

// Workers notes a number of workers that is none.
func (w *Wrong) Workers(count int) { w.If(count < 0, "workers: %d is negative", count) }

// Retries notes bounds of a delay between which it cannot grow. 0 is the default.
func (w *Wrong) Retries(first, longest time.Duration) {
	first, longest = Retries(first, longest)
	w.If(first < 0 || longest < first, "retries: from %v to %v is not a growing delay", first, longest)
}

// Err returns all that is wrong, nil for nothing.
func (w *Wrong) Err() error { return errors.Join(w.errs...) }
