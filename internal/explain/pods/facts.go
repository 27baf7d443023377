package pods

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/nodefence"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// ConfirmAnnotation on a pod confirms that its processes cannot run, so that its force deletion is admitted and the pod
// released. Its value is the UID of the pod.
const ConfirmAnnotation = objects.ConfirmAnnotation

// Pod is what is kept of each pod of a list.
type Pod struct {
	objects.Pod
	Phase v1.PodPhase
	// Finalizers are all but the one of volume-guard.
	Finalizers []string
	// TerminatingSince is when the deletion was asked for, zero for a pod that nobody has deleted.
	TerminatingSince time.Time
	// Created is when it was created, and Scheduled when it was bound to a node, zero for one that was not.
	Created, Scheduled time.Time
}

// PodOf reads what is needed of a Pod, without keeping a reference to it.
func PodOf(o *v1.Pod) Pod {
	p := Pod{Pod: objects.PodOf(o), Phase: o.Status.Phase, Created: o.CreationTimestamp.Time}
	for _, c := range o.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			p.Scheduled = c.LastTransitionTime.Time
		}
	}
	for _, name := range o.Finalizers {
		if name != objects.RunningFinalizer {
			p.Finalizers = append(p.Finalizers, name)
		}
	}
	if o.DeletionTimestamp != nil {
		// The API server sets it to the end of the grace period.
		p.TerminatingSince = o.DeletionTimestamp.Time
		if grace := o.DeletionGracePeriodSeconds; grace != nil {
			p.TerminatingSince = p.TerminatingSince.Add(-time.Duration(*grace) * time.Second)
		}
	}
	return p
}

// uses reports whether the pod names a claim of its namespace, and may have processes or get some.
func (p Pod) uses(claim string) bool { return !p.Final && slices.Contains(p.Claims, claim) }

// Facts is what was read of one pod. The zero value of each field is not known.
type Facts struct {
	// Now is when the reads were made.
	Now       time.Time
	Pod       *v1.Pod
	Namespace explain.Read[*v1.Namespace]
	// Node and Lease are the pod's node and the Lease of its kubelet, read after the pod; nil for one that does not
	// exist. None is read for a pod without a node.
	Node  explain.Read[*v1.Node]
	Lease explain.Read[*coordinationv1.Lease]
	// Fence is the NodeFence of the pod's node, read after the pod.
	Fence explain.Read[*v1alpha1.NodeFence]
	// Guards are the Leases by which the replicas of volume-guard elect a leader.
	Guards explain.Read[[]coordinationv1.Lease]
	// Claims are those that the pod names, by their names, nil for one that does not exist.
	Claims map[string]explain.Read[*v1.PersistentVolumeClaim]
	// Pods are all of the namespace.
	Pods        explain.Read[[]Pod]
	Attachments explain.Read[[]storagev1.VolumeAttachment]
	// Events are those about the pod, the latest last.
	Events explain.Read[[]v1.Event]
}

// mode returns what the namespace asks for, ModeOff where that is not known.
func (f Facts) mode() podsafety.Mode {
	if f.Namespace.Value == nil {
		return podsafety.ModeOff
	}
	return podsafety.ModeOf(f.Namespace.Value.Labels)
}

// ForceDeletionRefused reports whether the API server may refuse a force deletion of the pod that is not confirmed: the
// namespace asks for that, or could not be read.
func (f Facts) ForceDeletionRefused() bool {
	return !f.Namespace.OK() || f.mode() == podsafety.ModeEnforce
}

// on returns what was read of the pod's node.
func (f Facts) on() OnNode { return OnNode{Node: f.Node, Lease: f.Lease, Fence: f.Fence} }

func (f Facts) hold() podsafety.Facts {
	return holdFacts(objects.PodOf(f.Pod), f.mode(), f.on(), f.Now)
}

// OnNode is what was read of a node after its pods. The zero value of each field is not known.
type OnNode struct {
	// Node, Lease and Fence are the Node, the Lease of its kubelet and its NodeFence, nil for one that does not exist.
	Node  explain.Read[*v1.Node]
	Lease explain.Read[*coordinationv1.Lease]
	Fence explain.Read[*v1alpha1.NodeFence]
}

// Judge returns what volume-guard decides on a pod, and why. It is a pure function; now is when the reads were made.
func Judge(pod Pod, on OnNode, now time.Time) podsafety.Explanation {
	return podsafety.Explain(holdFacts(pod.Pod, podsafety.ModeOff, on, now), now)
}

// holdFacts is what a volume-guard that has just started would know, after it has read pod, Node, Lease and NodeFence,
// in that order.
func holdFacts(pod objects.Pod, mode podsafety.Mode, on OnNode, now time.Time) podsafety.Facts {
	read := func(order int) session.Read { return session.Read{Sent: now, Order: order} }
	f := podsafety.Facts{Mode: mode, Pod: pod, PodRead: read(1)}
	f.Sight = podsafety.NewTracker().Saw(pod, podsafety.NodeUnseen, now)
	if pod.Node == "" {
		return f
	}
	if on.Node.OK() {
		if on.Node.Value != nil {
			f.Node = podsafety.NodeOf(on.Node.Value)
		}
		f.Node.Read, f.NodeSeen = read(2), f.Node.Seen()
	}
	if on.Lease.OK() {
		f.Lease = podsafety.LeaseFacts{Read: read(3), Found: on.Lease.Value != nil}
		if on.Lease.Value != nil {
			f.Lease.ResourceVersion = on.Lease.Value.ResourceVersion
		}
		f.Sight.LeaseVersion, f.Sight.LeaseSince = f.Lease.ResourceVersion, now
	}
	if on.Fence.OK() && on.Fence.Value != nil {
		f.FenceSeen, f.Fence = true, nodefence.Facts(on.Fence.Value, pod.UID)
		f.Fence.Read, f.Storage.Fenced = read(4), fencing.FenceOf(on.Fence.Value).MayKeepVolumes()
	}
	return f
}

// forced is what is known if the pod is force-deleted now, without a confirmation: what that would risk.
func forced(f podsafety.Facts, now time.Time) podsafety.Facts {
	f.Pod.Held, f.Pod.Confirmation = true, objects.NotConfirmed
	if !f.Pod.Terminating {
		f.Pod.Terminating, f.Pod.GraceEnds = true, now
	}
	return f
}

// readyOf returns the condition Ready of a node, nil where it has none.
func readyOf(node *v1.Node) *v1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == v1.NodeReady {
			return c
		}
	}
	return nil
}

// downSince returns since when a node is not Ready, the zero time where that is not known.
func downSince(node *v1.Node) time.Time {
	if node == nil {
		return time.Time{}
	}
	if ready := readyOf(node); ready != nil && ready.Status != v1.ConditionTrue {
		return ready.LastTransitionTime.Time
	}
	return time.Time{}
}
