package explain

import (
	"slices"
	"time"

	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
)

// Pod holds the fields of a Pod that explanations need.
type Pod struct {
	objects.Pod
	Phase v1.PodPhase
	// TerminatingSince is the time of the deletion request, zero for a pod that is not terminating.
	TerminatingSince time.Time
	// Created is the creationTimestamp. Scheduled is the time of binding to a node, zero for an unscheduled pod.
	Created, Scheduled time.Time
	Tolerations        []v1.Toleration
	// Waiting is the pod as policies count it; nil if it does not wait for its node.
	Waiting *fencing.Waiting
	// User is the pod as a user of claims.
	User pvc.Pod
}

// PodOf converts a Pod into a value that keeps no reference to its managedFields.
func PodOf(o *v1.Pod) Pod {
	p := Pod{Pod: objects.PodOf(o), Phase: o.Status.Phase, Created: o.CreationTimestamp.Time,
		Tolerations: slices.Clone(o.Spec.Tolerations), User: pvc.PodOf(o)}
	if waiting, waits := fencing.WaitingOf(o); waits {
		p.Waiting = &waiting
	}
	for _, c := range o.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			p.Scheduled = c.LastTransitionTime.Time
		}
	}
	if o.DeletionTimestamp != nil {
		// The API server sets deletionTimestamp to the end of the grace period.
		p.TerminatingSince = o.DeletionTimestamp.Time
		if grace := o.DeletionGracePeriodSeconds; grace != nil {
			p.TerminatingSince = p.TerminatingSince.Add(-time.Duration(*grace) * time.Second)
		}
	}
	return p
}

// UsersOf returns pods as users of claims.
func UsersOf(pods Read[[]Pod]) Read[[]pvc.Pod] {
	users := Read[[]pvc.Pod]{Made: pods.Made, Err: pods.Err}
	for i := range pods.Value {
		users.Value = append(users.Value, pods.Value[i].User)
	}
	return users
}

// NodeOf returns the fields of a Node that explanations need. It leaves out fields that change with each heartbeat, and
// long ones: names of images, addresses, sizes.
func NodeOf(o *v1.Node) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: o.UID, Labels: o.Labels, Annotations: o.Annotations,
			CreationTimestamp: o.CreationTimestamp, DeletionTimestamp: o.DeletionTimestamp, Finalizers: o.Finalizers},
		Spec:   v1.NodeSpec{Taints: o.Spec.Taints, Unschedulable: o.Spec.Unschedulable},
		Status: v1.NodeStatus{Conditions: slices.Clone(o.Status.Conditions)},
	}
	info := &o.Status.NodeInfo
	n.Status.NodeInfo = v1.NodeSystemInfo{BootID: info.BootID, MachineID: info.MachineID, SystemUUID: info.SystemUUID}
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
	}
	return n
}

// ReadyOf returns the condition Ready of a node, nil if it has none.
func ReadyOf(node *v1.Node) *v1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c
		}
	}
	return nil
}
