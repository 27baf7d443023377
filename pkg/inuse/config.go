package inuse

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
)

// Mode says whether a cluster is served. The zero value is not.
type Mode uint8

const (
	// ModeOff does nothing: Kubernetes' own controller does the work.
	ModeOff Mode = iota
	// ModeFull does the work, unless somebody else is seen to do it.
	ModeFull
)

// String returns the mode as used in flags.
func (m Mode) String() string {
	switch m {
	case ModeOff:
		return "off"
	case ModeFull:
		return "full"
	}
	return "unknown"
}

// Config holds the settings of a Guard. The zero value is usable, and does nothing.
type Config struct {
	// Mode says whether to work at all. Default ModeOff.
	Mode Mode
	// Patience is how long a need must stay unanswered before it counts as proven that no other
	// controller does the work. Once after each start, and after each time that somebody else was
	// seen at work. Default 30 seconds, above the 15 that another kube-controller-manager needs to take
	// over by its default leader election.
	Patience time.Duration
	// DryRun decides and reports, in the log and the metrics, and writes nothing.
	DryRun bool
	// Workers is how many finalizers are written at once. Default 20.
	Workers int
	// RetryStart and RetryMax bound the delay, doubled each time, after an API call that failed.
	// Default 1 second and 5 minutes.
	RetryStart, RetryMax time.Duration
	// Events records what keeps an object, on the object. Default none.
	Events record.EventRecorder
	// Metrics is where the package's metrics are registered. Default nowhere.
	Metrics prometheus.Registerer
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

// WithDefaults returns the settings with their defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Patience == 0 {
		c.Patience = 30 * time.Second
	}
	if c.Workers == 0 {
		c.Workers = 20
	}
	if c.RetryStart == 0 {
		c.RetryStart = time.Second
	}
	if c.RetryMax == 0 {
		c.RetryMax = 5 * time.Minute
	}
	if c.Events == nil || c.DryRun {
		c.Events = events.Discard{} // an Event is a write
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	var wrong []error
	add := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	full := c.WithDefaults()
	add(c.Mode > ModeFull, "mode: %d is none", c.Mode)
	add(c.Patience < 0, "patience: %v is negative", c.Patience)
	add(c.Workers < 0, "workers: %d is negative", c.Workers)
	add(full.RetryStart < 0 || full.RetryMax < full.RetryStart, "retries: from %v to %v is not a growing delay",
		full.RetryStart, full.RetryMax)
	return errors.Join(wrong...)
}
