// Package podsafety admits new pods: it decides which of them get the finalizer of pod-safety and the scheduling gate
// of single-node, in the write that creates them. It names the objects with which the API server adds both and keeps
// them.
//
// From Kubernetes 1.36 on, MutatingAdmissionPolicies add them (deploy/manifests/pod-safety-hold.yaml and
// single-node-gate.yaml). Older API servers call webhooks of package admission, which decide by [HoldOf] and [GateOf].
// The controllers decide on the removal of both.
//
// Stability: for the programs of this repository. It may change with each release.
package podsafety

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

const (
	// Finalizer on a pod means that processes of the pod may run.
	Finalizer = "csi-reclaimer.io/running"
	// Gate is the scheduling gate of a pod that waits for the locks of its claims.
	Gate = "csi-reclaimer.io/volume"
)

// Name is the name of the MutatingAdmissionPolicy that adds the finalizer, of its binding, and of the
// MutatingWebhookConfiguration in its place. StaysName is the name of the ValidatingAdmissionPolicy that allows only
// volume-guard to remove the finalizer, and of its binding.
const (
	Name      = "csi-reclaimer-pod-hold"
	StaysName = Name + "-stays"
)

// GateName is the name of the MutatingAdmissionPolicy that adds the gate, of its binding, and of the
// MutatingWebhookConfiguration in its place. The others are names of ValidatingAdmissionPolicies and their bindings,
// which exempt volume-guard: GateRequiredName refuses a new pod without the gate, GateStaysName the removal of the
// gate, and LockStaysName a change of the lock of a claim.
const (
	GateName         = "csi-reclaimer-pod-gate"
	GateRequiredName = GateName + "-required"
	GateStaysName    = GateName + "-stays"
	LockStaysName    = "csi-reclaimer-claim-lock-stays"
)

// MinGracePeriodSeconds replaces a terminationGracePeriodSeconds of 0 in new pods.
const MinGracePeriodSeconds = 1

// Changes are the changes to a pod in the write that creates it; the zero value changes nothing.
type Changes struct {
	// Hold means that the pod gets the Finalizer.
	Hold bool
	// Grace means that terminationGracePeriodSeconds becomes MinGracePeriodSeconds. With 0, each deletion would be a force
	// deletion, including the deletion of the pod's namespace or owner.
	Grace bool
	// Gate means that the pod gets the Gate.
	Gate bool
}

// HoldOf is a pure function that returns the changes to a pod that is being created in a namespace that enforces pod
// safety. Its rule is the same as the conditions in deploy/manifests/pod-safety-hold.yaml.
func HoldOf(pod *v1.Pod) Changes {
	grace := pod.Spec.TerminationGracePeriodSeconds
	return Changes{
		Hold: (objects.HasClaims(pod) || objects.OfSet(pod)) && !mirror(pod) &&
			!slices.Contains(pod.Finalizers, Finalizer),
		Grace: grace != nil && *grace == 0,
	}
}

// GateOf is a pure function that returns the changes to a pod that is being created in a namespace that asks for locks
// of claims. Its rule is the same as the conditions in deploy/manifests/single-node-gate.yaml. A pod that names its
// node is not changed, because it cannot have a gate: [GateRequiredName] refuses it.
func GateOf(pod *v1.Pod) Changes {
	return Changes{Gate: objects.HasClaims(pod) && !mirror(pod) && pod.Spec.NodeName == "" &&
		!slices.Contains(pod.Spec.SchedulingGates, v1.PodSchedulingGate{Name: Gate})}
}

// mirror reports whether a pod is the mirror of a static pod, which its kubelet creates and deletes.
func mirror(pod *v1.Pod) bool {
	_, found := pod.Annotations[v1.MirrorPodAnnotationKey]
	return found
}
