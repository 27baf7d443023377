package pods

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
)

// Read reads the facts about a pod, all live. It returns an error if the pod does not exist or cannot be read; all
// other failed reads are part of the facts.
func Read(ctx context.Context, c explain.Cluster, namespace, name string) (Facts, error) {
	c = c.Live()
	pod, err := c.Core.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Facts{}, fmt.Errorf("read pod %q: %w", namespace+"/"+name, err)
	}
	f := Facts{Pod: pod, Claims: map[string]explain.Read[*v1.PersistentVolumeClaim]{}}
	if node := pod.Spec.NodeName; node != "" {
		f.OnNode = ReadOnNode(ctx, c, node)
	}
	f.Namespace = explain.Optional(c.Core.Namespaces().Get(ctx, namespace, metav1.GetOptions{}))
	for _, claim := range explain.PodOf(pod).Claims {
		f.Claims[claim] = explain.Optional(c.Claim(ctx, namespace, claim))
	}
	if len(f.Claims) > 0 {
		f.Pods = c.Pods(ctx, namespace)
		f.Attachments = c.Attachments(ctx)
	}
	f.Guards = explain.ReadGuards(ctx, c)
	f.Events = c.Events(ctx, namespace, pod)
	f.Now = c.Now()
	return f, nil
}

// ReadOnNode reads the NodeFence of a node, and then the Node and its Lease: evidence has to be newer than the pod, and
// a reboot newer than the fence.
func ReadOnNode(ctx context.Context, c explain.Cluster, node string) (on OnNode) {
	on.Fence = c.Fence(ctx, node)
	on.Node = explain.Optional(c.Node(ctx, node))
	on.Lease = explain.Optional(c.KubeletLease(ctx, node))
	return on
}

// ReadList reads the facts about the pods of a namespace, or of all namespaces if namespace is empty. It returns an
// error if the pods cannot be read.
func ReadList(ctx context.Context, c explain.Cluster, namespace string) (ListFacts, error) {
	f := ListFacts{Pods: c.Pods(ctx, namespace)}
	if f.Pods.Err != nil {
		return ListFacts{}, fmt.Errorf("list pods: %w", f.Pods.Err)
	}
	f.readNodes(ctx, c)
	f.Now = c.Now()
	return f, nil
}

// ReadNamespace reads the facts about a namespace and the pods and claims in it. It returns an error if the namespace
// does not exist or cannot be read.
func ReadNamespace(ctx context.Context, c explain.Cluster, name string) (NamespaceFacts, error) {
	namespace, err := c.Core.Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return NamespaceFacts{}, fmt.Errorf("read namespace %q: %w", name, err)
	}
	f := NamespaceFacts{Namespace: namespace, ListFacts: ListFacts{Pods: c.Pods(ctx, name)}}
	if f.Pods.OK() {
		f.readNodes(ctx, c)
	}
	f.Claims.Made = true
	f.Claims.Err = c.EachClaim(ctx, name, func(o *v1.PersistentVolumeClaim) {
		f.Claims.Value = append(f.Claims.Value, o.Name)
	})
	f.Guards = explain.ReadGuards(ctx, c)
	f.Now = c.Now()
	return f, nil
}

// readNodes reads, after the pods, the NodeFences if a held pod is terminating, then all nodes, and the Leases of
// missing nodes that held pods name.
func (f *ListFacts) readNodes(ctx context.Context, c explain.Cluster) {
	if slices.ContainsFunc(f.Pods.Value, func(p explain.Pod) bool { return p.Held && p.Terminating }) {
		f.Fences = explain.ByName(c.Fences(ctx))
	}
	if f.Nodes = explain.ByName(c.Nodes(ctx)); !f.Nodes.OK() {
		return
	}
	f.Leases = map[string]explain.Read[*coordinationv1.Lease]{}
	for _, pod := range f.Pods.Value {
		_, read := f.Leases[pod.Node]
		if pod.Held && pod.Node != "" && f.Nodes.Value[pod.Node] == nil && !read {
			f.Leases[pod.Node] = explain.Optional(c.KubeletLease(ctx, pod.Node))
		}
	}
}

func names(claims []string) []string { return slices.Sorted(slices.Values(claims)) }
