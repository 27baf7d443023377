package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Agent fences a node and reports the result. Exactly one of job, remediation, networkFence and manual is set.
//
// +kubebuilder:validation:ExactlyOneOf=job;remediation;networkFence;manual
// +kubebuilder:validation:XValidation:rule="has(self.networkFence) == (self.covers == 'Volumes')",message="covers must be Volumes with networkFence, and only then"
// +kubebuilder:validation:XValidation:rule="!has(self.manual) || self.covers == 'UntilUnfenced'",message="covers must be UntilUnfenced with manual, because a person confirms nothing less"
type Agent struct {
	// name identifies the agent in its NodeFence. The name "confirmation" is reserved for the confirmation by a person.
	// +required
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self != 'confirmation'",message="must not be confirmation: the name is reserved for the confirmation by a person"
	Name string `json:"name"`

	// covers is the extent of the fence that the agent's success proves. It is not verified: an agent with a wrong
	// coverage lets two writers reach one volume.
	// +required
	Covers Coverage `json:"covers"`

	// timeout is the time limit of the agent. After it the next agent is tried, and an agent that does not cover Volumes
	// is stopped before that.
	// +optional
	// +default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s') && duration(self) <= duration('24h')",message="must be between 1s and 24h"
	Timeout metav1.Duration `json:"timeout,omitzero"`

	// job runs a Job.
	// +optional
	Job *JobAgent `json:"job,omitempty"`
	// remediation creates a custom resource from a remediation template, such as a template of medik8s.
	// +optional
	Remediation *RemediationAgent `json:"remediation,omitempty"`
	// networkFence creates a NetworkFence of csi-addons.
	// +optional
	NetworkFence *NetworkFenceAgent `json:"networkFence,omitempty"`
	// manual waits for spec.confirmation.
	// +optional
	Manual *ManualAgent `json:"manual,omitempty"`
}

// Coverage is the extent of a fence.
// +kubebuilder:validation:Enum=UntilUnfenced;Reboot;Volumes
type Coverage string

const (
	// CoversUntilUnfenced: no process runs on the node until the agent undoes the fence, for example while the node is
	// powered off.
	CoversUntilUnfenced Coverage = "UntilUnfenced"
	// CoversReboot: the node was rebooted. Its kubelet may start pods again, except pods that were terminating before.
	CoversReboot Coverage = "Reboot"
	// CoversVolumes: the node cannot reach some volumes of one driver. Its processes run.
	CoversVolumes Coverage = "Volumes"
)

// JobAgent runs a Job in one namespace, from a PodTemplate there. The pods get the environment variables FENCE_ACTION
// ("fence" or "unfence"), FENCE_NODE, FENCE_NODE_UID, FENCE_NODE_PROVIDER_ID and FENCE_ATTEMPT. The node is fenced when
// the Job is complete: its program must exit with 0 only once it knows that the node is fenced. It may run more than
// once.
type JobAgent struct {
	// namespace is the namespace of the PodTemplate and the Jobs.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// podTemplateName is the name of the PodTemplate whose pods fence the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PodTemplateName string `json:"podTemplateName"`
	// undo requires the agent to undo the fence, with a Job that has FENCE_ACTION=unfence.
	// +optional
	// +default=false
	Undo bool `json:"undo,omitempty"`
}

// RemediationAgent creates a custom resource from a template. Its kind is the template's kind without the suffix
// "Template", and its name is the node's. The node is fenced when the condition Succeeded of the resource is True. The
// resource is deleted to undo the fence.
type RemediationAgent struct {
	// apiVersion is the apiVersion of the template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// kind is the kind of the template.
	// +required
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*Template$`
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// namespace is the namespace of the template, and of the custom resource.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// name is the name of the template.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// NetworkFenceAgent creates a csiaddons.openshift.io/v1alpha1 NetworkFence for the node's addresses.
//
// +kubebuilder:validation:XValidation:rule="!has(self.volumeAttributes) || self.volumes != 'All'",message="volumeAttributes must not be set with volumes All"
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
	// addresses of this type in status.addresses of the Node, for drivers that report none. If the node reaches the
	// storage through another network, a fence of its internal addresses has no effect.
	// +optional
	// +default="Reported"
	Addresses FenceAddresses `json:"addresses,omitempty"`
	// volumes selects the volumes of the driver that the fence covers. A driver may serve several storage systems, but a
	// NetworkFence affects only one. Matching: volumes whose PVs have all of volumeAttributes. All: all volumes of the
	// driver.
	// +optional
	// +default="Matching"
	Volumes FencedVolumes `json:"volumes,omitempty"`
	// volumeAttributes are compared with spec.csi.volumeAttributes of the PVs. Default: the parameters of the
	// NetworkFenceClass without the parameters of csi-addons itself, such as the clusterID of Ceph. If the class has none,
	// the agent is not started. The status of the NodeFence repeats them.
	// +optional
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(key, key.size() > 0 && key.size() <= 128)",message="keys must have 1 to 128 characters"
	VolumeAttributes map[string]AttributeValue `json:"volumeAttributes,omitempty"`
}

// AttributeValue is a value of spec.csi.volumeAttributes of a PV.
// +kubebuilder:validation:MaxLength=256
type AttributeValue string

// FencedVolumes selects the volumes of a driver that a fence covers.
// +kubebuilder:validation:Enum=Matching;All
type FencedVolumes string

const (
	// VolumesMatching: volumes whose PVs have the given attributes.
	VolumesMatching FencedVolumes = "Matching"
	// VolumesAll: all volumes of the driver.
	VolumesAll FencedVolumes = "All"
)

// MaxVolumeAttributes, MaxAttributeKey and MaxAttributeValue bound volumeAttributes of a NetworkFenceAgent.
const MaxVolumeAttributes, MaxAttributeKey, MaxAttributeValue = 16, 128, 256

// FenceAddresses selects the addresses of a node that are fenced.
// +kubebuilder:validation:Enum=Reported;InternalIP
type FenceAddresses string

const (
	// AddressesReported: the addresses that the driver reports.
	AddressesReported FenceAddresses = "Reported"
	// AddressesInternalIP: the internal addresses of the Node.
	AddressesInternalIP FenceAddresses = "InternalIP"
)

// ManualAgent waits for a person. It has no time limit of its own beyond the agent's.
type ManualAgent struct {
	// instructions tell the person the steps before the confirmation.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Instructions string `json:"instructions,omitempty"`
}
