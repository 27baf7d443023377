//go:build unix

package statefulset

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	s.patchSecondClaim(`{"metadata":{"finalizers":["kubernetes.io/pvc-protection","` + endsLate + `"]}}`)
	s.hold(1)
	s.scale(1)
	s.waitOwnedByPod(1)
	s.unhold(1)
	s.waitPods(0, 1)
	s.waitClaim(1, "terminating", func(claim *v1.PersistentVolumeClaim) bool { return claim.DeletionTimestamp != nil })
	env.Must(env.Plane.ControllerManager.Pause())
	s.scale(2)
	pod, err := env.Client.CoreV1().Pods(env.Namespace).Create(env.Ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: now.Name, Labels: now.Labels, OwnerReferences: now.OwnerReferences},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none"}}, Volumes: now.Spec.Volumes,
			NodeSelector: now.Spec.NodeSelector, Hostname: now.Spec.Hostname, Subdomain: now.Spec.Subdomain},
	}, metav1.CreateOptions{})
	env.Must(err)
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
	s.patchSecondClaim(`{"metadata":{"finalizers":null}}`)
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
		s.patchSecondClaim(annotationPatch(holdAnnotation, "held"))
		s.WaitReports(claim, held, again)
		s.patchSecondClaim(annotationPatch(holdAnnotation, ""))
		s.WaitReports(claim, grace, again+1)
	}
}
