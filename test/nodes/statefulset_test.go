//go:build linux

package nodes

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/rbac"
)

// statefulSet is a StatefulSet of two replicas whose pods write to their claims. Its policy deletes the claims of
// replicas that are scaled away.
type statefulSet struct {
	*environment
	name string
}

// replica is an ordinal with a pod that writes to its volume.
type replica struct {
	pod    types.UID
	claim  *objects.Claim
	volume *objects.Volume
}

// TestStatefulSetClaims plays the lines of KEP-1847's test plan that depend on the node: the volume that each process
// writes to, and the time of its unmount and deletion.
func TestStatefulSetClaims(t *testing.T) {
	fixture.OwnVersions.Require(t)
	env := newEnvironment(t, false)
	env.startStatefulSetClaims()
	class := env.CreateStorageClass()
	s := env.startStatefulSet("db", class)
	t.Run("manually delete one pod, data is there", func(t *testing.T) { testPodReplaced(s.in(t)) })
	t.Run("perform rolling update, data is there", func(t *testing.T) { testRolled(s.in(t)) })
	t.Run("add data, scale 2 -> 1 -> 2, confirm PV empty", func(t *testing.T) { testScaledDownAndUp(s.in(t), false) })
	t.Run("the same while the pod ends", func(t *testing.T) { testScaledDownAndUp(s.in(t), true) })
	t.Run("manually delete one pod, scale down, claim and volume go", func(t *testing.T) {
		testPodLost(env.startStatefulSet("lost", class, func(spec *v1.PodSpec) {
			spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: readyGate}}
		}).in(t))
	})
	env.expectNotDeletedInUse()
}

// startStatefulSetClaims starts volume-guard with its shipped permissions until the test ends.
func (env *environment) startStatefulSetClaims() {
	env.T.Helper()
	const controller = "statefulset-claims"
	_, err := rbac.GrantGuardController(env.Ctx, env.Client, env.Namespace, guard.Name, controller)
	env.Must(err)
	g := guard.Environment{Environment: env.ForSubtest(env.T),
		Flags: append(guard.Flags(controller), "--scale-down-grace=2s")}
	g.CreateServiceAccount(guard.Name)
	g.Start("--leader-election=false")
}

// readyGate is a condition without which pods are not ready, where their template asks for it.
const readyGate = "test.csi-reclaimer.io/ready"

// startStatefulSet starts one of two replicas, and waits until both write and their claims are marked.
func (env *environment) startStatefulSet(name, class string, changes ...func(*v1.PodSpec)) *statefulSet {
	env.T.Helper()
	env.createStatefulSet(name, class, changes...)
	s := &statefulSet{environment: env, name: name}
	s.patch(`{"spec":{"replicas":2,"persistentVolumeClaimRetentionPolicy":{"whenScaled":"Delete"}}}`)
	for n := range 2 {
		pod := env.waitPod(s.podName(n), "")
		if len(pod.Spec.ReadinessGates) > 0 {
			s.setReady(n, true)
		}
		s.replica(n, "")
	}
	return s
}

// in returns the set for a subtest.
func (s *statefulSet) in(t *testing.T) *statefulSet {
	env := *s.environment
	env.Environment = env.ForSubtest(t)
	return &statefulSet{environment: &env, name: s.name}
}

func (s *statefulSet) podName(ordinal int) string { return fmt.Sprintf("%s-%d", s.name, ordinal) }

func (s *statefulSet) patch(merge string) {
	s.T.Helper()
	s.StatefulSets().Merge(s.name, merge)
}

