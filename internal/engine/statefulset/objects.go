package statefulset

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	// MarkAnnotation on a claim records that the claim had a pod of a set, and whenScaled of the set at that time. Its
	// value is NAME/UID/ORDINAL/WHENSCALED/CLAIM, with the UIDs of the set and of the claim.
	MarkAnnotation = "csi-reclaimer.io/statefulset"
	// WokenAnnotation on a set is the time of its last wake.
	WokenAnnotation = "csi-reclaimer.io/woken"
	// HoldAnnotation on a claim keeps it.
	HoldAnnotation = volume.HoldAnnotation
	// protection keeps a claim while a pod uses it (pvcprotection of Kubernetes).
	protection = "kubernetes.io/pvc-protection"
	// controllerManager is the field manager in writes of kube-controller-manager.
	controllerManager = "kube-controller-manager"
	// restoreLabel is on each object that Velero restores.
	restoreLabel = "velero.io/restore-name"
	// maxInvalid bounds Set.Invalid, in bytes, because an annotation may have 256 KiB.
	maxInvalid = 300
)

// Set is the part of a StatefulSet that decisions need. The zero value is unknown.
type Set struct {
	Namespace, Name string
	UID             types.UID
	// Generation grows with each change of the spec.
	Generation  int64
	Created     time.Time
	Terminating bool
	// Orphans reports that the set is being deleted without its dependents (kubectl delete --cascade=orphan).
	Orphans bool
	Policy  Policy
	Source  Source
	// Invalid is the error in an annotation, empty for none.
	Invalid string
	// Ignored reports that the set has PolicyAnnotation with a value that differs from the field.
	Ignored bool
	// Start is the first ordinal, and Replicas the number of ordinals. The defaults are 0 and 1.
	Start, Replicas int
	// MinReady is the time that a pod has to be Ready before the next one is created (spec.minReadySeconds).
	MinReady time.Duration
	// Parallel reports that podManagementPolicy is Parallel.
	Parallel bool
	// Templates are the names of the volumeClaimTemplates.
	Templates []string
	// Grace is the value of GraceAnnotation, if GraceGiven.
	Grace      time.Duration
	GraceGiven bool
	// Woken reports that the set has WokenAnnotation.
	Woken bool
}

// SetOf converts a StatefulSet and keeps no reference to it.
func SetOf(o *appsv1.StatefulSet) Set {
	s := Set{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, Generation: o.Generation, Created: o.CreationTimestamp.Time,
		Replicas: 1, Terminating: o.DeletionTimestamp != nil,
		Orphans:  slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents),
		Parallel: o.Spec.PodManagementPolicy == appsv1.ParallelPodManagement,
		MinReady: time.Duration(o.Spec.MinReadySeconds) * time.Second,
	}
	if o.Spec.Replicas != nil {
		s.Replicas = int(*o.Spec.Replicas)
	}
	if o.Spec.Ordinals != nil {
		s.Start = int(o.Spec.Ordinals.Start)
	}
	for i := range o.Spec.VolumeClaimTemplates {
		s.Templates = append(s.Templates, o.Spec.VolumeClaimTemplates[i].Name)
	}
	var policyErr, graceErr error
	s.Policy, s.Source, policyErr = policyOf(o)
	s.Grace, s.GraceGiven, graceErr = graceOf(o)
	if err := errors.Join(policyErr, graceErr); err != nil {
		s.Invalid = text.Truncate(strings.ReplaceAll(err.Error(), "\n", "; "), maxInvalid)
	}
	if value, set := o.Annotations[PolicyAnnotation]; set && s.Source == SourceField {
		annotated, err := ParsePolicy(value)
		s.Ignored = err != nil || annotated != s.Policy
	}
	_, s.Woken = o.Annotations[WokenAnnotation]
	return s
}

// TakesClaims reports whether the deletion of the set deletes its claims.
func (s Set) TakesClaims() bool {
	valid := s.Invalid == "" || s.Source == SourceField
	return s.Policy.WhenDeleted == Delete && valid && !s.Orphans
}

