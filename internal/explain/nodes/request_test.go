package nodes

import (
	"errors"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

// text formats a plan as lines.
func (p Plan) text() string {
	var b strings.Builder
	for _, effect := range p.Effects {
		b.WriteString("- " + effect + "\n")
	}
	for _, cost := range p.Costs {
		b.WriteString("* " + cost + "\n")
	}
	return b.String()
}

// changed changes the facts of down.
func changed(change func(*Facts)) Facts {
	f := down()
	change(&f)
	return f
}

// expectError expects an error that is want; nil means no error.
func expectError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || want == nil && err != nil {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestCheckFence(t *testing.T) {
	nothing := func(*Facts) {}
	for sentence, c := range map[string]struct {
		change  func(*Facts)
		request FenceRequest
		err     error
		want    []string
	}{
		"a node that is down": {nothing, FenceRequest{Agents: []v1alpha1.Agent{jobAgent(), rebootAgent(), volumesAgent()}},
			nil,
			[]string{"- Agent ipmi is tried first (Job of PodTemplate ops/power-off, for 5m0s at most). Its proof releases",
				"- Agent sbr is tried if none before it has a proof",
				"pods that are terminating before it begins: 1 now.",
				"- Agent net is tried if", "for 5m0s at most). Its proof releases no pod. It frees the locks of the node's " +
					"volumes of driver disk.csi, but Kubernetes detaches none of them while its pod is reported as running.",
				"* The agents end all processes on the node, also the processes of 2 pods not being deleted.",
				"* The report of an agent is not verified", "!Ready", "!Lease"}},
		"volumes of two storage systems": {nothing,
			FenceRequest{Agents: []v1alpha1.Agent{volumesAgent(), volumesAgent()}}, nil,
			[]string{"- Agent net is tried first (", "- Agent net is tried as well ("}},
		"a person fences it": {nothing, FenceRequest{Agents: ManualAgents()}, nil, []string{
			"Agent manual is tried first (a person's confirmation, for 24h0m0s at most)", "!The agents end",
			"!The report of an agent"}},
		"pods may not be read": {func(f *Facts) { explained.Forbid(&f.Pods) }, FenceRequest{}, nil,
			[]string{"* Which pods run on the node could not be read."}},
		"its kubelet renews its Lease": {func(f *Facts) { f.Lease = explain.Found(lease("n1", time.Second)) },
			FenceRequest{}, nil,
			[]string{"* The kubelet has renewed its Lease in the last 40s: the node runs"}},
		"a node that is Ready": {func(f *Facts) { f.ready() }, FenceRequest{}, ErrReady, nil},
		"a node that is Ready, on purpose": {func(f *Facts) { f.ready() }, FenceRequest{EvenIfReady: true}, nil,
			[]string{"* The node is Ready: its processes run."}},
		"the control plane": {func(f *Facts) { f.Node.Value.Labels[objects.ControlPlaneLabel] = "" }, FenceRequest{},
			ErrControlPlane, nil},
		"the control plane, on purpose": {func(f *Facts) { f.Node.Value.Labels[objects.ControlPlaneLabel] = "" },
			FenceRequest{AllowControlPlane: true}, nil, []string{"etcd may lose its quorum"}},
		"the control plane, which is Ready": {
			func(f *Facts) { f.ready(); f.Node.Value.Labels[objects.ControlPlaneLabel] = "" },
			FenceRequest{AllowControlPlane: true}, ErrReady, nil},
		"no node": {func(f *Facts) { explained.Remove(&f.Node) }, FenceRequest{}, ErrNoNode, nil},
		"a node that may not be read": {func(f *Facts) { explained.Forbid(&f.Node) }, FenceRequest{},
			errForbidden, nil},
		"a fence that may not be read": {func(f *Facts) { explained.Forbid(&f.Fence) },
			FenceRequest{}, errForbidden, nil},
		"a cluster without fencing": {func(f *Facts) { f.Fence = explain.Failed[*v1alpha1.NodeFence](explain.ErrNoFencing) },
			FenceRequest{}, explain.ErrNoFencing, nil},
		"a node with a fence": {func(f *Facts) { f.released(jobAgent()) }, FenceRequest{}, ErrFenced, nil},
		"a node with a fence that ends": {func(f *Facts) { f.fenced().DeletionTimestamp = ptr.To(ago(0)) }, FenceRequest{},
			ErrFenced, nil},
		"a node with a fence that has ended": {func(f *Facts) { f.ended() }, FenceRequest{}, nil,
			[]string{"- The previous NodeFence, which has ended, is deleted."}},
	} {
		t.Run(sentence, func(t *testing.T) {
			f := changed(c.change)
			p, err := CheckFence(f, c.request)
			expectError(t, err, c.err)
			expect(t, p.text(), c.want...)
			if replaces := err == nil && f.Fence.Value != nil; replaces != (p.Replaces == "f") {
				t.Errorf("it replaces NodeFence %q", p.Replaces)
			}
		})
	}
}

func TestCheckConfirm(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*Facts)
		even   bool
		err    error
		want   []string
	}{
		"an agent works": {func(f *Facts) { attempt(f.fenced(jobAgent()), "ipmi", "", "") }, false, nil, []string{
			"- You say that no process on node n1 writes any more", "- Agent ipmi is stopped",
			"* Pod shop/a is deleted or released, and a replacement can write to its claims: data-a.",
			"* Pod shop/b is deleted or released", "* Your confirmation is not verified.", "!web", "!its processes run."}},
		"a person is waited for": {func(f *Facts) { attempt(f.fenced(ManualAgents()...), "manual", "", "") }, false, nil,
			[]string{"!is stopped"}},
		"many pods are on it": {func(f *Facts) {
			f.fenced(jobAgent())
			for range 25 {
				f.Pods.Value = append(f.Pods.Value, pod("c", deleted))
			}
		}, false, nil, []string{"* So are 7 more pods with claims."}},
		"pods may not be read": {func(f *Facts) {
			f.fenced(jobAgent())
			explained.Forbid(&f.Pods)
		}, false, nil, []string{"* Which pods with claims are on the node could not be read."}},
		"the node is gone": {func(f *Facts) { f.fenced(jobAgent()); explained.Remove(&f.Node) }, false, nil,
			nil},
		"the node is Ready": {func(f *Facts) { f.fenced(jobAgent()); f.ready() }, false, ErrReady, nil},
		"the node is Ready, on purpose": {func(f *Facts) { f.fenced(jobAgent()); f.ready() }, true, nil, []string{
			"* The node is Ready: its processes run.", "* The kubelet has renewed its Lease in the last 40s"}},
		"it has no fence":     {func(*Facts) {}, false, ErrNotFenced, nil},
		"its fence has ended": {func(f *Facts) { f.ended() }, false, ErrNotFenced, nil},
		"it keeps the node from volumes": {func(f *Facts) {
			f.fenced().Status.Proof = &v1alpha1.Proof{Covers: v1alpha1.CoversVolumes}
		}, false, ErrVolumes, nil},
		"its fence is to end":   {func(f *Facts) { f.fenced().Spec.Unfence = v1alpha1.UnfenceNow }, false, ErrEnding, nil},
		"its fence was deleted": {func(f *Facts) { f.fenced().DeletionTimestamp = ptr.To(ago(0)) }, false, ErrEnding, nil},
		"it was said before":    {func(f *Facts) { say(f.fenced(), "off") }, false, ErrDone, nil},
		"something else was said before": {func(f *Facts) { say(f.fenced(), "x") }, false, nil,
			[]string{"- You say"}},
		"confirmed for another NodeFence": {func(f *Facts) {
			say(f.fenced(), "off")
			f.Fence.Value.Spec.ConfirmationUID = "before"
		}, false, nil, []string{"- You say"}},
		"fences may not be read": {func(f *Facts) { explained.Forbid(&f.Fence) }, false,
			errForbidden, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			p, err := CheckConfirm(changed(c.change), "off", c.even)
			expectError(t, err, c.err)
			expect(t, p.text(), c.want...)
		})
	}
	f := changed(func(f *Facts) {
		fence := f.fenced()
		attempt(fence, "confirmation", v1alpha1.ResultContradicted, "off")
		say(fence, "off")
	})
	if _, err := CheckConfirm(f, "off", false); err == nil || !strings.Contains(err.Error(), "with other words") {
		t.Errorf("a word that the node has contradicted: %v", err)
	}
	if _, err := CheckConfirm(f, "off, checked on the console", false); err != nil {
		t.Errorf("other words: %v", err)
	}
}

