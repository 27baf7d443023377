package fencing

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// policyCluster is the access to the API server for a FencePolicy.
type policyCluster interface {
	// listLeases maps each node to the resourceVersion of its Lease.
	listLeases(ctx context.Context) (map[string]string, error)
	listWaiting(ctx context.Context, node string) ([]waiting, error)
	listBudgets(ctx context.Context, namespace string) ([]budget, error)
	// readNamespace returns the labels of a namespace, or nil if it does not exist.
	readNamespace(ctx context.Context, name string) (map[string]string, error)

	// The remaining reads are live, for the decision to fence a node.
	readPolicy(ctx context.Context, name string) (p *policy, found bool, err error)
	listFences(ctx context.Context) ([]*fence, error)
	readWholeNode(ctx context.Context, name string) (n *node, found bool, err error)
	// createFence returns kube.ErrChanged if a NodeFence with this name exists.
	createFence(ctx context.Context, o *v1alpha1.NodeFence) error
	// deleteEnded deletes an ended NodeFence, if it is unchanged since it was read.
	deleteEnded(ctx context.Context, f *fence) error
	writePolicyStatus(ctx context.Context, p *policy, status v1alpha1.FencePolicyStatus) error
}

// fromCache answers a list from the watch cache of the API server. It suits lists that only select the live reads to
// make.
const fromCache = "0"

func (a apiServer) listLeases(ctx context.Context) (map[string]string, error) {
	versions := map[string]string{}
	err := kube.Each(ctx, metav1.ListOptions{ResourceVersion: fromCache}, listTimeout,
		a.clients.Coordination.Leases(v1.NamespaceNodeLease).List,
		func(o *coordinationv1.Lease) { versions[o.Name] = o.ResourceVersion })
	if err != nil {
		return nil, fmt.Errorf("list Leases of nodes: %w", err)
	}
	return versions, nil
}

func (a apiServer) listWaiting(ctx context.Context, node string) (all []waiting, err error) {
	err = eachPod(ctx, a.clients.Clients, node, fromCache, func(o *v1.Pod) {
		if w, waits := waitingOf(o); waits {
			all = append(all, w)
		}
	})
	return all, err
}

type budget struct {
	selector labels.Selector
	// healthy reports that at least the desired number of pods is healthy, which no pod of an unreachable node is.
	healthy bool
}

func budgetOf(o *policyv1.PodDisruptionBudget) (budget, error) {
	selector, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
	if err != nil {
		return budget{}, fmt.Errorf("PodDisruptionBudget %s/%s: %w", o.Namespace, o.Name, err)
	}
	s := o.Status
	seen := s.ObservedGeneration == o.Generation && s.ExpectedPods > 0
	return budget{selector, seen && s.CurrentHealthy >= s.DesiredHealthy}, nil
}

func (a apiServer) listBudgets(ctx context.Context, namespace string) (all []budget, err error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	list, err := a.clients.all.PolicyV1().PodDisruptionBudgets(namespace).List(ctx,
		metav1.ListOptions{ResourceVersion: fromCache})
	if err != nil {
		return nil, fmt.Errorf("list PodDisruptionBudgets of namespace %q: %w", namespace, err)
	}
	for i := range list.Items {
		b, err := budgetOf(&list.Items[i])
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

func (a apiServer) readNamespace(ctx context.Context, name string) (map[string]string, error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o, err := a.clients.Core.Namespaces().Get(ctx, name, metav1.GetOptions{ResourceVersion: fromCache})
	switch {
	case kube.Absent(err, v1.Resource("namespaces"), name):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read namespace %q: %w", name, err)
	}
	return o.Labels, nil
}

func (a apiServer) readPolicy(ctx context.Context, name string) (*policy, bool, error) {
	resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: client.PolicyResource}
	return kube.Get(ctx, a.timeout, kube.Kind{Resource: resource, Word: policyKind}, "", name, a.clients.own.Policies.Get,
		policyOf)
}

func (a apiServer) listFences(ctx context.Context) (all []*fence, err error) {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	list, err := a.clients.own.Fences.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list NodeFences: %w", err)
	}
	for i := range list.Items {
		all = append(all, fenceOf(&list.Items[i]))
	}
	return all, nil
}

func (a apiServer) readWholeNode(ctx context.Context, name string) (*node, bool, error) {
	return kube.Get(ctx, a.timeout, kube.Node, "", name, a.clients.Core.Nodes().Get, wholeNodeOf)
}

func (a apiServer) createFence(ctx context.Context, o *v1alpha1.NodeFence) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	if _, err := a.clients.own.Fences.Create(ctx, o, metav1.CreateOptions{}); err != nil {
		if apierrors.IsAlreadyExists(err) {
			err = fmt.Errorf("%w: %w", kube.ErrChanged, err)
		}
		return fmt.Errorf("create NodeFence %q: %w", o.Name, err)
	}
	return nil
}

func (a apiServer) deleteEnded(ctx context.Context, f *fence) error {
	return a.deleteFence(ctx, fencing.Ask{Node: f.Name, UID: f.UID, ResourceVersion: f.ResourceVersion})
}

// writePolicyStatus replaces the status, since the API server ignores the other fields of this object.
func (a apiServer) writePolicyStatus(ctx context.Context, p *policy, status v1alpha1.FencePolicyStatus) error {
	ctx, cancel := a.bound(ctx)
	defer cancel()
	o := &v1alpha1.FencePolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: policyKind},
		ObjectMeta: metav1.ObjectMeta{Name: p.name, UID: p.uid, ResourceVersion: p.version},
		Status:     status,
	}
	if _, err := a.clients.own.Policies.UpdateStatus(ctx, o, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the status of FencePolicy %q: %w", p.name, kube.Meaning(err, p.name))
	}
	return nil
}
