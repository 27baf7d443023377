//go:build unix

package fencing

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane/fakenode"
)

// TestFences plays NodeFences created by people, all on one control plane. It checks at the end that no pod or volume
// was released without a proof.
func TestFences(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	history := env.record()
	env.guard = env.Start("--leader-election=false")
	env.run(slices.Concat(endings(), byHand(), chains(), storms())...)
	env.check(history)
}

// byHand has each agent fence a node, up to its return.
func byHand() []scenario {
	return []scenario{
		{"a Job fences, and unfences", testJob},
		{"a remediation fences, and is deleted to unfence", testRemediation},
		{"a person confirms, when a manual agent waits for it", testManual},
		{"a reboot releases pods that were terminating", testReboot},
		{"csi-addons fences volumes, and no pod is released", testNetworkFence},
		{"the fence ends when nothing of before remains", testRemains},
		{"a node that is Ready is not tainted", testNodeIsReady},
	}
}

func testJob(env *environment) {
	m, w := env.lost("job")
	f := env.fence(m, env.jobAgent("power-off", undoing))
	job := f.waitJob(doFence, 1)
	if got := variable(job, "FENCE_NODE_UID"); got != string(m.node().UID) {
		env.T.Errorf("the Job has the node UID %q", got)
	}
	f.waitPhase(v1alpha1.PhaseFencing)
	f.expectNotReleased(w)
	f.endJob(job, v1.PodSucceeded)
	f.waitFenced("power-off")
	m.waitTainted(true)
	w.waitReplaced(env.spare.name)
	f.waitPhase(v1alpha1.PhaseReleased)
	m.boot()
	f.completeJob(doUnfence, 1)
	f.waitReturned("NodeRebooted")
	f.expectAttempts("power-off: Proven")
	m.waitReady(v1.ConditionTrue)
}

func testRemediation(env *environment) {
	m, w := env.lost("remediation")
	f := env.fence(m, env.remediationAgent())
	f.waitRemediation()
	f.report("Unknown")
	f.expectNotReleased(w)
	f.report("True")
	f.waitFenced(outlet)
	w.waitReplaced(env.spare.name)
	if f.remediation() == nil {
		env.T.Error("the remediation was deleted before the node has returned")
	}
	m.boot()
	f.waitReturned("NodeRebooted")
	if f.remediation() != nil {
		env.T.Error("the remediation is there after the fence")
	}
}

func testManual(env *environment) {
	m, w := env.lost("manual")
	f := env.fence(m, v1alpha1.Agent{Name: "operator", Covers: v1alpha1.CoversUntilUnfenced,
		Manual: &v1alpha1.ManualAgent{Instructions: "Pull the plug."}})
	f.waitEvent("WaitsForConfirmation", "")
	f.expectNotReleased(w)
	f.confirm("I have pulled the plug.")
	f.waitFenced("operator")
	w.waitReplaced(env.spare.name)
	m.boot()
	f.waitReturned("NodeRebooted")
}

// testReboot has one pod that was terminating before the agent was started, and one that was deleted later. The kubelet
// may have started the second pod again.
func testReboot(env *environment) {
	m := env.machine("reboot", nil)
	before, after := env.workload(m, impatient), env.workload(m)
	m.lose()
	before.waitTerminating()
	f := env.fence(m, env.jobAgent("reset", rebooting))
	job := f.waitJob(doFence, 1)
	env.Pods().Delete(after.name + "-0")
	f.endJob(job, v1.PodSucceeded)
	f.waitFenced("reset")
	before.waitReplaced(env.spare.name)
	after.waitTerminating()
	if isTainted(m.node()) {
		env.T.Error("WRONG RELEASE: a node that was rebooted is tainted, which would release all of its pods")
	}
	m.boot() // its kubelet ends the other pod
	f.waitReturned("NodeRebooted")
	env.Eventually("the pod that was deleted later has ended", func() bool {
		pod := after.pod()
		return pod != nil && pod.UID != after.first && pod.DeletionTimestamp == nil
	})
}

// testNetworkFence expects a fence of volumes to lift the VolumeLock, while the pod stays held until the reboot.
func testNetworkFence(env *environment) {
	m, w := env.lost("network", impatient)
	w.waitTerminating()
	env.waitLocked(w, true)
	env.createNetworkFenceClass("storage")
	f := env.fence(m, env.networkFenceAgent("storage"))
	o := f.waitNetworkFence("Fenced")
	if cidrs, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "cidrs"); len(cidrs) != 1 {
		env.T.Errorf("the NetworkFence is about %q, want the address of the node", cidrs)
	}
	f.reportNetworkFence(o, "Failed", "The driver is busy.")
	f.expectNotReleased(w)
	f.reportNetworkFence(o, "Succeeded", "fencing operation successful")
	f.waitFenced("storage")
	env.waitLocked(w, false)
	f.expectNotReleased(w)
	env.Eventually("new pods are kept from the node", func() bool { return isShunned(m.node()) })
	m.boot()
	w.waitReplaced(m.name, env.spare.name) // its kubelet has ended the pod, before or after the taint is removed
	env.Eventually("new pods may join the node", func() bool { return !isShunned(m.node()) })
	o = f.waitNetworkFence("Unfenced")
	f.reportNetworkFence(o, "Succeeded", "unfencing operation successful")
	f.waitReturned("NodeRebooted")
}

// waitLocked waits until the volume of a workload is locked to its node, or not.
func (env *environment) waitLocked(w *workload, want bool) {
	env.T.Helper()
	locks := env.object("csi-reclaimer.io", "v1alpha1", "volumelocks", "")
	env.Eventually("the lock of the volume of "+w.name, func() bool {
		list, err := locks.List(env.Ctx, metav1.ListOptions{})
		env.Must(err)
		locked := false
		for _, o := range list.Items {
			_, of, _ := unstructured.NestedMap(o.Object, "spec", "volumes", w.volume.Name)
			locked = locked || of
		}
		return locked == want
	})
}

// testRemains has a volume be attached to the node that detaches after the node has come back.
func testRemains(env *environment) {
	m := env.machine("remains", nil)
	detached := env.detaches(m.name)
	m.lose()
	f := env.fence(m, env.remediationAgent())
	f.waitRemediation()
	f.report("True")
	f.waitPhase(v1alpha1.PhaseReleased)
	m.boot()
	env.Eventually("the fence waits for the volume", func() bool {
		return env.guardSays(m.name, "RemainsOnNode")
	})
	if isTainted(m.node()) || !isFenced(f.get()) {
		env.T.Error("the fence has ended while a volume is being detached, or a node that runs again is tainted")
	}
	detached()
	f.waitReturned("NodeRebooted")
}

// testNodeIsReady has a fence be asked for a node that the controller manager takes to be well.
func testNodeIsReady(env *environment) {
	m := env.machine("ready", nil)
	w := env.workload(m)
	f := env.fence(m, env.remediationAgent())
	f.waitRemediation()
	m.silence() // the outlet is off, and the condition Ready is True for some time
	f.report("True")
	f.waitFenced(outlet)
	m.waitTainted(true)
	w.waitReplaced(env.spare.name)
	m.boot()
	f.waitReturned("NodeRebooted")
}

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
