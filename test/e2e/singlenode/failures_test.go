//go:build unix

package singlenode

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
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
	env.ExpectAllRulesUsed(env.rules, append(env.otherRules(), "get nodes")...)
}

// proxied starts volume-guard behind a proxy to the API server. crash is called when the rules say so.
func (env *environment) proxied(crash func(*program.Program)) (*program.Program, *proxy.Proxy) {
	env.T.Helper()
	account, err := clientcmd.BuildConfigFromFlags("", env.Kubeconfig)
	env.Must(err)
	var g *program.Program
	line, err := proxy.Start(account, proxy.Options{Crash: func() { crash(g) }})
	env.Must(err)
	env.T.Cleanup(func() { env.Must(line.Close()) })
	behind := *env.Environment
	behind.Kubeconfig = filepath.Join(env.T.TempDir(), "proxied")
	env.Must(controlplane.WriteKubeconfig(behind.Kubeconfig, line.Config()))
	through := *env
	through.Environment = &behind
	g = through.startVolumeGuard("--leader-election=false")
	return g, line
}

// writes has an effect on each of volume-guard's writes to claims and pods.
func writes(rule proxy.Rule) (rules []proxy.Rule) {
	for _, resource := range []string{"persistentvolumeclaims", "pods"} {
		rule.Verb, rule.Resource = "write", resource
		rules = append(rules, rule)
	}
	return rules
}

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
	dead := make(chan *program.Program)
	g, line := env.proxied(func(g *program.Program) { g.Kill(); dead <- g })
	restarted := make(chan error, 1)
	go func() {
		var err error
		for g := range dead {
			g.Kill() // a process that was started after another of several concurrent writes
			err = errors.Join(err, g.Restart())
		}
		restarted <- err
	}()
	env.Must(line.SetRules(writes(proxy.Rule{Effect: proxy.Crash})...))
	env.playLives()
	killed := line.Applied()
	env.Must(line.SetRules())
	env.barrier()
	close(dead)
	env.Must(<-restarted)
	env.Must(g.Terminate())
	env.T.Logf("killed at %d writes", killed)
	// Seven locks are taken and freed, four gates and four finalizers removed.
	if least := 7 + 7 + 4 + 4; killed < least {
		env.T.Errorf("killed at %d writes, want %d", killed, least)
	}
}

// testAnswersLost has every second write be stored, and its answer be lost.
func testAnswersLost(env *environment) {
	g, line := env.proxied(nil)
	env.Must(line.SetRules(writes(proxy.Rule{Effect: proxy.DropAnswer, Every: 2})...))
	env.playLives()
	if line.Applied() < 11 {
		env.T.Errorf("%d answers were lost, want at least 11", line.Applied())
	}
	env.Must(line.SetRules())
	env.Must(g.Terminate())
}

// testAPIServerAway ends the API server while pods wait, and when their claim is about to be free.
func testAPIServerAway(env *environment) {
	g := env.startVolumeGuard("--leader-election=false")
	env.watchesEnded = true
	claim := env.claim()
	first := env.runningPod(claim)
	second := env.pod(claim)
	env.waits(second, "ClaimInUse", claim, first.Name)
	env.RestartAPIServer()
	third := env.pod(claim)
	env.Must(first.Delete(env.Ctx))
	env.RestartAPIServer()
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
	env.Must(g.Terminate())
}

// testReads has volume-guard use the permissions that no other scenario uses.
func testReads(env *environment) {
	g := env.startVolumeGuard(fixture.NextReplicaFlags("leader")...)
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
		list, err := env.Client.CoreV1().Events(env.Namespace).List(env.Ctx,
			metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(next.UID)})
		env.Must(err)
		return slices.ContainsFunc(list.Items, func(e v1.Event) bool {
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
	granted := rightsOf(own)
	for _, right := range rightsOf(env.rules) {
		if !slices.Contains(granted, right) {
			rights = append(rights, right)
		}
	}
	return rights
}

func rightsOf(rules []rbacv1.PolicyRule) (rights []string) {
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				rights = append(rights, verb+" "+strings.Trim(resource+"."+rule.APIGroups[0], "."))
			}
		}
	}
	return rights
}
