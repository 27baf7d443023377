package provision

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	librarymetrics "sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller/metrics"
)

// metrics are the figures of provisioning: the library's own, under its names, and ours.
type metrics struct {
	library librarymetrics.Metrics
	cleaned prometheus.Counter
	own     []prometheus.Collector
}

// newMetrics returns metrics that ask inFlight and unknown when they are read.
func newMetrics(driver string, inFlight, unknown func() int) *metrics {
	labels := prometheus.Labels{"driver_name": driver}
	m := &metrics{
		library: librarymetrics.New("controller"),
		cleaned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_half_made_volumes_deleted_total", ConstLabels: labels,
			Help: "Volumes deleted that never had a PV, as their claim needed none any more.",
		}),
	}
	m.own = []prometheus.Collector{
		m.cleaned,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "csi_reclaimer_provisions_in_flight", ConstLabels: labels,
			Help: "Claims whose provisioning is being worked on at this moment.",
		}, func() float64 { return float64(inFlight()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "csi_reclaimer_provisioning_outcome_unknown", ConstLabels: labels,
			Help: "Claims that are held, as it cannot be found out whether a volume was made for them.",
		}, func() float64 { return float64(unknown()) }),
	}
	return m
}

// register makes the metrics known. The library's figures of deletions are left out: its volumes
// are deleted by package reclaim, which counts them under the same names.
func (m *metrics) register(to prometheus.Registerer) error {
	if to == nil {
		return nil
	}
	var failed []error
	for _, c := range append(m.own, m.library.PersistentVolumeClaimProvisionTotal,
		m.library.PersistentVolumeClaimProvisionFailedTotal, m.library.PersistentVolumeClaimProvisionDurationSeconds) {
		failed = append(failed, to.Register(c))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}
