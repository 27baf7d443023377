package intree

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/twins"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
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
	if c.Workers == 0 {
		c.Workers = 10
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

// rules returns the settings that decisions depend on.
func (c Config) rules() twins.Rules {
	return twins.Rules{DryRun: c.DryRun, RetryStart: c.RetryStart, RetryMax: c.RetryMax}
}

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	var wrong []error
	full := c.withDefaults()
	if c.Workers < 0 {
		wrong = append(wrong, fmt.Errorf("workers: %d is negative", c.Workers))
	}
	if full.RetryStart < 0 || full.RetryMax < full.RetryStart {
		wrong = append(wrong, fmt.Errorf("retries: from %v to %v is not a growing delay", full.RetryStart, full.RetryMax))
	}
	return errors.Join(wrong...)
}
