//go:build unix

package upgrade

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// set is a StatefulSet with the policy that claims go when replicas are scaled away.
type set struct {
	*cluster
	name string
}

func (s *set) claimName(ordinal int) string { return fmt.Sprintf("data-%s-%d", s.name, ordinal) }

// scaledDown creates a set of two replicas and scales it to one. The second pod is gone before that, and is not
// replaced since the first one is not ready: Kubernetes leaves such a claim behind, and volume-guard deletes it.
func (env *cluster) scaledDown(annotations map[string]string) *set {
	env.T.Helper()
	m := env.machine()
	s, labels := &set{env, "web"}, map[string]string{"app": "web"}
	_, err := env.Client.AppsV1().StatefulSets(env.Namespace).Create(env.Ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Annotations: annotations},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: s.name,
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
				WhenScaled:  appsv1.DeletePersistentVolumeClaimRetentionPolicyType},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: v1.PodSpec{
				Containers:                    []v1.Container{{Name: "main", Image: "none"}},
				NodeSelector:                  map[string]string{v1.LabelHostname: m.name},
				TerminationGracePeriodSeconds: ptr.To[int64](1),
			}},
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: v1.PersistentVolumeClaimSpec{StorageClassName: &env.class,
					AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
					Resources: v1.VolumeResourceRequirements{
						Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Mi")}}}}},
		},
	}, metav1.CreateOptions{})
	env.Must(err)
	s.waitStatus("two pods", func(now appsv1.StatefulSetStatus) bool { return now.ReadyReplicas == 2 })
	env.Eventually("claim "+s.claimName(1)+" is marked", func() bool {
		claim, err := env.Client.CoreV1().PersistentVolumeClaims(env.Namespace).Get(env.Ctx, s.claimName(1),
			metav1.GetOptions{})
		env.Must(err)
		return strings.HasPrefix(claim.Annotations["csi-reclaimer.io/statefulset"], s.name+"/")
	})
	s.losePod(1)
	s.patch(`{"spec":{"replicas":1}}`)
	s.waitStatus("one pod", func(now appsv1.StatefulSetStatus) bool { return now.Replicas == 1 })
	return s
}

// losePod deletes the pod of an ordinal. The first pod is not ready from then on.
func (s *set) losePod(ordinal int) {
	s.T.Helper()
	pods := s.Client.CoreV1().Pods(s.Namespace)
	_, err := pods.Patch(s.Ctx, s.name+"-0", types.StrategicMergePatchType,
		[]byte(`{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`), metav1.PatchOptions{}, "status")
	s.Must(err)
	s.waitStatus("a pod that is not ready",
		func(now appsv1.StatefulSetStatus) bool { return now.ReadyReplicas < now.Replicas })
	name := fmt.Sprintf("%s-%d", s.name, ordinal)
	s.Must(pods.Delete(s.Ctx, name, metav1.DeleteOptions{}))
	s.Eventually("pod "+name+" is gone", func() bool {
		_, err := pods.Get(s.Ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func (s *set) patch(merge string) {
	s.T.Helper()
	_, err := s.Client.AppsV1().StatefulSets(s.Namespace).Patch(s.Ctx, s.name, types.MergePatchType, []byte(merge),
		metav1.PatchOptions{})
	s.Must(err)
}

// waitStatus waits until the StatefulSet controller has acted on the spec, and its status is the wanted one.
func (s *set) waitStatus(what string, want func(appsv1.StatefulSetStatus) bool) {
	s.T.Helper()
	s.Eventually("set "+s.name+" has "+what, func() bool {
		o, err := s.Client.AppsV1().StatefulSets(s.Namespace).Get(s.Ctx, s.name, metav1.GetOptions{})
		s.Must(err)
		return o.Status.ObservedGeneration == o.Generation && want(o.Status)
	})
}

func (s *set) waitClaimGone(ordinal int) {
	s.T.Helper()
	s.Eventually("claim "+s.claimName(ordinal)+" is gone", func() bool {
		_, err := s.Client.CoreV1().PersistentVolumeClaims(s.Namespace).Get(s.Ctx, s.claimName(ordinal),
			metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}
