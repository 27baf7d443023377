package fencing

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// MayKeepVolumes reports whether an agent may keep the node from volumes: it was started, or was about to be, and has
// not undone its fence.
func (f Fence) MayKeepVolumes() bool {
	return !f.returned() && slices.ContainsFunc(f.Status.Attempts, func(a v1alpha1.Attempt) bool {
		agent := f.agent(a.Agent)
		return a.UndoneAt == nil && (agent == nil || agent.Covers == v1alpha1.CoversVolumes)
	})
}

// Evidence returns the evidence that a fence gives about a pod.
func Evidence(f Fence, pod types.UID) objects.Fence {
	p := f.Status.Proof
	if p == nil || f.ended() || !f.is(v1alpha1.ConditionFenced) {
		return objects.Fence{}
	}
	attempt := find(&f.Status, p.Attempt)
	return objects.Fence{InForce: true, Coverage: p.Covers, Volumes: p.Volumes, BootID: p.BootID,
		SinceTerminating: slices.Contains(attempt.TerminatingPods, pod)}
}
