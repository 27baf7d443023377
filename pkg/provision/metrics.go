package provision

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	librarymetrics "sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/inflight"
)

// metrics are the metrics of provisioning: the ones of sig-storage-lib-external-provisioner, and ours.
type metrics struct {
	library             librarymetrics.Metrics
	discarded, finished prometheus.Counter
	own                 []prometheus.Collector
}

// newMetrics returns metrics that call working, log and now when they are collected.
func newMetrics(driver string, working func() int64, log func() inflight.Stats, now func() time.Time) *metrics {
	labels := prometheus.Labels{"driver_name": driver}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, ConstLabels: labels, Help: help})
	}
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, ConstLabels: labels, Help: help}, value)
	}
	m := &metrics{
		library: librarymetrics.New("controller"),
		discarded: counter("csi_reclaimer_unfit_volumes_deleted_total",
			"Volumes deleted before they had a PV, because they did not match the request."),
		finished: counter("csi_reclaimer_unsettled_volumes_stored_total",
			"Volumes whose CreateVolume was in doubt, and which got their PV later."),
	}
	m.own = []prometheus.Collector{
		m.discarded, m.finished,
		gauge("csi_reclaimer_provisions_in_progress", "Claims whose provisioning is being worked on at this moment.",
			func() float64 { return float64(working()) }),
		gauge("csi_reclaimer_in_flight_entries",
			"Volumes in the in-flight log: CreateVolume may have been called, and the outcome is not settled.",
			func() float64 { return float64(log().Open) }),
		gauge("csi_reclaimer_in_flight_oldest_seconds", "Age of the oldest entry of the in-flight log, 0 for none.",
			func() float64 {
				if oldest := log().Oldest; !oldest.IsZero() {
					return now().Sub(oldest).Seconds()
				}
				return 0
			}),
		gauge("csi_reclaimer_in_flight_fill_ratio",
			"How much of its room the fullest Lease of the in-flight log has used; from 0.875 on it takes no new volumes.",
			func() float64 { return log().Fill }),
		gauge("csi_reclaimer_in_flight_unreadable_entries", "Entries of the in-flight log that cannot be read.",
			func() float64 { return float64(log().Unreadable) }),
		gauge("csi_reclaimer_in_flight_unreadable_leases",
			"Leases of the in-flight log that cannot be used: copies, or written by a version that is not known.",
			func() float64 { return float64(log().ReadOnly) }),
		gauge("csi_reclaimer_in_flight_elsewhere_entries",
			"Volumes in flight in logs of the driver that csi-reclaimer does not read, such as in another namespace. 0 also "+
				"where it may not list Leases in all namespaces.",
			func() float64 { return float64(log().Elsewhere) }),
	}
	return m
}

// register registers the metrics except the library's figures of deletions: package reclaim deletes the volumes and
// counts them under the same names.
func (m *metrics) register(to prometheus.Registerer) error {
	return events.Register(to, append(m.own, m.library.PersistentVolumeClaimProvisionTotal,
		m.library.PersistentVolumeClaimProvisionFailedTotal, m.library.PersistentVolumeClaimProvisionDurationSeconds)...)
}
