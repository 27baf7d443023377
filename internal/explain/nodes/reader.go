package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	policyclient "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Config holds the settings of a Reader, and its zero value is usable.
type Config struct {
	// Clock defaults to the real clock; only tests replace it.
	Clock clock.PassiveClock
}

// Reader reads the facts for explanations, and its methods are safe for concurrent use.
type Reader struct {
	cfg     Config
	clients kube.Clients
	policy  policyclient.PolicyV1Interface
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
	budgets, err := policyclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for policy/v1: %w", err)
	}
	fences, err := client.New(config)
	if err != nil {
		return nil, err
	}
	return &Reader{cfg: cfg, clients: clients, policy: budgets, fencing: fences}, nil
}

// Node reads the facts about a node. Failed reads are part of the facts, and so is a Node that does not exist, because
// its pods and its NodeFence may remain. The evidence is read after the pods.
func (r *Reader) Node(ctx context.Context, name string) Facts {
	f := Facts{Name: name, Pods: r.pods(ctx, name)}
	f.Node = explain.Optional(r.clients.Core.Nodes().Get(ctx, name, metav1.GetOptions{}))
	f.Lease = explain.Optional(r.clients.Coordination.Leases(v1.NamespaceNodeLease).Get(ctx, name, metav1.GetOptions{}))
	fence, err := r.fencing.Fences.Get(ctx, name, metav1.GetOptions{})
	f.Fence = explain.FenceRead(fence, err, name)
	f.Attachments = r.attachments(ctx, func(a *storagev1.VolumeAttachment) bool { return a.Spec.NodeName == name })
	f.Policies = r.policies(ctx)
	if len(f.Policies.Value) > 0 && f.Node.Value != nil && !ready(f.Node.Value) {
		f.Cluster = r.cluster(ctx)
	}
	f.Guards = readOf(kube.ListAll(ctx, r.clients.Coordination.Leases(metav1.NamespaceAll).List, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, volumeGuard).String(),
	}, func(o *coordinationv1.Lease) coordinationv1.Lease { return *o }))
	f.Events = r.events(ctx, name)
	f.Now = r.cfg.Clock.Now()
	return f
}

// List reads the facts about all NodeFences. It returns an error if the NodeFences cannot be read.
func (r *Reader) List(ctx context.Context) (ListFacts, error) {
	fences, err := kube.ListAll(ctx, r.fencing.Fences.List, metav1.ListOptions{},
		func(o *v1alpha1.NodeFence) *v1alpha1.NodeFence { return o })
	if err != nil {
		return ListFacts{}, fmt.Errorf("list NodeFences: %w", explain.FencingError(err))
	}
	f := ListFacts{Fences: fences, On: map[string]Facts{}}
	attachments := r.attachments(ctx, func(*storagev1.VolumeAttachment) bool { return true })
	for _, fence := range fences {
		on := Facts{Name: fence.Name, Pods: r.pods(ctx, fence.Name)}
		on.Node = explain.Optional(r.clients.Core.Nodes().Get(ctx, fence.Name, metav1.GetOptions{}))
		on.Lease = explain.Optional(r.clients.Coordination.Leases(v1.NamespaceNodeLease).Get(ctx, fence.Name,
			metav1.GetOptions{}))
		on.Attachments = explain.Read[[]storagev1.VolumeAttachment]{Made: attachments.Made, Err: attachments.Err}
		for _, a := range attachments.Value {
			if a.Spec.NodeName == fence.Name {
				on.Attachments.Value = append(on.Attachments.Value, a)
			}
		}
		f.On[fence.Name] = on
	}
	f.Now = r.cfg.Clock.Now()
	return f, nil
}

// Policy reads a FencePolicy. It returns an error if the policy does not exist or cannot be read.
func (r *Reader) Policy(ctx context.Context, name string) (*v1alpha1.FencePolicy, error) {
	p, err := r.fencing.Policies.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read FencePolicy %q: %w", name, explain.FencingError(err))
	}
	return p, nil
}

// pods reads the pods that are bound to a node, or all pods if node is empty.
func (r *Reader) pods(ctx context.Context, node string) explain.Read[[]Pod] {
	var options metav1.ListOptions
	if node != "" {
		options.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
	}
	return readOf(kube.ListAll(ctx, r.clients.Core.Pods(metav1.NamespaceAll).List, options, PodOf))
}

