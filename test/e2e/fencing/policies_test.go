//go:build unix

package fencing

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// policyLabel on a node is the policy that selects it.
const policyLabel = "fencing.test/policy"

// least is the shortest patience that a policy can have.
const least = 40 * time.Second

// policy creates a FencePolicy for the nodes with its label. It fences as soon and as many as it may, unless a change
// says otherwise.
func (env *environment) policy(name string, changes ...func(*v1alpha1.FencePolicySpec)) {
	env.T.Helper()
	spec := v1alpha1.FencePolicySpec{
		NodeSelector:     metav1.LabelSelector{MatchLabels: map[string]string{policyLabel: name}},
		UnreachableAfter: metav1.Duration{Duration: least},
		Agents:           []v1alpha1.Agent{env.jobAgent("power-off")},
		MaxFences:        intstr.FromInt32(100), MaxFencesPerZone: 100, HaltAbove: 100,
	}
	for _, change := range changes {
		change(&spec)
	}
	_, err := env.fences.Policies.Create(env.Ctx, &v1alpha1.FencePolicy{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: spec}, metav1.CreateOptions{})
	env.Must(err)
}

// selected starts a node that a policy is for.
func (env *environment) selected(policy string, labels map[string]string) *machine {
	env.T.Helper()
	all := map[string]string{policyLabel: policy}
	for key, value := range labels {
		all[key] = value
	}
	return env.machine(policy, all)
}

func inZone(zone string) map[string]string { return map[string]string{v1.LabelTopologyZone: zone} }

// judgement returns a policy's reason for a node, or the empty string.
func (env *environment) judgement(policy string, m *machine) string {
	env.T.Helper()
	o := env.getPolicy(policy)
	i := slices.IndexFunc(o.Status.Nodes, func(j v1alpha1.NodeJudgement) bool { return j.Name == m.name })
	if i < 0 {
		return ""
	}
	return o.Status.Nodes[i].Reason
}

func (env *environment) getPolicy(name string) *v1alpha1.FencePolicy {
	env.T.Helper()
	o, err := env.fences.Policies.Get(env.Ctx, name, metav1.GetOptions{})
	env.Must(err)
	return o
}

// patchPolicy merges into the spec.
func (env *environment) patchPolicy(name, spec string) {
	env.T.Helper()
	_, err := env.fences.Policies.Patch(env.Ctx, name, types.MergePatchType, []byte(`{"spec":`+spec+`}`),
		metav1.PatchOptions{})
	env.Must(err)
}

// waitJudgement waits until a policy shows a reason for a node.
func (env *environment) waitJudgement(policy string, m *machine, reason string) {
	env.T.Helper()
	if !env.Happens(func() bool { return env.judgement(policy, m) == reason }) {
		env.T.Fatalf("policy %s never says %s about node %s: %+v", policy, reason, m.name, env.getPolicy(policy).Status)
	}
}

// waitActive waits until a policy is active, or not for one of these reasons.
func (env *environment) waitActive(policy string, active metav1.ConditionStatus, reasons ...string) {
	env.T.Helper()
	if !env.Happens(func() bool {
		c := meta.FindStatusCondition(env.getPolicy(policy).Status.Conditions, v1alpha1.ConditionActive)
		return c != nil && c.Status == active && (len(reasons) == 0 || slices.Contains(reasons, c.Reason))
	}) {
		env.T.Fatalf("policy %s is never active=%s, %q: %+v", policy, active, reasons, env.getPolicy(policy).Status)
	}
}

// fenceOf returns the fence of a node, nil for none.
func (env *environment) fenceOf(m *machine) *fence {
	env.T.Helper()
	list, err := env.fences.Fences.List(env.Ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + m.name})
	env.Must(err)
	if len(list.Items) == 0 {
		return nil
	}
	return &fence{environment: env, of: m, name: m.name, uid: list.Items[0].UID}
}

