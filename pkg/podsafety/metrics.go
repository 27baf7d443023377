package podsafety

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
)

type metrics struct {
	added, lockErrors               prometheus.Counter
	released, forceDeleted, reports *prometheus.CounterVec
}

func newMetrics() metrics {
	evidence := slices.DeleteFunc(podsafety.Reasons(), func(r podsafety.Reason) bool { return !podsafety.Evidence(r) })
	return metrics{
		added: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_pod_safety_finalizers_added_total",
			Help: "Pods that got the finalizer after they were created. The API server adds it to new pods where the " +
				"admission policy or webhook is installed.",
		}),
		lockErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_pod_safety_volume_lock_errors_total",
			Help: "Failures to read or write VolumeLocks. Until they stop, volumes can be attached to another node.",
		}),
		released: events.NewCounterBy(prometheus.CounterOpts{
			Name: "csi_reclaimer_pod_safety_released_total",
			Help: "Pods that were released, by the evidence that none of their processes run.",
		}, "evidence", evidence...),
		forceDeleted: events.NewCounterBy(prometheus.CounterOpts{
			Name: "csi_reclaimer_pod_safety_force_deletions_total",
			Help: "Pods that volume-guard deleted with a grace period of 0, by the reason.",
		}, "reason", append(evidence, podsafety.ReasonOrphaned)...),
		reports: events.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_pod_safety_reports_total",
			Help: "Events reported on held pods, by reason. A reason that repeats counts once.",
		}, podsafety.Reasons()),
	}
}

func (c *Controller) register(to prometheus.Registerer) error {
	waiting := c.recorder.WaitingMetric("csi_reclaimer_pod_safety_waiting_pods",
		"Pods that are terminating and held, by reason.", nil)
	return events.Register(to, c.metrics.added, c.metrics.lockErrors, c.metrics.released, c.metrics.forceDeleted,
		c.metrics.reports, waiting, newInventory(c))
}

// newInventory returns the metrics that count pods and locks whenever they are scraped.
func newInventory(c *Controller) prometheus.Collector {
	held := prometheus.NewDesc("csi_reclaimer_pod_safety_held_pods",
		"Pods with the finalizer, by whether they are terminating.", []string{"terminating"}, nil)
	oldest := prometheus.NewDesc("csi_reclaimer_pod_safety_oldest_waiting_pod_seconds",
		"Time since the grace period ended of the held pod that waits for the longest time, 0 if there is none.", nil, nil)
	locks := prometheus.NewDesc("csi_reclaimer_pod_safety_volume_locks",
		"Volumes that may be attached to no other node: a held pod is terminating on a node that is not Ready, or its "+
			"unmount is overdue.", nil,
		nil)
	return events.Gauges(func(set events.SetGauge) {
		now := c.cfg.Clock.Now()
		var running, terminating int
		var longest float64
		c.observer.pods.Each(func(p *pod) {
			switch {
			case p.waits():
				terminating++
				longest = max(longest, now.Sub(p.all.GraceEnds).Seconds())
			case p.held:
				running++
			}
		})
		set(held, float64(running), "false")
		set(held, float64(terminating), "true")
		set(oldest, longest)
		set(locks, float64(c.volumeLocks.count()))
	}, held, oldest, locks)
}
