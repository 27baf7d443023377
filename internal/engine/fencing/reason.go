package fencing

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Reason is the reason of a decision, and Sentence returns its meaning. The same word is the reason of Events and
// conditions, a value in the log and a label of the metrics.
type Reason = reasons.Word[family]

// family gives a Reason the meaning that this package declares.
type family struct{}

// About implements reasons.Family.
func (family) About(word string) reasons.About { return table.About(word) }

var table reasons.Table[family]

// Reasons of a fence, in the order of its life.
var (
	ReasonNoFence          = table.Silent("NoFence", "The node has no fence.")
	ReasonRequested        = table.Normal("Requested", "The node is to be fenced.")
	ReasonFencing          = table.Normal("Fencing", "An agent fences the node, and has no result yet.")
	ReasonAgentDeletesPods = table.Warning("AgentDeletesPods",
		"The remediator force-deletes all pods of the node before it reports success, and stops where pod safety refuses "+
			"that: set spec.template.spec.remediationStrategy of its template to OutOfServiceTaint.")
	ReasonWaitsForConfirmation = table.Warning("WaitsForConfirmation",
		"The fence waits for a person: make sure that no process on the node can write, and then say so: kubectl reclaim "+
			"confirm.")
	ReasonNodeNotFound = table.Warning("NodeNotFound",
		"No Node has the name of the NodeFence, so no node is fenced. If the name is wrong, end the fence: kubectl reclaim "+
			"unfence.")
	ReasonControlPlane = table.Warning("ControlPlaneNode",
		"The node is a control-plane node and is not fenced. To fence it nevertheless, set spec.allowControlPlane.")
	ReasonAgentFailed = table.Warning("AgentFailed",
		"An agent could not fence the node. Nothing is released; the next agent is tried.")
	ReasonAgentTimedOut = table.Warning("AgentTimedOut",
		"An agent had no result before its timeout, and was stopped. Nothing is released; the next agent is tried.")
	ReasonAgentStopping = table.Counted("AgentStopping",
		"An agent was stopped, and has not ended yet. Nothing is released. If its pods cannot end, delete them, or end the "+
			"fence: kubectl reclaim unfence --abandon.")
	ReasonAgentCanceled = table.Normal("AgentCanceled",
		"An agent was stopped before it had a result, because the fence was ended, confirmed or given up.")
	ReasonAllAgentsFailed = table.Warning("AllAgentsFailed",
		"No agent could prove that the node is fenced. Nothing is released, and all are tried again later. If you know "+
			"that no process on the node can write: kubectl reclaim confirm.")
	ReasonHealthCheckGaveUp = table.Warning("HealthCheckGaveUp",
		"A node health check has given up the fence (annotation "+v1alpha1.AnnotationTimedOut+"): no agent is started "+
			"any more, and nothing is released. If you know that no process on the node can write: kubectl reclaim confirm. "+
			"Without the annotation, the agents are tried again.")
	ReasonFenced         = table.Normal("Fenced", "It is proven that the node is fenced.")
	ReasonNodeStillReady = table.Counted("NodeStillReady",
		"The node is fenced, and its condition Ready is not False or Unknown yet: it is not tainted before.")
	ReasonNodeDeleted = table.Warning("NodeDeleted",
		"The node is fenced, and its Node was deleted. An agent has something to undo, so the fence stays until it is "+
			"ended: kubectl reclaim unfence, with --abandon only if an agent needs the machine to undo its work. A "+
			"NetworkFence does not, and its addresses would stay blocked for later nodes. Once nothing from before "+
			"remains on the node, it does not count against the limits of policies.")
	ReasonNodeRuns = table.Warning("NodeRuns",
		"The node has renewed its Lease since the proof that it is fenced, with an unchanged boot ID.")
	ReasonContradicted = table.Warning("ProofContradicted",
		"The node runs as before although an agent has said that it is fenced. Two writers may have met: check the data of "+
			"pods that were replaced, and the agent.")
	ReasonReleased = table.Normal("Released",
		"The node is fenced and has the taint node.kubernetes.io/out-of-service: its pods are replaced.")
	ReasonRemainsOnNode = table.Counted("RemainsOnNode",
		"The fence could end, but pods are held or volumes attached on the node from before.")
	ReasonAwaitsVolumeList = table.Counted("AwaitsVolumeList",
		"The fence ends once a list of all VolumeAttachments shows none of the node from before. Fences share each list, "+
			"and two lists are at least 10 seconds apart.")
	ReasonUnfencing     = table.Normal("Unfencing", "The agents undo the fence.")
	ReasonUnfenceFailed = table.Warning("UnfenceFailed",
		"An agent could not undo the fence; it tries again. If you have undone it yourself: kubectl reclaim unfence "+
			"--abandon.")
	ReasonAwaitsReturn = table.Normal("AwaitsReturn",
		"The fence is undone, and the node has not shown yet that it was rebooted. Its taint stays until then.")
	ReasonNeedsReboot = table.Warning("NeedsReboot",
		"The node does not reach the volumes that it is fenced from, and gets no new pods (taint "+
			objects.VolumesFencedTaint+"). It runs, or its NodeFence was deleted. Or the NodeFence has lost its finalizer, "+
			"such as by --release-finalizers, and is no evidence any more. Reboot the node, which ends the fence. Or make sure "+
			"that no process on it can write to these volumes, and end the fence: kubectl reclaim unfence.")
	ReasonMachineReplaced = table.Warning("MachineReplaced",
		"The Node has another boot ID, and another machine ID or system UUID: another machine may have the name now, and "+
			"the fenced one may still run. Make sure that no process of the fenced machine can write, and end the fence: "+
			"kubectl reclaim unfence, with --abandon if there is nothing to undo.")
	ReasonTaintRemains = table.Warning("TaintRemains",
		"The node has the taint of a fence that has ended, or is not its own, so the taint is removed.")
)

