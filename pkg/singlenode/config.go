package singlenode

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Config holds the settings of a Controller. The zero value is usable.
type Config struct {
	// UnmountGrace is how long to wait for the unmount of the volumes of a pod that has completed, such as that of a Job.
	// Default 30 seconds; 0 is the default.
	UnmountGrace time.Duration
	// Fences has locks freed where a NodeFence keeps the node of a terminating pod from the volume. It needs the kind
	// NodeFence (deploy/manifests/node-fencing-crd.yaml). Default off: no NodeFence is read.
	Fences bool
	// DryRun decides and reports everything, and writes nothing.
	DryRun bool
	// Workers is how many calls to the API server are made at once. Default 10.
	Workers int
	// RetryStart and RetryMax bound the delay, doubled each time, after a call that failed. Default 1 second and 5
	// minutes.
	RetryStart, RetryMax time.Duration
	// Events records what a pod waits for, on the pod, and on the claim where a person has to act. It should have a client
	// and a rate limit of its own. Default none.
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
func (c Config) rules() singlenode.Rules {
	return singlenode.Rules{UnmountGrace: c.UnmountGrace, DryRun: c.DryRun}
}

func (c Config) retries() controller.Backoff {
	return controller.Backoff{First: c.RetryStart, Max: c.RetryMax}
}

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.UnmountGrace < 0, "unmount grace: %v is negative", c.UnmountGrace)
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}
