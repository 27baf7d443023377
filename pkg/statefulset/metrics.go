package statefulset

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
)

type metrics struct {
	claimsDeleted, podsDeleted, woken prometheus.Counter
	reports                           *prometheus.CounterVec
}

func newMetrics() metrics {
	return metrics{
		claimsDeleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_statefulset_claims_deleted_total",
			Help: "Claims that volume-guard deleted because their replica was scaled away. kube-controller-manager and the " +
				"garbage collector delete others.",
		}),
		podsDeleted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_statefulset_pods_deleted_total",
			Help: "Pods that volume-guard deleted because they were created with a claim that was being deleted.",
		}),
		woken: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_statefulset_wakes_total",
			Help: "Writes to a StatefulSet that lacked a pod, so that its controller creates the pod.",
		}),
		reports: events.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_statefulset_reports_total",
			Help: "Events reported on claims and StatefulSets, by reason. A reason that repeats counts once.",
		}, statefulset.Reasons()),
	}
}

func (m metrics) wrote(action statefulset.Action) {
	switch action {
	case statefulset.DeleteClaim:
		m.claimsDeleted.Inc()
	case statefulset.DeletePod:
		m.podsDeleted.Inc()
	default:
	}
}

func (c *Controller) register(to prometheus.Registerer) error {
	return events.Register(to, c.metrics.claimsDeleted, c.metrics.podsDeleted, c.metrics.woken, c.metrics.reports,
		c.claimReports.WaitingMetric("csi_reclaimer_statefulset_waiting_claims",
			"Claims that the retention policy of their StatefulSet deletes, and that wait, by reason.", nil),
		c.setReports.WaitingMetric("csi_reclaimer_statefulset_waiting_sets",
			"StatefulSets that lack a pod, or whose retention policy is not carried out, by reason.", nil))
}
