package controller

import (
	"cmp"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/settings"
)

// Settings are the settings that every controller of a cluster has; its Config embeds them. The zero value is usable.
type Settings struct {
	// DryRun decides and reports everything, and writes nothing.
	DryRun bool
	// Workers is the number of objects that are worked on concurrently, which also bounds the load on the API server.
	// Default 10.
	Workers int
	// RetryStart and RetryMax bound the delay after a failed call, which doubles each time. Default 1 second and 5
	// minutes.
	RetryStart, RetryMax time.Duration
	// Events records on objects why they wait. It should have its own client and rate limit. Default none.
	Events record.EventRecorder
	// Metrics is where the metrics of the controller are registered. Default none.
	Metrics prometheus.Registerer
	// Watches are shared with the other controllers of a program of this module. Default none: the watches are its own.
	Watches *kube.Watches
	// Clock is the real clock unless a test replaces it.
	Clock clock.WithTicker
}

// WithDefaults returns the settings with the defaults of the missing ones.
func (s Settings) WithDefaults() Settings {
	s.Workers = cmp.Or(s.Workers, 10)
	s.RetryStart, s.RetryMax = settings.Retries(s.RetryStart, s.RetryMax)
	s.Events = settings.Events(s.Events, s.DryRun)
	s.Clock = settings.Clock(s.Clock)
	return s
}

// Retries are the delays after failed calls.
func (s Settings) Retries() Backoff { return Backoff{First: s.RetryStart, Max: s.RetryMax} }

// Validate returns an error that names every invalid setting.
func (s Settings) Validate() error {
	var wrong settings.Wrong
	wrong.Workers(s.Workers)
	wrong.Retries(s.RetryStart, s.RetryMax)
	return wrong.Err()
}

// Queue returns a queue that c runs with this number of workers, at least one; name is its label in metrics.
func (s Settings) Queue(c *Controller, name string, workers int, reconcile Reconciler[string]) *Queue[string] {
	return newQueue(c, Config{Name: name, Workers: max(1, workers), Clock: s.Clock}, reconcile)
}

// Connect returns the clients of a controller for the cluster of config, which is copied. purpose begins the error if
// config is nil or a setting is invalid.
func Connect(purpose string, config *rest.Config, cfg interface{ Validate() error }) (kube.Clients, error) {
	if config == nil {
		return kube.Clients{}, fmt.Errorf("%s: nil rest.Config", purpose)
	}
	if err := cfg.Validate(); err != nil {
		return kube.Clients{}, fmt.Errorf("%s: %w", purpose, err)
	}
	return kube.NewClients(config)
}
