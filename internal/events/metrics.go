package events

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// NewCounter returns a counter of reports with the label "reason". Each reason of all with Events has its series from
// the start, because a rate over a counter that appears with its first event misses that event.
func NewCounter[R reasons.Reason](opts prometheus.CounterOpts, all []R) *prometheus.CounterVec {
	counter := prometheus.NewCounterVec(opts, []string{"reason"})
	for _, reason := range all {
		if reason.About().Severity.EventType() != "" {
			counter.WithLabelValues(string(reason))
		}
	}
	return counter
}

// waiting is the metric of the waiting objects, counted on each scrape.
type waiting[R reasons.Reason] struct {
	*Recorder[R]
	desc *prometheus.Desc
}

// WaitingMetric returns a gauge of the waiting objects, by the label "reason".
func (r *Recorder[R]) WaitingMetric(name, help string, labels prometheus.Labels) prometheus.Collector {
	return waiting[R]{r, prometheus.NewDesc(name, help, []string{"reason"}, labels)}
}

// Describe implements prometheus.Collector.
func (w waiting[R]) Describe(descs chan<- *prometheus.Desc) { descs <- w.desc }

// Collect implements prometheus.Collector.
func (w waiting[R]) Collect(to chan<- prometheus.Metric) {
	for reason, count := range w.Waiting() {
		to <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, float64(count), string(reason))
	}
}

// Register registers metrics, or does nothing with a nil registerer.
func Register(to prometheus.Registerer, metrics ...prometheus.Collector) error {
	if to == nil {
		return nil
	}
	failed := make([]error, len(metrics))
	for i, metric := range metrics {
		failed[i] = to.Register(metric)
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}
