package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// FencePolicy fences nodes that stay unreachable while pods with claims wait for them.
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

// FencePolicySpec selects nodes, and sets when and how they are fenced.
type FencePolicySpec struct {
	// nodeSelector selects the nodes by their labels. An empty selector ({}) selects all nodes.
	// +required
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="operator must be In or NotIn, with values, or Exists or DoesNotExist, without"
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`

	// allowControlPlane also selects nodes with the label node-role.kubernetes.io/control-plane. Default false.
	// +optional
	AllowControlPlane bool `json:"allowControlPlane,omitempty"`

	// namespaceSelector selects by their labels the namespaces whose waiting pods justify a fence. Default all.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && size(e.values) > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || size(e.values) == 0))",message="operator must be In or NotIn, with values, or Exists or DoesNotExist, without"
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector,omitzero"`

	// unreachableAfter is the time on volume-guard's clock for which the condition Ready of the Node must be Unknown and
	// its Lease must not be renewed before the node is fenced.
	// +optional
	// +default="5m"
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('40s')",message="must be 40s or more: a kubelet that is not cut off needs that long to renew its Lease"
	UnreachableAfter metav1.Duration `json:"unreachableAfter,omitzero"`

	// agents are the agents of the NodeFences.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:XValidation:rule="self.map(a, a.covers == 'Volumes').isSorted()",message="agents that cover Volumes must come last, because they release no pod"
	// +kubebuilder:validation:XValidation:rule="self.all(a, !has(a.networkFence) || self.exists_one(b, has(b.networkFence) && b.networkFence == a.networkFence))",message="no two agents may have the same networkFence"
	Agents []Agent `json:"agents"`

	// maxFences limits the fences in the cluster that have not ended, of this policy or not: a number, or a percentage of
	// the selected nodes, rounded down, but at least 1 if it is not 0%.
	// +optional
	// +default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 2147483647 : self.matches('^([1-9][0-9]?|100)%$')",message="must be 1 or more, or 1% to 100%"
	MaxFences intstr.IntOrString `json:"maxFences,omitzero"`
	// maxFencesPerZone limits these fences within one zone (label topology.kubernetes.io/zone).
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=1
	MaxFencesPerZone int32 `json:"maxFencesPerZone,omitempty"`

	// haltAbove is a percentage of all nodes of the cluster, and of the selected nodes. If more of either are unreachable,
	// no node is fenced, because then the network or the control plane is the likely cause. A single unreachable node
	// never exceeds the percentage of the selected nodes. No node is fenced either while a whole zone of several nodes is
	// unreachable.
	// +optional
	// +default=40
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	HaltAbove int32 `json:"haltAbove,omitempty"`

	// waitForTolerations delays the fence until the tolerationSeconds of the pods that wait for the node have passed, that
	// is, until they are terminating, but for an hour at most. A pod that tolerates an unreachable node for over an hour
	// does not count until it is terminating.
	// +optional
	// +default=true
	WaitForTolerations *bool `json:"waitForTolerations,omitempty"`
	// budgetPatience is added to unreachableAfter for pods whose PodDisruptionBudget is healthy without them.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="must not be negative"
	BudgetPatience metav1.Duration `json:"budgetPatience,omitzero"`

	// dryRun fences no node: Events and the status name the nodes that would be fenced.
	// +optional
	DryRun bool `json:"dryRun,omitempty"`
}

// ConditionActive is True while the policy may fence nodes, and False, with the reason, while it halts or a step of it
// fails.
const ConditionActive = "Active"

// FencePolicyStatus is the observed state of a FencePolicy.
type FencePolicyStatus struct {
	// observedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// conditions has the condition Active.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// fences is the number of NodeFences of this policy that have not ended.
	// +optional
	Fences int32 `json:"fences,omitempty"`
	// nodes are the unreachable selected nodes, with the decision about each. At most 100 are listed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Nodes []NodeJudgement `json:"nodes,omitempty"`
}

// NodeJudgement is the decision of a policy about one node.
type NodeJudgement struct {
	// name is the name of the node.
	// +required
	Name string `json:"name"`
	// reason is one word for the decision.
	// +required
	Reason string `json:"reason"`
	// message explains the reason.
	// +optional
	Message string `json:"message,omitempty"`
	// since is the time from which the decision holds.
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