// say confirms that the node of a NodeFence is fenced.
func say(fence *v1alpha1.NodeFence, words string) {
	fence.Spec.Confirmation, fence.Spec.ConfirmationUID = words, fence.UID
}

func TestCheckUnfence(t *testing.T) {
	const now, released, abandon = v1alpha1.UnfenceNow, v1alpha1.UnfenceWhenReleased, v1alpha1.UnfenceAbandon
	isReleased := func(f *Facts) { f.released(jobAgent()) }
	asked := func(unfence v1alpha1.Unfence) func(*Facts) {
		return func(f *Facts) { f.fenced(jobAgent()).Spec.Unfence = unfence }
	}
	for sentence, c := range map[string]struct {
		change func(*Facts)
		to     v1alpha1.Unfence
		err    error
		want   []string
	}{
		"in force": {isReleased, now, nil, []string{"- The proof ends at once", "- The fence is undone by agent ipmi",
			"* On the node is still 1 held pod: they wait for other evidence then.",
			"* Nothing shows that the node was rebooted after the proof"}},
		"in force, given up": {isReleased, abandon, nil, []string{"- The proof ends at once",
			"* volume-guard does not undo the work of agent ipmi", "!is undone by"}},
		"in force, later": {isReleased, released, nil, []string{
			"- When no pod with a claim and no attached volume remains on the node, agent ipmi undoes the fence",
			"- The taint node.kubernetes.io/out-of-service stays until the node has booted again.", "!rebooted"}},
		"in force, by an agent that undoes nothing": {func(f *Facts) {
			f.released(ManualAgents()[0])
		}, released, nil, []string{"- No agent that was tried has anything to undo"}},
		"in force, and the node is back": {func(f *Facts) {
			isReleased(f)
			f.Node.Value.Status.NodeInfo.BootID, f.Lease.Value.ResourceVersion = "boot-2", "2"
			f.Pods.Value = nil
		}, now, nil, []string{"- The proof ends", "!* "}},
		"pods may not be read": {func(f *Facts) {
			isReleased(f)
			explained.Forbid(&f.Pods)
		}, now, nil, []string{"* The pods and volumes that remain on the node could not be read."}},
		"an agent works": {func(f *Facts) { attempt(f.fenced(jobAgent()), "ipmi", "", "") }, now, nil, []string{
			"- Agent ipmi is stopped, if it can be.", "- Nothing is proven", "- The fence is undone by agent ipmi"}},
		"two agents were tried": {func(f *Facts) {
			fence := f.fenced(jobAgent(), rebootAgent())
			attempt(fence, "ipmi", v1alpha1.ResultFailed, "")
			attempt(fence, "sbr", v1alpha1.ResultFailed, "")
		}, now, nil, []string{"undone by agents sbr, ipmi, also"}},
		"nothing was tried":         {func(f *Facts) { f.fenced(jobAgent()) }, now, nil, []string{"!undone", "!* "}},
		"no fence":                  {func(*Facts) {}, now, ErrNotFenced, nil},
		"it has ended":              {func(f *Facts) { f.ended() }, now, ErrNotFenced, nil},
		"asked for before":          {asked(now), now, ErrDone, nil},
		"given up after that":       {asked(now), abandon, nil, nil},
		"later, after that":         {asked(now), released, ErrEnding, nil},
		"given up before":           {asked(abandon), now, ErrEnding, nil},
		"given up before, again":    {asked(abandon), abandon, ErrDone, nil},
		"later before, now":         {asked(released), now, nil, nil},
		"later before, later again": {asked(released), released, ErrDone, nil},
		"deleted before": {func(f *Facts) { f.fenced().DeletionTimestamp = ptr.To(ago(0)) }, released,
			ErrEnding, nil},
		"deleted before, and given up": {func(f *Facts) { f.fenced().DeletionTimestamp = ptr.To(ago(0)) }, abandon, nil,
			nil},
		"its node may not be read": {func(f *Facts) {
			isReleased(f)
			explained.Forbid(&f.Node)
		}, now, errForbidden, nil},
	} {
		t.Run(sentence, func(t *testing.T) {
			p, err := CheckUnfence(changed(c.change), c.to)
			expectError(t, err, c.err)
			expect(t, p.text(), c.want...)
		})
	}
}

