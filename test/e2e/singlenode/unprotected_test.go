//go:build unix

package singlenode

import (
	"context"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

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
