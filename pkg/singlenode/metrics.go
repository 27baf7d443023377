package singlenode

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/internal/panics"
)

type metrics struct {
	gated          prometheus.Histogram
	lists          prometheus.Counter
	freed, reports *prometheus.CounterVec
}

func newMetrics() metrics {
	return metrics{
		gated: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "csi_reclaimer_pod_gate_seconds",
			Help: "Time from the creation of a pod until volume-guard removed its scheduling gate. The API server records " +
				"creations to the second.",
			Buckets: []float64{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600},
		}),
		lists: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_single_node_lists_total",
			Help: "Lists of the pods of a namespace, before scheduling gates are removed. Pods that wait at once share them.",
		}),
		freed: events.NewCounterBy(prometheus.CounterOpts{
			Name: "csi_reclaimer_claim_locks_freed_total",
			Help: "Locks of claims that were freed, by reason.",
		}, "reason", singlenode.ReasonHolderGone, singlenode.ReasonHolderReleased, singlenode.ReasonHolderCompleted,
			singlenode.ReasonVolumeFenced, singlenode.ReasonLockDamaged),
		reports: events.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_single_node_reports_total",
			Help: "Events reported on pods with a scheduling gate, and on claims with a lock, by reason. A reason that " +
				"repeats with the same details counts once.",
		}, singlenode.Reasons()),
	}
}

func (c *Controller) register(to prometheus.Registerer) error {
	waiting := c.podReports.WaitingMetric("csi_reclaimer_gated_pods",
		"Pods that wait for the locks of their claims, by reason.", nil)
	// Some pod may always wait for a node, although each waits for a moment.
	oldest := c.claimReports.OldestMetric(locksMetric, "state")
	return events.Register(to, c.metrics.gated, c.metrics.lists, c.metrics.freed, c.metrics.reports, waiting, oldest,
		newInventory(c))
}

const locksMetric = "csi_reclaimer_claim_locks"

// newInventory returns the metric that counts the locks at each scrape.
func newInventory(c *Controller) prometheus.Collector {
	locks := prometheus.NewDesc(locksMetric,
		"Claims that have a lock, by its state: why it stays, or is about to be freed.", []string{"state"}, nil)
	return events.Gauges(func(set events.SetGauge) {
		now, states := c.cfg.Clock.Now(), map[singlenode.Reason]int{}
		// The registry collects in goroutines of its own, in which a panic over one claim would end the program.
		failed := panics.Contain(context.Background(), func() {
			c.observer.claims.Each(func(one *claim) {
				if one.marked() {
					states[singlenode.DecideLock(c.observer.lockFacts(one), now).Reason]++
				}
			})
		}, "part", "metrics of locks")
		if failed != nil {
			return // no count rather than a part of it
		}
		for state, count := range states {
			set(locks, float64(count), string(state))
		}
	}, locks)
}
