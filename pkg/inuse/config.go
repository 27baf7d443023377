package inuse

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
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
	c.Patience = cmp.Or(c.Patience, 30*time.Second)
	c.Workers = cmp.Or(c.Workers, 20)
	c.RetryStart, c.RetryMax = settings.Retries(c.RetryStart, c.RetryMax)
	c.Events = settings.Events(c.Events, c.DryRun)
	c.Clock = settings.Clock(c.Clock)
	return c
}

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Mode > ModeFull, "mode: %d is none", c.Mode)
	wrong.If(c.Patience < 0, "patience: %v is negative", c.Patience)
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}
