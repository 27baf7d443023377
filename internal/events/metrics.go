package events

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// NewCounter returns a counter of reports with the label "reason", and a series for each reason of all with Events.
func NewCounter[R reasons.Reason](opts prometheus.CounterOpts, all []R) *prometheus.CounterVec {
	return NewCounterBy(opts, "reason", slices.DeleteFunc(slices.Clone(all), func(reason R) bool {
		return reason.About().Severity.EventType() == ""
	})...)
}

// NewCounterBy returns a counter with this label. The values have their series from the start, because a rate over a
// counter that appears with its first event misses that event.
func NewCounterBy[L ~string](opts prometheus.CounterOpts, label string, values ...L) *prometheus.CounterVec {
	counter := prometheus.NewCounterVec(opts, []string{label})
	for _, value := range values {
		counter.WithLabelValues(string(value))
	}
	return counter
}

// WaitingMetric returns a gauge of the waiting objects, and one of the age of their oldest wait, by the label "reason".
// Alerts are about the age: some object may always wait although each waits for a moment.
func (r *Recorder[R]) WaitingMetric(name, help string, labels prometheus.Labels) prometheus.Collector {
	count := prometheus.NewDesc(name, help, []string{"reason"}, labels)
	oldest := oldestOf(name, "reason", labels)
	return Gauges(func(set SetGauge) {
		for reason, of := range r.waiting() {
			set(count, float64(of.objects), string(reason))
			set(oldest, of.longest.Seconds(), string(reason))
		}
	}, count, oldest)
}

// OldestMetric returns a gauge of the age of the oldest wait, for objects that another metric counts by the reasons in
// this label. An object with a silent reason does not wait.
func (r *Recorder[R]) OldestMetric(metric, label string) prometheus.Collector {
	oldest := oldestOf(metric, label, nil)
	return Gauges(func(set SetGauge) {
		for reason, of := range r.waiting() {
			set(oldest, of.longest.Seconds(), string(reason))
		}
	}, oldest)
}

// oldestOf describes the age of the oldest wait among the objects of a metric, by this label.
func oldestOf(metric, label string, labels prometheus.Labels) *prometheus.Desc {
	return prometheus.NewDesc(metric+"_oldest_seconds", "Longest time for which one object of "+metric+" has had its "+
		label+", since this process leads.", []string{label}, labels)
}

// gauges implements prometheus.Collector with one function that sets all values.
type gauges struct {
	descs []*prometheus.Desc
	count func(set SetGauge)
}

// SetGauge sets a gauge with these values of its labels.
type SetGauge func(desc *prometheus.Desc, value float64, labels ...string)

// Gauges returns a collector of gauges, which count sets on each scrape.
func Gauges(count func(set SetGauge), descs ...*prometheus.Desc) prometheus.Collector {
	return gauges{descs, count}
}

// Describe implements prometheus.Collector.
func (g gauges) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range g.descs {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (g gauges) Collect(to chan<- prometheus.Metric) {
	g.count(func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	})
}

// Bool returns the value of a gauge that is 1 for yes.
func Bool(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// Register registers all metrics, or none with an error. It does nothing with a nil registerer.
func Register(to prometheus.Registerer, metrics ...prometheus.Collector) error {
	if to == nil {
		return nil
	}
	for i, metric := range metrics {
		if err := to.Register(metric); err != nil {
			for _, done := range metrics[:i] {
				to.Unregister(done)
			}
			return fmt.Errorf("register metrics: %w", err)
		}
	}
	return nil
}
