package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Agent fences a node, and says so. Exactly one of job, remediation, networkFence and manual is set.
//
// +kubebuilder:validation:ExactlyOneOf=job;remediation;networkFence;manual
// +kubebuilder:validation:XValidation:rule="has(self.networkFence) == (self.covers == 'Volumes')",message="networkFence covers Volumes, and nothing else does"
// +kubebuilder:validation:XValidation:rule="!has(self.manual) || self.covers == 'UntilUnfenced'",message="manual covers UntilUnfenced: that is what a person confirms"
type Agent struct {
	// name names the agent in its NodeFence. It is not "confirmation", which is the name of a person's word.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != 'confirmation'",message="confirmation is the name of a person's word"
	Name string `json:"name"`

	// covers is what it proves that the agent has succeeded. Nothing checks this: an agent that says more than it does
	// lets two writers at one volume.
	// +required
	Covers Coverage `json:"covers"`

	// timeout is how long the agent has. After it the next one is tried. The agent is stopped before, if it does not cover
	// Volumes.
	// +optional
	// +default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be between 1s and 24h"
	Timeout metav1.Duration `json:"timeout,omitzero"`

	// job runs a Job.
	// +optional
	Job *JobAgent `json:"job,omitempty"`
	// remediation creates a custom resource of a remediation template, as those of medik8s.
	// +optional
	Remediation *RemediationAgent `json:"remediation,omitempty"`
	// networkFence creates a NetworkFence of csi-addons.
	// +optional
	NetworkFence *NetworkFenceAgent `json:"networkFence,omitempty"`
	// manual waits for spec.confirmation.
	// +optional
	Manual *ManualAgent `json:"manual,omitempty"`
}

// Coverage is what a fence proves.
// +kubebuilder:validation:Enum=UntilUnfenced;Reboot;Volumes
type Coverage string

const (
	// CoversUntilUnfenced: no process runs on the node until the agent undoes the fence, as when it is powered off.
	CoversUntilUnfenced Coverage = "UntilUnfenced"
	// CoversReboot: the node was rebooted. Its kubelet may start pods again, except those that were terminating before.
	CoversReboot Coverage = "Reboot"
	// CoversVolumes: the node does not reach some volumes of one driver. Its processes run.
	CoversVolumes Coverage = "Volumes"
)

// JobAgent runs a Job in one namespace, of a PodTemplate there. The pods get the environment variables FENCE_ACTION
// ("fence" or "unfence"), FENCE_NODE, FENCE_NODE_UID, FENCE_NODE_PROVIDER_ID and FENCE_ATTEMPT. The node is fenced when
// the Job is complete: its program must exit with 0 only once it knows that the node is. It may run more than once.
type JobAgent struct {
	// namespace has the PodTemplate and the Jobs.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// podTemplateName is the PodTemplate that fences.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PodTemplateName string `json:"podTemplateName"`
	// undo: the agent has to undo the fence, by a Job with FENCE_ACTION=unfence.
	// +optional
	// +default=false
	Undo bool `json:"undo,omitempty"`
}

// RemediationAgent creates a custom resource of a template, whose kind is that of the template without its last word
// "Template", and whose name is the node's. The node is fenced when its condition Succeeded is True. It is deleted to
// undo the fence.
type RemediationAgent struct {
	// apiVersion is that of the template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// kind is that of the template.
	// +required
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*Template$`
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// namespace is that of the template. The custom resource is created in it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name is that of the template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// NetworkFenceAgent creates a csiaddons.openshift.io/v1alpha1 NetworkFence of the node's addresses.
//
// +kubebuilder:validation:XValidation:rule="!has(self.volumeAttributes) || self.volumes != 'All'",message="volumes All has no volumeAttributes"
type NetworkFenceAgent struct {
	// driver is the CSI driver whose volumes the node is cut off from.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Driver string `json:"driver"`
	// networkFenceClassName names the NetworkFenceClass, which has the driver's parameters and Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NetworkFenceClassName string `json:"networkFenceClassName"`
	// addresses selects the addresses by which the storage system knows the node. Reported: the driver reports them in
	// the CSIAddonsNode of the node for the NetworkFenceClass; without any, the agent is not started. InternalIP: the
	// addresses of that type in status.addresses of the Node, for drivers that report none. Where the storage is reached
	// by another network, such a fence keeps the node from nothing.
	// +optional
	// +default="Reported"
	Addresses FenceAddresses `json:"addresses,omitempty"`
	// volumes is which volumes of the driver the node is cut off from, for a driver may serve several storage systems,
	// and a NetworkFence is of one. Matching: those whose PVs have all of volumeAttributes. All: all of the driver.
	// +optional
	// +default="Matching"
	Volumes FencedVolumes `json:"volumes,omitempty"`
	// volumeAttributes are what spec.csi.volumeAttributes of the PVs have. Without any, they are the parameters of the
	// NetworkFenceClass but those of csi-addons itself, such as the clusterID of Ceph; where it has none, the agent is not
	// started. The status of the NodeFence has them, too.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() > 0 && key.size() <= 128)",message="keys must have 1 to 128 characters"
	VolumeAttributes map[string]AttributeValue `json:"volumeAttributes,omitempty"`
}

// AttributeValue is a value of spec.csi.volumeAttributes of a PV.
// +kubebuilder:validation:MaxLength=256
type AttributeValue string

// FencedVolumes is which volumes of a driver a node is cut off from.
// +kubebuilder:validation:Enum=Matching;All
type FencedVolumes string

const (
	// VolumesMatching: those whose PVs have some attributes.
	VolumesMatching FencedVolumes = "Matching"
	// VolumesAll: all of the driver.
	VolumesAll FencedVolumes = "All"
)

// MaxVolumeAttributes, MaxAttributeKey and MaxAttributeValue bound volumeAttributes of a NetworkFenceAgent.
const MaxVolumeAttributes, MaxAttributeKey, MaxAttributeValue = 16, 128, 256

// FenceAddresses is which addresses of a node are fenced.
// +kubebuilder:validation:Enum=Reported;InternalIP
type FenceAddresses string

const (
	// AddressesReported: those that the driver reports.
	AddressesReported FenceAddresses = "Reported"
	// AddressesInternalIP: the internal ones of the Node.
	AddressesInternalIP FenceAddresses = "InternalIP"
)

// ManualAgent waits for a person. It has no time limit of its own beyond the agent's.
type ManualAgent struct {
	// instructions say to that person what to do before they confirm.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Instructions string `json:"instructions,omitempty"`
}
