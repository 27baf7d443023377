//go:build unix

package singlenode

import (
	"context"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	pod := podOf("preset", claim)
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
	_, err := env.Claims().TryMerge(claim, `{"metadata":{"finalizers":null}}`)
	env.expectRefused(err, "csi-reclaimer-claim-lock-stays")
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

// In TestNamespaces, namespaces begin and cease to ask for locks.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.run([]scenario{
		{"a namespace asks while pods run", "", testLabelAdded},
		{"a namespace asks for all claims, and then for selected ones", modeAll, testModeChanged},
	},
		scenario{"a namespace ends to ask while pods run and wait", modeAll, testLabelRemoved},
		scenario{"a namespace that does not ask is left alone", "", testNotAsked},
		scenario{"a namespace with locks is deleted", modeAll, testNamespaceDeleted},
	)
}

// testLabelAdded has pods run that share a claim when its namespace begins to ask.
func testLabelAdded(env *environment) {
	claim := env.claim()
	first, second := env.runningPod(claim), env.runningPod(claim)
	env.ask(modeAll)
	next := env.pod(claim)
	env.waits(next, "UsedWithoutLock", claim)
	env.remove(first)
	env.waits(next, "UsedWithoutLock", claim, second.Name) // even if it waited for that pod
	env.expectLocked(claim, next)
	env.remove(second)
	env.runs(next)
	env.expectLocked(claim, next)
}

// testLabelRemoved has one pod run with the lock of a claim and others wait when its namespace asks no more.
func testLabelRemoved(env *environment) {
	claim := env.claim()
	first := env.runningPod(claim)
	waiting := env.pod(claim)
	missing := env.pod("missing")
	env.waits(waiting, "ClaimInUse", claim)
	env.waits(missing, "ClaimMissing")
	env.ask("")
	env.runs(waiting)
	env.Must(missing.Wait(env.WithTimeout(), "without the gate", func(pod *v1.Pod) bool { return !isGated(pod) }))
	env.expectLocked(claim, first)
	env.remove(first)
	env.waitFree(claim)
	env.runningPod(claim)
	env.expectFree(claim)
}

// testModeChanged has a namespace ask for fewer locks: a pod no longer waits for a lock that is not asked for any more.
func testModeChanged(env *environment) {
	claim := env.claim()
	first := env.runningPod(claim)
	waiting := env.pod(claim)
	env.waits(waiting, "ClaimInUse", claim)
	env.ask(modeSelect)
	env.runs(waiting)
	env.expectLocked(claim, first)
	env.remove(first, waiting)
	env.waitFree(claim)
}

// testNotAsked has a namespace hold its pods, and another do nothing at all.
func testNotAsked(env *environment) {
	env.ask("")
	env.together(env.claim())
	other := env.scenario(env.T)
	other.together(other.claim())
	for _, pod := range other.pods(anyPod) {
		if isHeld(pod) || isGated(pod) {
			other.T.Errorf("pod %s is held or gated", pod.Name)
		}
	}
	other.deleteAll()
	env.ask(modeAll) // so that the judge sees a namespace that asks
	env.inTurn(env.claim())
}

// testNamespaceDeleted deletes the namespace: pods that run, pods that wait and locked claims go with it.
func testNamespaceDeleted(env *environment) {
	users := env.scenario(env.T)
	users.ask(modeAll)
	claim := users.claim()
	first := users.runningPod(claim)
	second := users.pod(claim)
	users.waits(second, "ClaimInUse", claim, first.Name)
	users.deleteNamespace()
	users.WaitNamespaceGone()
	env.inTurn(env.claim())
	v := judge(users.history.of(users.Namespace), users.excused)
	for _, violation := range v.violations {
		env.T.Error(violation)
	}
}

// deleteNamespace begins the deletion of the namespace, with both labels, as a user of locks does.
func (env *environment) deleteNamespace() {
	env.T.Helper()
	env.DeleteNamespace()
	// A label that volume-guard needs cannot be removed before the other.
	_, err := env.Namespaces().TryMerge(env.Namespace, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, safetyLabel))
	env.expectRefused(err, "csi-reclaimer-single-node-namespace")
}

// TestWithoutPolicies deletes the policies that protect lock, gate and hold, and then makes the requests that they
// refuse.
func TestWithoutPolicies(t *testing.T) {
	t.Parallel()
	env := newOwnEnvironment(t)
	env.removePolicies()
	t.Run("the judge finds the mistakes of a program that removes gates at once",
		func(t *testing.T) { testJudgeFinds(env.scenario(t)) })
	t.Run("the leader is killed", func(t *testing.T) {
		env.scenario(t).play(scenario{mode: modeAll, play: testLeaderKilled})
	})
	g := env.Start("--leader-election=false")
	env.run(nil,
		damage("a lock is damaged", func(*objects.Pod) string { return "damaged" }),
		damage("a lock is removed", func(*objects.Pod) string { return "" }),
		damage("a lock is forged for a pod that waits",
			func(next *objects.Pod) string { return string(next.UID) + " " + next.Name }),
		damage("a lock is forged for a pod that does not exist", func(*objects.Pod) string { return "some-uid some-pod" }),
		scenario{"a gate is removed by hand", modeAll, testGateRemoved},
		scenario{"an unused claim is locked by hand", modeAll, testForgedUnused},
	)
	env.Must(g.Terminate())
	t.Run("the API server is away", func(t *testing.T) {
		env.scenario(t).play(scenario{mode: modeAll, play: func(env *environment) { env.RestartAPIServers(env.playOutage) }})
	})
}

