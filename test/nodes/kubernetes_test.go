//go:build linux

package nodes

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/nodes/stamps"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/objects"
)

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
	env.Must(env.Client.CoreV1().Pods(env.Namespace).Delete(env.Ctx, "db-0",
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
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
	_, err := env.Client.AppsV1().StatefulSets(env.Namespace).Create(env.Ctx, &appsv1.StatefulSet{
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
	}, metav1.CreateOptions{})
	env.Must(err)
}
