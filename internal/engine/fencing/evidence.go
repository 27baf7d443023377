package fencing

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Shown is what a fence shows about one pod on its node. The zero value: nothing.
type Shown struct {
	// InForce: the fence is proven, nobody has begun to end it, and nothing contradicts the proof.
	InForce bool
	Covers  v1alpha1.Coverage
	// Volumes are what a fence of volumes covers.
	Volumes []v1alpha1.CoveredVolumes
	// TerminatingBefore: the pod was terminating before the agent was started.
	TerminatingBefore bool
	// BootID is the boot ID of the Node that the fence has ended.
	BootID string
}

// MayKeepVolumes reports whether an agent may keep the node from volumes: one that does so was about to be started, and
// has not undone it.
func (f Fence) MayKeepVolumes() bool {
	return !f.returned() && slices.ContainsFunc(f.Status.Attempts, func(a v1alpha1.Attempt) bool {
		agent := f.agent(a.Agent)
		return a.UndoneAt == nil && (agent == nil || agent.Covers == v1alpha1.CoversVolumes)
	})
}

// Evidence returns what a fence shows about a pod.
func Evidence(f Fence, pod types.UID) Shown {
	p := f.Status.Proof
	if p == nil || f.ended() || !f.is(v1alpha1.ConditionFenced) {
		return Shown{}
	}
	attempt := find(&f.Status, p.Attempt)
	return Shown{InForce: true, Covers: p.Covers, Volumes: p.Volumes, BootID: p.BootID,
		TerminatingBefore: slices.Contains(attempt.TerminatingPods, pod)}
}
