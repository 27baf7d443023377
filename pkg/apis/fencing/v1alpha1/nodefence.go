package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeFence requests the fence of one node, so that no process on it can write to volumes any more, and shows the
// progress. Its name is the name of the node: a node has one fence at a time.
//
// Deletion ends the fence: at once, or, where the proof covers Volumes, once the node was rebooted.
//
// The permission to create a NodeFence is power over nodes: its agents shut them down.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.status.proof.agent`
// +kubebuilder:printcolumn:name="Covers",type=string,JSONPath=`.status.proof.covers`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.spec.agents.map(a, a.name) == oldSelf.spec.agents.map(a, a.name) && self.spec.agents.map(a, a.covers) == oldSelf.spec.agents.map(a, a.covers) && self.spec.agents.map(a, duration(a.timeout)) == oldSelf.spec.agents.map(a, duration(a.timeout)) && self.spec.agents.map(a, a.?job) == oldSelf.spec.agents.map(a, a.?job) && self.spec.agents.map(a, a.?remediation) == oldSelf.spec.agents.map(a, a.?remediation) && self.spec.agents.map(a, a.?networkFence) == oldSelf.spec.agents.map(a, a.?networkFence) && self.spec.agents.map(a, a.?manual.?instructions) == oldSelf.spec.agents.map(a, a.?manual.?instructions) && self.spec.agents.map(a, has(a.manual)) == oldSelf.spec.agents.map(a, has(a.manual))",message="spec.agents cannot be changed"
// +kubebuilder:validation:XValidation:rule="has(self.spec.policyName) && self.spec.policyName.size() > 0 ? has(oldSelf.spec.policyName) && self.spec.policyName == oldSelf.spec.policyName : !has(oldSelf.spec.policyName) || oldSelf.spec.policyName.size() == 0",message="spec.policyName cannot be changed"
type NodeFence struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +required
	Spec NodeFenceSpec `json:"spec"`
	// +optional
	Status NodeFenceStatus `json:"status,omitzero"`
}

// NodeFenceSpec is the requested fence.
//
// +kubebuilder:validation:XValidation:rule="!has(self.confirmation) || self.confirmation.size() == 0 || has(self.confirmationUID) && self.confirmationUID.size() > 0",message="spec.confirmationUID must be the UID of the NodeFence that is confirmed: kubectl reclaim confirm writes it"
type NodeFenceSpec struct {
	// reason tells people why the node is fenced.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`

	// policyName is the FencePolicy that requested the fence. It is empty for a person or another program, and cannot be
	// changed.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PolicyName string `json:"policyName,omitempty"`

	// agents are tried one after the other until one proves that the node is fenced. After a proof of Reboot the next
	// agents are tried if the node does not return and terminating pods remain that the proof does not release. After a
	// proof of Volumes, the other agents that cover Volumes are tried, too. Agents and their order cannot be changed, so
	// that every agent that was started is also stopped or undone.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.map(a, a.covers == 'Volumes').isSorted()",message="agents that cover Volumes must come last, because they release no pod"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !has(a.networkFence) || self.exists_one(b, has(b.networkFence) && b.networkFence == a.networkFence))",message="no two agents may have the same networkFence"
	Agents []Agent `json:"agents"`

	// allowControlPlane allows the fence of a node with the label node-role.kubernetes.io/control-plane. Without it, such
	// a node is not fenced.
	// +optional
	AllowControlPlane bool `json:"allowControlPlane,omitempty"`

	// confirmation is the statement of a person that no process on the node can write until the fence ends, with the
	// grounds. It replaces an agent's proof, with coverage UntilUnfenced. It has no effect on a fence whose proof covers
	// Volumes.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Confirmation string `json:"confirmation,omitempty"`

	// confirmationUID is the metadata.uid of the confirmed NodeFence. With the UID of another NodeFence, as in a copy from
	// a backup or a manifest, the confirmation has no effect.
	// +optional
	ConfirmationUID types.UID `json:"confirmationUID,omitempty"`

	// unfence is the condition that ends the fence. WhenReturned (default): the node was rebooted after the proof, and
	// nothing from before needs the fence. WhenReleased: the agents undo the fence earlier, when no pod with a claim from
	// before and no VolumeAttachment remains on the node; only for a proof that covers UntilUnfenced. Now: at once, at the
	// request of a person. Abandon: at once, and the agents undo nothing, because a person has done it.
	// +optional
	// +default="WhenReturned"
	// +kubebuilder:validation:XValidation:rule="oldSelf == 'Now' ? self in ['Now', 'Abandon'] : oldSelf != 'Abandon' || self == 'Abandon'",message="an ended fence cannot be resumed: create another"
	Unfence Unfence `json:"unfence,omitempty"`
}

// Unfence is the condition that ends a fence.
// +kubebuilder:validation:Enum=WhenReturned;WhenReleased;Now;Abandon
type Unfence string

