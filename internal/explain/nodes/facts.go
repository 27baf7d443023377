package nodes

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// holdsClaims reports whether the pod's presence keeps a claim from other pods.
func holdsClaims(p explain.Pod) bool { return len(p.Claims) > 0 && !p.Mirror && (!p.Final || p.Held) }

func isHeld(p explain.Pod) bool { return p.Held && p.Terminating }

// Facts holds the results of all reads about one node. The zero value of each field is unknown.
type Facts struct {
	// Now is the time at the end of the reads.
	Now  time.Time
	Name string
	// Pods holds the pods that are bound to the node. All other fields are read after it.
	Pods explain.Read[[]explain.Pod]
	// OnNode holds Node, Lease and NodeFence; the Value is nil if the object does not exist.
	pods.OnNode
	Attachments explain.Read[[]storagev1.VolumeAttachment]
	// Policies holds all FencePolicies, sorted by name.
	Policies explain.Read[[]*v1alpha1.FencePolicy]
	// Cluster is only read if a policy exists and the node is not Ready.
	Cluster ClusterFacts
	// Guards holds volume-guard's leader election Leases.
	Guards explain.Read[[]coordinationv1.Lease]
	// Events holds the Events about the NodeFence and the Node, the latest last.
	Events explain.Read[[]v1.Event]
}

// ClusterFacts holds the policies' other input, from the whole cluster.
type ClusterFacts struct {
	Nodes explain.Read[[]*v1.Node]
	// Leases holds the kubelets' Leases, by node.
	Leases explain.Read[map[string]*coordinationv1.Lease]
	// Fences holds all NodeFences, by node.
	Fences explain.Read[map[string]*v1alpha1.NodeFence]
	// Namespaces holds the labels of all namespaces, by name.
	Namespaces explain.Read[map[string]map[string]string]
	// Pods holds the pods of all nodes.
	Pods    explain.Read[[]explain.Pod]
	Budgets explain.Read[[]policyv1.PodDisruptionBudget]
}

// node returns the Node, nil if it does not exist or was not read.
func (f Facts) node() *v1.Node {
	if !f.Node.OK() {
		return nil
	}
	return f.Node.Value
}

// fence returns the NodeFence, nil if it does not exist or was not read.
func (f Facts) fence() *v1alpha1.NodeFence {
	if !f.Fence.OK() {
		return nil
	}
	return f.Fence.Value
}

// active returns the NodeFence, nil if it has ended, does not exist or was not read.
func (f Facts) active() *v1alpha1.NodeFence {
	if fence := f.fence(); fence != nil && !explain.FenceEnded(fence) {
		return fence
	}
	return nil
}

func ready(node *v1.Node) bool {
	c := explain.ReadyOf(node)
	return c != nil && c.Status == v1.ConditionTrue
}

func controlPlane(node *v1.Node) bool { return objects.NodeOf(node).ControlPlane }

// renewed returns spec.renewTime, which is by the holder's clock, or the zero time.
func renewed(lease *coordinationv1.Lease) time.Time {
	if lease == nil || lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

// fenceFacts returns volume-guard's facts about a fence after reads of the NodeFence, the Node, its Lease and its
// remaining pods and volumes, in this order. The agent's object is not read.
func fenceFacts(fence *v1alpha1.NodeFence, on pods.OnNode, remaining explain.Read[fencing.RemainingFacts],
	now time.Time) fencing.Facts {
	read := func(order int) session.Read { return session.Read{Sent: now, Order: order} }
	f := fencing.Facts{Fence: fencing.FenceOf(fence), FenceRead: read(1)}
	if on.Node.OK() {
		if on.Node.Value != nil {
			f.Node = objects.NodeOf(on.Node.Value)
		}
		f.NodeRead, f.TaintSeen = read(2), f.Node.Tainted()
	}
	if on.Lease.OK() {
		if on.Lease.Value != nil {
			f.Lease.ResourceVersion = on.Lease.Value.ResourceVersion
		}
		f.LeaseRead = read(3)
		f.Sight.LeaseVersion, f.Sight.LeaseSince = f.Lease.ResourceVersion, renewed(on.Lease.Value)
	}
	if remaining.OK() {
		f.Remaining = remaining.Value
		f.Remaining.Read = read(4)
	}
	return f
}

// remainingOf returns the pods and volumes that remain on a node from before its fence. It is unknown unless both
// lists were read.
func remainingOf(all explain.Read[[]explain.Pod],
	attachments explain.Read[[]storagev1.VolumeAttachment]) explain.Read[fencing.RemainingFacts] {
	switch {
	case !all.OK():
		return explain.Read[fencing.RemainingFacts]{Made: all.Made, Err: all.Err}
	case !attachments.OK():
		return explain.Read[fencing.RemainingFacts]{Made: attachments.Made, Err: attachments.Err}
	}
	var r fencing.RemainingFacts
	for _, pod := range all.Value {
		r.AddPod(pod.Pod)
	}
	for i := range attachments.Value {
		r.AddAttachment(attachments.Value[i].DeletionTimestamp != nil)
	}
	return explain.Found(r)
}
