package inuse

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
)

type metrics struct {
	guard           *Guard
	writes, reports *prometheus.CounterVec
}

func newMetrics(g *Guard) *metrics {
	return &metrics{
		guard: g,
		writes: events.NewCounterBy(prometheus.CounterOpts{
			Name: "csi_reclaimer_protection_writes_total", ConstLabels: g.labels(),
			Help: "Finalizers that protect an object in use, added and removed.",
		}, "action", AddFinalizer.String(), RemoveFinalizer.String()),
		reports: events.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_protection_reports_total", ConstLabels: g.labels(),
			Help: "Events reported on objects, by reason.",
		}, Reasons()),
	}
}

func (g *Guard) labels() prometheus.Labels { return prometheus.Labels{"kind": g.name} }

func (m *metrics) wrote(a Action) { m.writes.WithLabelValues(a.String()).Inc() }

func (m *metrics) register(to prometheus.Registerer) error {
	return events.Register(to, m.writes, m.reports,
		m.guard.recorder.WaitingMetric("csi_reclaimer_protection_waiting",
			"Objects whose deletion or protection waits, by reason.", m.guard.labels()),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "csi_reclaimer_protection_alone", ConstLabels: m.guard.labels(),
			Help: "1 while it is proven that no other controller does this work.",
		}, func() float64 { return events.Bool(m.guard.tracker.isAlone()) }))
}
