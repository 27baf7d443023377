//go:build unix

package fencing

import (
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
)

// endings end fences at each phase: by a person, by the node, or by a contradiction of the proof. Scenarios that wait
// for the controller's clock come first.
func endings() []scenario {
	return []scenario{
		{"a node that comes back as it was contradicts the proof", testContradiction},
		{"an agent that has failed is run again", testRemediationAgain},
		{"unfence during an attempt", testUnfenceDuringAttempt},
		{"abandon: the agents undo nothing", testAbandon},
		{"an agent that cannot undo its work", testUndoFails},
		{"unfence when released: the taint stays until the node was rebooted", testWhenReleased},
		{"deleted when requested", testDeletedRequested},
		{"deleted while an agent works", testDeletedFencing},
		{"deleted after all agents have failed", testDeletedFailed},
		{"deleted when released", testDeletedReleased},
		{"deleted while it is being undone", testDeletedUnfencing},
		{"deleted after the node has returned", testDeletedReturned},
		{"a node of the control plane", testControlPlane},
		{"a node that does not exist", testNodeNotFound},
		{"a node whose Node is deleted", testNodeDeleted},
		{"the node boots while an agent works", testBootsDuringAttempt},
	}
}

// fenced returns the fence of a machine that an agent without an undo has fenced.
func (env *environment) fenced(m *machine) *fence {
	env.T.Helper()
	f := env.fence(m, env.jobAgent("power-off"))
	f.completeJob(doFence, 1)
	f.waitPhase(v1alpha1.PhaseReleased)
	return f
}

// testContradiction has an agent that lies: the node was cut off, and has run all the time.
func testContradiction(env *environment) {
	m, w := env.lost("lied")
	f := env.fence(m, env.remediationAgent(), env.jobAgent("power-off"))
	f.waitRemediation()
	f.report("True")
	w.waitReplaced(env.spare.name)
	proven := time.Now()
	m.resume()
	f.waitEvent("ProofContradicted", "")
	if took := time.Since(proven); took < 40*time.Second {
		env.T.Errorf("the proof was withdrawn after %v, when the node may have been booting", took)
	}
	m.waitTainted(false)
	job := f.waitJob(doFence, 2)
	if o := f.get(); isFenced(o) || o.Status.Proof != nil ||
		meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionReleased) {
		env.T.Errorf("the proof was not withdrawn: %s", describe(o))
	}
	f.expectAttempts("outlet: Contradicted", "power-off: ")
	m.silence()
	f.endJob(job, v1.PodSucceeded)
	f.waitFenced("power-off")
	m.waitTainted(true)
	m.boot()
	f.waitReturned("NodeRebooted")
}

// testRemediationAgain shows that an agent's result of one attempt does not count in the next.
func testRemediationAgain(env *environment) {
	m, w := env.lost("again")
	f := env.fence(m, env.remediationAgent())
	f.waitRemediation()
	first := f.remediation().GetUID()
	f.report("False")
	f.waitEvent("AllAgentsFailed", "")
	env.Eventually("the agent is run again", func() bool {
		o := f.remediation()
		return o != nil && o.GetUID() != first
	})
	f.expectNotReleased(w)
	f.report("True")
	f.waitFenced(outlet)
	f.expectAttempts("outlet: Failed", "outlet: Proven")
	w.waitReplaced(env.spare.name)
}

func testUnfenceDuringAttempt(env *environment) {
	m, w := env.lost("unfence")
	f := env.fence(m, env.jobAgent("power-off", undoing))
	f.waitJob(doFence, 1)
	f.patch(`{"unfence":"Now"}`)
	f.completeJob(doUnfence, 1) // the Job that was stopped may have turned the node off
	f.waitReturned("EndedByRequest")
	f.expectAttempts("power-off: Canceled")
	f.expectNotReleased(w)
}

func testAbandon(env *environment) {
	m, w := env.lost("abandon")
	f := env.fence(m, env.jobAgent("power-off", undoing))
	f.completeJob(doFence, 1)
	w.waitReplaced(env.spare.name)
	f.waitPhase(v1alpha1.PhaseReleased)
	f.patch(`{"unfence":"Abandon"}`)
	f.waitReturned("EndedByRequest")
	if len(f.jobs(doUnfence, 0)) > 0 {
		env.T.Error("an agent has undone its work in a fence that was abandoned")
	}
}

func testUndoFails(env *environment) {
	m := env.machine("undo", nil)
	m.lose()
	f := env.fence(m, env.jobAgent("power-off", undoing))
	f.completeJob(doFence, 1)
	f.waitPhase(v1alpha1.PhaseReleased)
	f.patch(`{"unfence":"Now"}`)
	f.endJob(f.waitJob(doUnfence, 1), v1.PodFailed)
	f.waitEvent("UnfenceFailed", "")
	if !isTainted(m.node()) {
		env.T.Error("the taint was removed before the agents have undone their work")
	}
	f.patch(`{"unfence":"Abandon"}`)
	f.waitReturned("EndedByRequest")
}