// InRange reports whether the set is to have a pod of this ordinal.
func (s Set) InRange(ordinal int) bool { return ordinal >= s.Start && ordinal < s.Start+s.Replicas }

// PodName returns the name of the set's pod of this ordinal.
func (s Set) PodName(ordinal int) string { return fmt.Sprintf("%s-%d", s.Name, ordinal) }

// ClaimName returns the name of the claim that a template gives to the pod of this ordinal.
func (s Set) ClaimName(template string, ordinal int) string {
	return fmt.Sprintf("%s-%d", s.ClaimBase(template), ordinal)
}

// Gives reports whether a template of the set gives this name to the claim of this ordinal.
func (s Set) Gives(claim string, ordinal int) bool {
	return slices.ContainsFunc(s.Templates, func(template string) bool { return s.ClaimName(template, ordinal) == claim })
}

// ClaimBase returns the common prefix of the names of all claims of a template. Sets whose templates give the same base
// share claims: "a-b" with template "c", and "b" with template "c-a".
func (s Set) ClaimBase(template string) string { return template + "-" + s.Name }

// SplitClaimName splits a claim's name into base and ordinal. ok is false for a name that no set gives: ordinals have
// 32 bits, and no leading zeros.
func SplitClaimName(name string) (base string, ordinal int, ok bool) {
	i := strings.LastIndexByte(name, '-')
	if i < 1 {
		return "", 0, false
	}
	n, _ := strconv.ParseUint(name[i+1:], 10, 31)
	if strconv.FormatUint(n, 10) != name[i+1:] {
		return "", 0, false
	}
	return name[:i], int(n), true
}

// Mark is the value of MarkAnnotation, or its absence in the zero value.
type Mark struct {
	// Set and UID identify the set of the pod.
	Set string
	UID types.UID
	// Ordinal is the ordinal of the pod.
	Ordinal int
	// WhenScaled is whenScaled in the policy of the set while the claim had a pod.
	WhenScaled Retention
	// Claim is the UID of the claim that had the pod. Backups and manifests copy annotations to other claims.
	Claim types.UID
}

// String returns the value of the annotation, empty for no mark.
func (m Mark) String() string {
	if m == (Mark{}) {
		return ""
	}
	return fmt.Sprintf("%s/%s/%d/%s/%s", m.Set, m.UID, m.Ordinal, m.WhenScaled, m.Claim)
}

// pod returns the name of the pod.
func (m Mark) pod() string { return Set{Name: m.Set}.PodName(m.Ordinal) }

// ParseMark parses the value of the annotation. An invalid value yields no mark, so that the claim is kept.
func ParseMark(value string) Mark {
	part := strings.Split(value, "/")
	if len(part) != 5 || part[0] == "" || part[1] == "" || part[4] == "" {
		return Mark{}
	}
	ordinal, _ := strconv.Atoi(part[2])
	when, _ := retentionOf(appsv1.PersistentVolumeClaimRetentionPolicyType(part[3]))
	m := Mark{Set: part[0], UID: types.UID(part[1]), Ordinal: ordinal, WhenScaled: when, Claim: types.UID(part[4])}
	if m.String() != value {
		return Mark{}
	}
	return m
}

// Claim is the part of a PersistentVolumeClaim that decisions need. The zero value stands for a claim that does not
// exist or is unknown.
type Claim struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Terminating     bool
	// Protected reports that the claim has the finalizer kubernetes.io/pvc-protection.
	Protected bool
	// Hold reports that the claim has HoldAnnotation.
	Hold bool
	// Mark is the value of MarkAnnotation, which may be a copy of another claim's mark. Marked reports that the claim has
	// the annotation, even with an invalid value.
	Mark   Mark
	Marked bool
	Owners []metav1.OwnerReference
	// ByController is the time at which kube-controller-manager created the claim, for a StatefulSet or for an ephemeral
	// volume, which its pod owns. It is zero without proof that kube-controller-manager created this very object.
	ByController time.Time
	// LikelyByController reports that managedFields name kube-controller-manager as the creator, but a restore from a
	// backup may have copied them: the volume of the claim may hold restored data.
	LikelyByController bool
	// Volume is the name of the PV that the claim is bound to, or asks for, and Bound reports whether it is set.
	Volume string
	Bound  bool
}

