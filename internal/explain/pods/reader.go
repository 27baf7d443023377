package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

const volumeGuard = "volume-guard"

// Config holds the settings of a Reader, and its zero value is usable.
type Config struct {
	// Clock defaults to the real clock; only tests replace it.
	Clock clock.PassiveClock
}

// Reader reads the facts for explanations, and its methods are safe for concurrent use.
type Reader struct {
	cfg     Config
	clients kube.Clients
	fencing *client.Client
}

// New returns a Reader of the cluster that config describes. It copies config and reads nothing yet.
func New(config *rest.Config, cfg Config) (*Reader, error) {
	if config == nil {
		return nil, errors.New("create a reader: nil rest.Config")
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	clients, err := kube.NewClients(config)
	if err != nil {
		return nil, err
	}
	fences, err := client.New(config)
	if err != nil {
		return nil, err
	}
	return &Reader{cfg: cfg, clients: clients, fencing: fences}, nil
}

// Pod reads the facts about a pod. It returns an error if the pod does not exist or cannot be read; all other failed
// reads are part of the facts. The node and its Lease are read after the pod and the NodeFence, because evidence has
// to be newer than the pod, and a reboot newer than the fence.
func (r *Reader) Pod(ctx context.Context, namespace, name string) (Facts, error) {
	core := r.clients.Core
	pod, err := core.Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Facts{}, fmt.Errorf("read pod %q: %w", namespace+"/"+name, err)
	}
	f := Facts{Pod: pod, Claims: map[string]explain.Read[*v1.PersistentVolumeClaim]{}}
	if node := pod.Spec.NodeName; node != "" {
		fence, err := r.fencing.Fences.Get(ctx, node, metav1.GetOptions{})
		f.Fence = explain.FenceRead(fence, err, node)
		f.Node = explain.Optional(core.Nodes().Get(ctx, node, metav1.GetOptions{}))
		f.Lease = r.kubeletLease(ctx, node)
	}
	f.Namespace = explain.Optional(core.Namespaces().Get(ctx, namespace, metav1.GetOptions{}))
	for _, claim := range PodOf(pod).Claims {
		f.Claims[claim] = explain.Optional(core.PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{}))
	}
	if len(f.Claims) > 0 {
		f.Pods = r.pods(ctx, namespace)
		attachments, err := kube.ListAll(ctx, r.clients.Storage.VolumeAttachments().List, metav1.ListOptions{},
			func(o *storagev1.VolumeAttachment) storagev1.VolumeAttachment { return *o })
		f.Attachments = readOf(attachments, err)
	}
	f.Guards = r.Guards(ctx)
	events, err := kube.ListAll(ctx, core.Events(namespace).List, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID)).String(),
	}, func(o *v1.Event) v1.Event { return *o })
	explain.SortEvents(events)
	f.Events = readOf(events, err)
	f.Now = r.cfg.Clock.Now()
	return f, nil
}

// List reads the facts about the pods of a namespace, or of all namespaces if namespace is empty. It returns an error
// if the pods cannot be read.
func (r *Reader) List(ctx context.Context, namespace string) (ListFacts, error) {
	f := ListFacts{Pods: r.pods(ctx, namespace)}
	if f.Pods.Err != nil {
		return ListFacts{}, fmt.Errorf("list pods: %w", f.Pods.Err)
	}
	r.readNodes(ctx, &f)
	f.Now = r.cfg.Clock.Now()
	return f, nil
}

// Namespace reads the facts about a namespace and the pods and claims in it. It returns an error if the namespace does
// not exist or cannot be read.
func (r *Reader) Namespace(ctx context.Context, name string) (NamespaceFacts, error) {
	namespace, err := r.clients.Core.Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return NamespaceFacts{}, fmt.Errorf("read namespace %q: %w", name, err)
	}
	f := NamespaceFacts{Namespace: namespace, ListFacts: ListFacts{Pods: r.pods(ctx, name)}}
	if f.Pods.OK() {
		r.readNodes(ctx, &f.ListFacts)
	}
	claims, err := kube.ListAll(ctx, r.clients.Core.PersistentVolumeClaims(name).List, metav1.ListOptions{},
		func(o *v1.PersistentVolumeClaim) string { return o.Name })
	f.Claims = readOf(claims, err)
	f.Guards = r.Guards(ctx)
	f.Now = r.cfg.Clock.Now()
	return f, nil
}

func (r *Reader) pods(ctx context.Context, namespace string) explain.Read[[]Pod] {
	return readOf(kube.ListAll(ctx, r.clients.Core.Pods(namespace).List, metav1.ListOptions{}, PodOf))
}

// readNodes reads, after the pods, the NodeFences if a held pod is terminating, then all nodes, and the Leases of
// missing nodes that held pods name.
func (r *Reader) readNodes(ctx context.Context, f *ListFacts) {
	if slices.ContainsFunc(f.Pods.Value, func(p Pod) bool { return p.Held && p.Terminating }) {
		f.Fences = r.fences(ctx)
	}
	nodes, err := kube.ListAll(ctx, r.clients.Core.Nodes().List, metav1.ListOptions{}, listedNode)
	f.Nodes = explain.Read[map[string]*v1.Node]{Made: true, Err: err}
	if err != nil {
		return
	}
	f.Nodes.Value = map[string]*v1.Node{}
	for _, node := range nodes {
		f.Nodes.Value[node.Name] = node
	}
	f.Leases = map[string]explain.Read[*coordinationv1.Lease]{}
	for _, pod := range f.Pods.Value {
		_, read := f.Leases[pod.Node]
		if pod.Held && pod.Node != "" && f.Nodes.Value[pod.Node] == nil && !read {
			f.Leases[pod.Node] = r.kubeletLease(ctx, pod.Node)
		}
	}
}

// listedNode returns the fields of a Node that decisions need, which also lists images and addresses.
func listedNode(o *v1.Node) *v1.Node {
	info := o.Status.NodeInfo
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name}, Spec: v1.NodeSpec{Taints: o.Spec.Taints},
		Status: v1.NodeStatus{Conditions: o.Status.Conditions, NodeInfo: v1.NodeSystemInfo{
			BootID: info.BootID, MachineID: info.MachineID, SystemUUID: info.SystemUUID}}}
}

func (r *Reader) fences(ctx context.Context) explain.Read[map[string]*v1alpha1.NodeFence] {
	all, err := kube.ListAll(ctx, r.fencing.Fences.List, metav1.ListOptions{},
		func(o *v1alpha1.NodeFence) *v1alpha1.NodeFence { return o })
	if err != nil {
		return explain.Failed[map[string]*v1alpha1.NodeFence](explain.FencingError(err))
	}
	byNode := map[string]*v1alpha1.NodeFence{}
	for _, fence := range all {
		byNode[fence.Name] = fence
	}
	return explain.Found(byNode)
}

func (r *Reader) kubeletLease(ctx context.Context, node string) explain.Read[*coordinationv1.Lease] {
	return explain.Optional(r.clients.Coordination.Leases(v1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{}))
}

// Guards reads volume-guard's leader election Leases.
func (r *Reader) Guards(ctx context.Context) explain.Read[[]coordinationv1.Lease] {
	return readOf(kube.ListAll(ctx, r.clients.Coordination.Leases(metav1.NamespaceAll).List, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, volumeGuard).String(),
	}, func(o *coordinationv1.Lease) coordinationv1.Lease { return *o }))
}

func readOf[T any](value T, err error) explain.Read[T] {
	return explain.Read[T]{Made: true, Value: value, Err: err}
}

func names(claims []string) []string { return slices.Sorted(slices.Values(claims)) }
