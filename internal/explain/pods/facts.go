package pods

import (
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// ConfirmAnnotation on a pod confirms that its processes cannot run. With the pod's UID as its value, it admits the
// pod's force deletion and releases the pod.
const ConfirmAnnotation = objects.ConfirmAnnotation

// uses reports whether the pod names a claim of its namespace, and may have processes or start some.
func uses(p explain.Pod, claim string) bool { return !p.Final && slices.Contains(p.Claims, claim) }

// Facts holds the results of all reads about one pod. The zero value of each field is unknown.
type Facts struct {
	// Now is the time at the end of the reads.
	Now       time.Time
	Pod       *v1.Pod
	Namespace explain.Read[*v1.Namespace]
	// OnNode is not read for a pod without a node.
	OnNode
	// Guards holds volume-guard's leader election Leases.
	Guards explain.Read[[]coordinationv1.Lease]
	// Claims holds the claims that the pod names, by name. The Value is nil if the claim does not exist.
	Claims map[string]explain.Read[*v1.PersistentVolumeClaim]
	// Pods holds all pods of the namespace. It is only read for a pod with claims, like Attachments.
	Pods        explain.Read[[]explain.Pod]
	Attachments explain.Read[[]storagev1.VolumeAttachment]
	// Events holds the Events about the pod, the latest last.
	Events explain.Read[[]v1.Event]
}

// mode returns the pod safety mode of the namespace, ModeOff if it is unknown.
func (f Facts) mode() podsafety.Mode {
	if f.Namespace.Value == nil {
		return podsafety.ModeOff
	}
	return podsafety.ModeOf(f.Namespace.Value.Labels)
}

// ForceDeletionRefused reports whether the API server may refuse an unconfirmed force deletion of the pod, because the
// namespace enforces pod safety or could not be read.
func (f Facts) ForceDeletionRefused() bool {
	return !f.Namespace.OK() || f.mode() == podsafety.ModeEnforce
}

func (f Facts) hold() podsafety.Facts {
	return holdFacts(objects.PodOf(f.Pod), f.mode(), f.OnNode, f.Now)
}

// OnNode holds the results of reads about a node, made after its pods were read. The zero value of each field is
// unknown.
type OnNode struct {
	// Node, Lease and Fence hold the Node, its kubelet's Lease and its NodeFence. The Value is nil if the object does not
	// exist.
	Node  explain.Read[*v1.Node]
	Lease explain.Read[*coordinationv1.Lease]
	Fence explain.Read[*v1alpha1.NodeFence]
}

// Judge is a pure function that returns volume-guard's decision on a pod, with its explanation. now is the time of the
// reads.
func Judge(pod explain.Pod, on OnNode, now time.Time) podsafety.Explanation {
	return podsafety.Explain(holdFacts(pod.Pod, podsafety.ModeOff, on, now), now)
}

// holdFacts returns the facts of a volume-guard that has just started, and has read pod, NodeFence, Node and Lease, in
// this order.
func holdFacts(pod objects.Pod, mode podsafety.Mode, on OnNode, now time.Time) podsafety.Facts {
	read := func(order int) session.Read { return session.Read{Sent: now, Order: order} }
	f := podsafety.Facts{Mode: mode, Pod: pod, PodRead: read(1)}
	f.Sight = podsafety.NewTracker().Saw(pod, objects.NodeUnseen, now)
	if pod.Node == "" {
		return f
	}
	if on.Node.OK() {
		if on.Node.Value != nil {
			f.Node = objects.NodeOf(on.Node.Value)
		}
		f.NodeRead, f.NodeSeen = read(3), f.Node.Seen()
	}
	if on.Lease.OK() {
		f.Lease, f.LeaseRead = objects.Lease{Found: on.Lease.Value != nil}, read(4)
		if on.Lease.Value != nil {
			f.Lease.ResourceVersion = on.Lease.Value.ResourceVersion
		}
		f.Sight.LeaseVersion, f.Sight.LeaseSince = f.Lease.ResourceVersion, now
	}
	if !on.Fence.OK() && !explain.NoFencing(on.Fence) {
		f.FenceSeen = !f.NodeSeen.Ready() // the decision needs the read; a fence of a Ready node releases no pod
		return f
	}
	if f.FenceRead = read(2); on.Fence.Value != nil {
		f.FenceSeen, f.Fence = true, fencing.Evidence(fencing.FenceOf(on.Fence.Value), pod.UID)
		f.Storage.Fenced = fencing.FenceOf(on.Fence.Value).MayKeepVolumes()
	}
	return f
}

// forced returns the facts after a force deletion of the pod now, without a confirmation.
func forced(f podsafety.Facts, now time.Time) podsafety.Facts {
	f.Pod.Held, f.Pod.Confirmation = true, objects.NotConfirmed
	if !f.Pod.Terminating {
		f.Pod.Terminating, f.Pod.GraceEnds = true, now
	}
	return f
}

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
