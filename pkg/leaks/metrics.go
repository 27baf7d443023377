package leaks

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
)

// inventory reports the tracker's state at each scrape.
type inventory struct {
	tracker *tracker

	leaks, bytes, volumes, last, failures *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (i inventory) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{i.leaks, i.bytes, i.volumes, i.last, i.failures} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (i inventory) Collect(metrics chan<- prometheus.Metric) {
	all, last := i.tracker.state()
	var leaks, bytes int64
	by := map[Reason]int{}
	for _, u := range all {
		by[u.verdict.Reason]++
		if u.verdict.Suspected {
			leaks++
			bytes = max(bytes, bytes+u.volume.Bytes)
		}
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(i.leaks, float64(leaks))
	gauge(i.bytes, float64(bytes))
	for _, reason := range Reasons() {
		gauge(i.volumes, float64(by[reason]), string(reason))
	}
	completed := 0.0
	if !last.completed.IsZero() {
		completed = float64(last.completed.UnixMilli()) / 1000
	}
	gauge(i.last, completed)
	metrics <- prometheus.MustNewConstMetric(i.failures, prometheus.CounterValue, float64(last.failed))
}

func (a *Controller) register(to prometheus.Registerer) error {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, prometheus.Labels{"driver_name": a.name})
	}
	return events.Register(to, inventory{a.tracker,
		desc("csi_reclaimer_suspected_leaks", "Volumes for which nothing in the cluster accounts."),
		desc("csi_reclaimer_suspected_leak_bytes", "Size of these volumes, as far as the driver reports it."),
		desc("csi_reclaimer_unaccounted_volumes", "Volumes without a PV, by verdict of the leak check.", "reason"),
		desc("csi_reclaimer_leak_check_last_complete_timestamp_seconds",
			"When the last complete leak check ended, in seconds since 1970, 0 if there was none."),
		desc("csi_reclaimer_leak_check_failures_total", "Leak checks that could not be completed."),
	})
}