// testWhenReleased is about nodes that do not come back by themselves: the agent turns them on again.
func testWhenReleased(env *environment) {
	m, w := env.lost("released")
	f := env.fenceWith(m, v1alpha1.NodeFenceSpec{Reason: "test", Unfence: v1alpha1.UnfenceWhenReleased,
		Agents: []v1alpha1.Agent{env.jobAgent("power-off", undoing)}})
	f.completeJob(doFence, 1)
	w.waitReplaced(env.spare.name)
	f.completeJob(doUnfence, 1)
	f.wait("undone", func(o *v1alpha1.NodeFence) bool { return o.Status.Attempts[0].UndoneAt != nil })
	env.Eventually("the fence waits for the node", func() bool { return env.guardSays(m.name, "AwaitsReturn") })
	if !isTainted(m.node()) {
		env.T.Error("the taint was removed before the node has shown that it was rebooted")
	}
	m.boot()
	f.waitReturned("NodeReady", "NodeRebooted")
}

func testDeletedRequested(env *environment) {
	m := env.machine("requested", map[string]string{controlPlane: ""})
	f := env.fence(m, env.jobAgent("power-off", undoing))
	f.waitEvent("ControlPlaneNode", "")
	f.delete()
	f.waitGone()
	if len(f.jobs(doFence, 0)) > 0 {
		env.T.Error("an agent was started")
	}
}

func testDeletedFencing(env *environment) {
	m, w := env.lost("fencing")
	f := env.fence(m, env.jobAgent("power-off", undoing))
	f.waitJob(doFence, 1)
	f.delete()
	f.completeJob(doUnfence, 1)
	f.waitGone()
	f.expectNotReleased(w)
}

func testDeletedFailed(env *environment) {
	m, w := env.lost("failed")
	f := env.fence(m, env.remediationAgent())
	f.waitRemediation()
	f.report("False")
	f.waitPhase(v1alpha1.PhaseFailed)
	f.delete()
	f.waitGone()
	f.expectNotReleased(w)
	env.Eventually("the remediation is deleted", func() bool { return f.remediation() == nil })
}

func testDeletedReleased(env *environment) {
	m, w := env.lost("taken")
	f := env.fenced(m)
	w.waitReplaced(env.spare.name)
	f.delete()
	f.waitGone()
	if isTainted(m.node()) {
		env.T.Error("the fence is gone and the node is tainted")
	}
}

func testDeletedUnfencing(env *environment) {
	m := env.machine("unfencing", nil)
	m.lose()
	f := env.fence(m, env.jobAgent("power-off", undoing))
	f.completeJob(doFence, 1)
	f.waitPhase(v1alpha1.PhaseReleased)
	m.boot()
	job := f.waitJob(doUnfence, 1)
	f.waitPhase(v1alpha1.PhaseUnfencing)
	f.delete()
	f.wait("terminating", func(o *v1alpha1.NodeFence) bool { return o.DeletionTimestamp != nil })
	f.endJob(job, v1.PodSucceeded)
	f.waitGone()
	if isTainted(m.node()) {
		env.T.Error("the fence is gone and the node is tainted")
	}
}

// testDeletedReturned fences a node a second time, under the same name of its NodeFence.
func testDeletedReturned(env *environment) {
	m := env.machine("returned", nil)
	m.lose()
	f := env.fenced(m)
	m.boot()
	f.waitReturned("NodeRebooted")
	f.delete()
	f.waitGone()
	w := env.workload(m)
	m.lose()
	env.fenced(m)
	w.waitReplaced(env.spare.name)
}

// controlPlane is the label of nodes of the control plane.
const controlPlane = "node-role.kubernetes.io/control-plane"

func testControlPlane(env *environment) {
	m := env.machine("master", map[string]string{controlPlane: ""})
	w := env.workload(m)
	m.lose()
	f := env.fence(m, env.jobAgent("power-off"))
	f.waitEvent("ControlPlaneNode", "allowControlPlane")
	if len(f.jobs(doFence, 0)) > 0 {
		env.T.Error("an agent was started")
	}
	f.expectNotReleased(w)
	f.patch(`{"allowControlPlane":true}`)
	f.completeJob(doFence, 1)
	w.waitReplaced(env.spare.name)
}

func testNodeNotFound(env *environment) {
	f := env.fence(&machine{environment: env, name: "missing-" + rand.String(5)}, env.jobAgent("power-off"))
	f.waitEvent("NodeNotFound", "")
	if len(f.jobs(doFence, 0)) > 0 {
		env.T.Error("an agent was started")
	}
	f.delete()
	f.waitGone()
}

// testNodeDeleted deletes a Node under its fence. That ends the fence, because its agent has nothing to undo.
func testNodeDeleted(env *environment) {
	m, w := env.lost("removed")
	f := env.fenced(m)
	w.waitReplaced(env.spare.name)
	env.Must(fakenode.Remove(env.Ctx, env.Client, m.name))
	f.wait("returned", func(o *v1alpha1.NodeFence) bool {
		c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReturned)
		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == "NodeGone"
	})
}

// testBootsDuringAttempt has the node come back by itself, with its former pod. The agent's report that the node is off
// proves nothing, since the node may have booted afterwards.
func testBootsDuringAttempt(env *environment) {
	m, w := env.lost("boots")
	f := env.fence(m, env.jobAgent("power-off"))
	job := f.waitJob(doFence, 1)
	m.boot()
	m.waitReady(v1.ConditionTrue)
	f.endJob(job, v1.PodSucceeded)
	f.wait("not proven by its agent", func(o *v1alpha1.NodeFence) bool {
		first := o.Status.Attempts[0]
		return first.Result == v1alpha1.ResultFailed && strings.Contains(first.Message, "was rebooted")
	})
	f.expectNotReleased(w)
	f.patch(`{"unfence":"Now"}`)
	f.waitReturned("EndedByRequest")
}
