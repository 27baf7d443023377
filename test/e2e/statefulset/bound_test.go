//go:build unix

package statefulset

import (
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/test/framework/fixture"
)

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
	claims := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace)
	env.Must(claims.Delete(env.Ctx, old.Name, metav1.DeleteOptions{}))
	_, err := claims.Patch(env.Ctx, old.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{})
	env.Must(err)
	s.waitClaim(0, "created again", func(claim *v1.PersistentVolumeClaim) bool {
		return claim != nil && claim.UID != old.UID
	})

	// The Event's advice.
	s.patch(`{"spec":{"template":{"spec":{"schedulerName":"default-scheduler"}}}}`)
	pod := s.deletePod(0)
	s.waitPods(0, 1, pod)
}
