package nodes

import (
	"slices"
	"time"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing/agents"
)

// addAdvice adds the actions open to a person, the safest first. It does not repeat the reason's sentence.
func addAdvice(s *explain.Explanation, f Facts, d fencing.Decision) {
	fence := f.active()
	switch {
	case fence != nil:
		f.adviseOnFence(s, fence, d)
	case f.Node.OK() && f.Node.Value == nil:
		s.Advise("Wait: held pods are released when nothing has been heard of the kubelet for %s", fencing.SilentAfter)
		s.Advise("If the machine still runs, bring its kubelet back: it creates the Node again, and ends the pods")
	case f.Node.OK() && !ready(f.Node.Value):
		f.adviseDown(s)
	}
}

// adviseDown covers a node that is down and has no fence.
func (f Facts) adviseDown(s *explain.Explanation) {
	s.Advise("Bring node %s back: its kubelet ends the pods that were deleted, and work continues by itself", f.Name)
	if f.Fence.OK() {
		for _, p := range f.Policies.Value {
			if selects(p, f.Node.Value) {
				s.Advise("To have it fenced now, by the agents of policy %s: kubectl reclaim fence %s --agents-of=%s "+
					"--reason=TEXT", p.Name, f.Name, p.Name)
			}
		}
		s.Advise("To have it fenced by agents of your own: kubectl reclaim fence %s -f agents.yaml --reason=TEXT", f.Name)
		s.Advise("If its machine is off, and stays off until you say so: kubectl reclaim fence %s --manual --reason=TEXT, "+
			"and then kubectl reclaim confirm node/%s --because=TEXT", f.Name, f.Name)
	} else {
		s.Advise("If its machine is off, and stays off until you remove the taint: kubectl taint nodes %s "+
			"%s=nodeshutdown:NoExecute", f.Name, v1.TaintNodeOutOfService)
	}
	ending := func(p explain.Pod) bool { return isHeld(p) && p.Ending() }
	if !f.Pods.OK() || slices.ContainsFunc(f.Pods.Value, ending) {
		s.Advise("If its machine does not exist any more, use one of the ways above first. Keep its Node until no held " +
			"pod ends there: a deleted Node cannot be fenced or tainted")
		return
	}
	s.Advise("If its machine does not exist any more: kubectl delete node %s", f.Name)
}

// adviseOnFence covers a fence that has not ended.
func (f Facts) adviseOnFence(s *explain.Explanation, fence *v1alpha1.NodeFence, d fencing.Decision) {
	if f.Guards.OK() && !explain.Led(f.Guards.Value, f.Now) {
		s.Advise("Start volume-guard with the controller node-fencing: without it, nothing is fenced, released or ended")
	} else if f.neglected(fence) {
		s.Advise("This fence has not been started: check that volume-guard runs with --controllers=*,node-fencing")
	}
	switch d.Reason {
	case fencing.ReasonWaitsForConfirmation:
		adviseByHand(s, fence)
	case fencing.ReasonFencing, fencing.ReasonAllAgentsFailed, fencing.ReasonAgentUnusable, fencing.ReasonAgentStopping:
		f.adviseOnAgents(s, fence)
	case fencing.ReasonHealthCheckGaveUp:
		s.Advise("To have its agents tried again: kubectl annotate nodefence %s %s-", f.Name, v1alpha1.AnnotationTimedOut)
		f.adviseOnAgents(s, fence)
	case fencing.ReasonReleased, fencing.ReasonFenced:
		f.adviseProven(s, fence, d)
	case fencing.ReasonNeedsReboot:
		s.Advise("Reboot the node, which ends the fence")
	case fencing.ReasonMachineReplaced:
		s.Advise("Find the machine that was fenced. Once no process of it can write: kubectl reclaim unfence %s, with "+
			"--abandon if there is nothing to undo", f.Name)
	case fencing.ReasonAwaitsReturn:
		s.Advise("Start the machine, if the agents do not. If it was rebooted and nothing shows it: "+
			"kubectl reclaim unfence %s", f.Name)
	case fencing.ReasonNodeRuns:
		s.Advise("Find out whether the machine runs: an agent has reported that it does not. If its processes write, their " +
			"replacements may write, too")
	case fencing.ReasonRemainsOnNode:
		s.Advise("See why each pod waits: kubectl reclaim pods -A")
	default:
	}
}

// adviseByHand adds the work of a person before the confirmation.
func adviseByHand(s *explain.Explanation, fence *v1alpha1.NodeFence) {
	if last := lastAttempt(fence.Status); last != nil {
		if agent := agentOf(fence.Spec, last.Agent); agent != nil && agent.Manual != nil && agent.Manual.Instructions != "" {
			s.Advise("Follow the instructions of agent %s: %s", agent.Name, oneLine(agent.Manual.Instructions))
		}
	}
	s.Advise("Once you know that no process there can write: kubectl reclaim confirm node/%s --because=TEXT", fence.Name)
}

// adviseProven adds the ways to end a fence in force.
func (f Facts) adviseProven(s *explain.Explanation, fence *v1alpha1.NodeFence, d fencing.Decision) {
	p := fence.Status.Proof
	if d.Action == fencing.Wait && p != nil && p.Covers == v1alpha1.CoversUntilUnfenced &&
		fence.Spec.Unfence != v1alpha1.UnfenceWhenReleased {
		s.Advise("If the agent keeps the node off, and is to start it when nothing from before remains: kubectl reclaim "+
			"unfence %s --when-released", f.Name)
	}
	s.Advise("If the node was rebooted, or its machine replaced, and nothing shows it: kubectl reclaim unfence %s",
		f.Name)
}

// adviseOnAgents adds the place to watch the agents, and the ways out if they fail.
func (f Facts) adviseOnAgents(s *explain.Explanation, fence *v1alpha1.NodeFence) {
	if last := lastAttempt(fence.Status); last != nil {
		if agent := agentOf(fence.Spec, last.Agent); agent != nil && agent.Job != nil {
			s.Advise("Inspect the Job of agent %s: kubectl describe job -n %s -l %s=%s", agent.Name, agent.Job.Namespace,
				agents.FenceLabel, fence.UID)
		}
	}
	s.Advise("If you know that no process there can write: kubectl reclaim confirm node/%s --because=TEXT", f.Name)
	s.Advise("To give it up: kubectl reclaim unfence %s", f.Name)
}

// neglectedAfter is the age at which a fence without finalizer is reported.
const neglectedAfter = time.Minute

// neglected reports whether volume-guard has not put its finalizer on the fence for neglectedAfter.
func (f Facts) neglected(fence *v1alpha1.NodeFence) bool {
	return !fencing.FenceOf(fence).Finalized && f.Now.Sub(fence.CreationTimestamp.Time) > neglectedAfter
}
