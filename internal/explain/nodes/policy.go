package nodes

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	controller "github.com/csi-reclaimer/csi-reclaimer/pkg/fencing"
)

// selects reports whether a policy selects a node. An invalid selector selects none.
func selects(p *v1alpha1.FencePolicy, node *v1.Node) bool {
	is, err := controller.Selects(p, objects.LabeledNodeOf(node))
	return err == nil && is
}

func (f ClusterFacts) snapshot() controller.Snapshot {
	s := controller.Snapshot{Nodes: f.Nodes.Value, Namespaces: f.Namespaces.Value, Budgets: f.Budgets.Value,
		Renewed: map[string]time.Time{}, Waiting: map[string][]controller.Waiting{}}
	for name, lease := range f.Leases.Value {
		s.Renewed[name] = renewed(lease)
	}
	for _, fence := range f.Fences.Value {
		s.Fences = append(s.Fences, fence)
	}
	for _, pod := range f.Pods.Value {
		if pod.Waiting != nil {
			s.Waiting[pod.Node] = append(s.Waiting[pod.Node], *pod.Waiting)
		}
	}
	return s
}

// unread notes failed reads of the policies' input, and reports whether all reads succeeded.
func (f ClusterFacts) unread(s *explain.Explanation) (whole bool) {
	const open = "how each FencePolicy acts"
	before := len(s.Unread)
	explain.NoteUnread(s, f.Nodes, "Nodes", open)
	explain.NoteUnread(s, f.Leases, "Leases in "+v1.NamespaceNodeLease, open)
	explain.NoteUnread(s, f.Fences, "NodeFences", open)
	explain.NoteUnread(s, f.Namespaces, "Namespaces", open)
	explain.NoteUnread(s, f.Pods, "Pods", open)
	explain.NoteUnread(s, f.Budgets, "PodDisruptionBudgets", open)
	return len(s.Unread) == before && !explain.NoFencing(f.Fences)
}

func addPolicies(s *explain.Explanation, f Facts) {
	explain.NoteUnread(s, f.Policies, "FencePolicies", "whether the node is fenced without a person")
	if f.Policies.OK() && len(f.Policies.Value) == 0 {
		s.AddFact("Policy", "none: no node is fenced without a request")
	}
	node := f.Node.Value
	if len(f.Policies.Value) == 0 || node == nil {
		return
	}
	down := !explain.IsReady(node)
	if down && !f.Cluster.unread(s) {
		return
	}
	for _, p := range f.Policies.Value {
		if text := f.policyWords(p, node); text != "" {
			s.AddFact("Policy", "%s: %s", p.Name, text)
		}
	}
}

func (f Facts) policyWords(p *v1alpha1.FencePolicy, node *v1.Node) string {
	selected, err := controller.Selects(p, objects.LabeledNodeOf(node))
	switch c := explain.ReadyOf(node); {
	case err != nil:
		return fmt.Sprintf("fences no node: %v", err)
	case !selected && controlPlane(node) && !p.Spec.AllowControlPlane:
		return "does not select nodes of the control plane"
	case !selected:
		return "does not select this node"
	case c == nil || c.Status != v1.ConditionUnknown:
		text := fmt.Sprintf("fences the node once it has been unreachable for %s, and a pod with a claim waits for it.",
			duration.HumanDuration(p.Spec.UnreachableAfter.Duration))
		if c != nil && c.Status == v1.ConditionFalse {
			text += " Its kubelet reports, and so it is reachable."
		}
		return text + dryRun(p) + f.reported(p, "")
	}
	facts, err := f.Cluster.snapshot().PolicyFacts(p, f.Now)
	if err != nil {
		return fmt.Sprintf("fences no node: %v", err)
	}
	d := fencing.DecidePolicy(facts, f.Now)
	i := slices.IndexFunc(d.Nodes, func(j fencing.Judgement) bool { return j.Node == f.Name })
	if i < 0 {
		return ""
	}
	return f.judgementWords(p, d, d.Nodes[i])
}

func dryRun(p *v1alpha1.FencePolicy) string {
	if p.Spec.DryRun {
		return " It is a dry run, and only reports this."
	}
	return ""
}

// judgementWords describes a policy's judgement about the node, with its time if that is known.
func (f Facts) judgementWords(p *v1alpha1.FencePolicy, d fencing.PolicyDecision, j fencing.Judgement) string {
	text := fmt.Sprintf("%s: %s", j.Reason, j.Reason.Sentence())
	switch j.Reason {
	case fencing.ReasonPatience:
		text += fmt.Sprintf(" It is fenced in about %s, if nothing changes.", duration.HumanDuration(j.After))
	case fencing.ReasonTolerated:
		text += f.tolerationWords() + fmt.Sprintf(" The policy waits for that for about %s at most.",
			duration.HumanDuration(j.After))
	case fencing.ReasonUnreachable:
		if d.Fence != f.Name {
			text += " Node " + d.Fence + " comes first."
		}
	default:
	}
	return text + dryRun(p) + f.reported(p, j.Reason)
}

