package fencing

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Shown is the evidence that a fence gives about one pod on its node. The zero value means that it gives none.
type Shown struct {
	// InForce reports that the fence is proven, not contradicted, and not about to end.
	InForce bool
	Covers  v1alpha1.Coverage
	// Volumes are the volumes that a fence of volumes covers.
	Volumes []v1alpha1.CoveredVolumes
	// TerminatingBefore reports that the pod was terminating before the agent was started.
	TerminatingBefore bool
	// BootID is the boot ID of the Node that the fence has ended.
	BootID string
}

// MayKeepVolumes reports whether an agent may keep the node from volumes: it was started, or was about to be, and has
// not undone its fence.
func (f Fence) MayKeepVolumes() bool {
	return !f.returned() && slices.ContainsFunc(f.Status.Attempts, func(a v1alpha1.Attempt) bool {
		agent := f.agent(a.Agent)
		return a.UndoneAt == nil && (agent == nil || agent.Covers == v1alpha1.CoversVolumes)
	})
}

// Evidence returns the evidence that a fence gives about a pod.
func Evidence(f Fence, pod types.UID) Shown {
	p := f.Status.Proof
	if p == nil || f.ended() || !f.is(v1alpha1.ConditionFenced) {
		return Shown{}
	}
	attempt := find(&f.Status, p.Attempt)
	return Shown{InForce: true, Covers: p.Covers, Volumes: p.Volumes, BootID: p.BootID,
		TerminatingBefore: slices.Contains(attempt.TerminatingPods, pod)}
}
