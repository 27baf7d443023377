package reclaim

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the figures of deletions. The names and the label are those of
// sig-storage-lib-external-provisioner, so that dashboards and alerts stay as they are.
type metrics struct {
	total, failed *prometheus.CounterVec
	duration      *prometheus.HistogramVec
}

func newMetrics() *metrics {
	class := []string{"class"}
	return &metrics{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "controller_persistentvolume_delete_total",
			Help: "Volumes deleted, by storage class.",
		}, class),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "controller_persistentvolume_delete_failed_total",
			Help: "Deletions of a volume that failed and are tried again, by storage class.",
		}, class),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "controller_persistentvolume_delete_duration_seconds",
			Help:    "Time the driver took to delete a volume, by storage class.",
			Buckets: prometheus.DefBuckets,
		}, class),
	}
}

func (m *metrics) deleted(pv PV, err error, took time.Duration) {
	if err != nil {
		m.failed.WithLabelValues(pv.StorageClass).Inc()
		return
	}
	m.total.WithLabelValues(pv.StorageClass).Inc()
	m.duration.WithLabelValues(pv.StorageClass).Observe(took.Seconds())
}

// inventory counts PVs at the moment it is asked.
type inventory struct {
	observer *observer
	reports  *reports

	volumes, waiting *prometheus.Desc
}

func newInventory(o *observer, r *reports) inventory {
	driver := prometheus.Labels{"driver_name": o.driver}
	return inventory{
		observer: o, reports: r,
		volumes: prometheus.NewDesc("csi_reclaimer_pvs",
			"Claimed PVs with reclaim policy Delete, by whether a finalizer protects them.", []string{"protected"}, driver),
		waiting: prometheus.NewDesc("csi_reclaimer_waiting_pvs",
			"PVs that are to be deleted and have to wait, by reason.", []string{"reason"}, driver),
	}
}

func (i inventory) Describe(descs chan<- *prometheus.Desc) {
	descs <- i.volumes
	descs <- i.waiting
}

func (i inventory) Collect(metrics chan<- prometheus.Metric) {
	var protected, unprotected int
	i.observer.pvs.Each(func(pv *PV) {
		switch {
		case !pv.ownedBy(i.observer.driver) || pv.Policy != PolicyDelete || !pv.claimed():
		case pv.Protected():
			protected++
		default:
			unprotected++
		}
	})
	metrics <- prometheus.MustNewConstMetric(i.volumes, prometheus.GaugeValue, float64(protected), "true")
	metrics <- prometheus.MustNewConstMetric(i.volumes, prometheus.GaugeValue, float64(unprotected), "false")
	for reason, count := range i.reports.waiting() {
		metrics <- prometheus.MustNewConstMetric(i.waiting, prometheus.GaugeValue, float64(count), string(reason))
	}
}

func register(to prometheus.Registerer, collectors ...prometheus.Collector) error {
	if to == nil {
		return nil
	}
	var failed []error
	for _, c := range collectors {
		failed = append(failed, to.Register(c))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}
