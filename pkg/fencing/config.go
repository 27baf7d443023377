package fencing

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Config holds the settings of a Controller. The zero value is usable.
type Config struct {
	// KeepReturned is how long a NodeFence is kept after its node has returned. Default 1 hour; 0 is the default.
	KeepReturned time.Duration
	// SilentAfter is how long a node that runs takes at most to renew its Lease: nodeLeaseDurationSeconds of the kubelet,
	// and node-monitor-grace-period of kube-controller-manager before Kubernetes 1.32. Default 40 seconds, and no less: a
	// shorter one takes nodes that run for fenced ones, and releases what they still write to. A test, which has a Clock
	// of its own, may set any.
	SilentAfter time.Duration
	// DryRun decides and reports everything, and writes nothing.
	DryRun bool
	// Workers is how many NodeFences are worked on at once, which also bounds the load on the API server. Default 10.
	Workers int
	// RetryStart and RetryMax bound the delay, doubled each time, after a call that failed. Default 1 second and 5
	// minutes.
	RetryStart, RetryMax time.Duration
	// Events records what is done on the NodeFence and its Node, and on the FencePolicy. It should have a client and a
	// rate limit of its own. Default none.
	Events record.EventRecorder
	// Metrics is where the package's metrics are registered. Default nowhere.
	Metrics prometheus.Registerer
	// Clock is replaced in tests. Default the real one.
	Clock clock.WithTicker
}

func (c Config) withDefaults() Config {
	c.KeepReturned = cmp.Or(c.KeepReturned, DefaultKeepReturned)
	c.SilentAfter = cmp.Or(c.SilentAfter, fencing.SilentAfter)
	c.Workers = cmp.Or(c.Workers, 10)
	c.RetryStart, c.RetryMax = settings.Retries(c.RetryStart, c.RetryMax)
	c.Events = settings.Events(c.Events, c.DryRun)
	c.Clock = settings.Clock(c.Clock)
	return c
}

// rules returns the settings that decisions depend on.
func (c Config) rules() fencing.Rules {
	return fencing.Rules{KeepReturned: c.KeepReturned, SilentAfter: c.SilentAfter, DryRun: c.DryRun}
}

func (c Config) retries() controller.Backoff {
	return controller.Backoff{First: c.RetryStart, Max: c.RetryMax}
}

// Validate returns every setting that is wrong.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.KeepReturned < 0, "time to keep NodeFences: %v is negative", c.KeepReturned)
	wrong.If(c.SilentAfter < 0 || c.Clock == nil && c.SilentAfter != 0 && c.SilentAfter < fencing.SilentAfter,
		"time until a node counts as silent: %v is less than %v", c.SilentAfter, fencing.SilentAfter)
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}