// reported describes the decision in the policy's status, if it differs from the decision here.
func (f Facts) reported(p *v1alpha1.FencePolicy, here fencing.Reason) string {
	if meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionActive) == nil {
		return " But volume-guard has not reported on this policy: check that it runs with --controllers=*,node-fencing."
	}
	for _, j := range p.Status.Nodes {
		if j.Name == f.Name && j.Reason != string(here) {
			return fmt.Sprintf(" volume-guard has reported %s since %s ago.", j.Reason, explain.Age(f.Now, j.Since.Time))
		}
	}
	return ""
}

// tolerationWords returns the time until which the waiting pods tolerate the node.
func (f Facts) tolerationWords() string {
	var last time.Time
	for _, pod := range f.Pods.Value {
		if pod.Waiting == nil || pod.Terminating {
			continue
		}
		if until := toleratesUntil(pod, f.Node.Value); until.After(last) {
			last = until
		}
	}
	if left := last.Sub(f.Now); left > 0 {
		return fmt.Sprintf(" The last one is deleted in about %s.", duration.HumanDuration(left))
	}
	return ""
}

// toleratesUntil returns the time until which a pod tolerates that its node is unreachable. Like
// kube-controller-manager (pkg/controller/tainteviction), it counts from the taint's timeAdded. The zero time is
// unknown.
func toleratesUntil(pod explain.Pod, node *v1.Node) (until time.Time) {
	i := slices.IndexFunc(node.Spec.Taints, func(t v1.Taint) bool {
		return t.Key == v1.TaintNodeUnreachable && t.Effect == v1.TaintEffectNoExecute && t.TimeAdded != nil
	})
	if i < 0 {
		return time.Time{}
	}
	taint := node.Spec.Taints[i]
	for _, t := range pod.Tolerations {
		if t.TolerationSeconds == nil || !t.ToleratesTaint(logr.Discard(), &taint, false) {
			continue
		}
		ends := taint.TimeAdded.Add(time.Duration(max(*t.TolerationSeconds, 0)) * time.Second)
		if until.IsZero() || ends.Before(until) {
			until = ends
		}
	}
	return until
}

// ParseAgents reads agents as YAML or JSON: a list of them, or an object with the field agents, such as the spec of a
// NodeFence. An unknown field or an empty list is an error. The API server validates everything else.
func ParseAgents(text []byte) ([]v1alpha1.Agent, error) {
	var list []v1alpha1.Agent
	var object struct {
		Agents []v1alpha1.Agent `json:"agents"`
	}
	var err error
	if yaml.Unmarshal(text, &map[string]any{}) == nil {
		err = yaml.UnmarshalStrict(text, &object)
		list = object.Agents
	} else {
		err = yaml.UnmarshalStrict(text, &list)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read agents: %w", err)
	case len(list) == 0:
		return nil, errors.New("read agents: the list is empty")
	}
	return list, nil
}

// manualTimeout is the maximum of an agent's timeout (pkg/apis/fencing/v1alpha1).
const manualTimeout = 24 * time.Hour

// ManualAgents returns the agents of a fence that waits for a person's confirmation alone.
func ManualAgents() []v1alpha1.Agent {
	return []v1alpha1.Agent{{Name: "manual", Covers: v1alpha1.CoversUntilUnfenced,
		Timeout: metav1.Duration{Duration: manualTimeout}, Manual: &v1alpha1.ManualAgent{}}}
}

// DefaultAgents returns the agents and the name of the only FencePolicy that selects the node. No policy, or several,
// is an error.
func DefaultAgents(f Facts) ([]v1alpha1.Agent, string, error) {
	if !f.Policies.OK() {
		return nil, "", fmt.Errorf("list FencePolicies: %w", errOf(f.Policies))
	}
	var names []string
	var chosen *v1alpha1.FencePolicy
	for _, p := range f.Policies.Value {
		if f.Node.Value != nil && selects(p, f.Node.Value) {
			names, chosen = append(names, p.Name), p
		}
	}
	switch len(names) {
	case 0:
		return nil, "", errors.New("no FencePolicy selects the node: name agents with -f agents.yaml, or --manual")
	case 1:
		return chosen.Spec.Agents, chosen.Name, nil
	}
	return nil, "", fmt.Errorf("several FencePolicies select the node (%s): choose one with --agents-of",
		strings.Join(names, ", "))
}
