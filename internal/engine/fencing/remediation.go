package fencing

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// remediated says in a status what node health checks read: whether the fence is under way, and whether it has
// succeeded. Where Succeeded is False, they try the next remediator at once.
func (f Fence) remediated(s *v1alpha1.NodeFenceStatus, now time.Time) {
	f.Status = *s
	processing, succeeded, why := f.remediation()
	if why == "" {
		return
	}
	c := metav1.Condition{Type: v1alpha1.ConditionProcessing, Status: processing, Reason: string(why),
		Message: why.Sentence(), ObservedGeneration: f.Generation, LastTransitionTime: metav1.NewTime(now)}
	meta.SetStatusCondition(&s.Conditions, c)
	c.Type, c.Status = v1alpha1.ConditionSucceeded, succeeded
	meta.SetStatusCondition(&s.Conditions, c)
}

// remediation returns the conditions Processing and Succeeded and their reason, which is empty before the first
// attempt. A proof stays one when its fence has ended, but not when the node has contradicted it.
func (f Fence) remediation() (processing, succeeded metav1.ConditionStatus, why Reason) {
	switch {
	case f.Status.Proof != nil:
		return metav1.ConditionFalse, metav1.ConditionTrue, ReasonFenced
	case f.returned():
		return metav1.ConditionFalse, metav1.ConditionFalse, ReasonReturned
	case f.attempt() != nil:
		return metav1.ConditionTrue, metav1.ConditionUnknown, ReasonFencing
	case f.GivenUp:
		return metav1.ConditionFalse, metav1.ConditionFalse, ReasonHealthCheckGaveUp
	case f.exhausted():
		return metav1.ConditionFalse, metav1.ConditionFalse, ReasonAllAgentsFailed
	case len(f.Status.Attempts) > 0:
		return metav1.ConditionTrue, metav1.ConditionUnknown, ReasonFencing
	}
	return "", "", ""
}

// Removal is how a remediator takes the pods from a node. The zero value: it is not known.
type Removal uint8

const (
	RemovalUnknown Removal = iota
	// RemovalTaints: it adds the taint node.kubernetes.io/out-of-service, and has succeeded.
	RemovalTaints
	// RemovalDeletes: it deletes all pods of the node without grace, and has succeeded if each deletion does. One
	// namespace in which pod safety refuses that keeps it from all that it lists later, and from its success.
	RemovalDeletes
)

// RemovalOf returns how the remediator of a custom resource takes the pods from its node: group and kind are those of
// the custom resource, strategy is its spec.remediationStrategy, with the default of its kind. Other remediators than
// these are not known.
func RemovalOf(group, kind, strategy string) Removal {
	switch kind + "." + group {
	case "FenceAgentsRemediation.fence-agents-remediation.medik8s.io":
		if strategy == "" { // of an object that is older than the field
			strategy = "ResourceDeletion"
		}
	case "SelfNodeRemediation.self-node-remediation.medik8s.io":
		if strategy == "Automatic" { // Kubernetes 1.28 and newer, and there are no NodeFences before 1.30
			strategy = "OutOfServiceTaint"
		}
	default:
		return RemovalUnknown
	}
	switch strategy {
	case "OutOfServiceTaint":
		return RemovalTaints
	case "ResourceDeletion":
		return RemovalDeletes
	}
	return RemovalUnknown
}
