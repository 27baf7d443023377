package fencing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/client"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// maxJudged bounds the nodes in the status of a policy (pkg/apis/fencing/v1alpha1).
const maxJudged = 100

// policyFacts returns the facts for a policy without a live read. With an error, nodes are skipped, or no node is
// fenced.
func (c *Controller) policyFacts(ctx context.Context, p *v1alpha1.FencePolicy) (fencing.PolicyFacts, error) {
	f := fencing.PolicyFacts{Rules: c.cfg.rules(), Spec: p.Spec}
	if f.View, _ = c.view.clear(c.cfg.Clock.Now()); !f.View && c.unread() != nil {
		f.Failed = fencing.ReasonAPIReadFailed
	}
	var invalid error
	c.observer.nodes.Each(func(n *objects.LabeledNode) {
		v, err := viewOf(p, n)
		invalid = cmp.Or(invalid, err)
		if n.Unreachable {
			v.Since, _ = c.view.since(n.Name)
		}
		f.Nodes = append(f.Nodes, v)
	})
	if invalid != nil {
		f.Failed = failedStep(invalid)
		return f, invalid
	}
	var fences []fencing.Fence
	c.observer.fences.Each(func(one fencing.Fence) { fences = append(fences, one) })
	countFences(&f, fences, "")

	ask := candidates(&f)
	slices.SortFunc(ask, func(a, b *fencing.NodeView) int { return fencing.BySilence(*a, *b) })
	if len(ask) > maxJudged {
		// Each node costs a list. The pods of a node that is not fenced now matter only for the status.
		ask = append(ask[:maxJudged:maxJudged], f.Due(ask[maxJudged:], c.cfg.Clock.Now())...)
	}
	return f, countPods(ctx, c.cluster, p, ask)
}

// policyCluster is the access to the API server for a FencePolicy.
type policyCluster interface {
	// listLeases maps each node to the resourceVersion of its Lease.
	listLeases(ctx context.Context) (map[string]string, error)
	podLister

	// The remaining reads are live, for the decision to fence a node. They return nil if the object does not exist.
	readPolicy(ctx context.Context, name string) (*v1alpha1.FencePolicy, error)
	readLabeledNode(ctx context.Context, name string) (*objects.LabeledNode, error)
	listFences(ctx context.Context) ([]fencing.Fence, error)
	// createFence returns kube.ErrChanged if a NodeFence with this name exists.
	createFence(ctx context.Context, o *v1alpha1.NodeFence) error
	writePolicyStatus(ctx context.Context, p *v1alpha1.FencePolicy, status v1alpha1.FencePolicyStatus) error
}

// fromCache answers a list from the watch cache of the API server. It suits lists that only select the live reads to
// make.
const fromCache = "0"

func (a apiServer) listLeases(ctx context.Context) (map[string]string, error) {
	versions := map[string]string{}
	err := kube.Each(ctx, "Leases of nodes", metav1.ListOptions{ResourceVersion: fromCache},
		a.clients.Coordination.Leases(v1.NamespaceNodeLease).List,
		func(o *coordinationv1.Lease) { versions[o.Name] = o.ResourceVersion })
	if err != nil {
		return nil, err
	}
	return versions, nil
}

func (a apiServer) listWaiting(ctx context.Context, node string) (all []Waiting, err error) {
	err = eachPod(ctx, a.clients.Clients, node, fromCache, func(o *v1.Pod) {
		if w, waits := WaitingOf(o); waits {
			all = append(all, w)
		}
	})
	return all, err
}

func (a apiServer) listBudgets(ctx context.Context, namespace string) (all []budget, err error) {
	var wrong error
	what := fmt.Sprintf("PodDisruptionBudgets of namespace %q", namespace)
	err = kube.Each(ctx, what, metav1.ListOptions{ResourceVersion: fromCache},
		a.clients.all.PolicyV1().PodDisruptionBudgets(namespace).List, func(o *policyv1.PodDisruptionBudget) {
			b, err := budgetOf(o)
			all, wrong = append(all, b), cmp.Or(wrong, err)
		})
	if err = cmp.Or(err, wrong); err != nil {
		return nil, err
	}
	return all, nil
}

func (a apiServer) readNamespace(ctx context.Context, name string) (map[string]string, error) {
	labels, _, err := kube.Get(ctx, kube.Namespace, "", name,
		func(ctx context.Context, name string, _ metav1.GetOptions) (*v1.Namespace, error) {
			return a.clients.Core.Namespaces().Get(ctx, name, metav1.GetOptions{ResourceVersion: fromCache})
		}, func(o *v1.Namespace) map[string]string { return o.Labels })
	return labels, err
}

func (a apiServer) readPolicy(ctx context.Context, name string) (*v1alpha1.FencePolicy, error) {
	resource := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: client.PolicyResource}
	return kube.Read(ctx, kube.Kind{Resource: resource, Word: policyKind}, "", name,
		a.clients.own.Policies.Get)
}

