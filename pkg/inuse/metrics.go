package inuse

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the figures of one kind.
type metrics struct {
	guard        *Guard
	writes, told *prometheus.CounterVec
	waiting      *prometheus.Desc
	alone        *prometheus.Desc
}

func newMetrics(g *Guard) *metrics {
	kind := prometheus.Labels{"kind": g.name}
	m := &metrics{
		guard: g,
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "csi_reclaimer_protection_writes_total", ConstLabels: kind,
			Help: "Finalizers that protect an object in use, put on and taken off.",
		}, []string{"action"}),
		told: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "csi_reclaimer_protection_reports_total", ConstLabels: kind,
			Help: "What was told to people as Events, by reason.",
		}, []string{"reason"}),
		waiting: prometheus.NewDesc("csi_reclaimer_protection_waiting",
			"Objects that are to be deleted, or protected, and have to wait, by reason.", []string{"reason"}, kind),
		alone: prometheus.NewDesc("csi_reclaimer_protection_alone",
			"1 while it is proven that no other controller does this work.", nil, kind),
	}
	// A rate over a counter that appears with its first event misses that event.
	for _, a := range []Action{AddFinalizer, DropFinalizer} {
		m.writes.WithLabelValues(a.String())
	}
	for _, r := range Reasons() {
		if r.EventType() != "" {
			m.told.WithLabelValues(string(r))
		}
	}
	return m
}

func (m *metrics) tell(r Reason)  { m.told.WithLabelValues(string(r)).Inc() }
func (m *metrics) wrote(a Action) { m.writes.WithLabelValues(a.String()).Inc() }

// Describe tells which figures there are that are counted when asked for.
func (m *metrics) Describe(descs chan<- *prometheus.Desc) {
	descs <- m.waiting
	descs <- m.alone
}

// Collect counts them.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	for reason, count := range m.guard.reports.Waiting() {
		to <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(count), string(reason))
	}
	var alone float64
	if m.guard.notes.isAlone() {
		alone = 1
	}
	to <- prometheus.MustNewConstMetric(m.alone, prometheus.GaugeValue, alone)
}

func (m *metrics) register(to prometheus.Registerer) error {
	if to == nil {
		return nil
	}
	if err := errors.Join(to.Register(m.writes), to.Register(m.told), to.Register(m)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}