const (
	// UnfenceWhenReturned: when the node is known to have rebooted.
	UnfenceWhenReturned Unfence = "WhenReturned"
	// UnfenceWhenReleased: the agents undo it when nothing from before remains on the node, because a node that is powered
	// off does not return by itself. The taint stays until the node is known to have rebooted.
	UnfenceWhenReleased Unfence = "WhenReleased"
	// UnfenceNow: at once.
	UnfenceNow Unfence = "Now"
	// UnfenceAbandon: at once, and the agents undo nothing.
	UnfenceAbandon Unfence = "Abandon"
)

// Phase is the progress of a fence, for people. Programs read the conditions.
// +kubebuilder:validation:Enum=Requested;Fencing;Fenced;Released;Unfencing;Returned;Failed
type Phase string

// The phases of a fence, in their order.
const (
	// PhaseRequested: no agent was started.
	PhaseRequested Phase = "Requested"
	// PhaseFencing: an agent is at work.
	PhaseFencing Phase = "Fencing"
	// PhaseFailed: no agent could prove that the node is fenced. Nothing is released. The agents are tried again later.
	PhaseFailed Phase = "Failed"
	// PhaseFenced: the node is proven to be fenced.
	PhaseFenced Phase = "Fenced"
	// PhaseReleased: the node has the taint node.kubernetes.io/out-of-service.
	PhaseReleased Phase = "Released"
	// PhaseUnfencing: the agents undo their work.
	PhaseUnfencing Phase = "Unfencing"
	// PhaseReturned: the fence has ended; the reason of condition Returned says how. The NodeFence is deleted later.
	PhaseReturned Phase = "Returned"
)

// Types of the conditions of a NodeFence.
const (
	// ConditionFenced is True once an agent has proven that the node is fenced, and False again once the fence is ended or
	// the proof is contradicted. It is Unknown if volume-guard's finalizer was removed while the fence was in force.
	ConditionFenced = "Fenced"
	// ConditionReleased is True while the node has the taint node.kubernetes.io/out-of-service of this fence.
	ConditionReleased = "Released"
	// ConditionReturned is True when the fence has ended.
	ConditionReturned = "Returned"

	// ConditionProcessing and ConditionSucceeded are for node health checks (medik8s). Processing is True while agents are
	// tried. Succeeded is True once the node was proven to be fenced, also after the fence has ended; False once all
	// agents have failed, or no more are tried; otherwise Unknown.
	ConditionProcessing = "Processing"
	ConditionSucceeded  = "Succeeded"
)

// AnnotationTimedOut on a NodeFence means that a node health check (medik8s) has abandoned it for another remediator:
// no more agents are started, and a running agent is stopped. It does not end a proven fence.
const AnnotationTimedOut = "remediation.medik8s.io/nhc-timed-out"

// NodeFenceStatus is the observed state of a NodeFence.
type NodeFenceStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase sums up the conditions for people.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// conditions are Fenced, Released and Returned, and for node health checks Processing and Succeeded. While the fence
	// waits and a person may have to act, a reason says so: that of Returned if the fence is ending, else that of Fenced.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// attempts are the runs of agents, the latest last. At most 16 are kept, with at least the latest of each agent.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Attempts []Attempt `json:"attempts,omitempty"`
	// proof is the evidence that the node is fenced.
	// +optional
	Proof *Proof `json:"proof,omitempty"`
}

// Attempt is one run of one agent.
type Attempt struct {
	// number counts the attempts of this fence from 1.
	// +required
	Number int32 `json:"number"`
	// agent is the name of the agent.
	// +required
	Agent string `json:"agent"`
	// startedAt is the time at which the attempt was recorded, before the agent was started.
	// +required
	StartedAt metav1.Time `json:"startedAt"`
	// endedAt is the time at which its result was observed.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
	// result is the result of the attempt.
	// +optional
	Result Result `json:"result,omitempty"`
	// message is the message of the agent, or the likely cause if it has no result. Once an undo fails, it is the message
	// of the undo.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`
	// objectSeen reports that the NetworkFence of the agent was seen in this attempt or an earlier one. Without a proof,
	// too, it may have fenced the node, or may do so later.
	// +optional
	ObjectSeen bool `json:"objectSeen,omitempty"`
	// bootID is status.nodeInfo.bootID of the Node when the attempt was recorded.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// machineID and systemUUID are copied from status.nodeInfo of the Node at that time.
	// +optional
	MachineID string `json:"machineID,omitempty"`
	// +optional
	SystemUUID string `json:"systemUUID,omitempty"`
	// terminatingPods are the UIDs of held pods on the node that were terminating before the agent was started: a reboot
	// ends their processes, and the kubelet does not start them again. At most 1024 are recorded, taken in turn from each
	// namespace, and all other pods stay held.
	// An attempt that has ended without a proof has none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	TerminatingPods []types.UID `json:"terminatingPods,omitempty"`
	// undoTry counts the tries to undo the work of the agent, from 1. A try that fails, or has no result within the
	// agent's timeout, is followed by the next.
	// +optional
	UndoTry int32 `json:"undoTry,omitempty"`
	// undoTriedAt is the time at which this try was recorded, before it was started.
	// +optional
	UndoTriedAt *metav1.Time `json:"undoTriedAt,omitempty"`
	// undoneAt is the time at which the agent had undone its work.
	// +optional
	UndoneAt *metav1.Time `json:"undoneAt,omitempty"`
}

