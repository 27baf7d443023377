package statefulset

import (
	"encoding/json"
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

	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

const (
	// MarkAnnotation on a claim says that it had a pod of a set, and what the policy of the set was then. Its value is
	// NAME/UID/ORDINAL/WHENSCALED/CLAIM, with the UIDs of the set and of the claim.
	MarkAnnotation = "csi-reclaimer.io/statefulset"
	// WokenAnnotation on a set is the time at which the set was woken last.
	WokenAnnotation = "csi-reclaimer.io/woken"
	// HoldAnnotation on a claim keeps it.
	HoldAnnotation = volume.HoldAnnotation
	// protection keeps a claim while a pod uses it (pvcprotection of Kubernetes).
	protection = "kubernetes.io/pvc-protection"
	// controllerManager is the field manager of what kube-controller-manager writes.
	controllerManager = "kube-controller-manager"
	// maxInvalid is how long Set.Invalid is at most, in bytes: an annotation may have 256 KiB.
	maxInvalid = 300
)

// Set is what decisions are made from of a StatefulSet. The zero value is not known.
type Set struct {
	Namespace, Name string
	UID             types.UID
	Created         time.Time
	Terminating     bool
	// Orphans: it is being deleted without its dependents (kubectl delete --cascade=orphan).
	Orphans bool
	Policy  Policy
	Source  Source
	// Invalid is what is wrong with an annotation, empty for nothing.
	Invalid string
	// Ignored: the set has PolicyAnnotation, which says something else than the field.
	Ignored bool
	// Start is the first ordinal, Replicas the number of them.
	Start, Replicas int
	// MinReady is how long a pod is Ready before the next one is created (spec.minReadySeconds).
	MinReady time.Duration
	// Parallel: podManagementPolicy is Parallel.
	Parallel bool
	// Templates are the names of the volumeClaimTemplates.
	Templates []string
	// Grace is the value of GraceAnnotation, if GraceGiven.
	Grace      time.Duration
	GraceGiven bool
	// Woken: the set has WokenAnnotation.
	Woken bool
}

// SetOf reads what is needed of a StatefulSet, without keeping a reference to it.
func SetOf(o *appsv1.StatefulSet) Set {
	s := Set{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, Created: o.CreationTimestamp.Time, Replicas: 1,
		Terminating: o.DeletionTimestamp != nil, Orphans: slices.Contains(o.Finalizers, metav1.FinalizerOrphanDependents),
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

// TakesClaims reports whether the claims of the set go with it when it is deleted.
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

// ClaimBase returns what the names of all claims of a template begin with. Sets whose templates give the same base
// share claims: "a-b" with template "c", and "b" with template "c-a".
func (s Set) ClaimBase(template string) string { return template + "-" + s.Name }

// SplitClaimName returns the base and the ordinal of a claim's name. ok is false for a name that no set gives: ordinals
// have 32 bits, and no leading zeros.
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

// Mark is the value of MarkAnnotation. The zero value: the claim has none.
type Mark struct {
	// Set and UID name the set of the pod.
	Set string
	UID types.UID
	// Ordinal is that of the pod.
	Ordinal int
	// WhenScaled is what the policy of the set said of replicas that are scaled away, while the claim had a pod.
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

// ParseMark reads the value of the annotation. What is not a mark is none: such a claim is kept.
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

// Claim is what decisions are made from of a PersistentVolumeClaim. The zero value: there is none, or it is not known.
type Claim struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	Terminating     bool
	// Protected: the claim has the finalizer kubernetes.io/pvc-protection.
	Protected bool
	// Hold: it has HoldAnnotation.
	Hold bool
	// Mark is the value of MarkAnnotation, which may be a copy of another claim's; Marked: the claim has the annotation,
	// with whatever value.
	Mark   Mark
	Marked bool
	Owners []metav1.OwnerReference
	// ByController is when kube-controller-manager created it, which does so for StatefulSets and for ephemeral volumes
	// of pods, which own theirs. It is zero for a claim that others have created, or for which nothing shows who did.
	ByController time.Time
	// Volume is the name of the PV that it is bound to, and Bound whether it is.
	Volume string
	Bound  bool
}

// ClaimOf reads what is needed of a claim, without keeping a reference to it.
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
	if slices.ContainsFunc(o.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == controllerManager && Wrote(entry, "f:spec", "f:resources")
	}) {
		c.ByController = o.CreationTimestamp.Time
	}
	return c
}

// Wrote reports whether a field manager has written the field.
func Wrote(entry metav1.ManagedFieldsEntry, path ...string) bool {
	var fields map[string]json.RawMessage
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}
	for _, name := range path {
		below, found := fields[name]
		if fields = nil; !found || json.Unmarshal(below, &fields) != nil {
			return false
		}
	}
	return true
}

// OwnMark reports whether the mark is of this very claim.
func (c Claim) OwnMark() bool { return c.Mark.Claim != "" && c.Mark.Claim == c.UID }

// Pod is what decisions are made from of a pod. The zero value: there is none, or it is not known.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	// Controller is the UID of the object that controls the pod.
	Controller  types.UID
	Terminating bool
	// Bound: the pod is bound to a node. Pending: its kubelet has not started it. Ready: it is Running, and has the
	// condition Ready.
	Bound, Pending, Ready bool
	// Claims are the names of the claims that it uses.
	Claims []string
}

// PodOf reads what is needed of a pod, without keeping a reference to it.
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
