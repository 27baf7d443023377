package nodes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
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

// Read reads the facts about a node, all live. Failed reads are part of the facts, and so is a Node that does not
// exist, because its pods and its NodeFence may remain. The evidence is read after the pods.
func Read(ctx context.Context, c explain.Cluster, name string) Facts {
	c = c.Live()
	f := Facts{Name: name, Pods: c.PodsOn(ctx, name)}
	f.OnNode = pods.ReadOnNode(ctx, c, name)
	f.Attachments = attachmentsTo(name, c.Attachments(ctx))
	f.Policies = readPolicies(ctx, c)
	if len(f.Policies.Value) > 0 && f.Node.Value != nil && !ready(f.Node.Value) {
		f.Cluster = readCluster(ctx, c)
	}
	f.Guards = explain.ReadGuards(ctx, c)
	// Events about objects without a namespace are in namespace "default".
	f.Events = c.EventsOf(ctx, metav1.NamespaceDefault,
		fields.Set{"involvedObject.kind": "NodeFence", "involvedObject.name": name},
		fields.Set{"involvedObject.kind": "Node", "involvedObject.name": name})
	f.Now = c.Now()
	return f
}

// ReadList reads the facts about all NodeFences. It returns an error if the NodeFences cannot be read.
func ReadList(ctx context.Context, c explain.Cluster) (ListFacts, error) {
	fences := c.Fences(ctx)
	if fences.Err != nil {
		return ListFacts{}, fmt.Errorf("list NodeFences: %w", fences.Err)
	}
	f := ListFacts{Fences: fences.Value, On: map[string]Facts{}}
	if len(f.Fences) > 0 {
		attachments := c.Attachments(ctx)
		for _, fence := range f.Fences {
			on := Facts{Name: fence.Name, Pods: c.PodsOn(ctx, fence.Name)}
			on.Node = explain.Optional(c.Node(ctx, fence.Name))
			on.Lease = explain.Optional(c.KubeletLease(ctx, fence.Name))
			on.Attachments = attachmentsTo(fence.Name, attachments)
			f.On[fence.Name] = on
		}
	}
	f.Now = c.Now()
	return f, nil
}

// ReadPolicy reads a FencePolicy. It returns an error if the policy does not exist or cannot be read.
func ReadPolicy(ctx context.Context, c explain.Cluster, name string) (*v1alpha1.FencePolicy, error) {
	p, err := c.Fencing.Policies.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read FencePolicy %q: %w", name, explain.FencingError(err))
	}
	return p, nil
}

// attachmentsTo returns the VolumeAttachments to a node.
func attachmentsTo(node string,
	all explain.Read[[]storagev1.VolumeAttachment]) explain.Read[[]storagev1.VolumeAttachment] {
	to := explain.Read[[]storagev1.VolumeAttachment]{Made: all.Made, Err: all.Err}
	for i := range all.Value {
		if all.Value[i].Spec.NodeName == node {
			to.Value = append(to.Value, all.Value[i])
		}
	}
	return to
}

func readPolicies(ctx context.Context, c explain.Cluster) explain.Read[[]*v1alpha1.FencePolicy] {
	all, err := kube.ListAll(ctx, c.Fencing.Policies.List, metav1.ListOptions{},
		func(o *v1alpha1.FencePolicy) *v1alpha1.FencePolicy { return o })
	if err != nil {
		return explain.Failed[[]*v1alpha1.FencePolicy](explain.FencingError(err))
	}
	slices.SortFunc(all, func(a, b *v1alpha1.FencePolicy) int { return cmp.Compare(a.Name, b.Name) })
	return explain.Found(all)
}

func readCluster(ctx context.Context, c explain.Cluster) (f ClusterFacts) {
	f.Pods = c.Pods(ctx, metav1.NamespaceAll)
	f.Nodes = c.Nodes(ctx)
	f.Leases = explain.ByName(explain.ReadOf(kube.ListAll(ctx, c.Coordination.Leases(v1.NamespaceNodeLease).List,
		metav1.ListOptions{}, func(o *coordinationv1.Lease) *coordinationv1.Lease { return o })))
	f.Fences = explain.ByName(c.Fences(ctx))
	f.Namespaces = c.Namespaces(ctx, metav1.NamespaceAll)
	f.Budgets = explain.ReadOf(kube.ListAll(ctx, c.Policy.PodDisruptionBudgets(metav1.NamespaceAll).List,
		metav1.ListOptions{}, func(o *policyv1.PodDisruptionBudget) policyv1.PodDisruptionBudget { return *o }))
	return f
}