// Result is the result of an attempt.
// +kubebuilder:validation:Enum=Proven;Failed;TimedOut;Canceled;Contradicted
type Result string

const (
	// ResultProven: the agent reported that the node is fenced.
	ResultProven Result = "Proven"
	// ResultFailed: the agent reported a failure.
	ResultFailed Result = "Failed"
	// ResultTimedOut: the agent reported nothing before its timeout.
	ResultTimedOut Result = "TimedOut"
	// ResultCanceled: the fence was ended before the agent had a result.
	ResultCanceled Result = "Canceled"
	// ResultContradicted: the agent reported that the node is fenced, but the node has shown since that it still runs.
	ResultContradicted Result = "Contradicted"
)

// Proof is the evidence that the node is fenced.
type Proof struct {
	// attempt is the number of the attempt that gave the proof, the first if several agents cover Volumes.
	// +required
	Attempt int32 `json:"attempt"`
	// agent is the agent of that attempt.
	// +required
	Agent string `json:"agent"`
	// covers is the extent of the proven fence. While it is in force, the Node has a taint until it shows another boot ID.
	// UntilUnfenced: node.kubernetes.io/out-of-service, once the node is not Ready. Volumes:
	// csi-reclaimer.io/volumes-fenced with the effect NoSchedule. Reboot: none.
	// +required
	Covers Coverage `json:"covers"`
	// volumes names the volumes that each proven agent with coverage Volumes covers.
	// +optional
	// +listType=map
	// +listMapKey=agent
	// +kubebuilder:validation:MaxItems=8
	Volumes []CoveredVolumes `json:"volumes,omitempty"`
	// provenAt is the time at which the proof was observed.
	// +required
	ProvenAt metav1.Time `json:"provenAt"`
	// bootID is the Node's boot ID that the fence has ended: with coverage Reboot the boot ID before the attempt,
	// otherwise the boot ID when the proof was observed.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// machineID and systemUUID are copied from status.nodeInfo of the Node when the proof was observed. Another boot ID
	// shows a reboot only if they are unchanged, because another machine may have the name of the node. If both are empty,
	// the boot ID alone decides.
	// +optional
	MachineID string `json:"machineID,omitempty"`
	// +optional
	SystemUUID string `json:"systemUUID,omitempty"`
	// leaseVersion is the resourceVersion of the node's Lease when the proof was observed.
	// +optional
	LeaseVersion string `json:"leaseVersion,omitempty"`
}

// CoveredVolumes are volumes that the node cannot reach.
type CoveredVolumes struct {
	// agent is the name of the agent that has proven it.
	// +required
	Agent string `json:"agent"`
	// driver is the CSI driver of the volumes.
	// +required
	Driver string `json:"driver"`
	// volumes and volumeAttributes select volumes of the driver, as in networkFence of the agent.
	// +required
	Volumes FencedVolumes `json:"volumes"`
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	VolumeAttributes map[string]AttributeValue `json:"volumeAttributes,omitempty"`
}

// NodeFenceList is a list of NodeFences.
// +kubebuilder:object:root=true
type NodeFenceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []NodeFence `json:"items"`
}

// NodeFenceTemplate is a remediation template for node health checks (medik8s NodeHealthCheck). They create a NodeFence
// with this spec and the node's name for an unhealthy node, and delete it when the node is healthy.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:validation:XValidation:rule="!has(self.spec.template.spec.confirmation)",message="spec.template.spec.confirmation must not be set: a person confirms each fence"
// +kubebuilder:validation:XValidation:rule="self.spec.template.spec.unfence in ['WhenReturned', 'WhenReleased']",message="spec.template.spec.unfence must be WhenReturned or WhenReleased"
type NodeFenceTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +required
	Spec NodeFenceTemplateSpec `json:"spec"`
}

// NodeFenceTemplateSpec holds the template.
type NodeFenceTemplateSpec struct {
	// +required
	Template NodeFenceTemplateResource `json:"template"`
}

// NodeFenceTemplateResource is the template of the NodeFences.
type NodeFenceTemplateResource struct {
	// +required
	Spec NodeFenceSpec `json:"spec"`
}

// NodeFenceTemplateList is a list of NodeFenceTemplates.
// +kubebuilder:object:root=true
type NodeFenceTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []NodeFenceTemplate `json:"items"`
}
