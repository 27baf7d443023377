//go:build linux

package nodes

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture/guard"
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
	fixture.NewestOnly(t, fixture.OwnVersions)
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
	_, err := s.Client.AppsV1().StatefulSets(s.Namespace).Patch(s.Ctx, s.name, types.MergePatchType, []byte(merge),
		metav1.PatchOptions{})
	s.Must(err)
}

func (s *statefulSet) scale(replicas int) {
	s.T.Helper()
	s.patch(fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

func (s *statefulSet) deletePod(ordinal int) {
	s.T.Helper()
	s.Must(s.Client.CoreV1().Pods(s.Namespace).Delete(s.Ctx, s.podName(ordinal), metav1.DeleteOptions{}))
}

// setReady sets the condition that the pods of a template with readyGate wait for.
func (s *statefulSet) setReady(ordinal int, ready bool) {
	s.T.Helper()
	status := v1.ConditionFalse
	if ready {
		status = v1.ConditionTrue
	}
	_, err := s.Client.CoreV1().Pods(s.Namespace).Patch(s.Ctx, s.podName(ordinal), types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":%q}]}}`, readyGate, status), metav1.PatchOptions{},
		"status")
	s.Must(err)
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
		set, err := s.Client.AppsV1().StatefulSets(s.Namespace).Get(s.Ctx, s.name, metav1.GetOptions{})
		s.Must(err)
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
