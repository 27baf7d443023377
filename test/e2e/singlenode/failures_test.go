//go:build unix

package singlenode

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/faults/proxy"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
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

// seedVariable repeats the choices of a run.
const seedVariable = "SEED"

// chance returns a source of randomness whose seed is logged, and taken from the variable SEED if that is set.
func (env *environment) chance() *rand.Rand {
	env.T.Helper()
	seed := rand.Uint64()
	if text := os.Getenv(seedVariable); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		env.Must(err)
	}
	env.T.Logf("%s=%d", seedVariable, seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// storm has many pods that use few claims, and people who delete the pods.
type storm struct {
	*environment
	random *rand.Rand
	claims []string
	// left is how many pods may still be created in place of others, ran which pods have run, and stopped how many pods
	// were deleted before. No more than mayStop are: how long pods wait must not decide how many run.
	left             int
	ran              map[types.UID]bool
	stopped, mayStop int
}

// testStorm creates 200 pods at once that use 20 claims, one to three each in any order. Running pods are deleted,
// evicted, or complete, some waiting pods are deleted, and some are replaced. Two replicas work at the same time, as
// after an unnoticed change of leaders, and are killed in turn.
func testStorm(env *environment) {
	const claims = 20
	pods := fixture.Size(1000, 200)
	s := &storm{environment: env, random: env.chance(), left: pods / 5, mayStop: pods / 4,
		ran: map[types.UID]bool{}}
	replicas := []*program.Program{env.Start("--leader-election=false"),
		env.Start("--leader-election=false")}
	for range claims {
		s.claims = append(s.claims, env.claim())
	}
	s.create(pods)
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- killInTurn(s.Ctx, stop, replicas) }()
	s.play()
	close(stop)
	env.Must(<-stopped)
	for _, claim := range s.claims {
		env.waitFree(claim)
	}
	for _, g := range replicas {
		env.Must(g.Terminate())
	}
	env.T.Logf("%d pods have run, %d were deleted before", len(s.ran), s.stopped)
	if want := pods - s.mayStop; len(s.ran) < want {
		env.T.Errorf("%d pods have run, want at least %d", len(s.ran), want)
	}
}

// killInTurn kills one replica after the other with kill -9 and starts it again, some times or until stop. The other
// replica continues to work.
func killInTurn(ctx context.Context, stop <-chan struct{}, replicas []*program.Program) error {
	const kills = 6
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for i := range kills {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		g := replicas[i%len(replicas)]
		g.Kill()
		if err := errors.Join(g.Restart(), g.WaitReady(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// create creates pods at once.
func (s *storm) create(n int) {
	s.T.Helper()
	var users errgroup.Group
	users.SetLimit(fixture.Concurrency)
	for range n {
		claims := make([]string, 1+s.random.IntN(3))
		for i, at := range s.random.Perm(len(s.claims))[:len(claims)] {
			claims[i] = s.claims[at]
		}
		users.Go(func() error {
			pod := podOf("", claims...)
			pod.GenerateName = "storm-"
			_, err := s.environment.create(pod)
			return err
		})
	}
	s.Must(users.Wait())
}

// play acts on the pods until none is left, as long as it makes progress.
func (s *storm) play() {
	s.T.Helper()
	progress, before := time.Now(), -1
	for {
		pods := s.pods(anyPod)
		if len(pods) == 0 {
			return
		}
		if now := len(s.ran) + s.stopped + s.left - len(pods); now != before {
			progress, before = time.Now(), now
		}
		if time.Since(progress) > fixture.WaitTimeout {
			s.T.Fatalf("nothing happens to %d pods: %v", len(pods), s.events(pods[0].UID, ""))
		}
		var users sync.WaitGroup
		for _, pod := range pods {
			if do := s.choose(pod); do != nil {
				users.Go(do)
			}
		}
		users.Wait()
		select {
		case <-s.Ctx.Done():
			s.T.Fatal(s.Ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// choose returns an action on a pod, or nil.
func (s *storm) choose(pod *v1.Pod) func() {
	dice := s.random.IntN(100)
	remove := func() { s.tolerate(s.deletePod(pod)) }
	switch {
	case pod.DeletionTimestamp != nil:
		return nil
	case isGated(pod) && dice < 1 && s.stopped < s.mayStop:
		s.stopped++
		return remove
	case pod.Status.Phase == v1.PodSucceeded && dice < 10:
		return remove // some time after it has completed
	case !isRunning(pod) || dice < 30:
		return nil
	}
	s.ran[pod.UID] = true
	if s.left > 0 && dice%3 == 0 {
		s.left--
		s.create(1)
	}
	switch {
	case dice < 40:
		return func() { s.complete(pod) }
	case dice < 50:
		return func() { s.tolerate(s.Client.CoreV1().Pods(s.Namespace).EvictV1(s.Ctx, evictionOf(pod.Name))) }
	}
	return remove
}

// tolerate fails the test on an error, unless the pod is gone, or was bound while the API server deleted it: it deletes
// a pod without a node by force, tries again when that has changed, and the policy refuses that.
func (s *storm) tolerate(err error) {
	bound := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "csi-reclaimer-pod-force-delete")
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !bound {
		s.T.Error(err)
	}
}

// testReleased uninstalls volume-guard while a replica runs, a pod has a lock, others wait, and one is held on a node
// that is away: nothing of ours is left on any object, and new pods are created without the gate.
func testReleased(env *environment) {
	env.ask(modeAll)
	g := env.Start(fixture.ReplicaFlags("replica")...)
	m, claim, lost := env.machine(), env.claim(), env.claim()
	first := env.runningPod(claim)
	second := env.pod(claim)
	env.waits(second, "ClaimInUse", claim, first.Name)
	away := env.runningPod(lost, on(m.name))
	m.lose()
	env.Must(away.Delete(env.Ctx))
	env.waitClaimEvent(lost, "HolderUnreachable", away.Name)
	third := env.pod("missing")
	env.waits(third, "ClaimMissing")

	output, err := env.Release(fixture.ReplicaFlags("release")...)
	env.Must(err)
	<-g.Done()
	for _, want := range []string{second.Name + ", which waited for pod " + first.Name, away.Name} {
		if !strings.Contains(output, want) {
			env.T.Errorf("the output has no %q:\n%s", want, output)
		}
	}
	env.expectNothingLeft()
	after, err := env.create(podOf("after", claim))
	env.Must(err)
	if isGated(after) || isHeld(after) {
		env.T.Errorf("a pod is gated or held after the release: %+v", after)
	}
	env.runs(second)
	m.resume()
	env.deleteAll()
	env.Must(g.Restart())
	env.Must(g.WaitLog(env.WithTimeout(), "Waiting for the lease"))
}

// expectNothingLeft checks that no object of the cluster has a gate, a lock, or a finalizer of volume-guard.
func (env *environment) expectNothingLeft() {
	env.T.Helper()
	everywhere := env.InNamespace(metav1.NamespaceAll)
	for _, pod := range everywhere.Pods().List() {
		if isGated(pod) || isHeld(pod) {
			env.T.Errorf("pod %s is gated or held", pod.Name)
		}
	}
	for _, claim := range everywhere.Claims().List() {
		if isLocked(claim) {
			env.T.Errorf("claim %s has a lock: %+v", claim.Name, claim.ObjectMeta)
		}
	}
}