func TestUnknown(t *testing.T) {
	for sentence, c := range map[string]struct {
		change func(*Facts)
		err    error
	}{
		"all is known":    {func(*Facts) {}, nil},
		"only pods":       {func(f *Facts) { explained.Forbid(&f.Node) }, nil},
		"a node that was": {func(f *Facts) { explained.Remove(&f.Node) }, nil},
		"a fence of no node": {func(f *Facts) {
			f.fenced()
			f.Node, f.Pods.Value = explain.Found[*v1.Node](nil), nil
		}, nil},
		"no node": {func(f *Facts) { f.Node, f.Pods.Value = explain.Found[*v1.Node](nil), nil }, ErrNoNode},
		"nothing": {func(f *Facts) {
			f.Node, f.Pods = explain.Failed[*v1.Node](errForbidden), explain.Failed[[]explain.Pod](errForbidden)
			explained.Forbid(&f.Fence)
		}, errForbidden},
	} {
		t.Run(sentence, func(t *testing.T) { expectError(t, changed(c.change).Unknown(), c.err) })
	}
}

func TestParseAgents(t *testing.T) {
	const agent = "{name: ipmi, covers: UntilUnfenced, timeout: 2m, job: {namespace: ops, podTemplateName: power-off}}"
	for sentence, c := range map[string]struct {
		text, err string
	}{
		"a list":          {"- " + agent, ""},
		"an object":       {"agents:\n- " + agent, ""},
		"JSON":            {`[{"name": "ipmi", "timeout": "2m", "job": {"podTemplateName": "power-off"}}]`, ""},
		"an unknown word": {"- {name: ipmi, cover: Reboot}", `unknown field "cover"`},
		"another object":  {"spec:\n  agents: []", `unknown field "spec"`},
		"no agent":        {"[]", "the list is empty"},
		"nothing":         {"", "the list is empty"},
		"no YAML":         {"\t", "read agents"},
	} {
		agents, err := ParseAgents([]byte(c.text))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v", sentence, err)
			}
			continue
		}
		if err != nil || len(agents) != 1 || agents[0].Name != "ipmi" || agents[0].Timeout.Duration != 2*time.Minute ||
			agents[0].Job.PodTemplateName != "power-off" {
			t.Errorf("%s: %+v, %v", sentence, agents, err)
		}
	}
}

