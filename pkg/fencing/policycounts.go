package fencing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Selects reports whether a policy selects a node, by its labels and its role in the control plane. The error means
// that its nodeSelector is invalid.
func Selects(p *v1alpha1.FencePolicy, n *objects.LabeledNode) (bool, error) {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.NodeSelector)
	if err != nil {
		return false, invalidSelector("nodeSelector", p, err)
	}
	return selector.Matches(n.Labels) && (p.Spec.AllowControlPlane || !n.ControlPlane), nil
}

func invalidSelector(field string, p *v1alpha1.FencePolicy, err error) error {
	return reasons.Because(fencing.ReasonInvalidSelector, fmt.Errorf("%s of FencePolicy %q: %w", field, p.Name, err))
}

// viewOf returns the state of a node for a policy, without the time of its silence.
func viewOf(p *v1alpha1.FencePolicy, n *objects.LabeledNode) (fencing.NodeView, error) {
	selected, err := Selects(p, n)
	return fencing.NodeView{Name: n.Name, Zone: n.Zone, Selected: selected, Unreachable: n.Unreachable}, err
}

// countFences recounts the fenced nodes in f, and returns the ended fence with this name, or nil.
func countFences(f *fencing.PolicyFacts, fences []fencing.Fence, name string) (ended *fencing.Fence) {
	active, byRequest := map[string]fencing.Fence{}, map[string]bool{}
	for _, one := range fences {
		byRequest[one.Name] = one.EndedByRequest()
		if !one.Returned() {
			active[one.Name] = one
		} else if one.Name == name {
			ended = &one
		}
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		_, n.Fenced = active[n.Name]
		n.Ended = byRequest[n.Name]
		delete(active, n.Name)
	}
	maps.DeleteFunc(active, func(_ string, one fencing.Fence) bool { return one.Vacant() })
	f.Others = slices.Sorted(maps.Keys(active))
	return ended
}

// Waiting is the record of a pod for whose sake a policy may fence its node.
type Waiting struct {
	namespace   string
	labels      map[string]string
	terminating bool
	// long: it tolerates the unreachable node for over fencing.MaxTolerated.
	long bool
}

// WaitingOf returns the record of a pod, and false for a pod that does not wait for its node. Such a pod has no claim,
// has ended, cannot run on another node (DaemonSets, static pods), or tolerates the unreachable node for ever. An ended
// pod that is held and terminating waits: pod safety keeps it until the node shows the unmount of its volumes.
func WaitingOf(o *v1.Pod) (Waiting, bool) {
	p, owner := objects.PodOf(o), metav1.GetControllerOf(o)
	switch {
	case p.Mirror, owner != nil && owner.Kind == "DaemonSet", len(p.Claims) == 0:
		return Waiting{}, false
	case !p.UsesVolumes():
		return Waiting{}, false
	}
	tolerated := tolerationOf(o)
	if !p.Terminating && tolerated == math.MaxInt64 {
		return Waiting{}, false
	}
	return Waiting{o.Namespace, o.Labels, p.Terminating, tolerated > int64(fencing.MaxTolerated.Seconds())}, true
}

// tolerationOf returns the seconds for which a pod tolerates an unreachable node, math.MaxInt64 for no limit and 0 for
// not at all, by the rules of kube-controller-manager (getMinTolerationTime in pkg/controller/tainteviction).
func tolerationOf(o *v1.Pod) int64 {
	taint := v1.Taint{Key: v1.TaintNodeUnreachable, Effect: v1.TaintEffectNoExecute}
	limit, tolerates := int64(math.MaxInt64), false
	for i := range o.Spec.Tolerations {
		t := &o.Spec.Tolerations[i]
		if !t.ToleratesTaint(klog.Background(), &taint, false) {
			continue
		}
		tolerates = true
		if t.TolerationSeconds != nil {
			limit = min(limit, *t.TolerationSeconds)
		}
	}
	if !tolerates {
		return 0
	}
	return limit
}

