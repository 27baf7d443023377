//go:build unix

package statefulset

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/controlplane"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/program"
)

// TestFailures makes volume-guard, its replica and Kubernetes' components fail. Together, the scenarios use all
// permissions of volume-guard.
func TestFailures(t *testing.T) {
	t.Parallel()
	env := newOwnEnvironment(t)
	play := func(name string, play func(*environment)) {
		t.Run(name, func(t *testing.T) { play(env.scenario(t)) })
	}
	play("volume-guard is killed at each write", testKilled)
	play("the StatefulSet controller does not notice a scale-up", testForgotten)
	play("the StatefulSet controller creates a pod with a claim that is going", testOldClaim)
	play("the leader is replaced", func(env *environment) { env.ReplaceLeader(env.playOutage) })
	if !env.field { // where Kubernetes has the policy, no pod is deleted
		// The former leader has created the Lease, with an account of its own.
		env.ExpectAllRulesUsed(env.Rules, "create leases.coordination.k8s.io")
	}
	// An API server that starts refuses requests until it has read the permissions.
	play("the API server is away", func(env *environment) { env.RestartAPIServers(env.playOutage) })
	play("the controller manager is away", testControllerManagerAway)
}

// testKilled plays the life of a set with volume-guard killed right after each of its writes, which the API server has
// stored.
func testKilled(env *environment) {
	least := 5 // three marks, a deletion, and a mark that is removed
	if !env.field {
		// And an owner that is added. Of the claim that is scaled away with its pod: its owner, its deletion or both, as the
		// pod ends before, or garbage collection deletes the claim.
		least = 7
	}
	env.KillAtEachWrite(least, []string{"persistentvolumeclaims", "pods", "statefulsets"}, env.playLife, func() {
		env.barrier()
		for _, d := range env.kept.all {
			d.isKept()
		}
	})
}

// playLife scales a set down with its pod and after its pod, turns its policy and deletes it.
func (env *environment) playLife() {
	env.T.Helper()
	s := env.runningSet(3, onScaledown)
	first, second, third := s.write(0), s.write(1), s.write(2)
	s.scale(2)
	s.waitPods(0, 2)
	s.expectDeleted(third)
	s.abandon()
	s.expectDeleted(second)
	s.setFirstReady(true)
	s.setPolicy(onBoth)
	s.waitPrepared(onBoth)
	s.setPolicy(keepAll)
	s.waitPrepared(keepAll)
	s.delete(metav1.DeletePropagationBackground)
	s.waitGone()
	s.expectKept(first)
}

// playOutage has an outage while a claim is condemned. This claim is deleted, and another one that is condemned later.
func (env *environment) playOutage(begin, end func()) {
	env.T.Helper()
	s := env.runningSet(3, onScaledown)
	first, second, third := s.write(0), s.write(1), s.write(2)
	s.losePod(2)
	begin()
	s.scale(2)
	end()
	s.setFirstReady(true)
	s.expectDeleted(third)
	s.abandon()
	s.expectDeleted(second)
	first.isKept()
}

// testControllerManagerAway scales a set down while the controller manager is away.
func testControllerManagerAway(env *environment) {
	g := env.Start("--leader-election=false")
	s := env.runningSet(2, onScaledown)
	first, second := s.write(0), s.write(1)
	env.Plane.ControllerManager.Kill()
	s.scale(1)
	env.Must(env.Plane.ControllerManager.Restart(env.Ctx))
	s.waitPods(0, 1)
	s.expectDeleted(second)
	first.isKept()
	env.Must(g.Terminate())
}

// testForgotten has the controller manager stand still while a set is scaled up: it is written to, and that is removed
// when the set is complete.
func testForgotten(env *environment) {
	g := env.Start("--leader-election=false")
	s := env.runningSet(1, onScaledown)
	env.Must(env.Plane.ControllerManager.Pause())
	s.scale(2)
	began := time.Now()
	s.Eventually("the set is woken", func() bool { return s.object().Annotations[wokenAnnotation] != "" })
	env.T.Logf("woken after %s", time.Since(began).Round(100*time.Millisecond))
	env.Must(env.Plane.ControllerManager.Resume())
	s.waitPods(0, 2)
	s.Eventually("the annotation is removed", func() bool { return s.object().Annotations[wokenAnnotation] == "" })
	env.Must(g.Terminate())
}