func (r *Reader) attachments(ctx context.Context,
	keep func(*storagev1.VolumeAttachment) bool) explain.Read[[]storagev1.VolumeAttachment] {
	all, err := kube.ListAll(ctx, r.clients.Storage.VolumeAttachments().List, metav1.ListOptions{},
		func(o *storagev1.VolumeAttachment) *storagev1.VolumeAttachment { return o })
	read := explain.Read[[]storagev1.VolumeAttachment]{Made: true, Err: err}
	for _, a := range all {
		if keep(a) {
			read.Value = append(read.Value, *a)
		}
	}
	return read
}

func (r *Reader) policies(ctx context.Context) explain.Read[[]*v1alpha1.FencePolicy] {
	all, err := kube.ListAll(ctx, r.fencing.Policies.List, metav1.ListOptions{},
		func(o *v1alpha1.FencePolicy) *v1alpha1.FencePolicy { return o })
	if err != nil {
		return explain.Failed[[]*v1alpha1.FencePolicy](explain.FencingError(err))
	}
	slices.SortFunc(all, func(a, b *v1alpha1.FencePolicy) int { return cmp.Compare(a.Name, b.Name) })
	return explain.Found(all)
}

func (r *Reader) cluster(ctx context.Context) ClusterFacts {
	core := r.clients.Core
	var f ClusterFacts
	f.Pods = r.pods(ctx, "")
	// Only fields that decisions need are kept: a Node also lists images and addresses.
	f.Nodes = readOf(kube.ListAll(ctx, core.Nodes().List, metav1.ListOptions{}, func(o *v1.Node) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: o.Name, Labels: o.Labels},
			Spec: v1.NodeSpec{Taints: o.Spec.Taints}, Status: v1.NodeStatus{Conditions: o.Status.Conditions}}
	}))
	f.Leases = byName(kube.ListAll(ctx, r.clients.Coordination.Leases(v1.NamespaceNodeLease).List, metav1.ListOptions{},
		func(o *coordinationv1.Lease) *coordinationv1.Lease { return o }))
	f.Fences = byName(kube.ListAll(ctx, r.fencing.Fences.List, metav1.ListOptions{},
		func(o *v1alpha1.NodeFence) *v1alpha1.NodeFence { return o }))
	namespaces := byName(kube.ListAll(ctx, core.Namespaces().List, metav1.ListOptions{},
		func(o *v1.Namespace) *v1.Namespace { return o }))
	f.Namespaces = explain.Read[map[string]map[string]string]{Made: true, Err: namespaces.Err,
		Value: map[string]map[string]string{}}
	for name, namespace := range namespaces.Value {
		f.Namespaces.Value[name] = namespace.Labels
	}
	f.Budgets = readOf(kube.ListAll(ctx, r.policy.PodDisruptionBudgets(metav1.NamespaceAll).List, metav1.ListOptions{},
		func(o *policyv1.PodDisruptionBudget) policyv1.PodDisruptionBudget { return *o }))
	return f
}

// events reads the Events about a node and its fence. Events about cluster-scoped objects are in namespace "default".
func (r *Reader) events(ctx context.Context, name string) explain.Read[[]v1.Event] {
	about := func(o *v1.Event) v1.Event { return *o }
	var all []v1.Event
	for _, kind := range []string{"NodeFence", "Node"} {
		found, err := kube.ListAll(ctx, r.clients.Core.Events(metav1.NamespaceDefault).List, metav1.ListOptions{
			FieldSelector: fields.Set{"involvedObject.kind": kind, "involvedObject.name": name}.AsSelector().String()}, about)
		if err != nil {
			return explain.Failed[[]v1.Event](err)
		}
		all = append(all, found...)
	}
	explain.SortEvents(all)
	return explain.Found(all)
}

func readOf[T any](value T, err error) explain.Read[T] {
	return explain.Read[T]{Made: true, Value: value, Err: err}
}

func byName[O metav1.Object](all []O, err error) explain.Read[map[string]O] {
	read := explain.Read[map[string]O]{Made: true, Value: map[string]O{}, Err: err}
	for _, o := range all {
		read.Value[o.GetName()] = o
	}
	return read
}
