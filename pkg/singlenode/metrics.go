package singlenode

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

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
	m := metrics{
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
		freed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "csi_reclaimer_claim_locks_freed_total",
			Help: "Locks of claims that were freed, by reason.",
		}, []string{"reason"}),
		reports: events.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_single_node_reports_total",
			Help: "Events on pods with a scheduling gate, and on claims with a lock, by reason. A reason that repeats with " +
				"the same details counts once.",
		}, singlenode.Reasons()),
	}
	// A rate over a counter that appears with its first event misses that event.
	for _, reason := range []singlenode.Reason{singlenode.ReasonHolderGone, singlenode.ReasonHolderReleased,
		singlenode.ReasonHolderCompleted, singlenode.ReasonVolumeFenced, singlenode.ReasonLockDamaged} {
		m.freed.WithLabelValues(string(reason))
	}
	return m
}

func (c *Controller) register(to prometheus.Registerer) error {
	waiting := c.podReports.WaitingMetric("csi_reclaimer_gated_pods",
		"Pods that wait for the locks of their claims, by reason.", nil)
	return events.Register(to, c.metrics.gated, c.metrics.lists, c.metrics.freed, c.metrics.reports, waiting,
		newInventory(c))
}

// inventory counts the locks at each scrape.
type inventory struct {
	observer *observer
	clock    clock.PassiveClock
	locks    *prometheus.Desc
}

func newInventory(c *Controller) inventory {
	return inventory{c.observer, c.cfg.Clock, prometheus.NewDesc("csi_reclaimer_claim_locks",
		"Claims that have a lock, by its state: why it stays, or is about to be freed.", []string{"state"}, nil)}
}

// Describe implements prometheus.Collector.
func (i inventory) Describe(descs chan<- *prometheus.Desc) { descs <- i.locks }

// Collect implements prometheus.Collector.
func (i inventory) Collect(metrics chan<- prometheus.Metric) {
	now, states := i.clock.Now(), map[singlenode.Reason]int{}
	// The registry collects in goroutines of its own, in which a panic over one claim would end the program.
	failed := panics.Contain(context.Background(), func() {
		i.observer.claims.Each(func(c *claim) {
			if c.marked() {
				states[singlenode.DecideLock(i.observer.lockFacts(c), now).Reason]++
			}
		})
	}, "part", "metrics of locks")
	if failed != nil {
		return // no count rather than a part of it
	}
	for state, count := range states {
		metrics <- prometheus.MustNewConstMetric(i.locks, prometheus.GaugeValue, float64(count), string(state))
	}
}