func (s *statefulSet) scale(replicas int) {
	s.T.Helper()
	s.patch(fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

func (s *statefulSet) deletePod(ordinal int) {
	s.T.Helper()
	s.Pods().Delete(s.podName(ordinal))
}

// setReady sets the condition that the pods of a template with readyGate wait for.
func (s *statefulSet) setReady(ordinal int, ready bool) {
	s.T.Helper()
	status := v1.ConditionFalse
	if ready {
		status = v1.ConditionTrue
	}
	s.Pods().Patch(s.podName(ordinal), fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":%q}]}}`, readyGate, status), "status")
}

// replica waits until an ordinal has a pod other than the one of that UID, which writes to a claim that is marked.
func (s *statefulSet) replica(ordinal int, not types.UID) replica {
	s.T.Helper()
	pod := s.waitPod(s.podName(ordinal), not)
	claim := s.waitClaimOf("volume-0-" + s.podName(ordinal))
	r := replica{pod: pod.UID, claim: claim, volume: s.WaitBound(claim).Volume}
	s.waitWritten(r.volume, r.pod, 5)
	s.WaitClaim(claim, "marked", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && now.DeletionTimestamp == nil && now.Annotations["csi-reclaimer.io/statefulset"] != ""
	})
	return r
}

// expectWriters checks which pods have written to a volume, one after the other.
func (s *statefulSet) expectWriters(volume *objects.Volume, want ...types.UID) {
	s.T.Helper()
	all, err := s.driver.Stamps(volume.Handle)
	s.Must(err)
	writers := stamps.Writers(all)
	if len(writers) != len(want) {
		s.T.Errorf("volume %s has the data of %v, want that of %v", volume.Handle, writers, want)
	}
	for _, pod := range want {
		if count(all, pod) == 0 {
			s.T.Errorf("volume %s lacks the data of pod %s", volume.Handle, pod)
		}
	}
	s.expectNoOverlap(volume)
}

func testPodReplaced(s *statefulSet) {
	before := s.replica(1, "")
	s.deletePod(1)
	after := s.replica(1, before.pod)
	if after.claim.UID != before.claim.UID {
		s.T.Error("WRONG DELETE: the new pod has another claim")
	}
	s.expectWriters(after.volume, before.pod, after.pod)
}

func testRolled(s *statefulSet) {
	before := []replica{s.replica(0, ""), s.replica(1, "")}
	s.patch(`{"spec":{"template":{"metadata":{"labels":{"version":"2"}}}}}`)
	for n, old := range before {
		now := s.replica(n, old.pod)
		if now.claim.UID != old.claim.UID {
			s.T.Errorf("WRONG DELETE: pod %d has another claim", n)
		}
		all, err := s.driver.Stamps(now.volume.Handle)
		s.Must(err)
		if count(all, old.pod) == 0 {
			s.T.Errorf("the volume of pod %d lacks the data of its former pod", n)
		}
		s.expectNoOverlap(now.volume)
	}
}

// testScaledDownAndUp scales up again when the pod is gone, or while it ends.
func testScaledDownAndUp(s *statefulSet, whileItEnds bool) {
	first, before := s.replica(0, ""), s.replica(1, "")
	s.scale(1)
	s.Eventually("the pod is terminating or gone", func() bool {
		pod, err := s.Client.CoreV1().Pods(s.Namespace).Get(s.Ctx, s.podName(1), metav1.GetOptions{})
		return apierrors.IsNotFound(err) || err == nil && whileItEnds && pod.DeletionTimestamp != nil
	})
	began := time.Now()
	s.scale(2)
	s.WaitClaim(before.claim, "gone", fixture.ClaimIsGone)
	s.Must(before.volume.WaitGone(s.WithTimeout()))
	s.ExpectDeleted(before.volume, 1)
	after := s.replica(1, before.pod)
	s.T.Logf("the new pod writes %s after the scale-up", time.Since(began).Round(100*time.Millisecond))
	s.expectWriters(after.volume, after.pod)
	if now := s.replica(0, ""); now.pod != first.pod || now.claim.UID != first.claim.UID {
		s.T.Error("WRONG DELETE: the pod or the claim of the other replica was replaced")
	}
}

// testPodLost deletes a pod by hand that is not replaced before the scale-down: the pod before it is not ready.
func testPodLost(s *statefulSet) {
	first, second := s.replica(0, ""), s.replica(1, "")
	s.setReady(0, false)
	s.Eventually("the set has noticed that its first pod is not ready", func() bool {
		set := s.StatefulSets().Get(s.name)
		return set.Status.ReadyReplicas == 1
	})
	s.deletePod(1)
	s.Eventually("the pod is gone", func() bool {
		_, err := s.Client.CoreV1().Pods(s.Namespace).Get(s.Ctx, s.podName(1), metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	s.scale(1)
	began := time.Now()
	s.WaitClaim(second.claim, "gone", fixture.ClaimIsGone)
	s.Must(second.volume.WaitGone(s.WithTimeout()))
	s.ExpectDeleted(second.volume, 1)
	s.T.Logf("claim and volume are gone %s after the scale-down", time.Since(began).Round(100*time.Millisecond))
	s.setReady(0, true)
	if now := s.replica(0, ""); now.pod != first.pod || now.claim.UID != first.claim.UID {
		s.T.Error("WRONG DELETE: the pod or the claim of the other replica was replaced")
	}
}

// These tests are about Kubernetes alone: the harm that our controllers prevent, and the behaviour that they rely on.

// TestKubeletAndTerminatingClaim binds pods to a terminating claim. The proposal for the protection of claims has the
// kubelet refuse them, but the kubelet does so only once the claim's protection finalizer is removed.
func TestKubeletAndTerminatingClaim(t *testing.T) {
	env := newEnvironment(t, false)
	claim := env.CreateClaim(env.CreateStorageClass(), func(spec *objects.ClaimSpec) {
		spec.Change = func(claim *v1.PersistentVolumeClaim) { claim.Finalizers = []string{holdFinalizer} }
	})
	volume := env.WaitBound(claim)
	first := env.writer("first", node1, claim.Name)
	env.waitWritten(volume.Volume, first.UID, 5)
	env.MustDeleteClaim(claim)
	t.Cleanup(func() { env.removeFinalizers(env.CleanupContext(), claim) })

	t.Run("protected, it is mounted", func(t *testing.T) {
		second := env.writer("second", node2, claim.Name)
		env.waitWritten(volume.Volume, second.UID, 5)
		env.Must(second.Delete(env.Ctx))
		env.Must(second.WaitGone(env.WithTimeout()))
	})
	env.Must(first.Delete(env.Ctx))
	env.Must(first.WaitGone(env.WithTimeout()))
	env.WaitClaim(claim, "unprotected", func(now *v1.PersistentVolumeClaim) bool {
		return now != nil && slices.Equal(now.Finalizers, []string{holdFinalizer})
	})
	t.Run("unprotected, it is refused", func(t *testing.T) {
		third := env.writer("third", node2, claim.Name)
		env.waitPodEvent(third, "FailedMount", "being deleted")
		env.expectRuns(node2, third.UID, false)
		env.Must(third.Delete(env.Ctx))
		env.Must(third.WaitGone(env.WithTimeout()))
	})
	t.Run("the scheduler refuses it", func(t *testing.T) {
		fourth := env.writer("fourth", "", claim.Name)
		env.waitPodEvent(fourth, "FailedScheduling", "is being deleted")
		env.Must(fourth.Delete(env.Ctx))
		env.Must(fourth.WaitGone(env.WithTimeout()))
	})
}

// holdFinalizer is a finalizer of the test's own.
const holdFinalizer = "test.csi-reclaimer.io/held"

// waitPodEvent waits for an Event about a pod.
func (env *environment) waitPodEvent(pod *objects.Pod, reason, text string) {
	env.T.Helper()
	env.WaitEvent(v1.ObjectReference{UID: pod.UID}, reason, text)
}

// TestForceDeletionMakesTwoWriters force-deletes a StatefulSet's pod without protection while its kubelet is cut off.
// The pod and its replacement then write to the volume at the same time.
func TestForceDeletionMakesTwoWriters(t *testing.T) {
	env := newEnvironment(t, false)
	env.cordon(env.Ctx, node2, true)
	env.createStatefulSet("db", env.CreateStorageClass())
	claim := env.waitClaimOf("volume-0-db-0")
	volume := env.WaitBound(claim).Volume
	first := env.waitPod("db-0", "")
	env.waitWritten(volume, first.UID, 5)
	env.expectRuns(node1, first.UID, true)

	env.Must(env.pool.Node(node1).Partition())
	env.cordon(env.Ctx, node2, false)
	env.cordon(env.Ctx, node1, true)
	env.Pods().Delete("db-0", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	second := env.waitPod("db-0", first.UID)
	env.waitWritten(volume, second.UID, 20)
	env.expectRuns(node1, first.UID, true)
	env.expectRuns(node2, second.UID, true)
	written, err := env.driver.Stamps(volume.Handle)
	env.Must(err)
	overlaps := stamps.Overlaps(written)
	if len(overlaps) != 1 || overlaps[0].First.Pod != first.UID || overlaps[0].Second.Pod != second.UID ||
		overlaps[0].First.Node != node1 || overlaps[0].Second.Node != node2 {
		t.Fatalf("overlaps %v by %v, want the pod and its replacement", overlaps, stamps.Writers(written))
	}
	t.Logf("TWO WRITERS: %s", overlaps[0])

	env.Must(env.pool.Node(node1).Heal())
	env.Eventually("the kubelet ends the pod that is gone", func() bool {
		runs, err := env.pool.Node(node1).Runs(env.Ctx, first.UID)
		env.Must(err)
		return !runs
	})
}

// createStatefulSet creates one of one pod that writes to its claim.
func (env *environment) createStatefulSet(name, class string, changes ...func(*v1.PodSpec)) {
	env.T.Helper()
	labels := map[string]string{"app": name}
	spec := nodes.WriterSpec("")
	for _, change := range changes {
		change(&spec)
	}
	env.StatefulSets().Create(&appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: name,
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "volume-0"},
				Spec: v1.PersistentVolumeClaimSpec{
					StorageClassName: &class, AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
					Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}},
				},
			}},
		},
	})
}
