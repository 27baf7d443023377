package fencing

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Reason is the reason of a decision, and Sentence returns its meaning. The same word is the reason of Events and
// conditions, a value in the log and a label of the metrics.
type Reason string

// Reasons of a fence, in the order of its life.
const (
	ReasonNoFence              Reason = "NoFence"
	ReasonRequested            Reason = "Requested"
	ReasonFencing              Reason = "Fencing"
	ReasonAgentDeletesPods     Reason = "AgentDeletesPods"
	ReasonWaitsForConfirmation Reason = "WaitsForConfirmation"
	ReasonNodeNotFound         Reason = "NodeNotFound"
	ReasonControlPlane         Reason = "ControlPlaneNode"
	ReasonAgentFailed          Reason = "AgentFailed"
	ReasonAgentTimedOut        Reason = "AgentTimedOut"
	ReasonAgentStopping        Reason = "AgentStopping"
	ReasonAgentCanceled        Reason = "AgentCanceled"
	ReasonAllAgentsFailed      Reason = "AllAgentsFailed"
	ReasonHealthCheckGaveUp    Reason = "HealthCheckGaveUp"
	ReasonFenced               Reason = "Fenced"
	ReasonNodeStillReady       Reason = "NodeStillReady"
	ReasonNodeDeleted          Reason = "NodeDeleted"
	ReasonNodeRuns             Reason = "NodeRuns"
	ReasonContradicted         Reason = "ProofContradicted"
	ReasonReleased             Reason = "Released"
	ReasonRemainsOnNode        Reason = "RemainsOnNode"
	ReasonUnfencing            Reason = "Unfencing"
	ReasonUnfenceFailed        Reason = "UnfenceFailed"
	ReasonAwaitsReturn         Reason = "AwaitsReturn"
	ReasonNeedsReboot          Reason = "NeedsReboot"
	ReasonMachineReplaced      Reason = "MachineReplaced"
	ReasonTaintRemains         Reason = "TaintRemains"
)

// Reasons why a fence has ended.
const (
	ReasonNodeReady Reason = "NodeReady"
	ReasonNodeGone  Reason = "NodeGone"
	ReasonRebooted  Reason = "NodeRebooted"
	ReasonEnded     Reason = "EndedByRequest"
	ReasonReturned  Reason = "Returned"
)

// Reasons of a policy about a node that is unreachable.
const (
	ReasonUnreachable      Reason = "Unreachable"
	ReasonFenceExists      Reason = "FenceExists"
	ReasonNothingWaits     Reason = "NothingWaits"
	ReasonPatience         Reason = "Patience"
	ReasonTolerated        Reason = "Tolerated"
	ReasonLimitReached     Reason = "LimitReached"
	ReasonZoneLimitReached Reason = "ZoneLimitReached"
	ReasonWouldFence       Reason = "WouldFence"
	ReasonViewLost         Reason = "ViewLost"
	ReasonManyUnreachable  Reason = "ManyUnreachable"
	ReasonZoneUnreachable  Reason = "ZoneUnreachable"
)

// Reasons that only the execution of a step finds.
const (
	ReasonAPIReadFailed  Reason = "APIReadFailed"
	ReasonAPIWriteFailed Reason = "APIWriteFailed"
	ReasonAgentUnusable  Reason = "AgentUnusable"
	ReasonDryRun         Reason = "DryRun"
)

