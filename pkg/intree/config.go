package intree

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Config holds the settings of a Controller. The zero value is usable.
type Config struct {
	// DryRun decides and reports everything, and writes nothing.
	DryRun bool
	// Workers is how many PVs are worked on at once, which also bounds the load on the API server.
	// Default 10.
	Workers int
	// RetryStart and RetryMax bound the delay, doubled each time, after a deletion or a call that
	// failed. Default 1 second and 5 minutes.
	RetryStart, RetryMax time.Duration
	// Events records what keeps a PV, on the PV. It should have a client and a rate limit of its own. Default none.
	Events record.EventRecorder
	// Metrics is where the package's metrics are registered. Default nowhere.
	Metrics prometheus.Registerer
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

func (c Config) withDefaults() Config {
	c.Workers = cmp.Or(c.Workers, 10)
	c.RetryStart, c.RetryMax = settings.Retries(c.RetryStart, c.RetryMax)
	c.Events = settings.Events(c.Events, c.DryRun)
	c.Clock = settings.Clock(c.Clock)
	return c
}

// rules returns the settings that decisions depend on.
func (c Config) rules() intree.Rules {
	return intree.Rules{DryRun: c.DryRun, RetryStart: c.RetryStart, RetryMax: c.RetryMax}
}

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}
