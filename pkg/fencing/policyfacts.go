package fencing

import (
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
)

// maxJudged bounds the nodes in the status of a policy (pkg/apis/fencing/v1alpha1).
const maxJudged = 100

// policyFacts returns the facts for a policy without a live read.
func (c *Controller) policyFacts(ctx context.Context, p *policy) (fencing.PolicyFacts, error) {
	f := fencing.PolicyFacts{Rules: c.cfg.rules(), Name: p.name, Spec: p.spec}
	f.View, _ = c.view.clear(c.cfg.Clock.Now())
	var errs []error
	c.observer.nodes.Each(func(n *node) {
		selected, err := selects(p, n)
		errs = append(errs, err)
		v := fencing.NodeView{Name: n.name, Zone: n.zone, Selected: selected, Unreachable: n.unreachable}
		if n.unreachable {
			v.Since, _ = c.view.since(n.name)
		}
		f.Nodes = append(f.Nodes, v)
	})
	if err := errors.Join(errs...); err != nil {
		return f, err
	}
	var fences []*fence
	c.observer.fences.Each(func(one *fence) { fences = append(fences, one) })
	countFences(&f, fences, "")

	var ask []*fencing.NodeView
	for i := range f.Nodes {
		if n := &f.Nodes[i]; n.Selected && n.Unreachable && !n.Fenced {
			ask = append(ask, n)
		}
	}
	if fencing.DecidePolicy(f, c.cfg.Clock.Now()).Halted != "" && len(ask) > maxJudged {
		// No node is fenced, so the pods matter only for the status, which lists no more nodes.
		slices.SortFunc(ask, bySilence)
		ask = ask[:maxJudged]
	}
	return f, c.countPods(ctx, p, ask)
}

// selects reports whether a policy selects a node, by its labels and its role in the control plane.
func selects(p *policy, n *node) (bool, error) {
	selector, err := metav1.LabelSelectorAsSelector(&p.spec.NodeSelector)
	if err != nil {
		return false, fmt.Errorf("nodeSelector of FencePolicy %q: %w", p.name, err)
	}
	return selector.Matches(n.labels) && (p.spec.AllowControlPlane || !n.controlPlane), nil
}

// countPods counts the pods that wait for these nodes.
func (c *Controller) countPods(ctx context.Context, p *policy, nodes []*fencing.NodeView) error {
	selector, err := metav1.LabelSelectorAsSelector(&p.spec.NamespaceSelector)
	if err != nil {
		return fmt.Errorf("namespaceSelector of FencePolicy %q: %w", p.name, err)
	}
	w := worth{cluster: c.policies, namespaces: selector, selected: map[string]bool{}, budgets: map[string][]budget{}}
	counts := func(namespace string) (bool, error) { return w.counts(ctx, namespace) }
	budgeted := func(pod waiting) (bool, error) { return w.budgeted(ctx, pod) }
	for _, n := range nodes {
		pods, err := c.policies.listWaiting(ctx, n.Name)
		if err != nil {
			return err
		}
		if err := count(n, p, pods, counts, budgeted); err != nil {
			return err
		}
	}
	return nil
}

// count counts the pods that wait for a node. counts reports whether the policy selects a namespace, and budgeted
// whether all budgets of a pod are healthy without it.
func count(n *fencing.NodeView, p *policy, pods []waiting, counts func(namespace string) (bool, error),
	budgeted func(waiting) (bool, error)) error {
	n.Budgeted = p.spec.BudgetPatience.Duration > 0
	for _, pod := range pods {
		is, err := counts(pod.namespace)
		if err != nil {
			return err
		}
		if !is {
			continue
		}
		n.Waiting++
		if !pod.terminating {
			n.Tolerating++
		}
		if n.Budgeted {
			if n.Budgeted, err = budgeted(pod); err != nil {
				return err
			}
		}
	}
	return nil
}

// worth decides which pods count, and reads each namespace at most once.
type worth struct {
	cluster    policyCluster
	namespaces labels.Selector
	selected   map[string]bool
	budgets    map[string][]budget
}

func (w worth) counts(ctx context.Context, namespace string) (bool, error) {
	if w.namespaces.Empty() {
		return true, nil
	}
	is, known := w.selected[namespace]
	if !known {
		of, err := w.cluster.readNamespace(ctx, namespace)
		if err != nil {
			return false, err
		}
		is = w.namespaces.Matches(labels.Set(of))
		w.selected[namespace] = is
	}
	return is, nil
}

// budgeted reports whether a pod has a budget, and all its budgets are healthy without it.
func (w worth) budgeted(ctx context.Context, pod waiting) (bool, error) {
	all, known := w.budgets[pod.namespace]
	if !known {
		var err error
		if all, err = w.cluster.listBudgets(ctx, pod.namespace); err != nil {
			return false, err
		}
		w.budgets[pod.namespace] = all
	}
	return isBudgeted(pod, all), nil
}

// isBudgeted reports whether the pod has at least one budget in its namespace, and all of them are healthy.
func isBudgeted(pod waiting, all []budget) (has bool) {
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
