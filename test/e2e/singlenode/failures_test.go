//go:build unix

package singlenode

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// TestFailures makes volume-guard and the API server fail, with the policies in force. Together, the scenarios use all
// permissions of volume-guard for the controller.
func TestFailures(t *testing.T) {
	t.Parallel()
	env := newOwnEnvironment(t)
	one := func(name string, play func(*environment)) {
		t.Run(name, func(t *testing.T) { env.scenario(t).play(scenario{mode: modeAll, play: play}) })
	}
	one("volume-guard is killed at each write", testKilled)
	one("the answers of writes are lost", testAnswersLost)
	one("many pods use few claims while two replicas work at the same time and are killed", testStorm)
	one("what nothing asks for is read", testReads)
	t.Run("all is released", func(t *testing.T) { testReleased(env.scenario(t)) })
	// A Node is read only under a fence of volumes: see TestClaimLocks in test/e2e/fencing.
	env.ExpectAllRulesUsed(env.Rules, append(env.otherRules(), "get nodes")...)
}

// written are the resources that volume-guard writes to.
func written() []string { return []string{"persistentvolumeclaims", "pods"} }

// playLives has three pods use two claims one after the other, with a fourth beside them that uses one.
func (env *environment) playLives() {
	env.T.Helper()
	claims := []string{env.claim(), env.claim()}
	first := env.podWith(claims)
	env.runs(first)
	second := env.podWith([]string{claims[1], claims[0]})
	env.waits(second, "ClaimInUse", first.Name)
	env.remove(first)
	env.runs(second)
	third, other := env.podWith(claims), env.pod(claims[0])
	env.remove(second)
	env.Eventually("the last two have run", func() bool {
		pods := env.pods(isRunning)
		for _, pod := range pods {
			env.Must(ignoreNotFound(env.deletePod(pod)))
		}
		return len(env.pods(anyPod)) == 0
	})
	env.Must(third.WaitGone(env.WithTimeout()))
	env.Must(other.WaitGone(env.WithTimeout()))
	for _, claim := range claims {
		env.waitFree(claim)
	}
}

// testKilled has volume-guard be killed right after each of its writes, which the API server has stored.
func testKilled(env *environment) {
	// Seven locks are taken and freed, four gates and four finalizers removed.
	env.KillAtEachWrite(7+7+4+4, written(), env.playLives, env.barrier)
}

// testAnswersLost has every second write be stored, and its answer be lost.
func testAnswersLost(env *environment) {
	g, line := env.Through(nil)
	env.Must(line.SetRules(guard.OnWrites(proxy.Rule{Effect: proxy.DropAnswer, Every: 2}, written()...)...))
	env.playLives()
	if line.Applied() < 11 {
		env.T.Errorf("%d answers were lost, want at least 11", line.Applied())
	}
	env.Must(line.SetRules())
	env.Must(g.Terminate())
}

// playOutage has an outage while pods wait, in which their claim is about to be free.
func (env *environment) playOutage(begin, end func()) {
	env.T.Helper()
	env.watchesEnded = true
	claim := env.claim()
	first := env.runningPod(claim)
	second := env.pod(claim)
	env.waits(second, "ClaimInUse", claim, first.Name)
	begin()
	third := env.pod(claim)
	env.Must(first.Delete(env.Ctx))
	end()
	env.onePod("running in its place", func(pod *v1.Pod) bool { return isRunning(pod) && pod.UID != first.UID })
	env.Eventually("the others have run", func() bool {
		for _, pod := range env.pods(isRunning) {
			env.Must(ignoreNotFound(env.deletePod(pod)))
		}
		return len(env.pods(anyPod)) == 0
	})
	env.Must(second.WaitGone(env.WithTimeout()))
	env.Must(third.WaitGone(env.WithTimeout()))
	env.waitFree(claim)
}

// testReads has volume-guard use the permissions that no other scenario uses.
func testReads(env *environment) {
	g := env.Start(fixture.NextReplicaFlags("leader")...)
	claim := env.claim()
	first := env.runningPod(claim)
	waiting := env.pod(claim)
	env.waits(waiting, "ClaimInUse", first.Name)
	env.ask(modeSelect)
	env.runs(waiting)
	env.runningPod(env.ofClass())
	env.ask("")
	env.runningPod(claim)
	env.ask(modeAll)
	env.reportTwice()
	env.deleteAll()
	env.Must(g.Terminate())
}

// ofClass creates a claim of a StorageClass that is bound to a volume that is there.
func (env *environment) ofClass() string {
	env.T.Helper()
	class := env.CreateStorageClass()
	return env.boundClaim(func(pv *v1.PersistentVolume) { pv.Spec.StorageClassName = class })
}

// reportTwice has volume-guard report something for the second time, which is a patch of the Event: a node goes away
// and comes back. It comes back once a pod that waits was told of it: volume-guard may take two changes at a time.
func (env *environment) reportTwice() {
	env.T.Helper()
	m, claim := env.machine(), env.claim()
	first := env.runningPod(claim, on(m.name))
	next := env.pod(claim)
	env.waits(next, "ClaimInUse", claim, first.Name, "is not being deleted")
	m.lose()
	env.waits(next, "ClaimInUse", claim, first.Name, "Its node is not Ready")
	env.waitClaimEvent(claim, "HolderUnreachable")
	m.resume()
	env.Eventually("the pod was told again what it was told at first", func() bool {
		return slices.ContainsFunc(env.Events(v1.ObjectReference{UID: next.UID}, ""), func(e v1.Event) bool {
			return e.Count > 1 && strings.Contains(e.Message, "is not being deleted")
		})
	})
}

// otherRules returns volume-guard's permissions for pod-safety that the controller does not have, in the form of
// ExpectAllRulesUsed.
func (env *environment) otherRules() (rights []string) {
	env.T.Helper()
	other := env.InOtherNamespace()
	own, err := rbac.GrantGuardController(env.Ctx, env.Client, other.Namespace, fixture.VolumeGuardName, controller)
	env.Must(err)
	granted := fixture.Rights(own)
	return slices.DeleteFunc(fixture.Rights(env.Rules), func(right string) bool { return slices.Contains(granted, right) })
}
