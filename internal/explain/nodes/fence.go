package nodes

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing/agents"
)

// decider is the program that fences.
const decider = explain.VolumeGuard + ", controller node-fencing"

// undecided is the text for a decision whose next step is a read that failed here.
const undecided = "A fact that the next step depends on could not be read here, so that step is not known."

// decisionOf converts volume-guard's next step for a fence.
func decisionOf(d fencing.Decision) explain.Decision {
	e := explain.Decision{By: decider, Action: d.Action.String(), Reason: string(d.Reason), Text: d.Reason.Sentence()}
	switch {
	case d.RecordsWait: // people look for the wait, and not for its record
		e.Action = fencing.Wait.String()
	case d.Action == fencing.ReadRun: // the object of an agent is not read here
		e.Action = ""
	case d.Action.Kind() == session.Reads:
		e.Action, e.Reason, e.Text = "", string(fencing.ReasonAPIReadFailed), undecided
	}
	return e
}

// waitsFor returns a fence's phrase after "waits for", empty if it waits for nothing.
func waitsFor(f fencing.Facts, d fencing.Decision, now time.Time) string {
	switch d.Reason {
	case fencing.ReasonFencing, fencing.ReasonWaitsForConfirmation, fencing.ReasonAgentStopping,
		fencing.ReasonAgentUnusable:
		return attemptWaits(f, d, now)
	case fencing.ReasonAllAgentsFailed:
		return "the next try of all agents" + within(d.After)
	case fencing.ReasonRemainsOnNode:
		if f.Back() {
			return leaving(f.Leaving())
		}
		return remaining(f.Remaining.All)
	case fencing.ReasonUnfencing, fencing.ReasonUnfenceFailed:
		return "the agents to undo the fence"
	case fencing.ReasonReturned:
		return ""
	default:
	}
	if d.Action != fencing.Wait && !d.RecordsWait {
		return "volume-guard"
	}
	return waitWords()[d.Reason]
}

// waitWords maps reasons that need no other fact to waitsFor's result.
func waitWords() map[fencing.Reason]string {
	const boot = "the node to boot again"
	return map[fencing.Reason]string{
		fencing.ReasonControlPlane:      "spec.allowControlPlane: it is a node of the control plane",
		fencing.ReasonNodeNotFound:      "a Node of this name",
		fencing.ReasonHealthCheckGaveUp: "a person, or another remediator: a node health check has given it up",
		fencing.ReasonNodeStillReady:    "the node to become NotReady",
		fencing.ReasonNodeRuns:          "the node to stop: it still renews its Lease",
		fencing.ReasonAwaitsVolumeList:  "a list of all VolumeAttachments",
		fencing.ReasonNeedsReboot:       "the node to be rebooted",
		fencing.ReasonMachineReplaced:   "a person: another machine may have the name of the node",
		fencing.ReasonNodeDeleted:       "the end of the fence: its Node was deleted",
		fencing.ReasonFenced:            boot,
		fencing.ReasonReleased:          boot,
		fencing.ReasonAwaitsReturn:      boot,
	}
}

func attemptWaits(f fencing.Facts, d fencing.Decision, now time.Time) string {
	last := lastAttempt(f.Fence.Status)
	if last == nil || last.EndedAt != nil {
		return "volume-guard to start the next agent"
	}
	agent := agentOf(f.Fence.Spec, last.Agent)
	if agent == nil {
		return "agent " + last.Agent
	}
	left := within(agent.Timeout.Duration - now.Sub(last.StartedAt.Time))
	if agent.Manual != nil && d.Reason == fencing.ReasonWaitsForConfirmation {
		return "a person to confirm that no process writes there" + left
	}
	return "agent " + last.Agent + left
}

// within formats a time limit, empty if it has passed.
func within(left time.Duration) string {
	if left <= 0 {
		return ""
	}
	return ", " + left.Round(time.Second).String() + " at most"
}

// leaving describes the pods and volumes that are about to leave a node; remaining describes all that are left.
func leaving(r fencing.Remains) string {
	return both(r, plural.Count(r.Pods, "held pod"), plural.Count(r.VolumeAttachments, "volume")+" to be detached")
}

func remaining(r fencing.Remains) string {
	return both(r, plural.Count(r.Pods, "pod")+" with claims", plural.Count(r.VolumeAttachments, "attached volume"))
}

func both(r fencing.Remains, pods, volumes string) string {
	switch {
	case r.VolumeAttachments == 0:
		return pods
	case r.Pods == 0:
		return volumes
	}
	return pods + " and " + volumes
}

// lastAttempt returns the attempt that began last, nil for none.
func lastAttempt(s v1alpha1.NodeFenceStatus) *v1alpha1.Attempt {
	if len(s.Attempts) == 0 {
		return nil
	}
	return &s.Attempts[len(s.Attempts)-1]
}

