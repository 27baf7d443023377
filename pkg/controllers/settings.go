// Package controllers has the settings that the controllers of volume-guard share: those of pkg/podsafety,
// pkg/singlenode, pkg/statefulset, pkg/fencing, pkg/intree and pkg/inuse.
//
// Stability: for the programs of this repository. It may change with each release.
package controllers

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	// Watches are shared with the other controllers of a program. Their type is internal, so they are nil outside of this
	// module. Default none: the controller has its own watches.
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

// Validate returns an error that names every invalid setting.
func (s Settings) Validate() error {
	var wrong settings.Wrong
	wrong.Workers(s.Workers)
	wrong.Retries(s.RetryStart, s.RetryMax)
	return wrong.Err()
}
