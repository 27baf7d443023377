package statefulset

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Config holds the settings of a Controller. The zero value is usable.
type Config struct {
	// Grace is how long a claim stays after its replica was scaled away and its pod is gone, unless its StatefulSet has
	// GraceAnnotation. Default 1 minute; 0 is the default.
	Grace time.Duration
	// DryRun decides and reports everything, and writes nothing.
	DryRun bool
	// Workers is how many claims are worked on at once, which also bounds the load on the API server. Default 10.
	Workers int
	// RetryStart and RetryMax bound the delay, doubled each time, after a call that failed. Default 1 second and 5
	// minutes.
	RetryStart, RetryMax time.Duration
	// Events records what is done, and what keeps a claim, on the claim and its set. It should have a client and a rate
	// limit of its own. Default none.
	Events record.EventRecorder
	// Metrics is where the package's metrics are registered. Default nowhere.
	Metrics prometheus.Registerer
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

func (c Config) withDefaults() Config {
	c.Grace = cmp.Or(c.Grace, DefaultGrace)
	c.Workers = cmp.Or(c.Workers, 10)
	c.RetryStart, c.RetryMax = settings.Retries(c.RetryStart, c.RetryMax)
	c.Events = settings.Events(c.Events, c.DryRun)
	c.Clock = settings.Clock(c.Clock)
	return c
}

// rules returns the settings that decisions depend on.
func (c Config) rules() statefulset.Rules { return statefulset.Rules{Grace: c.Grace, DryRun: c.DryRun} }

func (c Config) retries() controller.Backoff {
	return controller.Backoff{First: c.RetryStart, Max: c.RetryMax}
}

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Grace < 0, "grace period: %v is negative", c.Grace)
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}
