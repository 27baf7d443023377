package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// NodeFence asks for one node to be fenced, so that no process on it can write to volumes any more, and shows how far
// that is. Its name is the name of the node: a node has one fence at a time.
//
// To delete it ends the fence: at once, or, where the proof covers Volumes, once the node was rebooted.
//
// Who may create a NodeFence has power over nodes: its agents shut them down.
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
type NodeFence struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +required
	Spec NodeFenceSpec `json:"spec"`
	// +optional
	Status NodeFenceStatus `json:"status,omitzero"`
}

// NodeFenceSpec is what is asked for.
//
// +kubebuilder:validation:XValidation:rule="!has(self.confirmation) || self.confirmation.size() == 0 || has(self.confirmationUID) && self.confirmationUID.size() > 0",message="spec.confirmationUID must be the UID of the NodeFence that is confirmed: kubectl reclaim confirm writes it"
type NodeFenceSpec struct {
	// reason says to people why the node is to be fenced.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`

	// policyName is the FencePolicy that asked for the fence; empty for a person or another program.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PolicyName string `json:"policyName,omitempty"`

	// agents are tried one after the other until one proves that the node is fenced. After a proof of Reboot they go on
	// if the node does not return and pods are held that it does not release; after one of Volumes, the other agents
	// that cover Volumes are tried, too. Neither agents nor their order can be changed, so that what was begun is also
	// ended.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.map(a, a.covers == 'Volumes').isSorted()",message="an agent that covers Volumes releases no pod, so only such ones may follow it"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !has(a.networkFence) || self.exists_one(b, has(b.networkFence) && b.networkFence == a.networkFence))",message="no two agents may have the same networkFence"
	Agents []Agent `json:"agents"`

	// allowControlPlane allows the fence of a node with the label node-role.kubernetes.io/control-plane. Without it, such
	// a node is not fenced.
	// +optional
	AllowControlPlane bool `json:"allowControlPlane,omitempty"`

	// confirmation is a person's word that no process on the node can write any more until the fence ends, and how they
	// know. It is a proof of coverage UntilUnfenced, in place of an agent's.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Confirmation string `json:"confirmation,omitempty"`

	// confirmationUID is metadata.uid of the NodeFence that confirmation is about. A confirmation of another one proves
	// nothing: backups and manifests copy it.
	// +optional
	ConfirmationUID types.UID `json:"confirmationUID,omitempty"`

	// unfence is when the fence ends. WhenReturned (default): when it is shown that the node was rebooted after the
	// proof, and nothing of before remains on it. WhenReleased: the agents undo it before, when no pod with a claim and no
	// VolumeAttachment remains on the node. It does that only for a proof that covers UntilUnfenced.
	// Now: at once, by a person's word. Abandon: at once, and the agents undo nothing, because a person has done it.
	// +optional
	// +default="WhenReturned"
	// +kubebuilder:validation:XValidation:rule="oldSelf == 'Now' ? self in ['Now', 'Abandon'] : oldSelf != 'Abandon' || self == 'Abandon'",message="a fence that was ended stays so: create another"
	Unfence Unfence `json:"unfence,omitempty"`
}

// Unfence is when a fence ends.
// +kubebuilder:validation:Enum=WhenReturned;WhenReleased;Now;Abandon
type Unfence string

const (
	// UnfenceWhenReturned: when it is shown that the node was rebooted.
	UnfenceWhenReturned Unfence = "WhenReturned"
	// UnfenceWhenReleased: the agents undo it when nothing of before remains on the node, for one that is powered off does
	// not come back by itself. The taint stays until it is shown that the node was rebooted.
	UnfenceWhenReleased Unfence = "WhenReleased"
	// UnfenceNow: at once.
	UnfenceNow Unfence = "Now"
	// UnfenceAbandon: at once, and the agents undo nothing.
	UnfenceAbandon Unfence = "Abandon"
)

// Phase is how far a fence is, for people. Programs read the conditions.
// +kubebuilder:validation:Enum=Requested;Fencing;Fenced;Released;Unfencing;Returned;Failed
type Phase string

// The phases of a fence, in their order.
const (
	// PhaseRequested: no agent was started.
	PhaseRequested Phase = "Requested"
	// PhaseFencing: an agent works.
	PhaseFencing Phase = "Fencing"
	// PhaseFailed: no agent could prove that the node is fenced. Nothing is released. The chain begins again later.
	PhaseFailed Phase = "Failed"
	// PhaseFenced: it is proven that nothing on the node writes.
	PhaseFenced Phase = "Fenced"
	// PhaseReleased: the node has the taint node.kubernetes.io/out-of-service.
	PhaseReleased Phase = "Released"
	// PhaseUnfencing: the agents undo what they did.
	PhaseUnfencing Phase = "Unfencing"
	// PhaseReturned: the node is as it was before. The NodeFence is deleted some time later.
	PhaseReturned Phase = "Returned"
)

// Types of the conditions of a NodeFence.
const (
	// ConditionFenced is True once an agent has proven that the node is fenced, and False again once the fence is ended
	// or the proof contradicted.
	ConditionFenced = "Fenced"
	// ConditionReleased is True while the node has the taint of this fence.
	ConditionReleased = "Released"
	// ConditionReturned is True when the fence has ended.
	ConditionReturned = "Returned"

	// ConditionProcessing and ConditionSucceeded are for node health checks (medik8s). Processing is True while agents are
	// tried. Succeeded is True once the node was proven to be fenced, also after the fence has ended; False once all
	// agents have failed, or none is tried any more; else Unknown.
	ConditionProcessing = "Processing"
	ConditionSucceeded  = "Succeeded"
)