// waitFenceOf waits until a policy has asked for the fence of a node.
func (env *environment) waitFenceOf(policy string, m *machine) (f *fence) {
	env.T.Helper()
	if !env.Happens(func() bool { f = env.fenceOf(m); return f != nil }) {
		env.T.Fatalf("policy %s never fences node %s: %+v", policy, m.name, env.getPolicy(policy).Status)
	}
	if o := f.get(); o.Spec.PolicyName != policy {
		env.T.Errorf("node %s was fenced by policy %q, want %s", m.name, o.Spec.PolicyName, policy)
	}
	return f
}

func (env *environment) expectNoFence(machines ...*machine) {
	env.T.Helper()
	for _, m := range machines {
		if env.fenceOf(m) != nil {
			env.T.Errorf("WRONG FENCE: node %s is fenced", m.name)
		}
	}
}

// TestPolicies silences all nodes of a cluster at once. No node is fenced, because the control plane is more likely to
// be cut off. When some nodes are back, each policy acts on the silent nodes as it should.
func TestPolicies(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	history := env.record()
	env.guard = env.Start("--leader-election=false")

	const zoneA = "a"
	anchor := env.machine("anchor", inZone(zoneA))
	parts := []*part{
		{policy: "fences", test: testFences},
		{policy: "nothing-waits", test: testNothingWaits, idle: true},
		{policy: "other-namespaces", test: testNothingWaits, change: func(s *v1alpha1.FencePolicySpec) {
			s.NamespaceSelector.MatchLabels = map[string]string{"fencing.test/none": ""}
		}},
		{policy: "tolerated", test: testTolerated, template: func(*v1.PodTemplateSpec) {}},
		{policy: "limit", test: testLimit("LimitReached"), nodes: 2, change: func(s *v1alpha1.FencePolicySpec) {
			s.MaxFences = intstr.FromInt32(1)
		}},
		{policy: "zone-limit", test: testLimit("ZoneLimitReached"), nodes: 2, labels: inZone(zoneA),
			change: func(s *v1alpha1.FencePolicySpec) { s.MaxFencesPerZone = 1 }},
		{policy: "many", test: testMany, change: func(s *v1alpha1.FencePolicySpec) { s.HaltAbove = 1 }},
		{policy: "dry-run", test: testDryRun, change: func(s *v1alpha1.FencePolicySpec) { s.DryRun = true }},
		{policy: "control-plane", test: testNotSelected, labels: map[string]string{controlPlane: ""}},
		{policy: "back", test: testBack},
	}
	for _, p := range parts {
		p.start(env)
	}
	for _, p := range parts {
		for _, m := range p.machines {
			m.silence()
		}
	}
	anchor.silence()
	env.spare.silence()
	silent := time.Now()
	for _, p := range parts {
		for _, m := range p.machines {
			m.waitReady(v1.ConditionUnknown)
		}
		env.waitActive(p.policy, metav1.ConditionFalse, "ViewLost", "DryRun")
	}
	env.Eventually("the patience of all policies is over",
		func() bool { return time.Since(silent) > least+15*time.Second })
	for _, p := range parts {
		env.expectNoFence(p.machines...)
	}

	parts[len(parts)-1].machines[0].resume()
	anchor.resume()
	env.spare.resume()
	var scenarios []scenario
	for _, p := range parts {
		scenarios = append(scenarios, scenario{p.policy, func(sub *environment) {
			p.in(env.of(sub.T))
			p.test(p)
		}})
	}
	env.run(scenarios...)
	env.check(history)
}

// of is the environment for a subtest, in the same namespace.
func (env *environment) of(t *testing.T) *environment {
	sub := *env
	sub.Environment = env.ForSubtest(t)
	return &sub
}

// part is one policy with its nodes, each with a pod that waits for it.
type part struct {
	*environment
	policy string
	test   func(*part)
	change func(*v1alpha1.FencePolicySpec)
	// nodes is the number of nodes; default 1. idle means that no pod waits for them.
	nodes    int
	labels   map[string]string
	idle     bool
	template func(*v1.PodTemplateSpec)
	machines []*machine
	pods     []*workload
}

// in has the part be played by a subtest.
func (p *part) in(env *environment) {
	p.environment = env
	for _, m := range p.machines {
		m.environment = env
	}
	for _, w := range p.pods {
		w.environment = env
	}
}

