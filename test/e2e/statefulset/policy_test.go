//go:build unix

package statefulset

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
)

// TestPolicy plays cases beyond the proposal's test plan: other kinds of sets, changes of the policy, and the reasons
// to keep a claim.
func TestPolicy(t *testing.T) {
	t.Parallel()
	env := newEnvironment(t)
	env.run([]scenario{
		{"scaled back within the grace, the data is there", testGrace},
		{"a claim that is restored from a backup is kept until it has had a pod", testRestored},
		{"a set that is created again with fewer replicas keeps the claims of the old one", testCreatedAgain},
		{"turned to Delete after the scale-down, the claim is kept", testTurnedToDelete},
		{"turned to Retain within the grace, the claim is kept", testTurnedToRetain},
		{"sets without a policy", testWithoutPolicy},
	},
		scenario{"a claim with the hold annotation is kept until it is removed", testHold},
		scenario{"a claim with the hold annotation whose set is deleted", testHoldWhenDeleted},
		scenario{"pods of a Parallel set", testParallel},
		scenario{"ordinals.start moves up", testStart},
		scenario{"several templates", testTemplates},
		scenario{"pre-provisioned claims are kept if they were never used", testPreprovisioned},
		scenario{"each policy is turned into each other while pods run", testTurnedInUse},
		scenario{"turned to Retain just before the set is deleted, the claims are kept", testTurnedBeforeDeletion},
		scenario{"turned to Delete while the pod ends", testTurnedToDeleteWhilePodEnds},
		scenario{"turned to Retain while the pod ends", testTurnedToRetainWhilePodEnds},
		scenario{"a pod is bound to a node before its claim has a volume, and the claim goes", testBoundTooEarly},
	)
}

// abandon brings the last claim of a set of two replicas to where it is condemned and has no pod.
func (s *set) abandon() {
	s.T.Helper()
	s.losePod(1)
	s.scale(1)
	s.waitSynced(1)
}

func testGrace(env *environment) {
	s := env.runningSet(2, onScaledown, withAnnotation(graceAnnotation, "1h"))
	d := s.write(1)
	s.abandon()
	s.waitEvent("PersistentVolumeClaim", d.claim.Name, "ScaleDownGrace", "ordinal 1")
	s.barrier()
	d.isKept()
	s.setFirstReady(true)
	s.scale(2)
	s.waitPods(0, 2)
	d.isKept()
	s.abandon()
	s.annotate(graceAnnotation, "0s")
	s.expectDeleted(d)
}

func testHold(env *environment) {
	s := env.runningSet(2, onScaledown)
	d := s.write(1)
	s.Claims().Annotate(s.claimName(1), holdAnnotation, "the owner looks into it")
	s.abandon()
	s.waitEvent("PersistentVolumeClaim", d.claim.Name, "ClaimHeld", "ordinal 1")
	s.barrier()
	d.isKept()
	s.Claims().Annotate(s.claimName(1), holdAnnotation, "")
	s.expectDeleted(d)
}

// testHoldWhenDeleted shows that Kubernetes' own policy ignores the annotation.
func testHoldWhenDeleted(env *environment) {
	s := env.runningSet(2, onBoth)
	first, second := s.write(0), s.write(1)
	s.Claims().Annotate(s.claimName(1), holdAnnotation, "the owner looks into it")
	if !env.field {
		s.waitClaim(1, "free", func(claim *v1.PersistentVolumeClaim) bool { return len(claim.OwnerReferences) == 0 })
	}
	s.delete(metav1.DeletePropagationBackground)
	s.expectDeleted(first)
	if env.field {
		s.expectDeleted(second)
		return
	}
	s.expectKept(second)
}

func testParallel(env *environment) {
	s := env.runningSet(3, onScaledown, parallel)
	first, second, third := s.write(0), s.write(1), s.write(2)
	s.scale(1)
	s.waitPods(0, 1)
	s.expectDeleted(second, third)
	s.expectKept(first)
	s.scale(3)
	s.waitPods(0, 3)
	s.expectEmpty(1, second)
	s.expectEmpty(2, third)
}

func testStart(env *environment) {
	s := env.runningSet(2, onScaledown, func(o *appsv1.StatefulSet) {
		o.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5}
	})
	first, second := s.write(5), s.write(6)
	s.patch(`{"spec":{"replicas":1,"ordinals":{"start":6}}}`)
	s.waitPods(6, 1)
	s.expectDeleted(first)
	s.expectKept(second)
}