func agentOf(s v1alpha1.NodeFenceSpec, name string) *v1alpha1.Agent {
	i := slices.IndexFunc(s.Agents, func(a v1alpha1.Agent) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return &s.Agents[i]
}

func agentWords(a *v1alpha1.Agent) string {
	return fmt.Sprintf("%s, covers %s", how(a), a.Covers)
}

func how(a *v1alpha1.Agent) string {
	switch {
	case a.Job != nil:
		return fmt.Sprintf("Job of PodTemplate %s/%s", a.Job.Namespace, a.Job.PodTemplateName)
	case a.Remediation != nil:
		return fmt.Sprintf("%s %s/%s", a.Remediation.Kind, a.Remediation.Namespace, a.Remediation.Name)
	case a.NetworkFence != nil:
		return fmt.Sprintf("NetworkFence of driver %s, class %s", a.NetworkFence.Driver,
			a.NetworkFence.NetworkFenceClassName)
	case a.Manual != nil:
		return "a person's confirmation"
	}
	return "nothing"
}

func attemptWords(spec v1alpha1.NodeFenceSpec, a v1alpha1.Attempt, now time.Time) string {
	text := fmt.Sprintf("%d, agent %s", a.Number, a.Agent)
	if agent := agentOf(spec, a.Agent); agent != nil {
		text += " (" + agentWords(agent) + ")"
	}
	if a.EndedAt == nil {
		text += ": began " + explain.Age(now, a.StartedAt.Time) + " ago, no result yet"
	} else {
		text += fmt.Sprintf(": %s after %s, %s ago", a.Result, explain.Age(a.EndedAt.Time, a.StartedAt.Time),
			explain.Age(now, a.EndedAt.Time))
	}
	if a.UndoneAt != nil {
		text += ", undone " + explain.Age(now, a.UndoneAt.Time) + " ago"
	}
	if a.Message != "" {
		text += ": " + oneLine(a.Message)
	}
	return text
}

// askedBy returns the FencePolicy or the field manager that created a fence.
func askedBy(o *v1alpha1.NodeFence) string {
	if o.Spec.PolicyName != "" {
		return "FencePolicy " + o.Spec.PolicyName
	}
	i := slices.IndexFunc(o.ManagedFields, func(e metav1.ManagedFieldsEntry) bool { return e.Subresource == "" })
	if i < 0 {
		return "an unknown client"
	}
	return o.ManagedFields[i].Manager
}

// addAdvice adds the actions open to a person, the safest first. It does not repeat the reason's sentence.
func addAdvice(s *explain.Explanation, f Facts, d fencing.Decision) {
	fence := f.active()
	switch {
	case fence != nil:
		f.adviseOnFence(s, fence, d)
	case f.Node.OK() && f.Node.Value == nil:
		f.adviseGone(s)
	case f.Node.OK() && !explain.IsReady(f.Node.Value):
		f.adviseDown(s)
	}
}

// adviseGone covers a Node that does not exist. The end of a pod that its kubelet was ending has no other evidence than
// the kubelet's report, or a confirmation.
func (f Facts) adviseGone(s *explain.Explanation) {
	s.Advise("Wait: held pods without the reason %s are released when nothing has been heard of the kubelet for %s",
		podsafety.ReasonNodeGoneDuringEnd, fencing.SilentAfter)
	s.Advise("If the machine still runs, bring its kubelet back: it creates the Node again, and ends the pods")
	if f.mayEndPods() {
		s.Advise("If the machine does not exist any more, a pod with this reason needs your confirmation: kubectl reclaim " +
			"delete-pod NAME -n NAMESPACE --force")
	}
}

// mayEndPods reports whether the kubelet was ending a held pod, as far as pods were read.
func (f Facts) mayEndPods() bool {
	return !f.Pods.OK() || slices.ContainsFunc(f.Pods.Value, func(p explain.Pod) bool { return isHeld(p) && p.Ending() })
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
	if f.mayEndPods() {
		s.Advise("If its machine does not exist any more, use one of the ways above first. Keep its Node until no held " +
			"pod ends there: a deleted Node cannot be fenced or tainted")
		return
	}
	s.Advise("If its machine does not exist any more: kubectl delete node %s", f.Name)
}

// adviseOnFence covers a fence that has not ended.
func (f Facts) adviseOnFence(s *explain.Explanation, fence *v1alpha1.NodeFence, d fencing.Decision) {
	if explain.GuardIsAway(f.Guards, f.Now) {
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
			// Only people who may fence nodes write instructions.
			s.Advise("Follow the instructions of agent %s: %s", agent.Name,
				explain.Command(oneLine(agent.Manual.Instructions)))
		}
	}
	s.Advise("Once you know that no process there can write: kubectl reclaim confirm node/%s --because=TEXT", fence.Name)
}

// adviseProven adds the ways to end a fence in force.
func (f Facts) adviseProven(s *explain.Explanation, fence *v1alpha1.NodeFence, d fencing.Decision) {
	p := fence.Status.Proof
	if (d.Action == fencing.Wait || d.RecordsWait) && p != nil && p.Covers == v1alpha1.CoversUntilUnfenced &&
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
