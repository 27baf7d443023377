package fencing

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// remediated sets the conditions Processing and Succeeded, which node health checks read. They try the next remediator
// as soon as Succeeded is False.
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
// attempt. A proof counts as success even after the end of its fence, unless the node has contradicted it.
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

// Removal describes how a remediator removes the pods from a node, if that is known.
type Removal uint8

const (
	RemovalUnknown Removal = iota
	// RemovalTaints means that the remediator adds the taint node.kubernetes.io/out-of-service, and then reports success.
	RemovalTaints
	// RemovalDeletes means that the remediator force-deletes all pods of the node, and reports success if each deletion
	// succeeds. A refusal by pod safety in one namespace stops it before the pods that it lists later, and before its
	// success.
	RemovalDeletes
)

// RemovalOf returns how a remediator removes the pods from its node, and RemovalUnknown for unknown remediators. group
// and kind identify the custom resource, and strategy is its spec.remediationStrategy with the default of the kind.
func RemovalOf(group, kind, strategy string) Removal {
	switch kind + "." + group {
	case "FenceAgentsRemediation.fence-agents-remediation.medik8s.io":
		if strategy == "" { // an object older than the field
			strategy = "ResourceDeletion"
		}
	case "SelfNodeRemediation.self-node-remediation.medik8s.io":
		if strategy == "Automatic" { // Automatic means the taint from Kubernetes 1.28 on, and NodeFences need 1.30
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
