package nodes

import (
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

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
		if node := f.node(); node != nil && selects(p, node) {
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
