//go:build unix

package singlenode

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

// TestHolders ends pods with a lock in all ways, or leaves them running.
func TestHolders(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.run([]scenario{
		{"a force deletion is refused, and frees nothing", modeAll, testForceRefused},
		{"a pod names its node", modeAll, testPresetNode},
		{"the policies keep lock, finalizer and gate", modeAll, testPolicies},
		{"a person's word removes a gate", modeAll, testGateConfirmed},
	},
		scenario{"a force deletion is confirmed while the node is there", modeAll, testForceConfirmed},
		scenario{"a node goes away and comes back", modeAll, testNodeReturns},
		scenario{"a node goes away, and a person confirms the end of its pod", modeAll, testNodeConfirmed},
		scenario{"a node goes away, and its pod is not deleted", modeAll, testNodeAwayOnly},
		scenario{"a pod that has a lock and no node is deleted", "", testGatedDeleted},
	)
}

// testForceRefused tries to delete a pod by force: it is refused, and the claim stays locked.
func testForceRefused(env *environment) {
	claim := env.claim()
	first := env.runningPod(claim)
	second := env.pod(claim)
	env.waits(second, "ClaimInUse", claim, first.Name)
	env.expectRefused(env.forceDelete(first), "csi-reclaimer-pod-force-delete")
	env.expectLocked(claim, first)
	env.remove(first)
	env.runs(second)
}

// testForceConfirmed deletes a pod by force, with the confirmation of a person: the next one runs.
func testForceConfirmed(env *environment) {
	claim := env.claim()
	first := env.runningPod(claim)
	second := env.pod(claim)
	env.waits(second, "ClaimInUse", claim, first.Name)
	env.confirm(first)
	env.Must(env.forceDelete(first))
	env.runs(second)
	env.expectLocked(claim, second)
}

// testNodeReturns deletes a pod on a node that is away. The next one waits until the node is back.
func testNodeReturns(env *environment) {
	m, claim := env.machine(), env.claim()
	first := env.runningPod(claim, on(m.name))
	second := env.pod(claim)
	env.waits(second, "ClaimInUse", claim, first.Name, "on node "+m.name)
	m.lose()
	env.Must(first.Delete(env.Ctx))
	env.waits(second, "ClaimInUse", "explain pod/"+first.Name)
	env.waitClaimEvent(claim, "HolderUnreachable", first.Name, m.name, "kubectl reclaim confirm")
	env.barrier()
	env.waits(second, "ClaimInUse")
	env.expectLocked(claim, first)
	m.resume()
	env.runs(second)
	env.expectLocked(claim, second)
}

// testNodeConfirmed is the same with a node that does not come back.
func testNodeConfirmed(env *environment) {
	m, claim := env.machine(), env.claim()
	first := env.runningPod(claim, on(m.name))
	second := env.pod(claim)
	m.lose()
	env.Must(first.Delete(env.Ctx))
	env.waitClaimEvent(claim, "HolderUnreachable", first.Name, m.name)
	env.expectRefused(env.forceDelete(first), "csi-reclaimer-pod-force-delete")
	env.barrier()
	env.waits(second, "ClaimInUse", first.Name)
	env.confirm(first)
	// Once the grace period is over, volume-guard does so as well.
	if err := env.forceDelete(first); !apierrors.IsNotFound(err) {
		env.Must(err)
	}
	env.runs(second)
	env.expectLocked(claim, second)
}

// testNodeAwayOnly does not delete the pod: the Event names possible actors.
func testNodeAwayOnly(env *environment) {
	m, claim := env.machine(), env.claim()
	first := env.runningPod(claim, on(m.name))
	m.lose()
	second := env.pod(claim)
	env.waits(second, "ClaimInUse", "node is not Ready", "kubectl delete pod "+first.Name)
	env.barrier()
	env.expectLocked(claim, first)
	m.resume()
	env.remove(first)
	env.runs(second)
}

// barrier returns once volume-guard has locked and freed another claim. An unwanted action would have happened by then.
func (env *environment) barrier() {
	env.T.Helper()
	claim := env.claim()
	first := env.runningPod(claim)
	second := env.pod(claim)
	env.remove(first)
	env.runs(second)
	env.remove(second)
	env.waitFree(claim)
}

// lockedAndWaiting returns a pod that has the locks of two claims, and waits for a pod that uses one of them since
// before the namespace asked for locks.
func (env *environment) lockedAndWaiting() (kept, used string, old, pod *objects.Pod) {
	env.T.Helper()
	kept, used = env.claim(), env.claim()
	old = env.runningPod(used)
	env.ask(modeAll)
	pod = env.podWith([]string{used, kept})
	env.waits(pod, "UsedWithoutLock", used, old.Name)
	env.expectLocked(kept, pod)
	env.expectLocked(used, pod)
	return kept, used, old, pod
}

// testGatedDeleted deletes a pod that has locks and no node.
func testGatedDeleted(env *environment) {
	kept, used, _, pod := env.lockedAndWaiting()
	env.remove(pod)
	env.runs(env.pod(kept))
	env.waitFree(used)
}

// testPresetNode creates a pod for a node, past the scheduler.
func testPresetNode(env *environment) {
	claim := env.claim()
	first := env.runningPod(claim)
	pod := env.podOf("preset", claim)
	pod.Spec.NodeName = "node-0"
	_, err := env.create(pod)
	env.expectRefused(err, "csi-reclaimer-pod-gate-")
	pod.Spec.NodeName, pod.Spec.NodeSelector = "", map[string]string{v1.LabelHostname: "node-0"}
	made, err := env.create(pod)
	env.Must(err)
	env.waitEvent(made.UID, "ClaimInUse", claim, first.Name)
}

// testPolicies has an administrator try to free a claim, to take it, and to let a pod pass.
func testPolicies(env *environment) {
	claim := env.claim()
	first := env.runningPod(claim)
	second := env.pod(claim)
	env.waits(second, "ClaimInUse", claim, first.Name)
	env.expectRefused(env.forge(claim, ""), "csi-reclaimer-claim-lock-stays")
	env.expectRefused(env.forge(claim, string(second.UID)+" "+second.Name), "csi-reclaimer-claim-lock-stays")
	env.expectRefused(env.patchClaim(claim, `{"metadata":{"finalizers":null}}`), "csi-reclaimer-claim-lock-stays")
	env.expectRefused(env.removeGate(second.Name), "csi-reclaimer-pod-gate-stays")
	env.expectRefused(env.forge(env.claim(), "somebody else"), "csi-reclaimer-claim-lock-stays")
	env.expectLocked(claim, first)
}

// testGateConfirmed confirms that a pod may run regardless of the lock of its claim, and removes its gate. The next pod
// waits for both.
func testGateConfirmed(env *environment) {
	claim := env.claim()
	first := env.runningPod(claim)
	second := env.pod(claim)
	env.waits(second, "ClaimInUse", claim, first.Name)
	env.confirm(second)
	excuse(&env.excused.ungated, second.UID)
	env.Must(env.removeGate(second.Name))
	env.runs(second)
	env.expectLocked(claim, first)
	third := env.pod(claim)
	env.waits(third, "ClaimInUse", first.Name)
	env.remove(first)
	env.waits(third, "UsedWithoutLock", claim, second.Name)
	env.remove(second)
	env.runs(third)
	env.expectLocked(claim, third)
}
