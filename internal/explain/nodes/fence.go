package nodes

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/plural"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// decider is the program that fences.
const decider = explain.VolumeGuard + ", controller node-fencing"

// undecided is the text for a decision whose next step is a read that failed here.
const undecided = "A fact that the next step depends on could not be read here, so that step is not known."

// decisionOf converts volume-guard's next step for a fence.
func decisionOf(d fencing.Decision) explain.Decision {
	e := explain.Decision{By: decider, Action: d.Action.String(), Reason: string(d.Reason), Text: d.Reason.Sentence()}
	switch {
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
			return leaving(f.Remaining.Leaving)
		}
		return remaining(f.Remaining.All)
	case fencing.ReasonUnfencing, fencing.ReasonUnfenceFailed:
		return "the agents to undo the fence"
	case fencing.ReasonReturned:
		return ""
	default:
	}
	if d.Action != fencing.Wait {
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
