//go:build unix

package singlenode

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
	_, err := env.Client.CoreV1().Namespaces().Patch(env.Ctx, env.Namespace, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, safetyLabel), metav1.PatchOptions{})
	env.expectRefused(err, "csi-reclaimer-single-node-namespace")
}