func (a apiServer) readLabeledNode(ctx context.Context, name string) (*objects.LabeledNode, error) {
	n, _, err := kube.Get(ctx, kube.Node, "", name, a.clients.Core.Nodes().Get, objects.LabeledNodeOf)
	return n, err
}

func (a apiServer) listFences(ctx context.Context) (all []fencing.Fence, err error) {
	err = kube.Each(ctx, "NodeFences", metav1.ListOptions{}, a.clients.own.Fences.List,
		func(o *v1alpha1.NodeFence) { all = append(all, fencing.FenceOf(o)) })
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (a apiServer) createFence(ctx context.Context, o *v1alpha1.NodeFence) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	if _, err := a.clients.own.Fences.Create(ctx, o, metav1.CreateOptions{}); err != nil {
		if apierrors.IsAlreadyExists(err) {
			err = fmt.Errorf("%w: %w", kube.ErrChanged, err)
		}
		return fmt.Errorf("create NodeFence %q: %w", o.Name, err)
	}
	return nil
}

// writePolicyStatus replaces the status, since the API server ignores the other fields of this object.
func (a apiServer) writePolicyStatus(ctx context.Context, p *v1alpha1.FencePolicy,
	status v1alpha1.FencePolicyStatus) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Timeout)
	defer cancel()
	o := &v1alpha1.FencePolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: policyKind},
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion},
		Status:     status,
	}
	if _, err := a.clients.own.Policies.UpdateStatus(ctx, o, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write the status of FencePolicy %q: %w", p.Name, kube.Meaning(err, p.Name))
	}
	return nil
}

// leasePoll is the interval of lists of all node Leases while a node is unreachable, and equals their renewal interval.
const leasePoll = 10 * time.Second

// pollLeases lists the Leases and wakes the policies at each leasePoll, while a policy exists and a node is
// unreachable, until ctx ends.
func (c *Controller) pollLeases(ctx context.Context) {
	controller.Repeat(ctx, c.cfg.Clock, leasePoll, func(ctx context.Context) {
		if c.observer.looksForSilence() {
			c.pollOnce(ctx)
		} else {
			c.view.rest()
		}
	})
}

func (c *Controller) pollOnce(ctx context.Context) {
	leases, err := c.cluster.listLeases(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		c.view.failed(err)
	} else {
		c.view.saw(leases, c.observer.unreachable(), c.cfg.Clock.Now())
	}
	c.observer.wakePolicies()
}

// unread returns the error of the last list of Leases, or nil while no list is needed.
func (c *Controller) unread() error {
	if !c.observer.looksForSilence() {
		return nil
	}
	return c.view.failure()
}

// view holds this process's observations of node Leases, by its own clock, and is safe for concurrent use.
//
// The Leases are listed every leasePoll instead of watched, because a watch delivers a renewal of each node every 10 s,
// even while all nodes are reachable.
type view struct {
	// silentAfter is the longest time that a running node takes to renew its Lease.
	silentAfter time.Duration

	mu sync.Mutex
	// leases maps nodes to the resourceVersions of the last list.
	leases map[string]string
	// began is the time of the first list, and renewed the time of the last list that showed a renewal of some node.
	began, renewed time.Time
	// silent maps each unreachable node to the time of the first list that found its Lease no longer renewed.
	silent map[string]time.Time
	// err is the error of the last list. While it is not nil, a missing renewal shows nothing about the network.
	err error
}

func newView(silentAfter time.Duration) *view {
	return &view{silentAfter: silentAfter, silent: map[string]time.Time{}}
}

// saw records a list of Leases, and the names of the nodes that are unreachable according to the watch.
func (v *view) saw(leases map[string]string, unreachable []string, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.began.IsZero() {
		v.began = now
	}
	before := v.leases
	for name, version := range leases {
		if old, known := before[name]; known && old != version {
			v.renewed = now
			delete(v.silent, name)
		}
	}
	for _, name := range unreachable {
		if v.silent[name].IsZero() {
			v.silent[name] = now
		}
	}
	v.leases, v.err = leases, nil
}

// failed records a list of Leases without an answer.
func (v *view) failed(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = err
}

func (v *view) failure() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.err
}

// rest resets the view, because no list is made while all nodes are reachable.
func (v *view) rest() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leases, v.began, v.renewed, v.err = nil, time.Time{}, time.Time{}, nil
	clear(v.silent)
}

// reached resets the silence of a node that is reachable or has renewed its Lease.
func (v *view) reached(node string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.silent, node)
}

// since returns the start of a node's silence, or the zero time if unknown, and the resourceVersion of its Lease, or
// "".
func (v *view) since(node string) (at time.Time, version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.silent[node], v.leases[node]
}

// clear reports whether some node has renewed its Lease within silentAfter. known is false until running nodes have had
// that time since the first list.
func (v *view) clear(now time.Time) (is, known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	within := func(since time.Time) bool { return !since.IsZero() && now.Sub(since) <= v.silentAfter }
	is = within(v.renewed)
	return is, is || !v.began.IsZero() && !within(v.began)
}