// candidates returns the nodes that a policy may fence, so that the pods that wait for them matter.
func candidates(f *fencing.PolicyFacts) (nodes []*fencing.NodeView) {
	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.Selected && n.Unreachable && !n.Fenced {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// podLister lists the pods that wait for a node, and the objects by which they count.
type podLister interface {
	listWaiting(ctx context.Context, node string) ([]Waiting, error)
	listBudgets(ctx context.Context, namespace string) ([]budget, error)
	// readNamespace returns the labels of a namespace, or nil if it does not exist.
	readNamespace(ctx context.Context, name string) (map[string]string, error)
}

// countPods counts the pods that wait for these nodes. A node is skipped if that fails, and so are the nodes after it
// if the API server does not answer.
func countPods(ctx context.Context, of podLister, p *v1alpha1.FencePolicy, nodes []*fencing.NodeView) error {
	selector, err := metav1.LabelSelectorAsSelector(&p.Spec.NamespaceSelector)
	if err != nil {
		for _, n := range nodes {
			n.Skipped = fencing.ReasonInvalidSelector
		}
		return invalidSelector("namespaceSelector", p, err)
	}
	var failed []error
	w := worth{of: of, namespaces: selector, selected: map[string]bool{}, budgets: map[string][]budget{},
		patient: p.Spec.WaitForTolerations == nil || *p.Spec.WaitForTolerations}
	ends := false
	for _, n := range nodes {
		if ends {
			n.Skipped = fencing.ReasonAPIReadFailed
			continue
		}
		n.Budgeted = p.Spec.BudgetPatience.Duration > 0
		if err := w.count(ctx, n); err != nil {
			n.Skipped, failed = fencing.ReasonAPIReadFailed, append(failed, err)
			ends = kube.Answer(err) == 0 || len(failed) == mostFailed
		}
	}
	return errors.Join(failed...)
}

// worth decides which pods count, and reads each namespace at most once.
type worth struct {
	of         podLister
	namespaces labels.Selector
	selected   map[string]bool
	budgets    map[string][]budget
	// patient: the policy waits for tolerations, so a pod with a long one does not count until it is terminating.
	patient bool
}

func (w worth) count(ctx context.Context, n *fencing.NodeView) error {
	pods, err := w.of.listWaiting(ctx, n.Name)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		is, err := w.counts(ctx, pod.namespace)
		if err != nil {
			return err
		}
		if !is || w.patient && pod.long && !pod.terminating {
			continue
		}
		n.Waiting++
		if !pod.terminating {
			n.Tolerating++
		}
		if n.Budgeted {
			if n.Budgeted, err = w.budgeted(ctx, pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// counts reports whether the policy selects a namespace.
func (w worth) counts(ctx context.Context, namespace string) (bool, error) {
	if w.namespaces.Empty() {
		return true, nil
	}
	is, known := w.selected[namespace]
	if !known {
		of, err := w.of.readNamespace(ctx, namespace)
		if err != nil {
			return false, err
		}
		is = w.namespaces.Matches(labels.Set(of))
		w.selected[namespace] = is
	}
	return is, nil
}

// budgeted reports whether a pod has a budget, and all its budgets are healthy without it.
func (w worth) budgeted(ctx context.Context, pod Waiting) (bool, error) {
	all, known := w.budgets[pod.namespace]
	if !known {
		var err error
		if all, err = w.of.listBudgets(ctx, pod.namespace); err != nil {
			return false, err
		}
		w.budgets[pod.namespace] = all
	}
	return isBudgeted(pod, all), nil
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

// isBudgeted reports whether the pod has at least one budget in its namespace, and all of them are healthy.
func isBudgeted(pod Waiting, all []budget) (has bool) {
	for _, b := range all {
		if !b.selector.Matches(labels.Set(pod.labels)) {
			continue
		}
		if has = true; !b.healthy {
			return false
		}
	}
	return has
}

// Snapshot is the state of a cluster at one moment, for programs that explain the decisions of a policy.
type Snapshot struct {
	Nodes  []*v1.Node
	Fences []*v1alpha1.NodeFence
	// Renewed maps each node to the last renewal of its Lease.
	Renewed map[string]time.Time
	// Waiting maps each unreachable node to the pods that wait for it.
	Waiting map[string][]Waiting
	// Namespaces maps each namespace to its labels.
	Namespaces map[string]map[string]string
	Budgets    []policyv1.PodDisruptionBudget
}

// PolicyFacts returns the facts that the controller would have for a policy in this cluster, or an error if a selector
// is invalid. The silence of nodes, which only the controller observes over time, is taken from the times in Nodes and
// Leases instead.
func (s Snapshot) PolicyFacts(p *v1alpha1.FencePolicy, now time.Time) (fencing.PolicyFacts, error) {
	f := fencing.PolicyFacts{Spec: p.Spec}
	for _, at := range s.Renewed {
		f.View = f.View || now.Sub(at) <= fencing.SilentAfter
	}
	for _, o := range s.Nodes {
		n := objects.LabeledNodeOf(o)
		v, err := viewOf(p, n)
		if err != nil {
			return f, err
		}
		if v.Unreachable {
			v.Since = n.Since
			if at := s.Renewed[n.Name]; at.After(v.Since) {
				v.Since = at
			}
		}
		f.Nodes = append(f.Nodes, v)
	}
	var fences []fencing.Fence
	for _, o := range s.Fences {
		fences = append(fences, fencing.FenceOf(o))
	}
	countFences(&f, fences, "")
	return f, countPods(context.Background(), s, p, candidates(&f))
}

func (s Snapshot) listWaiting(_ context.Context, node string) ([]Waiting, error) {
	return s.Waiting[node], nil
}

func (s Snapshot) readNamespace(_ context.Context, name string) (map[string]string, error) {
	return s.Namespaces[name], nil
}

func (s Snapshot) listBudgets(_ context.Context, namespace string) (all []budget, err error) {
	for i := range s.Budgets {
		if s.Budgets[i].Namespace != namespace {
			continue
		}
		b, err := budgetOf(&s.Budgets[i])
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}