func (p *part) start(env *environment) {
	env.T.Helper()
	for range max(p.nodes, 1) {
		m := env.selected(p.policy, p.labels)
		p.machines = append(p.machines, m)
		if p.template == nil {
			p.template = impatient
		}
		if !p.idle {
			p.pods = append(p.pods, env.workload(m, p.template))
		}
	}
	changes := []func(*v1alpha1.FencePolicySpec){}
	if p.change != nil {
		changes = append(changes, p.change)
	}
	env.policy(p.policy, changes...)
}

// playOut waits until the policy fences a node, and has that go well up to its return. Fences that have not ended count
// against the limits of all policies.
func (p *part) playOut(node int) {
	p.T.Helper()
	f := p.waitFenceOf(p.policy, p.machines[node])
	f.completeJob(doFence, 1)
	p.pods[node].waitReplaced(p.spare.name)
	p.machines[node].boot()
	f.waitReturned("NodeRebooted")
}

func testFences(p *part) { p.playOut(0) }

func testNothingWaits(p *part) {
	p.waitJudgement(p.policy, p.machines[0], "NothingWaits")
	p.expectNoFence(p.machines...)
}

func testTolerated(p *part) {
	p.waitJudgement(p.policy, p.machines[0], "Tolerated")
	p.expectNoFence(p.machines...)
}

// testLimit has the second node wait until the first fence has ended.
func testLimit(reason string) func(*part) {
	return func(p *part) {
		var first, second int
		p.Eventually("one of two nodes is fenced", func() bool {
			first = slices.IndexFunc(p.machines, func(m *machine) bool { return p.fenceOf(m) != nil })
			return first >= 0
		})
		second = 1 - first
		p.waitJudgement(p.policy, p.machines[second], reason)
		p.expectNoFence(p.machines[second])
		p.playOut(first)
		p.playOut(second)
	}
}

func testMany(p *part) {
	p.waitActive(p.policy, metav1.ConditionFalse, "ManyUnreachable")
	p.waitJudgement(p.policy, p.machines[0], "ManyUnreachable")
	p.expectNoFence(p.machines...)
}

func testDryRun(p *part) {
	p.waitJudgement(p.policy, p.machines[0], "WouldFence")
	p.waitEventOn("FencePolicy", p.policy, "WouldFence", p.machines[0].name)
	p.expectNoFence(p.machines...)
	p.patchPolicy(p.policy, `{"dryRun":false}`)
	p.playOut(0)
}

func testNotSelected(p *part) {
	p.waitActive(p.policy, metav1.ConditionTrue)
	p.expectNoFence(p.machines...)
	if got := p.judgement(p.policy, p.machines[0]); got != "" {
		p.T.Errorf("the policy says %s about a node of the control plane", got)
	}
}

// testBack is about a node that has come back before the policy could act.
func testBack(p *part) {
	p.machines[0].waitReady(v1.ConditionTrue)
	p.waitActive(p.policy, metav1.ConditionTrue)
	p.expectNoFence(p.machines...)
}

// storms are nodes that fall silent together. For how long a policy waits, and for nodes that flap, see
// TestSilenceMustLastBeforeFence of pkg/fencing, which has a clock of its own.
func storms() []scenario {
	return []scenario{
		{"a whole zone is unreachable", testZone},
	}
}

// one returns a unique name for a policy of one scenario.
func (env *environment) one(name string) string { return fmt.Sprintf("%s-%s", name, env.Namespace) }

// testZone expects the other node of a zone to be fenced when the first one is back.
func testZone(env *environment) {
	policy := env.one("zone")
	first, second := env.selected(policy, inZone(policy)), env.selected(policy, inZone(policy))
	env.workload(first, impatient)
	w := env.workload(second, impatient)
	env.policy(policy)
	first.silence()
	second.silence()
	env.waitActive(policy, metav1.ConditionFalse, "ZoneUnreachable")
	env.waitJudgement(policy, first, "ZoneUnreachable")
	env.waitJudgement(policy, second, "ZoneUnreachable")
	env.expectNoFence(first, second)
	first.resume()
	f := env.waitFenceOf(policy, second)
	f.completeJob(doFence, 1)
	w.waitReplaced(env.spare.name)
	env.expectNoFence(first)
}