// testOldClaim creates a pod as the StatefulSet controller does that has not noticed that the claim of its predecessor
// is being deleted: a finalizer keeps the claim. Its predecessor does not end before it owns the claim. Where an owner
// reference of volume-guard has deleted it, the pod is deleted, too, so that the next one gets a new claim.
func testOldClaim(env *environment) {
	g := env.Start("--leader-election=false")
	s := env.runningSet(2, onScaledown)
	d := s.write(1)
	now := s.pods()[s.podName(1)]
	s.Claims().SetFinalizers(s.claimName(1), "kubernetes.io/pvc-protection", endsLate)
	s.hold(1)
	s.scale(1)
	s.waitOwnedByPod(1)
	s.unhold(1)
	s.waitPods(0, 1)
	s.waitClaim(1, "terminating", func(claim *v1.PersistentVolumeClaim) bool { return claim.DeletionTimestamp != nil })
	env.Must(env.Plane.ControllerManager.Pause())
	s.scale(2)
	pod := env.Pods().Create(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: now.Name, Labels: now.Labels, OwnerReferences: now.OwnerReferences},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}}, Volumes: now.Spec.Volumes,
			NodeSelector: now.Spec.NodeSelector, Hostname: now.Spec.Hostname, Subdomain: now.Spec.Subdomain},
	})
	if env.field {
		s.waitEvent("PersistentVolumeClaim", d.claim.Name, "PodUsesTerminatingClaim", "")
		s.deletePod(1) // as the Event says
	}
	s.Eventually("the pod is deleted", func() bool {
		now := s.pods()[pod.Name]
		return now == nil || now.UID != pod.UID || now.DeletionTimestamp != nil
	})
	if !env.field {
		s.waitEvent("PersistentVolumeClaim", d.claim.Name, "PodUsesOldClaim", "")
	}
	env.Must(env.Plane.ControllerManager.Resume())
	s.Claims().SetFinalizers(s.claimName(1))
	s.expectDeleted(d)
	s.waitPods(0, 2)
	s.expectEmpty(1, d)
	s.reportAgain()
	env.Must(g.Terminate())
}

// reportAgain has volume-guard report something for the second time, which is a patch of the Event. Each change follows
// once the one before was reported: volume-guard may take two changes at a time.
func (s *set) reportAgain() {
	s.T.Helper()
	const grace, held = "ScaleDownGrace", "ClaimHeld"
	s.annotate(graceAnnotation, "1h")
	s.abandon()
	claim := v1.ObjectReference{UID: s.claim(1).UID}
	s.WaitReports(claim, grace, 1)
	for again := int32(1); again <= 2; again++ {
		s.Claims().Annotate(s.claimName(1), holdAnnotation, "held")
		s.WaitReports(claim, held, again)
		s.Claims().Annotate(s.claimName(1), holdAnnotation, "")
		s.WaitReports(claim, grace, again+1)
	}
}

// TestGapsOfKubernetes stops volume-guard, brings sets into the states that Kubernetes does not resolve, and shows that
// it does not. Then volume-guard resolves them as soon as it runs.
func TestGapsOfKubernetes(t *testing.T) {
	t.Parallel()
	env := newOwnEnvironment(t)
	g := env.Start("--leader-election=false")
	t.Run("a condemned claim without a pod", func(t *testing.T) { testCondemned(env.scenario(t), g) })
	t.Run("a set that stays without a pod", func(t *testing.T) {
		if !env.field {
			t.Skip("where Kubernetes does not delete the claim, its StatefulSet controller has no reason to wait")
		}
		testStuck(env.scenario(t), g)
	})
}

// testCondemned has the pod be deleted by hand before the scale-down. The claims of a policy that was turned to Delete
// after the scale-down, and of a set that was created again with fewer replicas, are not condemned: see TestPolicy.
func testCondemned(env *environment, g *program.Program) {
	s := env.runningSet(2, onScaledown)
	first, second := s.write(0), s.write(1)
	env.Must(g.Terminate())
	s.abandon()
	s.setFirstReady(true)
	// A controller manager that starts works on all sets again.
	env.Must(env.Plane.ControllerManager.Restart(env.Ctx))
	s.patch(`{"spec":{"minReadySeconds":1}}`)
	s.waitSynced(1)
	second.isKept()
	if ref := owner(s.claim(1), "Pod"); ref != nil {
		env.T.Errorf("Kubernetes has given the claim an owner: %+v", ref)
	}
	env.T.Log("Kubernetes alone leaves the claim there")
	env.Must(g.Restart())
	began := time.Now()
	s.expectDeleted(second)
	env.T.Logf("volume-guard has deleted it %s after its start", time.Since(began).Round(100*time.Millisecond))
	first.isKept()
	s.scale(2)
	s.waitPods(0, 2)
	s.expectEmpty(1, second)
	first.isKept()
}

