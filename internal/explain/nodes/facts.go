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

// Existing returns the NodeFence, nil if it does not exist or was not read.
func (f Facts) Existing() *v1alpha1.NodeFence { return f.Fence.Value }

// active returns the NodeFence, nil if it has ended, does not exist or was not read.
func (f Facts) active() *v1alpha1.NodeFence {
	if fence := f.Fence.Value; fence != nil && !explain.FenceEnded(fence) {
		return fence
	}
	return nil
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
func (f Facts) fenceFacts(fence *v1alpha1.NodeFence) fencing.Facts {
	read := func(order int) session.Read { return session.Read{Sent: f.Now, Order: order} }
	facts := fencing.Facts{Fence: fencing.FenceOf(fence), FenceRead: read(1)}
	if f.Node.OK() {
		if f.Node.Value != nil {
			facts.Node = objects.NodeOf(f.Node.Value)
		}
		facts.NodeRead, facts.TaintSeen = read(2), facts.Node.Tainted()
	}
	if f.Lease.OK() {
		if f.Lease.Value != nil {
			facts.Lease.ResourceVersion = f.Lease.Value.ResourceVersion
		}
		facts.LeaseRead = read(3)
		facts.Sight.LeaseVersion, facts.Sight.LeaseSince = facts.Lease.ResourceVersion, renewed(f.Lease.Value)
	}
	if remaining := f.remains(); remaining.OK() {
		facts.Remaining = remaining.Value
		facts.Remaining.Read, facts.Remaining.Basis, facts.Remaining.AttachmentsListed = read(4), facts.Basis(), true
	}
	return facts
}

// remains returns the pods and volumes that remain on the node from before its fence. It is unknown unless both lists
// were read.
func (f Facts) remains() explain.Read[fencing.RemainingFacts] {
	var r fencing.RemainingFacts
	if !f.Pods.OK() || !f.Attachments.OK() {
		return explain.Read[fencing.RemainingFacts]{}
	}
	for _, pod := range f.Pods.Value {
		r.AddPod(pod.Pod)
	}
	for i := range f.Attachments.Value {
		r.AddAttachment(f.Attachments.Value[i].DeletionTimestamp != nil)
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
	if len(f.Policies.Value) > 0 && f.Node.Value != nil && !explain.IsReady(f.Node.Value) {
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
	return explain.Then(all, func(all []storagev1.VolumeAttachment) []storagev1.VolumeAttachment {
		return explain.Filter(all, func(a storagev1.VolumeAttachment) bool { return a.Spec.NodeName == node })
	})
}

func readPolicies(ctx context.Context, c explain.Cluster) explain.Read[[]*v1alpha1.FencePolicy] {
	all, err := kube.ListAll(ctx, c.Fencing.Policies.List, metav1.ListOptions{}, explain.Same[v1alpha1.FencePolicy])
	slices.SortFunc(all, func(a, b *v1alpha1.FencePolicy) int { return cmp.Compare(a.Name, b.Name) })
	return explain.ReadOf(all, explain.FencingError(err))
}

func readCluster(ctx context.Context, c explain.Cluster) (f ClusterFacts) {
	f.Pods = c.Pods(ctx, metav1.NamespaceAll)
	f.Nodes = c.Nodes(ctx)
	f.Leases = explain.ByName(explain.ReadOf(kube.ListAll(ctx, c.Coordination.Leases(v1.NamespaceNodeLease).List,
		metav1.ListOptions{}, explain.Same[coordinationv1.Lease])))
	f.Fences = explain.ByName(c.Fences(ctx))
	f.Namespaces = c.Namespaces(ctx, metav1.NamespaceAll)
	f.Budgets = explain.ReadOf(kube.ListAll(ctx, c.Policy.PodDisruptionBudgets(metav1.NamespaceAll).List,
		metav1.ListOptions{}, explain.Value[policyv1.PodDisruptionBudget]))
	return f
}
