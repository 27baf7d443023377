// Package settings has the common parts of the Configs of all controllers: defaults and validation.
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

// Retries returns the shortest and longest delay after a failed call: the given ones, by default 1 second and 5
// minutes.
func Retries(first, longest time.Duration) (time.Duration, time.Duration) {
	return cmp.Or(first, time.Second), cmp.Or(longest, 5*time.Minute)
}

// CallTimeout returns the longest time of a driver's call: the given one, by default 1 minute.
func CallTimeout(timeout time.Duration) time.Duration { return cmp.Or(timeout, time.Minute) }

// Events returns the recorder of Events. By default, and in a dry run, Events are discarded, because an Event is a
// write.
func Events(to record.EventRecorder, dryRun bool) record.EventRecorder {
	if to == nil || dryRun {
		return events.Discard{}
	}
	return to
}

// Clock returns c, by default the real clock.
func Clock(c clock.WithTicker) clock.WithTicker {
	if c == nil {
		return clock.RealClock{}
	}
	return c
}

// Wrong collects the errors of settings; the zero value has none.
type Wrong struct{ errs []error }

// If records an error if bad is true.
func (w *Wrong) If(bad bool, format string, args ...any) {
	if bad {
		w.errs = append(w.errs, fmt.Errorf(format, args...))
	}
}

// CallTimeout records an error for a negative timeout of a driver's calls.
func (w *Wrong) CallTimeout(timeout time.Duration) {
	w.If(timeout < 0, "call timeout: %v is negative", timeout)
}

// Workers records an error for a negative number of workers.
func (w *Wrong) Workers(count int) { w.If(count < 0, "workers: %d is negative", count) }

// Retries records an error for bounds between which a delay cannot grow, where 0 stands for the default.
func (w *Wrong) Retries(first, longest time.Duration) {
	first, longest = Retries(first, longest)
	w.If(first < 0 || longest < first, "retries: from %v to %v is not a growing delay", first, longest)
}

// Err returns all recorded errors, nil for none.
func (w *Wrong) Err() error { return errors.Join(w.errs...) }