func testTemplates(env *environment) {
	s := env.runningSet(2, onBoth, func(o *appsv1.StatefulSet) {
		o.Spec.VolumeClaimTemplates = append(o.Spec.VolumeClaimTemplates, env.template("log"))
	})
	var first, second []disk
	for _, template := range []string{"data", "log"} {
		first = append(first, env.writeTo(env.claimNamed(template+"-web-0")))
		second = append(second, env.writeTo(env.claimNamed(template+"-web-1")))
	}
	s.waitMarked("log-web-0", "log-web-1")
	s.scale(1)
	s.waitPods(0, 1)
	s.expectDeleted(second...)
	for _, d := range first {
		d.isKept()
	}
	s.delete(metav1.DeletePropagationForeground)
	s.waitGone()
	s.expectDeleted(first...)
}

// testRestored restores a claim that was scaled away, as backups do: with its labels and annotations.
func testRestored(env *environment) {
	s := env.runningSet(2, onScaledown)
	old := s.write(1)
	backup := s.claim(1)
	s.abandon()
	s.expectDeleted(old)
	restored := env.template(backup.Name)
	restored.Labels = backup.Labels
	restored.Annotations = map[string]string{markAnnotation: backup.Annotations[markAnnotation]}
	env.Claims().Create(&restored)
	d := s.write(1)
	s.waitClaim(1, "without the mark of the other claim", func(claim *v1.PersistentVolumeClaim) bool {
		return claim != nil && claim.Annotations[markAnnotation] == ""
	})
	s.barrier()
	d.isKept()

	s.setFirstReady(true)
	s.scale(2)
	s.waitPods(0, 2)
	d.isKept()
	s.waitPrepared(onScaledown)
	s.scale(1)
	s.waitPods(0, 1)
	s.expectDeleted(d)
}

// waitMarked waits until claims have marks, and an owner if a deletion of the set deletes them.
func (s *set) waitMarked(names ...string) {
	s.T.Helper()
	for _, name := range names {
		s.Eventually("claim "+name+" has a mark and an owner", func() bool {
			claim := s.claimNamed(name)
			return claim.Annotations[markAnnotation] != "" && owner(claim, "StatefulSet") != nil
		})
	}
}

// testPreprovisioned creates a claim for each of three ordinals before the set. The proposal treats claims that pods
// use like all others.
func testPreprovisioned(env *environment) {
	var all []disk
	for _, name := range []string{"data-web-0", "data-web-1", "data-web-2"} {
		claim := env.template(name)
		env.Claims().Create(&claim)
		all = append(all, env.writeTo(env.claimNamed(name)))
	}
	s := env.runningSet(2, onBoth)
	s.scale(1)
	s.waitPods(0, 1)
	s.expectDeleted(all[1])
	s.expectKept(all[2])
	s.delete(metav1.DeletePropagationBackground)
	s.expectDeleted(all[0])
}

func testCreatedAgain(env *environment) {
	s := env.runningSet(2, onScaledown)
	first, second := s.write(0), s.write(1)
	s.delete(metav1.DeletePropagationForeground)
	s.waitGone()
	s.waitPods(0, 0)
	env.runningSet(1, onScaledown)
	env.expectKept(first, second)
}

func testTurnedInUse(env *environment) {
	s := env.runningSet(2, keepAll)
	first, second := s.write(0), s.write(1)
	for _, p := range []policy{
		onBoth, keepAll, onScaledown, onSetDeletion, onScaledown, keepAll, onSetDeletion, onBoth, onScaledown, onBoth,
		onSetDeletion, keepAll,
	} {
		s.setPolicy(p)
		s.waitPrepared(p)
	}
	s.delete(metav1.DeletePropagationBackground)
	s.waitGone()
	s.expectKept(first, second)
}

// testTurnedToDelete has data be kept by a policy that deletes only later. Once the claim has had a pod under that
// policy, it is deleted as others are.
func testTurnedToDelete(env *environment) {
	s := env.runningSet(2, keepAll)
	d := s.write(1)
	s.scale(1)
	s.waitPods(0, 1)
	s.setPolicy(onScaledown)
	s.waitPrepared(onScaledown)
	s.barrier()
	d.isKept()
	s.scale(2)
	s.waitPods(0, 2)
	s.waitPrepared(onScaledown)
	d.isKept()
	s.scale(1)
	s.expectDeleted(d)
}