// table has a row for every reason, in the order of their declaration.
var table = reasons.NewTable([]reasons.Row[Reason]{
	{Reason: ReasonNoFence, Sentence: "The node has no fence."},
	{Reason: ReasonRequested, Severity: reasons.Normal, Sentence: "The node is to be fenced."},
	{Reason: ReasonFencing, Severity: reasons.Normal, Sentence: "An agent fences the node, and has no result yet."},
	{Reason: ReasonAgentDeletesPods, Severity: reasons.Warning,
		Sentence: "The remediator force-deletes all pods of the node before it says that it has succeeded, and stops where " +
			"pod safety refuses that: set spec.template.spec.remediationStrategy of its template to OutOfServiceTaint."},
	{Reason: ReasonWaitsForConfirmation, Severity: reasons.Warning,
		Sentence: "The fence waits for a person: make sure that no process on the node can write, and then say so: " +
			"kubectl reclaim confirm."},
	{Reason: ReasonNodeNotFound, Severity: reasons.Warning,
		Sentence: "There is no Node of this name, so there is nothing to fence. Check the name, which is that of the " +
			"NodeFence: kubectl reclaim unfence ends it."},
	{Reason: ReasonControlPlane, Severity: reasons.Warning,
		Sentence: "The node is one of the control plane and is not fenced: set spec.allowControlPlane if you mean it."},
	{Reason: ReasonAgentFailed, Severity: reasons.Warning,
		Sentence: "An agent could not fence the node. Nothing is released; the next agent is tried."},
	{Reason: ReasonAgentTimedOut, Severity: reasons.Warning,
		Sentence: "An agent had no result in its time, and was stopped. Nothing is released; the next agent is tried."},
	{Reason: ReasonAgentStopping, Severity: reasons.Counted,
		Sentence: "An agent was stopped, and has not ended yet. Nothing is released. If its pods cannot end, delete them, " +
			"or end the fence: kubectl reclaim unfence --abandon."},
	{Reason: ReasonAgentCanceled, Severity: reasons.Normal,
		Sentence: "An agent was stopped before it had a result, because the fence was ended, confirmed or given up."},
	{Reason: ReasonAllAgentsFailed, Severity: reasons.Warning,
		Sentence: "No agent could prove that the node is fenced. Nothing is released, and all are tried again later. If " +
			"you know that no process on the node can write: kubectl reclaim confirm."},
	{Reason: ReasonHealthCheckGaveUp, Severity: reasons.Warning,
		Sentence: "A node health check has given up the fence (annotation " + v1alpha1.AnnotationTimedOut + "): no agent " +
			"is started any more, and nothing is released. If you know that no process on the node can write: kubectl " +
			"reclaim confirm. Without the annotation, the agents are tried again."},
	{Reason: ReasonFenced, Severity: reasons.Normal, Sentence: "It is proven that the node is fenced."},
	{Reason: ReasonNodeStillReady, Severity: reasons.Counted,
		Sentence: "The node is fenced, and its condition Ready is not False or Unknown yet: it is not tainted before."},
	{Reason: ReasonNodeDeleted, Severity: reasons.Warning,
		Sentence: "The node is fenced, and its Node was deleted. An agent has something to undo, so the fence stays until " +
			"it is ended: kubectl reclaim unfence, with --abandon if the machine is gone. Once nothing remains on the node, " +
			"it does not count against the limits of policies."},
	{Reason: ReasonNodeRuns, Severity: reasons.Warning,
		Sentence: "The node has renewed its Lease since the proof that it is fenced, with the boot ID of before."},
	{Reason: ReasonContradicted, Severity: reasons.Warning,
		Sentence: "The node runs as before although an agent has said that it is fenced. Two writers may have met: check " +
			"the data of pods that were replaced, and the agent."},
	{Reason: ReasonReleased, Severity: reasons.Normal,
		Sentence: "The node is fenced and has the taint node.kubernetes.io/out-of-service: its pods are replaced."},
	{Reason: ReasonRemainsOnNode, Severity: reasons.Counted,
		Sentence: "The fence could end, but pods are held or volumes attached on the node from before."},
	{Reason: ReasonUnfencing, Severity: reasons.Normal, Sentence: "The agents undo the fence."},
	{Reason: ReasonUnfenceFailed, Severity: reasons.Warning,
		Sentence: "An agent could not undo the fence; it is asked again. If you have undone it yourself: kubectl reclaim " +
			"unfence --abandon."},
	{Reason: ReasonAwaitsReturn, Severity: reasons.Normal,
		Sentence: "The fence is undone, and the node has not shown yet that it was rebooted. Its taint stays until then."},
	{Reason: ReasonNeedsReboot, Severity: reasons.Warning,
		Sentence: "The node does not reach the volumes that it is fenced from. It runs, or its NodeFence was deleted: " +
			"cordon it, and reboot it, which ends the fence. Or make sure that no process on it can write to these volumes, " +
			"and end the fence: kubectl reclaim unfence."},
	{Reason: ReasonMachineReplaced, Severity: reasons.Warning,
		Sentence: "The Node has another boot ID, and another machine ID or system UUID: a machine may have taken the name, " +
			"and the one that was fenced may run on. Make sure that no process of that one can write, and end the fence: " +
			"kubectl reclaim unfence, with --abandon if there is nothing to undo."},
	{Reason: ReasonTaintRemains, Severity: reasons.Warning,
		Sentence: "The node has the taint of a fence, and no NodeFence, so the taint is removed."},
	{Reason: ReasonNodeReady, Severity: reasons.Normal,
		Sentence: "The node came back by itself before it was fenced."},
	{Reason: ReasonNodeGone, Severity: reasons.Normal,
		Sentence: "The Node was deleted, and the fence had nothing to undo or has undone it."},
	{Reason: ReasonRebooted, Severity: reasons.Normal,
		Sentence: "The node was rebooted, and nothing of before is left on it."},
	{Reason: ReasonEnded, Severity: reasons.Normal, Sentence: "Somebody has ended the fence."},
	{Reason: ReasonReturned, Sentence: "The fence has ended."},
	{Reason: ReasonUnreachable, Severity: reasons.Normal,
		Sentence: "The node is unreachable, and pods with claims wait for it: it is fenced."},
	{Reason: ReasonFenceExists, Sentence: "The node is unreachable, and has a NodeFence that has not ended."},
	{Reason: ReasonNothingWaits, Sentence: "The node is unreachable, and no pod with a claim waits for it."},
	{Reason: ReasonPatience, Severity: reasons.Counted,
		Sentence: "The node is unreachable, but not for as long as the policy wants to wait."},
	{Reason: ReasonTolerated, Severity: reasons.Counted,
		Sentence: "The node is unreachable, and its pods tolerate that for some more time."},
	{Reason: ReasonLimitReached, Severity: reasons.Warning,
		Sentence: "The node is unreachable, but as many nodes are fenced as the policy allows at once."},
	{Reason: ReasonZoneLimitReached, Severity: reasons.Warning,
		Sentence: "The node is unreachable, but as many nodes of its zone are fenced as the policy allows at once."},
	{Reason: ReasonWouldFence, Severity: reasons.Normal,
		Sentence: "The node would be fenced, but the policy is a dry run."},
	{Reason: ReasonViewLost, Severity: reasons.Warning,
		Sentence: "No node has renewed its Lease for some time, so volume-guard or the control plane may be cut off: no " +
			"node is fenced."},
	{Reason: ReasonManyUnreachable, Severity: reasons.Warning,
		Sentence: "More nodes are unreachable than the policy allows (haltAbove), so the network is more likely to blame: " +
			"no node is fenced. Fence nodes by hand if you know better: kubectl reclaim fence."},
	{Reason: ReasonZoneUnreachable, Severity: reasons.Warning,
		Sentence: "A whole zone is unreachable, so the network is more likely to blame: no node is fenced. Fence nodes by " +
			"hand if you know better: kubectl reclaim fence."},
	{Reason: ReasonAPIReadFailed, Severity: reasons.Warning,
		Sentence: "A read from the API server that the decision needs failed; volume-guard tries again."},
	{Reason: ReasonAPIWriteFailed, Severity: reasons.Warning,
		Sentence: "A write to the API server failed; volume-guard tries again."},
	{Reason: ReasonAgentUnusable, Severity: reasons.Warning,
		Sentence: "An agent could not be started or asked; volume-guard tries again until its time is over."},
	{Reason: ReasonDryRun, Severity: reasons.Normal, Sentence: "Dry run, nothing is changed."},
})

// Reasons returns every reason, in the order of their declaration.
func Reasons() []Reason { return table.Reasons() }

// Sentence returns the meaning of the reason, and the action that a person can take.
func (r Reason) Sentence() string { return r.About().Sentence }

// EventType returns the type of the Events with this reason, Normal or Warning, or "" for a reason without Events.
func (r Reason) EventType() string { return r.About().Severity.EventType() }

// Waits reports whether a fence with this reason counts as waiting.
func (r Reason) Waits() bool { return r.About().Severity.Waits() }

// About returns the meaning and severity of the reason, or the zero value for an unknown word.
func (r Reason) About() reasons.About { return table.About(r) }
