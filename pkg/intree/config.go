package intree

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Config holds the settings of a Controller; the zero value is usable.
type Config struct {
	// DryRun decides and reports everything, but writes nothing.
	DryRun bool
	// Workers is the number of PVs worked on at once, which also bounds the load on the API server. Default 10.
	Workers int
	// RetryStart and RetryMax are the shortest and longest delay after a failed deletion or call, which doubles each time
	// (default 1 second and 5 minutes).
	RetryStart, RetryMax time.Duration
	// Events records on the PV why it is kept. It should have its own client and rate limit. Default none.
	Events record.EventRecorder
	// Metrics registers the package's metrics. Default none.
	Metrics prometheus.Registerer
	// Watches are shared with the other controllers of a program of this module. Default none: the watches are its own.
	Watches *kube.Watches
	// Clock is replaced in tests. Default the real clock.
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

// Validate returns an error that names every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}