// ClaimOf converts a claim and keeps no reference to it.
func ClaimOf(o *v1.PersistentVolumeClaim) Claim {
	c := Claim{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
		Terminating: o.DeletionTimestamp != nil, Protected: slices.Contains(o.Finalizers, protection),
		Volume: o.Spec.VolumeName, Bound: o.Spec.VolumeName != "",
	}
	for _, ref := range o.OwnerReferences {
		c.Owners = append(c.Owners, *ref.DeepCopy())
	}
	var value string
	value, c.Marked = o.Annotations[MarkAnnotation]
	c.Mark = ParseMark(value)
	_, c.Hold = o.Annotations[HoldAnnotation]
	switch {
	case !namesController(o) || copied(o):
	case hasOwnVolume(o):
		c.ByController = o.CreationTimestamp.Time
	default:
		c.LikelyByController = true
	}
	return c
}

// namesController reports whether managedFields name kube-controller-manager as the creator of the claim.
func namesController(o *v1.PersistentVolumeClaim) bool {
	return slices.ContainsFunc(o.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == controllerManager && objects.HasField(entry.FieldsV1, "f:spec", "f:resources")
	})
}

// hasOwnVolume reports whether the volume of the claim, if any, was provisioned empty for this very object: the name of
// its PV ends with the UID of the claim. A volume with restored data comes with its old PV, or from a source.
func hasOwnVolume(o *v1.PersistentVolumeClaim) bool {
	s := &o.Spec
	return s.DataSource == nil && s.DataSourceRef == nil && s.Selector == nil &&
		(s.VolumeName == "" || strings.HasSuffix(s.VolumeName, "-"+string(o.UID)))
}

// requestTimeout is the longest time by which an API server notes the writer of an object before its creation: mutating
// admission comes between both. It is the default of kube-apiserver's --request-timeout.
const requestTimeout = time.Minute

// copied reports whether managedFields may be older than the object. A backup tool that restores an object may restore
// its managedFields with it, as Velero does. The next write of its manager renews the time of an entry, so that
// the absence of older entries proves nothing.
func copied(o metav1.Object) bool {
	_, restored := o.GetLabels()[restoreLabel]
	return restored || slices.ContainsFunc(o.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Time == nil || entry.Time.Time.Before(o.GetCreationTimestamp().Add(-requestTimeout))
	})
}

// OwnMark reports whether the mark belongs to this very claim.
func (c Claim) OwnMark() bool { return c.Mark.Claim != "" && c.Mark.Claim == c.UID }

// Pod is the part of a pod that decisions need. The zero value stands for a pod that does not exist or is unknown.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	// Controller is the UID of the object that controls the pod.
	Controller  types.UID
	Terminating bool
	// Bound reports that the pod is bound to a node, Pending that its kubelet has not started it, and Ready that it is
	// Running with the condition Ready.
	Bound, Pending, Ready bool
	// Claims are the names of the claims in its spec.
	Claims []string
}

// PodOf converts a pod and keeps no reference to it.
func PodOf(o *v1.Pod) Pod {
	p := Pod{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, Terminating: o.DeletionTimestamp != nil,
		Bound: o.Spec.NodeName != "", Pending: o.Status.Phase == v1.PodPending,
		Ready: o.Status.Phase == v1.PodRunning && slices.ContainsFunc(o.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodReady && c.Status == v1.ConditionTrue
		}),
	}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		p.Controller = owner.UID
	}
	for i := range o.Spec.Volumes {
		if claim := o.Spec.Volumes[i].PersistentVolumeClaim; claim != nil {
			p.Claims = append(p.Claims, claim.ClaimName)
		}
	}
	return p
}