// removePolicies deletes the bindings of all validating policies, and waits until they refuse nothing.
func (env *environment) removePolicies() {
	env.T.Helper()
	env.Must(env.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().DeleteCollection(env.Ctx,
		metav1.DeleteOptions{}, metav1.ListOptions{}))
	probe := env.scenario(env.T)
	probe.ask(modeAll)
	claim := probe.claim()
	probe.Eventually("the policies are not in force", func() bool { return probe.forge(claim, "somebody else") == nil })
	env.Must(probe.forge(claim, ""))
}

// damage returns a scenario in which a lock is changed by hand.
func damage(name string, lock func(next *objects.Pod) string) scenario {
	return scenario{name, modeAll, func(env *environment) { env.damage(lock) }}
}

// damage changes the lock of a claim while one pod uses it and the next waits. The next pod continues to wait.
func (env *environment) damage(lock func(next *objects.Pod) string) {
	env.T.Helper()
	claim := env.claim()
	first := env.runningPod(claim)
	next := env.pod(claim)
	env.waits(next, "ClaimInUse", claim, first.Name)
	excuse(&env.excused.damaged, env.get(claim).UID)
	env.Must(env.forge(claim, lock(next)))
	env.waits(next, "UsedWithoutLock", claim, first.Name)
	env.expectLocked(claim, next)
	env.remove(first)
	env.runs(next)
	env.expectLocked(claim, next)
	if text := lock(next); text == "damaged" {
		env.waitClaimEvent(claim, "LockDamaged")
	}
}

// testGateRemoved removes the gate of a waiting pod by hand. It runs beside the pod that has the lock, and the next pod
// waits for both.
func testGateRemoved(env *environment) {
	claim := env.claim()
	first := env.runningPod(claim)
	second, third := env.pod(claim), env.pod(claim)
	env.waits(second, "ClaimInUse", claim, first.Name)
	env.waits(third, "ClaimInUse", claim, first.Name)
	excuse(&env.excused.ungated, second.UID)
	env.Must(env.removeGate(second.Name))
	env.runs(second)
	env.remove(first)
	env.waits(third, "UsedWithoutLock", claim, second.Name)
	env.remove(second)
	env.runs(third)
}

// testForgedUnused locks an unused claim by hand: the lock ends by itself.
func testForgedUnused(env *environment) {
	claim := env.claim()
	excuse(&env.excused.damaged, env.get(claim).UID)
	env.Must(env.forge(claim, "some-uid some-pod"))
	env.waitFree(claim)
	env.inTurn(claim)
}

// testLeaderKilled kills the leader while pods wait and one is about to get a claim. The next leader gives the claim to
// one pod, and then to each of the others in turn.
func testLeaderKilled(env *environment) {
	former, replace := env.Replicas()
	claim := env.claim()
	first := env.runningPod(claim)
	var waiting []*objects.Pod
	for range 10 {
		pod := env.pod(claim)
		env.waits(pod, "ClaimInUse", claim, first.Name)
		waiting = append(waiting, pod)
	}
	former.Kill()
	env.Must(first.Delete(env.Ctx))
	next := replace()
	for range waiting {
		pod := env.onePod("running", isRunning)
		env.Must(env.deletePod(pod))
		env.Eventually("it is gone", func() bool {
			return len(env.pods(func(now *v1.Pod) bool { return now.UID == pod.UID })) == 0
		})
	}
	env.Must(next.Terminate())
}

// testJudgeFinds plays a volume-guard that removes each gate at once. The judge must find two writers, or its verdict
// about the real one is worthless.
func testJudgeFinds(env *environment) {
	env.ask(modeAll)
	ctx, cancel := context.WithCancel(env.Ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			list, err := env.Client.CoreV1().Pods(env.Namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue
			}
			for i := range list.Items {
				if pod := &list.Items[i]; isGated(pod) {
					_ = env.removeGate(pod.Name) // another round follows
				}
			}
		}
	}()
	claim := env.claim()
	env.runningPod(claim)
	env.runningPod(claim)
	cancel()
	<-ended
	found := strings.Join(env.judge().violations, "\n")
	for _, want := range []string{"TWO WRITERS", "WRONG SCHEDULE"} {
		if !strings.Contains(found, want) {
			env.T.Errorf("the judge does not find %s:\n%s", want, found)
		}
	}
	// A volume-guard must release the held pods.
	g := env.Start("--leader-election=false")
	env.deleteAll()
	env.Must(g.Terminate())
}
