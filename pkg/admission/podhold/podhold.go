// Package podhold is the admission of the pod-safety hold: which pods get the finalizer in the write that creates them,
// and the objects by which the API server adds it and keeps it there.
//
// From Kubernetes 1.36 on, a MutatingAdmissionPolicy adds the finalizer (deploy/manifests/pod-safety-hold.yaml). Older
// API servers call a webhook of package admission, which decides by [ChangesOf]. The controller decides when the
// finalizer is removed.
package podhold

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Finalizer on a pod says that processes of the pod may run.
const Finalizer = "csi-reclaimer.io/running"

// Name is the name of the MutatingAdmissionPolicy that adds the finalizer, of its binding, and of the
// MutatingWebhookConfiguration in its place. StaysName is the name of the ValidatingAdmissionPolicy that refuses the
// removal of the finalizer to all but volume-guard, and of its binding.
const (
	Name      = "csi-reclaimer-pod-hold"
	StaysName = Name + "-stays"
)

// MinGracePeriodSeconds is the terminationGracePeriodSeconds of a pod that is created with 0.
const MinGracePeriodSeconds = 1

// Changes are what is changed in a pod in the write that creates it. The zero value changes nothing.
type Changes struct {
	// Hold: the pod gets the Finalizer.
	Hold bool
	// Grace: its terminationGracePeriodSeconds becomes MinGracePeriodSeconds. With 0 each deletion would be a force
	// deletion, also that of the pod's namespace or owner.
	Grace bool
}

// ChangesOf returns the changes of a pod that is being created in a namespace that enforces pod safety. It is a pure
// function, and the same rule as the conditions in deploy/manifests/pod-safety-hold.yaml.
func ChangesOf(pod *v1.Pod) Changes {
	_, mirror := pod.Annotations[v1.MirrorPodAnnotationKey]
	grace := pod.Spec.TerminationGracePeriodSeconds
	return Changes{
		Hold:  hasClaim(pod) && !mirror && !slices.Contains(pod.Finalizers, Finalizer),
		Grace: grace != nil && *grace == 0,
	}
}

func hasClaim(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	})
}
