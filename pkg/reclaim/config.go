package reclaim

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
)

// Config holds the settings of a Reclaimer. The zero value is usable.
type Config struct {
	// Workers is how many volumes are deleted at once. Default 100, as many as the stock
	// external-provisioner has; it also bounds the load on the API server.
	Workers int
	// ProtectWorkers is how many finalizers are put on existing PVs at once. They are
	// apart from Workers, so that a backlog never delays a deletion. Default 8.
	ProtectWorkers int
	// RetryStart and RetryMax bound the delay, doubled each time, after a failed deletion
	// or API call. Default 1 second and 5 minutes.
	RetryStart, RetryMax time.Duration
	// Events records what keeps a PV, on the PV. Default none.
	Events record.EventRecorder
	// Metrics is where the package's metrics are registered. Default nowhere.
	Metrics prometheus.Registerer
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

func (c Config) withDefaults() Config {
	if c.Workers == 0 {
		c.Workers = 100
	}
	if c.ProtectWorkers == 0 {
		c.ProtectWorkers = 8
	}
	if c.RetryStart == 0 {
		c.RetryStart = time.Second
	}
	if c.RetryMax == 0 {
		c.RetryMax = 5 * time.Minute
	}
	if c.Events == nil {
		c.Events = noEvents{}
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	return c
}

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	var wrong []error
	if c.Workers < 0 {
		wrong = append(wrong, fmt.Errorf("workers: %d is negative", c.Workers))
	}
	if c.ProtectWorkers < 0 {
		wrong = append(wrong, fmt.Errorf("protect workers: %d is negative", c.ProtectWorkers))
	}
	full := c.withDefaults()
	if full.RetryStart < 0 || full.RetryMax < full.RetryStart {
		wrong = append(wrong, fmt.Errorf("retries: from %v to %v is no growing delay", full.RetryStart, full.RetryMax))
	}
	return errors.Join(wrong...)
}
