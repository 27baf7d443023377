package claims

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain"
	"github.com/csi-reclaimer/csi-reclaimer/internal/explain/volumes"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/explained"
)

var now, ago = explained.Now, explained.Ago

const (
	// controllerManager is the field manager of kube-controller-manager.
	controllerManager = "kube-controller-manager"

	driver  = "disk.csi.example.com"
	deletes = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	retains = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
)

// environment is StatefulSet db with 3 replicas and 10Gi claims of its template data, as plain objects.
type environment struct {
	set    *appsv1.StatefulSet
	others []*appsv1.StatefulSet
	claims []*v1.PersistentVolumeClaim
	pvs    []*v1.PersistentVolume
	pods   []*v1.Pod
	facts  Facts
	// unread hides facts from the explanation of a claim; nil hides none.
	unread func(*ClaimFacts)
}

func newEnvironment() *environment {
	env := &environment{set: setOf("db", "set", "data")}
	for n := range 3 {
		env.addClaim("data", n)
		env.addPod(n)
	}
	env.facts.ClusterFacts = volumes.ClusterFacts{
		Now: now(), Attachments: explain.Found[[]storagev1.VolumeAttachment](nil), Installed: explain.Found([]string{driver}),
		OnNodes: explain.Found[[]string](nil), Leases: explain.Found[[]coordinationv1.Lease](nil),
		InFlight: explain.Found(explain.InFlightLogs{}),
	}
	return env
}

func setOf(name string, uid types.UID, templates ...string) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uid},
		Spec: appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: retains, WhenScaled: retains}},
	}
	for _, template := range templates {
		set.Spec.VolumeClaimTemplates = append(set.Spec.VolumeClaimTemplates,
			v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: template}})
	}
	return set
}

// policy sets spec.persistentVolumeClaimRetentionPolicy.
func (env *environment) policy(deleted, scaled appsv1.PersistentVolumeClaimRetentionPolicyType) {
	env.set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
		WhenDeleted: deleted, WhenScaled: scaled}
}

// annotate sets the policy annotation, on an API server that drops the field.
func (env *environment) annotate(value string) {
	env.set.Spec.PersistentVolumeClaimRetentionPolicy = nil
	env.set.Annotations = map[string]string{statefulset.PolicyAnnotation: value}
}

// addClaim adds a bound claim that kube-controller-manager created, and its PV, whose name has the UID of the claim.
func (env *environment) addClaim(template string, ordinal int) {
	name := fmt.Sprintf("%s-db-%d", template, ordinal)
	size := v1.ResourceList{v1.ResourceStorage: resource.MustParse("10Gi")}
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name),
			Labels: map[string]string{"app": "db"}, Finalizers: []string{"kubernetes.io/pvc-protection"},
			Annotations: map[string]string{}, CreationTimestamp: ago(24 * time.Hour)},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name, StorageClassName: ptr.To("fast"),
			Resources: v1.VolumeResourceRequirements{Requests: size}},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound, Capacity: size},
	}
	createdBy(claim, controllerManager)
	env.claims = append(env.claims, claim)
	env.pvs = append(env.pvs, &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv-" + name, UID: types.UID("uid-pv-" + name),
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": driver}},
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &v1.ObjectReference{Namespace: "shop", Name: name, UID: claim.UID},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver,
				VolumeHandle: "vol-" + name}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
	})
}

func createdBy(claim *v1.PersistentVolumeClaim, manager string) {
	claim.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate,
		Time: ptr.To(claim.CreationTimestamp), FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(
			`{"f:metadata":{"f:labels":{".":{}}},"f:spec":{"f:accessModes":{},"f:resources":{"f:requests":{}}}}`)}}
}

// addPod adds the pod of an ordinal, with its claim of template data.
func (env *environment) addPod(ordinal int) {
	pod := explained.Pod("shop", fmt.Sprintf("db-%d", ordinal), fmt.Sprintf("data-db-%d", ordinal))
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "set",
		Controller: ptr.To(true)}}
	env.pods = append(env.pods, pod)
}

// removePod removes the pod of the last ordinal.
func (env *environment) removePod() { env.pods = env.pods[:len(env.pods)-1] }

// scaled scales the set down, and keeps only the pods in range.
func (env *environment) scaled(replicas int) {
	env.set.Spec.Replicas = ptr.To(int32(replicas))
	env.pods = env.pods[:replicas]
}

// condemned scales the set down to 2 replicas under whenScaled Delete, and marks the last claim.
func (env *environment) condemned() {
	env.policy(retains, deletes)
	env.scaled(2)
	mark(env.claims[2], "set", 2, statefulset.Delete)
}

// deletedByHand marks the last claim, and deletes its pod.
func (env *environment) deletedByHand() {
	mark(env.claims[2], "set", 2, statefulset.Delete)
	env.removePod()
}

// stray scales the set down to 2 replicas, and leaves no writer of the last claim.
func (env *environment) stray() *v1.PersistentVolumeClaim {
	env.scaled(2)
	env.claims[2].ManagedFields = nil
	return env.claims[2]
}

// own gives the claim one owner.
func own(claim *v1.PersistentVolumeClaim, version, kind, name string, uid types.UID) {
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, UID: uid}}
}

// mark marks a claim as volume-guard does.
func mark(claim *v1.PersistentVolumeClaim, set types.UID, ordinal int, when statefulset.Retention) {
	claim.Annotations[statefulset.MarkAnnotation] = statefulset.Mark{Set: "db", UID: set, Ordinal: ordinal,
		WhenScaled: when, Claim: claim.UID}.String()
}

// guard lets a replica of volume-guard hold its Lease.
func (env *environment) guard() {
	env.facts.Leases.Value = append(env.facts.Leases.Value,
		*explained.Lease("volume-guard", "volume-guard-a", 0))
}

// reclaimer lets csi-reclaimer hold the Lease of the driver's provisioner.
func (env *environment) reclaimer() {
	lease := explained.Lease("disk-csi-example-com", "pod-1_6f1c", 0)
	lease.Labels = map[string]string{objects.DriverLabel: driver}
	env.facts.Leases.Value = append(env.facts.Leases.Value, *lease)
}

// read returns the facts as they are read.
func (env *environment) read() Facts {
	f := env.facts
	sets := append([]*appsv1.StatefulSet{}, env.others...)
	if env.set != nil {
		sets = append(sets, env.set)
	}
	f.Sets, f.Claims = explain.Found[[]Set](nil), explain.Found[[]Claim](nil)
	explained.Clear(&f.Pods)
	for _, set := range sets {
		f.Sets.Value = append(f.Sets.Value, SetOf(set))
	}
	for _, claim := range env.claims {
		f.Claims.Value = append(f.Claims.Value, ClaimOf(claim))
	}
	for _, pod := range env.pods {
		f.Pods.Value = append(f.Pods.Value, statefulset.PodOf(pod))
	}
	if f.PVs.Err == nil {
		explained.Clear(&f.PVs)
		for _, pv := range env.pvs {
			f.PVs.Value = append(f.PVs.Value, explain.PVOf(pv))
		}
	}
	return f
}

func (env *environment) preview(c Change) Preview {
	return PreviewOf(PreviewFacts{Facts: env.read(), Set: SetOf(env.set)}, c)
}

func setStart(start int32) *appsv1.StatefulSetOrdinals {
	return &appsv1.StatefulSetOrdinals{Start: start}
}
