package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// FencePolicy has nodes fenced that are unreachable for long while pods with claims wait for it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="After",type=string,JSONPath=`.spec.unreachableAfter`
// +kubebuilder:printcolumn:name="DryRun",type=boolean,JSONPath=`.spec.dryRun`
// +kubebuilder:printcolumn:name="Active",type=string,JSONPath=`.status.conditions[?(@.type=="Active")].status`
// +kubebuilder:printcolumn:name="Fences",type=integer,JSONPath=`.status.fences`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type FencePolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitzero"`

	// +required
	Spec FencePolicySpec `json:"spec"`
	// +optional
	Status FencePolicyStatus `json:"status,omitzero"`
}

// FencePolicySpec is which nodes are fenced, when, and how.
type FencePolicySpec struct {
	// nodeSelector selects the nodes, by their labels. An empty one selects all.
	// +optional
	NodeSelector metav1.LabelSelector `json:"nodeSelector,omitzero"`

	// allowControlPlane: nodes with the label node-role.kubernetes.io/control-plane are selected, too. Default false.
	// +optional
	AllowControlPlane bool `json:"allowControlPlane,omitempty"`

	// namespaceSelector selects the namespaces whose pods are worth it, by their labels. Default all.
	// +optional
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector,omitzero"`

	// unreachableAfter is how long the condition Ready of the Node has been Unknown and its Lease not renewed before the
	// node is fenced, by volume-guard's clock.
	// +optional
	// +default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('40s')",message="must be 40s or more: a kubelet that is not cut off needs that long to renew its Lease"
	UnreachableAfter metav1.Duration `json:"unreachableAfter,omitzero"`

	// agents are those of the NodeFences.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.map(a, a.covers == 'Volumes').isSorted()",message="an agent that covers Volumes releases no pod, so only such ones may follow it"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !has(a.networkFence) || self.exists_one(b, has(b.networkFence) && b.networkFence == a.networkFence))",message="no two agents may have the same networkFence"
	Agents []Agent `json:"agents"`

	// maxFences is how many fences there may be at once that have not ended, of this policy or not: a number, or a share
	// of the selected nodes in percent, rounded down, but at least 1 if it is not 0%.
	// +optional
	// +default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 : self.matches('^([1-9][0-9]?|100)%$')",message="must be 1 or more, or 1% to 100%"
	MaxFences intstr.IntOrString `json:"maxFences,omitzero"`
	// maxFencesPerZone is how many of one zone are (label topology.kubernetes.io/zone).
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=1
	MaxFencesPerZone int32 `json:"maxFencesPerZone,omitempty"`

	// haltAbove is a share in percent, of all nodes of the cluster and of the selected ones: if more of either are
	// unreachable, no node is fenced, because then the network is more likely to blame, or the control plane. One selected
	// node alone is not too many of the selected ones. Neither is a node fenced if a whole zone of several nodes is
	// unreachable.
	// +optional
	// +default=40
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	HaltAbove int32 `json:"haltAbove,omitempty"`

	// waitForTolerations: a node is fenced once the tolerationSeconds of the pods that wait for it have passed, which is
	// when they are terminating.
	// +optional
	// +default=true
	WaitForTolerations *bool `json:"waitForTolerations,omitempty"`
	// budgetPatience is how much longer than unreachableAfter pods wait whose PodDisruptionBudget is healthy without
	// them.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	BudgetPatience metav1.Duration `json:"budgetPatience,omitzero"`

	// dryRun: no node is fenced; Events and the status say which would be.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
}

// ConditionActive is True while the policy may fence nodes, and False, with the reason, while it halts.
const ConditionActive = "Active"

// FencePolicyStatus is what the policy does.
type FencePolicyStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions are Active.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// fences is how many NodeFences of this policy have not ended.
	// +optional
	Fences int32 `json:"fences,omitempty"`
	// nodes are selected nodes that are unreachable, and what the policy does about each. No more than 100 are listed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Nodes []NodeJudgement `json:"nodes,omitempty"`
}

// NodeJudgement is what a policy does about one node.
type NodeJudgement struct {
	// name is that of the node.
	// +required
	Name string `json:"name"`
	// reason is one word for it.
	// +required
	Reason string `json:"reason"`
	// message is what the reason means.
	// +optional
	Message string `json:"message,omitempty"`
	// since is when this began.
	// +required
	Since metav1.Time `json:"since"`
}

// FencePolicyList is a list of FencePolicies.
// +kubebuilder:object:root=true
type FencePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []FencePolicy `json:"items"`
}
