package intree

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// metrics count what was done.
type metrics struct {
	deleted prometheus.Counter
	told    *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		deleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_intree_volumes_deleted_total",
			Help: "In-tree volumes that the PV controller deleted by way of a twin.",
		}),
		told: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "csi_reclaimer_intree_reports_total",
			Help: "What was told to people as Events on in-tree PVs, by reason.",
		}, []string{"reason"}),
	}
	// A rate over a counter that appears with its first event misses that event.
	for _, r := range Reasons() {
		if r.EventType() != "" {
			m.told.WithLabelValues(string(r))
		}
	}
	return m
}

// inventory counts PVs at the moment it is asked.
type inventory struct {
	observer *observer
	reports  *reports
	clock    clock.PassiveClock

	volumes, twins, waiting, oldest, managed *prometheus.Desc
}

func newInventory(o *observer, r *reports, c clock.PassiveClock) inventory {
	return inventory{
		observer: o, reports: r, clock: c,
		volumes: prometheus.NewDesc("csi_reclaimer_intree_pvs",
			"Provisioned in-tree PVs with reclaim policy Delete that are not migrated, by whether the finalizer protects them.", []string{"protected"}, nil),
		twins: prometheus.NewDesc("csi_reclaimer_intree_twins",
			"Second PVs by way of which volumes are being deleted.", nil, nil),
		waiting: prometheus.NewDesc("csi_reclaimer_intree_waiting_pvs",
			"In-tree PVs that are to be deleted and have to wait, by reason.", []string{"reason"}, nil),
		oldest: prometheus.NewDesc("csi_reclaimer_intree_oldest_terminating_pv_seconds",
			"Time since the deletion of the in-tree PV that is terminating for the longest time, 0 if there is none.", nil, nil),
		managed: prometheus.NewDesc("csi_reclaimer_intree_managed_by_other",
			"1 while another program, as kube-controller-manager from 1.31 on, is seen to manage the finalizer of in-tree PVs, so that volume-guard stands down.", nil, nil),
	}
}

// Describe names the figures.
func (i inventory) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{i.volumes, i.twins, i.waiting, i.oldest, i.managed} {
		descs <- desc
	}
}

// Collect counts.
func (i inventory) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	now := i.clock.Now().Unix()
	var protected, unprotected, twins int
	var oldest int64
	i.observer.pvs.Each(func(pv *PV) {
		if pv.looksLikeTwin() {
			twins++
		}
		if !pv.provisioned() {
			return
		}
		if pv.Terminating {
			oldest = max(oldest, now-pv.TerminatingSince)
		}
		switch {
		case pv.Policy != volume.PolicyDelete || pv.MigratedTo != "":
		case pv.Guard == WriterNone:
			unprotected++
		default:
			protected++
		}
	})
	gauge(i.volumes, float64(protected), "true")
	gauge(i.volumes, float64(unprotected), "false")
	gauge(i.twins, float64(twins))
	gauge(i.oldest, float64(oldest))
	gauge(i.managed, one(i.observer.notes.manages() == ManagesOther))
	for reason, count := range i.reports.Waiting() {
		gauge(i.waiting, float64(count), string(reason))
	}
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
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
