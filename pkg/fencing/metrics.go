package fencing

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

type metrics struct {
	attempts, reports *prometheus.CounterVec
	release           prometheus.Histogram
}

// buckets suit durations that include a patience of minutes.
var buckets = []float64{5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200}

func newMetrics() metrics {
	m := metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "csi_reclaimer_fence_attempts_total",
			Help: "Attempts of agents to fence a node, by the kind of agent and the result. An attempt that was proven and " +
				"then contradicted counts in both.",
		}, []string{"agent", "result"}),
		reports: events.NewCounter(prometheus.CounterOpts{
			Name: "csi_reclaimer_fence_reports_total",
			Help: "Events reported on NodeFences and FencePolicies, by reason. A reason that repeats counts once.",
		}, fencing.Reasons()),
		release: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "csi_reclaimer_fence_release_seconds",
			Help: "Time until the pods of a fenced node are replaced and its volumes detached (condition Released), since the " +
				"node was unreachable where a FencePolicy asked for the fence, else since the NodeFence was created.",
			Buckets: buckets,
		}),
	}
	// A counter that first appears with its first event would hide that event from rate().
	for _, agent := range []string{agentJob, agentRemediation, agentNetworkFence, agentManual, agentConfirmation} {
		for _, result := range []v1alpha1.Result{v1alpha1.ResultProven, v1alpha1.ResultFailed, v1alpha1.ResultTimedOut,
			v1alpha1.ResultCanceled, v1alpha1.ResultContradicted} {
			m.attempts.WithLabelValues(agent, string(result))
		}
	}
	return m
}

// Values of the label agent.
const (
	agentJob          = "job"
	agentRemediation  = "remediation"
	agentNetworkFence = "networkFence"
	agentManual       = "manual"
	agentConfirmation = "confirmation"
)

// kindOf returns the value of the label agent for an agent of a fence.
func kindOf(f fencing.Fence, name string) string {
	i := slices.IndexFunc(f.Spec.Agents, func(a v1alpha1.Agent) bool { return a.Name == name })
	switch {
	case i < 0:
		return agentConfirmation // the only agent that is not in the spec
	case f.Spec.Agents[i].Job != nil:
		return agentJob
	case f.Spec.Agents[i].Remediation != nil:
		return agentRemediation
	case f.Spec.Agents[i].NetworkFence != nil:
		return agentNetworkFence
	}
	return agentManual
}

// wrote counts the differences between the earlier status of a fence and the written one. began is the time at which
// the node became unreachable, or the fence was requested.
func (m metrics) wrote(f fencing.Fence, began time.Time, after *v1alpha1.NodeFenceStatus, now time.Time) {
	before := &f.Status
	for _, attempt := range after.Attempts {
		i := slices.IndexFunc(before.Attempts, func(a v1alpha1.Attempt) bool { return a.Number == attempt.Number })
		if attempt.Result != "" && (i < 0 || before.Attempts[i].Result != attempt.Result) {
			m.attempts.WithLabelValues(kindOf(f, attempt.Agent), string(attempt.Result)).Inc()
		}
	}
	released := func(s *v1alpha1.NodeFenceStatus) bool {
		return meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReleased)
	}
	if released(after) && !released(before) {
		m.release.Observe(max(now.Sub(began), 0).Seconds())
	}
}

func (c *Controller) register(to prometheus.Registerer) error {
	fences := prometheus.NewDesc("csi_reclaimer_node_fences", "NodeFences, by their phase.", []string{"phase"}, nil)
	return events.Register(to, c.metrics.attempts, c.metrics.reports, c.metrics.release,
		c.reports.WaitingMetric("csi_reclaimer_fence_waiting_nodes",
			"Nodes with a NodeFence that waits or works, by reason.", nil),
		c.policyReports.WaitingMetric("csi_reclaimer_fence_policies_waiting",
			"FencePolicies of which a step has failed, by reason.", nil),
		c.judgements.WaitingMetric("csi_reclaimer_fence_policy_waiting_nodes",
			"Nodes that are unreachable, and that a FencePolicy does not fence, by reason.", nil),
		events.Gauges(func(set events.SetGauge) {
			count := map[v1alpha1.Phase]int{}
			c.observer.fences.Each(func(f fencing.Fence) { count[phaseOf(f)]++ })
			for _, phase := range phases {
				set(fences, float64(count[phase]), string(phase))
			}
		}, fences))
}

var phases = []v1alpha1.Phase{v1alpha1.PhaseRequested, v1alpha1.PhaseFencing, v1alpha1.PhaseFailed,
	v1alpha1.PhaseFenced, v1alpha1.PhaseReleased, v1alpha1.PhaseUnfencing, v1alpha1.PhaseReturned}

func phaseOf(f fencing.Fence) v1alpha1.Phase {
	if f.Status.Phase == "" {
		return v1alpha1.PhaseRequested
	}
	return f.Status.Phase
}
