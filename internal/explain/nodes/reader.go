package nodes

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/pods"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

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
