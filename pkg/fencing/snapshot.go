package fencing

import (
	"fmt"
	"time"

	"k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Waiting is a pod for whose sake a policy may fence its node.
type Waiting struct{ waiting }

// WaitingOf returns the record of a Pod, and reports whether it waits for its node: it has a claim, can run on another
// node, and does not tolerate the unreachable node for ever.
func WaitingOf(o *v1.Pod) (Waiting, bool) {
	w, waits := waitingOf(o)
	return Waiting{w}, waits
}

// Selects reports whether a policy selects a node. The error means that its nodeSelector is invalid.
func Selects(p *v1alpha1.FencePolicy, node *v1.Node) (bool, error) {
	return selects(policyOf(p), wholeNodeOf(node))
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
	of := policyOf(p)
	f := fencing.PolicyFacts{Name: of.name, Spec: of.spec}
	for _, at := range s.Renewed {
		f.View = f.View || now.Sub(at) <= fencing.SilentAfter
	}
	for _, o := range s.Nodes {
		n := wholeNodeOf(o)
		selected, err := selects(of, n)
		if err != nil {
			return f, err
		}
		v := fencing.NodeView{Name: n.name, Zone: n.zone, Selected: selected, Unreachable: n.unreachable}
		if v.Unreachable {
			v.Since = n.since
			if at := s.Renewed[n.name]; at.After(v.Since) {
				v.Since = at
			}
		}
		f.Nodes = append(f.Nodes, v)
	}
	var fences []*fence
	for _, o := range s.Fences {
		fences = append(fences, fenceOf(o))
	}
	countFences(&f, fences, "")
	return f, s.countPods(&f, of)
}

// countPods counts the waiting pods of the nodes that a policy may fence.
func (s Snapshot) countPods(f *fencing.PolicyFacts, p *policy) error {
	selector, err := metav1.LabelSelectorAsSelector(&p.spec.NamespaceSelector)
	if err != nil {
		return fmt.Errorf("namespaceSelector of FencePolicy %q: %w", p.name, err)
	}
	counts := func(namespace string) (bool, error) {
		return selector.Matches(labels.Set(s.Namespaces[namespace])), nil
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		if !n.Selected || !n.Unreachable || n.Fenced {
			continue
		}
		var pods []waiting
		for _, w := range s.Waiting[n.Name] {
			pods = append(pods, w.waiting)
		}
		if err := count(n, p, pods, counts, s.budgeted); err != nil {
			return err
		}
	}
	return nil
}

// budgeted reports whether the pod has a budget, and all its budgets are healthy without it.
func (s Snapshot) budgeted(pod waiting) (bool, error) {
	var all []budget
	for i := range s.Budgets {
		if s.Budgets[i].Namespace != pod.namespace {
			continue
		}
		b, err := budgetOf(&s.Budgets[i])
		if err != nil {
			return false, err
		}
		all = append(all, b)
	}
	return isBudgeted(pod, all), nil
}
