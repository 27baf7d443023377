package statefulset

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
)

// set creates a set with the template "data" that deletes claims when it is scaled down, or changes it.
func (w *world) set(name string, change ...func(*appsv1.StatefulSet)) {
	store(w, w.sets, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("set-" + name)},
		Spec: appsv1.StatefulSetSpec{
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
				WhenScaled:  appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
			},
		},
	}, change)
}

// store stores a new object, or changes a copy of the existing one of its name.
func store[O interface {
	metav1.Object
	DeepCopy() O
}](w *world, all map[string]O, o O, change []func(O)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := "ns/" + o.GetName()
	if existing, found := all[key]; found {
		o = existing.DeepCopy()
	}
	for _, c := range change {
		c(o)
	}
	o.SetResourceVersion(w.version())
	all[key] = o
}

func replicas(n int32) func(*appsv1.StatefulSet) {
	return func(o *appsv1.StatefulSet) { o.Spec.Replicas = &n }
}

// retains sets a policy that keeps all claims.
func retains(o *appsv1.StatefulSet) {
	o.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
}

// annotated gives a set this policy by annotation, as with an API server without the field.
func annotated(policy string) func(*appsv1.StatefulSet) {
	return func(o *appsv1.StatefulSet) {
		o.Spec.PersistentVolumeClaimRetentionPolicy = nil
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, statefulset.PolicyAnnotation, policy)
	}
}

// pod creates the pod of an ordinal, bound and ready, or changes it.
func (w *world) pod(set string, ordinal int, change ...func(*v1.Pod)) {
	name := fmt.Sprintf("%s-%d", set, ordinal)
	store(w, w.pods, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("pod-" + name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set,
				UID: types.UID("set-" + set), Controller: ptr.To(true)}}},
		Spec: v1.PodSpec{NodeName: "a", Volumes: []v1.Volume{uses("data-" + name)}},
		Status: v1.PodStatus{Phase: v1.PodRunning,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
	}, change)
}

// use creates a pod without an owner that uses these claims.
func (w *world) use(name string, claims ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("pod-" + name),
		ResourceVersion: w.version()}}
	for _, claim := range claims {
		o.Spec.Volumes = append(o.Spec.Volumes, uses(claim))
	}
	w.pods["ns/"+name] = o
}

func uses(claim string) v1.Volume {
	return v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
}

func (w *world) endPod(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, "ns/"+name)
}

// claim creates a claim, or changes it.
func (w *world) claim(name string, change ...func(*v1.PersistentVolumeClaim)) {
	store(w, w.live, &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("claim-" + name),
			Finalizers: []string{"kubernetes.io/pvc-protection"}},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pvc-claim-" + name},
	}, change)
}

func owned(refs ...metav1.OwnerReference) func(*v1.PersistentVolumeClaim) {
	return func(o *v1.PersistentVolumeClaim) { o.OwnerReferences = refs }
}

func held(o *v1.PersistentVolumeClaim) {
	metav1.SetMetaDataAnnotation(&o.ObjectMeta, statefulset.HoldAnnotation, "mine")
}
