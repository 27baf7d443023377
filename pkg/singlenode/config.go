package singlenode

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Config holds the settings of a Controller, and is usable in its zero value.
type Config struct {
	// UnmountGrace is the delay for the unmount of the volumes of a completed pod, such as the pod of a Job, and defaults
	// to 30 seconds if 0.
	UnmountGrace time.Duration
	// Fences frees locks if a NodeFence keeps the node of a terminating pod from the volume. It needs the kind NodeFence
	// (deploy/manifests/node-fencing-crd.yaml). Default off: no NodeFence is read.
	Fences bool
	// DryRun decides and reports everything, and writes nothing.
	DryRun bool
	// Workers bounds the concurrent calls to the API server, and defaults to 10.
	Workers int
	// RetryStart and RetryMax bound the exponential backoff after a failed call, and default to 1 second and 5 minutes.
	RetryStart, RetryMax time.Duration
	// Events records on each pod the reason of its wait, and on the claim if a person has to act. The recorder should have
	// a client and a rate limit of its own. Default none.
	Events record.EventRecorder
	// Metrics is the registry of the package's metrics, none by default.
	Metrics prometheus.Registerer
	// Watches are shared with the other controllers of a program of this module. Default none: the watches are its own.
	Watches *kube.Watches
	// Clock is the real clock by default, and replaced in tests.
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

// Validate returns an error for every invalid setting.
func (c Config) Validate() error {
	var wrong settings.Wrong
	wrong.If(c.UnmountGrace < 0, "unmount grace: %v is negative", c.UnmountGrace)
	wrong.Workers(c.Workers)
	wrong.Retries(c.RetryStart, c.RetryMax)
	return wrong.Err()
}