// AnnotationTimedOut on a NodeFence says that a node health check (medik8s) has given it up, and tries another
// remediator: no agent is started any more, and one at work is stopped. It ends no fence that is proven.
const AnnotationTimedOut = "remediation.medik8s.io/nhc-timed-out"

// NodeFenceStatus is how far the fence is.
type NodeFenceStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// phase sums up the conditions for people.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// conditions are Fenced, Released and Returned, and for node health checks Processing and Succeeded.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// attempts are the runs of agents, the last one last. No more than 16 are kept, with at least the last one of each
	// agent.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Attempts []Attempt `json:"attempts,omitempty"`
	// proof is what shows that the node is fenced.
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
	// startedAt is when the attempt was written down, before the agent was started.
	// +required
	StartedAt metav1.Time `json:"startedAt"`
	// endedAt is when its result was seen.
	// +optional
	EndedAt *metav1.Time `json:"endedAt,omitempty"`
	// result is how it ended.
	// +optional
	Result Result `json:"result,omitempty"`
	// message has the words of the agent, or a cause that may keep it from a result.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	Message string `json:"message,omitempty"`
	// bootID is status.nodeInfo.bootID of the Node when the attempt was written down.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// machineID and systemUUID are those of status.nodeInfo of the Node then.
	// +optional
	MachineID string `json:"machineID,omitempty"`
	// +optional
	SystemUUID string `json:"systemUUID,omitempty"`
	// terminatingPods are the UIDs of pods on the node that were terminating before the agent was started: a reboot ends
	// their processes, and the kubelet does not start them again. Those of more than 1024 are left out, and stay held. An
	// attempt that has ended without a proof has none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	TerminatingPods []types.UID `json:"terminatingPods,omitempty"`
	// undoTry counts the tries to undo the work of the agent, from 1. Another one follows a try that fails, or has no
	// result in the agent's timeout.
	// +optional
	UndoTry int32 `json:"undoTry,omitempty"`
	// undoTriedAt is when that try was written down, before it was started.
	// +optional
	UndoTriedAt *metav1.Time `json:"undoTriedAt,omitempty"`
	// undoneAt is when the agent has undone what it did.
	// +optional
	UndoneAt *metav1.Time `json:"undoneAt,omitempty"`
}

// Result is how an attempt ended.
// +kubebuilder:validation:Enum=Proven;Failed;TimedOut;Canceled;Contradicted
type Result string

const (
	// ResultProven: the agent says that the node is fenced.
	ResultProven Result = "Proven"
	// ResultFailed: the agent says that it could not.
	ResultFailed Result = "Failed"
	// ResultTimedOut: the agent has said nothing in its time.
	ResultTimedOut Result = "TimedOut"
	// ResultCanceled: the fence was ended before the agent had a result.
	ResultCanceled Result = "Canceled"
	// ResultContradicted: the agent said that the node is fenced, and the node has shown since that it runs on.
	ResultContradicted Result = "Contradicted"
)

// Proof is what shows that the node is fenced.
type Proof struct {
	// attempt is the number of the attempt that gave the proof, the first one where several agents cover Volumes.
	// +required
	Attempt int32 `json:"attempt"`
	// agent is the agent of that attempt.
	// +required
	Agent string `json:"agent"`
	// covers is what it proves.
	// +required
	Covers Coverage `json:"covers"`
	// volumes names the volumes that each proven agent with coverage Volumes covers.
	// +optional
	// +listType=map
	// +listMapKey=agent
	// +kubebuilder:validation:MaxItems=8
	Volumes []CoveredVolumes `json:"volumes,omitempty"`
	// provenAt is when the proof was seen.
	// +required
	ProvenAt metav1.Time `json:"provenAt"`
	// bootID is the boot ID of the Node that the fence has ended: with coverage Reboot that of before the attempt, else
	// that of when the proof was seen.
	// +optional
	BootID string `json:"bootID,omitempty"`
	// machineID and systemUUID are those of status.nodeInfo of the Node when the proof was seen. Another boot ID shows a
	// reboot only if they are the same: another machine may have the name of the node. Where both are empty, the boot ID
	// alone shows it.
	// +optional
	MachineID string `json:"machineID,omitempty"`
	// +optional
	SystemUUID string `json:"systemUUID,omitempty"`
	// leaseVersion is the resourceVersion of the node's Lease when the proof was seen.
	// +optional
	LeaseVersion string `json:"leaseVersion,omitempty"`
}

// CoveredVolumes are volumes that the node does not reach.
type CoveredVolumes struct {
	// agent is the one that has proven it.
	// +required
	Agent string `json:"agent"`
	// driver is their CSI driver.
	// +required
	Driver string `json:"driver"`
	// volumes and volumeAttributes are which of its volumes: see networkFence of the agent.
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

// NodeFenceTemplate is a remediation template as node health checks use them (medik8s NodeHealthCheck): for a node that
// they find unhealthy they create a NodeFence with this spec and the node's name, and delete it when the node is well.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:validation:XValidation:rule="!has(self.spec.template.spec.confirmation)",message="a person confirms one fence, and not those of a template"
// +kubebuilder:validation:XValidation:rule="self.spec.template.spec.unfence in ['WhenReturned', 'WhenReleased']",message="spec.template.spec.unfence must be WhenReturned or WhenReleased"
type NodeFenceTemplate struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +required
	Spec NodeFenceTemplateSpec `json:"spec"`
}

// NodeFenceTemplateSpec has the template.
type NodeFenceTemplateSpec struct {
	// +required
	Template NodeFenceTemplateResource `json:"template"`
}

// NodeFenceTemplateResource is what the NodeFences are made of.
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
