package inuse

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Mode indicates whether a cluster is protected; the zero value is ModeOff.
type Mode uint8

const (
	// ModeOff does nothing, because Kubernetes' own controller does the work.
	ModeOff Mode = iota
	// ModeFull does the work, unless another program is seen to do it.
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

// Config holds the settings of a Guard; the zero value is usable, and does nothing.
type Config struct {
	// Mode indicates whether to work at all. Default ModeOff.
	Mode Mode
	// Patience is the time for which a need must stay unanswered before it proves that no other controller does the work.
	// It applies once after each start, and again each time another controller was seen at work. Default 30 seconds, above
	// the 15 that another kube-controller-manager needs to take over with its default leader election.
	Patience time.Duration
	// DryRun decides and reports in the log and the metrics, but writes nothing.
	DryRun bool
	// Workers is the number of finalizers written at once. Default 20.
	Workers int
	// RetryStart and RetryMax are the shortest and longest delay after a failed API call, which doubles each time (default
	// 1 second and 5 minutes).
	RetryStart, RetryMax time.Duration
	// Events records on the object why it is kept. Default none.
	Events record.EventRecorder
	// Metrics registers the package's metrics. Default none.
	Metrics prometheus.Registerer
	// Watches are shared with the other controllers of a program of this module. Default none: the watches are its own.
	Watches *kube.Watches
	// Clock is replaced in tests. Default the real clock.
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

// Validate returns an error that names every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Mode > ModeFull, "mode: unknown value %d", c.Mode)
	wrong.If(c.Patience < 0, "patience: %v is negative", c.Patience)
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}
