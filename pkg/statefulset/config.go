package statefulset

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Config holds the settings of a Controller, and is usable in its zero value.
type Config struct {
	// Grace is the delay between the deletion of a replica's pod and of its claim, unless its StatefulSet has
	// GraceAnnotation. It defaults to 1 minute if 0.
	Grace time.Duration
	// DryRun decides and reports everything, and writes nothing.
	DryRun bool
	// Workers is the number of claims in work at once, which also bounds the load on the API server. It defaults to 10.
	Workers int
	// RetryStart and RetryMax bound the exponential backoff after a failed call, and default to 1 second and 5 minutes.
	RetryStart, RetryMax time.Duration
	// Events records on the claim and its set each action, and each reason that keeps a claim. The recorder should have a
	// client and a rate limit of its own, and is none by default.
	Events record.EventRecorder
	// Metrics is the registry of the package's metrics, none by default.
	Metrics prometheus.Registerer
	// Watches are shared with the other controllers of a program of this module. Default none: the watches are its own.
	Watches *kube.Watches
	// Clock is the real clock by default, and replaced in tests.
	Clock clock.WithTicker
}

func (c Config) withDefaults() Config {
	c.Grace = cmp.Or(c.Grace, statefulset.DefaultGrace)
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

// Validate returns an error for every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.Grace < 0, "grace period: %v is negative", c.Grace)
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}
