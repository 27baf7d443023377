package intree

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

type metrics struct {
	deleted prometheus.Counter
	reports *prometheus.CounterVec
}

func newMetrics() metrics {
	return metrics{
		deleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_intree_volumes_deleted_total",
			Help: "In-tree volumes that the PV controller deleted through a twin.",
		}),
		reports: events.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_intree_reports_total",
			Help: "Events reported on in-tree PVs, by reason. A reason that repeats counts once.",
		}, intree.Reasons()),
	}
}

func (c *Controller) register(to prometheus.Registerer) error {
	waiting := c.recorder.WaitingMetric("csi_reclaimer_intree_waiting_pvs",
		"In-tree PVs whose deletion waits, by reason.", nil)
	return events.Register(to, c.metrics.deleted, c.metrics.reports, waiting, inventory(c.observer, c.cfg.Clock))
}

// inventory counts PVs when it is scraped.
func inventory(o *observer, clock clock.PassiveClock) prometheus.Collector {
	volumes := prometheus.NewDesc("csi_reclaimer_intree_pvs",
		"Provisioned in-tree PVs with reclaim policy Delete that are not migrated, by whether the finalizer protects them.",
		[]string{"protected"}, nil)
	twins := prometheus.NewDesc("csi_reclaimer_intree_twins",
		"Second PVs through which volumes are being deleted.", nil, nil)
	oldest := prometheus.NewDesc("csi_reclaimer_intree_oldest_terminating_pv_seconds",
		"Time since the deletion of the in-tree PV that is terminating for the longest time, 0 if there is none.", nil, nil)
	managed := prometheus.NewDesc("csi_reclaimer_intree_managed_by_other",
		"1 while another program, as kube-controller-manager from 1.31 on, is seen to manage the finalizer of in-tree "+
			"PVs, so that volume-guard leaves them to it.", nil, nil)
	return events.Gauges(func(set events.SetGauge) {
		var protected, unprotected, second int
		var longest int64
		o.pvs.Each(func(pv *intree.PV) {
			if pv.LooksLikeTwin() {
				second++
			}
			if !pv.Provisioned() {
				return
			}
			if pv.Terminating {
				longest = max(longest, clock.Now().Unix()-pv.TerminatingSince)
			}
			switch {
			case pv.Policy != volume.PolicyDelete || pv.MigratedTo != "":
			case pv.Writer == intree.WriterNone:
				unprotected++
			default:
				protected++
			}
		})
		set(volumes, float64(protected), "true")
		set(volumes, float64(unprotected), "false")
		set(twins, float64(second))
		set(oldest, float64(longest))
		other, _ := o.other()
		set(managed, events.Bool(other == intree.OtherPresent))
	}, volumes, twins, oldest, managed)
}
