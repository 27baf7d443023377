//go:build unix

package fencing

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// TestPlugin fences a node twice with kubectl reclaim: by the agents of a policy, and by a confirmation.
func TestPlugin(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.guard = env.Start("--leader-election=false")
	env.policy("patient", func(s *v1alpha1.FencePolicySpec) {
		s.UnreachableAfter.Duration = time.Hour
		s.Agents = []v1alpha1.Agent{env.jobAgent("power-off", undoing)}
	})
	m := env.selected("patient", nil)
	w := env.workload(m, impatient)
	node := "node/" + m.name
	env.ExpectOutput(env.RunPlugin("explain", node), "is Ready, and nothing waits for it. It has no fence.",
		"patient: fences the node once it has been unreachable for 60m")
	env.ExpectOutput(env.refused("fence", m.name, "--reason=x", "--yes"), "the node is Ready", "--even-if-ready")
	m.lose()
	w.waitTerminating()

	env.explainNode(m, w)
	env.ExpectOutput(env.refused("fence", m.name, "--reason=x"), "the input is no terminal: nothing was changed")
	env.ExpectOutput(env.RunPlugin("fence", m.name, "--reason=x", "--dry-run"), "Agent power-off is tried first",
		"would be fenced")
	env.expectNoFence(m)

	first := env.fenceByPolicy(m, w)
	env.ExpectOutput(env.RunPlugin("explain", node), "Its fence is Released (Released)",
		"agent power-off proved UntilUnfenced",
		`by kubectl-reclaim: "kernel hangs"`, "patient: FenceExists")
	output := env.RunPlugin("unfence", m.name, "--yes")
	env.ExpectOutput(output, "The proof ends at once", "The fence is undone by agent power-off",
		"Nothing shows that the node was rebooted after the proof")
	first.completeJob(doUnfence, 1)
	first.waitReturned("EndedByRequest")

	env.fenceByHand(m, first)
}

// explainNode checks the plugin's output for a node that is cut off, also for a user with the documented permissions.
func (env *environment) explainNode(m *machine, w *workload) {
	env.T.Helper()
	output := env.RunPlugin("explain", "node/"+m.name)
	env.ExpectOutput(output, "Node "+m.name+" has been NotReady for", "1 held pod waits for it. It has no fence.",
		w.name+"-0, Terminating,NodeDown for", "held by volume-guard (NodeUnreachable)",
		"patient: Patience", "It is fenced in about", "NodeFenced: No fence of the node is in force.",
		"kubectl reclaim fence "+m.name+" --agents-of=patient")
	if strings.Contains(output, "Not read") {
		env.T.Errorf("not all is read:\n%s", output)
	}
	env.ExpectOutput(env.RunPlugin("explain", "pod/"+w.name+"-0"), "waits (NodeUnreachable)",
		"See who can fence it, so that it is proven that nothing runs there: kubectl reclaim explain node/"+m.name)
}

// refused runs the plugin, expects an error, and returns the output.
func (env *environment) refused(args ...string) string {
	env.T.Helper()
	output, err := env.WaitExit(env.StartPlugin(args...))
	if err == nil {
		env.T.Errorf("kubectl-reclaim %q is not refused:\n%s", args, output)
	}
	return output
}

// fenceByPolicy has the agents of the node's only policy fence it, while the plugin waits for the proof.
func (env *environment) fenceByPolicy(m *machine, w *workload) *fence {
	env.T.Helper()
	waiting := env.StartPlugin("fence", m.name, "--reason=kernel hangs", "--yes", "--wait")
	env.Eventually("there is a NodeFence", func() bool { return env.fenceOf(m) != nil })
	f := env.fenceOf(m)
	job := f.waitJob(doFence, 1)
	f.expectNotReleased(w)
	env.ExpectOutput(env.refused("fence", m.name, "--reason=x", "--yes"),
		"the node has a fence: Fencing, agent power-off began")
	env.ExpectOutput(env.RunPlugin("explain", "node/"+m.name), "no result yet", "Waits for    agent power-off, ",
		"kubectl describe job -n "+env.Namespace)
	row := env.listFence(m)
	if row.Phase != "Fencing" || row.Reason != "Fencing" || row.Held == nil || *row.Held != 1 || row.Covers != "" {
		env.T.Errorf("it lists %+v", row)
	}
	f.endJob(job, v1.PodSucceeded)
	output, err := env.WaitExit(waiting)
	if err != nil {
		env.T.Errorf("it waits for the proof: %v\n%s", err, output)
	}
	env.ExpectOutput(output, "Agents of FencePolicy patient are used.", "Node "+m.name+": Fencing",
		"agent power-off proved UntilUnfenced")
	w.waitReplaced(env.spare.name)
	f.waitPhase(v1alpha1.PhaseReleased)
	if row := env.listFence(m); row.Covers != "UntilUnfenced" || row.WaitsFor != "the node to boot again" {
		env.T.Errorf("it lists %+v", row)
	}
	return f
}

// listFence returns the fence of a node as "kubectl reclaim fences" lists it.
func (env *environment) listFence(m *machine) nodes.Row {
	env.T.Helper()
	var list nodes.List
	output := env.RunPlugin("fences", "-o", "json")
	if err := json.Unmarshal([]byte(output), &list); err != nil || len(list.Unread) > 0 {
		env.T.Fatalf("%v in\n%s", err, output)
	}
	for _, row := range list.Fences {
		if row.Node == m.name {
			return row
		}
	}
	env.T.Fatalf("no fence of node %s is in\n%s", m.name, output)
	return nodes.Row{}
}

// fenceByHand fences the node again after its first fence has ended, and confirms the fence.
func (env *environment) fenceByHand(m *machine, first *fence) {
	env.T.Helper()
	env.ExpectOutput(env.refused("confirm", "node/"+m.name, "--because=x", "--yes"), "the node has no fence")
	env.ExpectOutput(env.RunPlugin("fence", m.name, "--manual", "--reason=mainboard", "--yes"),
		"The previous NodeFence, which has ended, is deleted.", "It waits for you")
	f := env.fenceOf(m)
	if f == nil || f.uid == first.uid {
		env.T.Fatalf("the NodeFence was not replaced: %+v", f)
	}
	f.waitPhase(v1alpha1.PhaseFencing)
	env.ExpectOutput(env.RunPlugin("explain", "node/"+m.name), "(WaitsForConfirmation)", "a person to confirm")
	env.ExpectOutput(env.RunPlugin("confirm", "node/"+m.name, "--because=cables are out", "--dry-run"),
		"would be changed")
	if c := f.get().Spec.Confirmation; c != "" {
		env.T.Errorf("the dry run has confirmed: %q", c)
	}
	env.ExpectOutput(env.RunPlugin("confirm", "node/"+m.name, "--because=cables are out", "--yes"),
		"Your confirmation is not verified")
	f.waitFenced("manual")
	env.ExpectOutput(env.RunPlugin("confirm", "node/"+m.name, "--because=cables are out", "--yes"),
		"this was confirmed before")
	env.ExpectOutput(env.RunPlugin("unfence", m.name, "--yes", "--abandon"), "The proof ends at once")
	f.waitReturned("EndedByRequest")
	if now := f.get(); now.Spec.Unfence != v1alpha1.UnfenceAbandon {
		env.T.Errorf("it ends %s", now.Spec.Unfence)
	}
}