func TestDefaultAgents(t *testing.T) {
	all := func(*v1alpha1.FencePolicySpec) {}
	others := func(s *v1alpha1.FencePolicySpec) { s.NodeSelector.MatchLabels = map[string]string{"pool": "web"} }
	for sentence, c := range map[string]struct {
		change func(*Facts)
		err    string
	}{
		"one": {func(f *Facts) { f.Policies.Value = []*v1alpha1.FencePolicy{policy("p", all), policy("q", others)} }, ""},
		"none": {func(f *Facts) { f.Policies.Value = []*v1alpha1.FencePolicy{policy("q", others)} },
			"no FencePolicy selects the node"},
		"two": {func(f *Facts) { f.Policies.Value = []*v1alpha1.FencePolicy{policy("p", all), policy("q", all)} },
			"several FencePolicies select the node (p, q)"},
		"none may be read": {func(f *Facts) { explained.Forbid(&f.Policies) },
			"forbidden"},
	} {
		agents, name, err := DefaultAgents(changed(c.change))
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %v", sentence, err)
		case c.err == "" && (err != nil || name != "p" || len(agents) != 1):
			t.Errorf("%s: %q, %v, %v", sentence, name, agents, err)
		}
	}
	if a := ManualAgents()[0]; a.Manual == nil || a.Timeout != (metav1.Duration{Duration: 24 * time.Hour}) {
		t.Errorf("%+v", a)
	}
}