// testStuck scales sets 2 -> 1 -> 2 while a pod ends, until the StatefulSet controller forgets one of them.
func testStuck(env *environment, g *program.Program) {
	const sets, rounds = 4, 5
	for round := range rounds {
		var all []*set
		var old []disk
		for range sets {
			other := *env
			other.Environment = env.InOtherNamespace()
			all = append(all, other.makeSet("web", 2, onScaledown, slowly))
		}
		for _, s := range all {
			s.waitPods(0, 2)
			s.waitPrepared(onScaledown)
			old = append(old, s.write(1))
		}
		env.Must(g.Terminate())
		for _, s := range all {
			s.ends()
			s.scale(2)
		}
		env.expectDeleted(old...)
		stuck := env.stuck(all)
		env.T.Logf("round %d: of %d sets, %d have neither the pod nor the claim", round+1, sets, len(stuck))
		env.Must(g.Restart())
		began, woken := time.Now(), 0
		for i, s := range all {
			s.waitPods(0, 2)
			took := time.Since(began).Round(100 * time.Millisecond)
			s.expectEmpty(1, old[i])
			s.Eventually("the annotation is removed", func() bool { return s.object().Annotations[wokenAnnotation] == "" })
			if !slices.Contains(stuck, s) {
				continue
			}
			is := len(s.Events(v1.ObjectReference{Kind: "StatefulSet", Name: s.name}, "Woken")) > 0
			env.T.Logf("a set that seemed stuck has its pod %s after the start of volume-guard, woken: %t", took, is)
			if is {
				woken++
			}
		}
		if woken > 0 {
			return
		}
	}
	env.T.Errorf("no set was stuck, and woken, in %d rounds", rounds)
}

// stuck returns the sets that have neither the pod nor its claim after the StatefulSet controller has worked on a later
// set. They include sets in the pause before a retry. volume-guard wakes none of those, because it waits for a quiet
// time longer than the pause.
func (env *environment) stuck(all []*set) (stuck []*set) {
	env.T.Helper()
	other := *env
	other.Environment = env.InOtherNamespace()
	other.makeSet("canary", 1, onScaledown).waitPods(0, 1)
	for _, s := range all {
		if s.claim(1) == nil && s.pods()[s.podName(1)] == nil {
			stuck = append(stuck, s)
		}
	}
	return stuck
}

// TestWrites counts volume-guard's writes to the objects of a namespace.
func TestWrites(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	live := func(env *environment, p policy) {
		s := env.runningSet(2, p)
		first, second := s.write(0), s.write(1)
		s.waitPods(0, 2, s.deletePod(1))
		s.scale(1)
		s.waitPods(0, 1)
		if p.WhenScaled == remove {
			s.expectDeleted(second)
		}
		s.scale(2)
		s.waitPods(0, 2)
		s.waitPrepared(p)
		s.delete(metav1.DeletePropagationBackground)
		s.waitGone()
		if p.WhenDeleted == remove {
			s.expectDeleted(first)
		}
	}
	env.run([]scenario{
		{"Retain", func(env *environment) {
			live(env, keepAll)
			env.expectWrites(map[string]int{})
		}},
	},
		scenario{"without a policy", func(env *environment) {
			s := env.makeSet("web", 2, keepAll, withoutPolicy)
			s.waitPods(0, 2)
			s.scale(1)
			s.waitPods(0, 1)
			s.delete(metav1.DeletePropagationBackground)
			s.waitGone()
			env.expectWrites(map[string]int{})
		}},
		scenario{"DeleteOnScaledownAndStatefulSetDeletion", func(env *environment) {
			live(env, onBoth)
			// A mark for each of the three claims.
			want := map[string]int{"patch persistentvolumeclaims": 3}
			if !env.field {
				// Its owner comes with the mark. The owner of the claim that is scaled away becomes its pod, and the claim ends
				// with the pod, if it is not deleted before.
				want = map[string]int{"patch persistentvolumeclaims": 4, "delete persistentvolumeclaims": 1}
			}
			env.expectWrites(want)
		}},
		scenario{"a claim that has lost its pod", func(env *environment) {
			s := env.runningSet(2, onScaledown)
			d := s.write(1)
			s.abandon()
			s.expectDeleted(d)
			env.expectWrites(map[string]int{"patch persistentvolumeclaims": 2, "delete persistentvolumeclaims": 1})
		}},
	)
}

// expectWrites checks that volume-guard has written no more than this in the namespace, after it could have written
// more. Events count only if no write is expected. On a busy machine the StatefulSet controller can be so slow that
// volume-guard wakes a set whose policy deletes claims: an annotation is added and removed.
func (env *environment) expectWrites(want map[string]int) {
	env.T.Helper()
	env.barrier()
	got := map[string]int{}
	events := env.AuditEvents(env.guard, func(e controlplane.AuditEvent) bool {
		return e.Namespace == env.Namespace && e.Writes() &&
			(len(want) == 0 || e.Resource != "events") && e.Code < 300
	})
	for _, e := range events {
		got[e.Verb+" "+e.Resource]++
	}
	if len(want) > 0 {
		want["patch statefulsets"] = 2 * len(env.Events(v1.ObjectReference{Kind: "StatefulSet", Name: "web"}, "Woken"))
	}
	for what, n := range got {
		if n > want[what] {
			env.T.Errorf("%d times %s, want %d", n, what, want[what])
		}
	}
	env.T.Logf("writes %v", got)
}
