//go:build unix

package fencing

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
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
	env.Must(env.Client.CoreV1().Pods(env.Namespace).Delete(env.Ctx, after.name+"-0", metav1.DeleteOptions{}))
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

// testNetworkFence expects a fence of volumes to let the volume be attached elsewhere, while the pod's name stays held.
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