// testTurnedToRetain shows that a claim that was kept once is not deleted when the policy is turned again.
func testTurnedToRetain(env *environment) {
	s := env.runningSet(2, onBoth, withAnnotation(graceAnnotation, "1h"))
	d := s.write(1)
	s.abandon()
	s.waitEvent("PersistentVolumeClaim", d.claim.Name, "ScaleDownGrace", "ordinal 1")
	s.setPolicy(keepAll)
	s.waitClaim(1, "without a mark that deletes it", func(claim *v1.PersistentVolumeClaim) bool {
		return claim.Annotations[markAnnotation] == ""
	})
	s.annotate(graceAnnotation, "0s")
	s.barrier()
	d.isKept()
	s.setPolicy(onScaledown)
	s.expectKept(d)
}

// ends begins to scale a set of two replicas down, and returns while the pod ends: on a busy machine, a pod that
// nothing holds may have ended.
func (s *set) ends() {
	s.T.Helper()
	s.scale(1)
	s.Eventually("its pod is terminating", func() bool {
		pod := s.pods()[s.podName(1)]
		return pod == nil || pod.DeletionTimestamp != nil
	})
}

// In testTurnedToDeleteWhilePodEnds the claim has a pod when the policy deletes it. The proposal: "If a scale-down is
// in process, remaining PVCs are given an ownerRef to their Pod".
func testTurnedToDeleteWhilePodEnds(env *environment) {
	s := env.runningSet(2, keepAll)
	first, second := s.write(0), s.write(1)
	s.hold(1)
	s.ends()
	s.setPolicy(onScaledown)
	s.waitOwnedByPod(1)
	s.unhold(1)
	s.waitPods(0, 1)
	s.expectDeleted(second)
	s.expectKept(first)
}

// testTurnedToRetainWhilePodEnds may come too late: "life does not always have an undo button". Claims that are not
// being deleted by then are kept.
func testTurnedToRetainWhilePodEnds(env *environment) {
	s := env.runningSet(2, onScaledown, slowly)
	first, second := s.write(0), s.write(1)
	s.ends()
	s.setPolicy(keepAll)
	s.waitPods(0, 1)
	s.expectKept(first)
	late := false
	s.waitClaim(1, "free, or going", func(claim *v1.PersistentVolumeClaim) bool {
		late = claim == nil || claim.DeletionTimestamp != nil
		return late || len(claim.OwnerReferences) == 0 && claim.Annotations[markAnnotation] == ""
	})
	if late {
		env.T.Log("too late")
		s.expectDeleted(second)
		return
	}
	env.T.Log("in time")
	s.expectKept(second)
}

func testTurnedBeforeDeletion(env *environment) {
	s := env.runningSet(2, onBoth)
	first, second := s.write(0), s.write(1)
	s.setPolicy(keepAll)
	s.waitPrepared(keepAll)
	s.delete(metav1.DeletePropagationBackground)
	s.waitGone()
	s.waitPods(0, 0)
	s.expectKept(first, second)
}

func testWithoutPolicy(env *environment) {
	s := env.makeSet("web", 2, keepAll, withoutPolicy)
	s.waitPods(0, 2)
	first, second := s.write(0), s.write(1)
	s.abandon()
	s.setFirstReady(true)
	s.delete(metav1.DeletePropagationBackground)
	s.waitGone()
	s.expectKept(first, second)
}

// testBoundTooEarly binds a pod to a node before its claim has a volume, which the scheduler asks for. Then the claim
// goes, which wakes no set, and the kubelet waits for a claim of that name.
func testBoundTooEarly(env *environment) {
	class := env.CreateStorageClass(fixture.WithWaitForFirstConsumer)
	s := env.makeSet("web", 1, onScaledown, func(o *appsv1.StatefulSet) {
		o.Spec.Template.Spec.SchedulerName = "none"
		o.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = &class
	})
	s.Eventually("its pod waits to be scheduled", func() bool { return s.pods()[s.podName(0)] != nil })
	env.Must(env.Client.CoreV1().Pods(env.Namespace).Bind(env.Ctx, &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: s.podName(0)}, Target: v1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{}))
	env.waitEvent("StatefulSet", s.name, "PodBoundBeforeVolume", "kubectl delete pod")

	old := s.claim(0)
	env.Claims().Delete(old.Name)
	env.Claims().SetFinalizers(old.Name)
	s.waitClaim(0, "created again", func(claim *v1.PersistentVolumeClaim) bool {
		return claim != nil && claim.UID != old.UID
	})

	// The Event's advice.
	s.patch(`{"spec":{"template":{"spec":{"schedulerName":"default-scheduler"}}}}`)
	pod := s.deletePod(0)
	s.waitPods(0, 1, pod)
}