// Reasons why a fence has ended.
var (
	ReasonNodeReady = table.Normal("NodeReady", "The node came back by itself before it was fenced.")
	ReasonNodeGone  = table.Normal("NodeGone", "The Node was deleted, and the fence had nothing to undo or has undone it.")
	ReasonRebooted  = table.Normal("NodeRebooted", "The node was rebooted, and nothing from before needs the fence.")
	ReasonEnded     = table.Normal("EndedByRequest", "The fence was ended by request.")
	ReasonReturned  = table.Silent("Returned", "The fence has ended.")
)

// Reasons of a policy about a node that is unreachable.
var (
	ReasonUnreachable = table.Normal("Unreachable",
		"The node is unreachable, and pods with claims wait for it: it is fenced.")
	ReasonFenceExists  = table.Silent("FenceExists", "The node is unreachable, and has a NodeFence that has not ended.")
	ReasonNothingWaits = table.Silent("NothingWaits", "The node is unreachable, and no pod with a claim waits for it.")
	ReasonFenceEnded   = table.Normal("FenceEnded", "The node is unreachable, but its fence was ended by request. The "+
		"policy fences the node again once this NodeFence is deleted.")
	ReasonPatience = table.Counted("Patience",
		"The node is unreachable, but not yet for the time that the policy requires.")
	ReasonTolerated = table.Counted("Tolerated",
		"The node is unreachable, and its pods tolerate that for some more time.")
	ReasonLimitReached = table.Warning("LimitReached",
		"The node is unreachable, but as many nodes are fenced as the policy allows at once.")
	ReasonZoneLimitReached = table.Warning("ZoneLimitReached",
		"The node is unreachable, but as many nodes of its zone are fenced as the policy allows at once.")
	ReasonWouldFence = table.Normal("WouldFence", "The node would be fenced, but the policy is a dry run.")
	ReasonViewLost   = table.Warning("ViewLost",
		"No node has renewed its Lease for some time, so volume-guard or the control plane may be cut off: no node is "+
			"fenced.")
	ReasonManyUnreachable = table.Warning("ManyUnreachable",
		"More nodes are unreachable than the policy allows (haltAbove), so the network is more likely to blame: no node is "+
			"fenced. Fence nodes by hand if you know better: kubectl reclaim fence.")
	ReasonZoneUnreachable = table.Warning("ZoneUnreachable",
		"A whole zone is unreachable, so the network is more likely to blame: no node is fenced. Fence nodes by hand if "+
			"you know better: kubectl reclaim fence.")
	ReasonInvalidSelector = table.Warning("InvalidSelector",
		"A selector of the FencePolicy is invalid, so no node is fenced. Correct spec.nodeSelector or "+
			"spec.namespaceSelector.")
)

// Reasons that only the execution of a step finds.
var (
	ReasonAPIReadFailed, ReasonAPIWriteFailed = table.APIFailures("decision", "volume-guard")
	ReasonAgentUnusable                       = table.Warning("AgentUnusable",
		"An agent could not be started or asked; volume-guard tries again until its time is over.")
	ReasonDryRun = table.DryRun()
)

// Reasons returns every reason, in the order of their declaration.
func Reasons() []Reason { return table.Reasons() }
