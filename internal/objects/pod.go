package objects

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"
	"unique"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// RunningFinalizer holds a pod until there is evidence that its processes have ended.
	RunningFinalizer = "csi-reclaimer.io/running"
	// VolumeGate is the scheduling gate of pods that wait for the locks of their claims.
	VolumeGate = "csi-reclaimer.io/volume"
	// ConfirmAnnotation on a pod confirms that its processes cannot run any more. Its value is the UID of the pod.
	ConfirmAnnotation = "csi-reclaimer.io/confirm-force-delete"

	// StatefulSet is the kind of controllers that give the name of a pod to the next one.
	StatefulSet = "StatefulSet"

	// kubelet and kubeletWindows are the field managers under which kubelets write: the first part of their user agent,
	// which is the name of their program. That of k3s and MicroK8s (kubelite) is none: their kube-controller-manager is
	// part of the same program.
	kubelet, kubeletWindows = "kubelet", "kubelet.exe"
	// podCompleted and podFailed are the reasons of the condition ContainersReady that a kubelet sets when a pod has
	// ended (pkg/kubelet/status/generate.go: PodCompleted, PodFailed).
	podCompleted = "PodCompleted"
	podFailed    = "PodFailed"
	// statusUnknown is the reason of the end that a kubelet gives a container that its runtime does not know
	// (ContainerReasonStatusUnknown in pkg/kubelet/container).
	statusUnknown = "ContainerStatusUnknown"
)

// Confirmation is what the annotation ConfirmAnnotation says. The zero value: nothing.
type Confirmation uint8

const (
	// NotConfirmed: the pod does not have the annotation.
	NotConfirmed Confirmation = iota
	// ConfirmedOther: the annotation has another value than the pod's UID, such as that of an earlier pod of the name.
	ConfirmedOther
	// ConfirmedThis: the annotation has the pod's UID.
	ConfirmedThis
)

// Pod holds the fields of a Pod that decisions are made from. The zero value is a pod that nothing is done to.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	// Node is spec.nodeName, empty for a pod that is not bound to a node.
	Node string
	// OwnerKind is the kind of the object that controls the pod, such as ReplicaSet, empty for none.
	OwnerKind string
	// Claims are the names of the claims that its volumes name, and of those of its generic ephemeral volumes, sorted.
	// Ephemeral are the latter.
	Claims, Ephemeral []string
	// Gated: it has VolumeGate. OtherGates are its other scheduling gates, such as that of a queue.
	Gated      bool
	OtherGates []string
	// Unschedulable: the scheduler has found no node for it. That may change.
	Unschedulable bool

	// Held: the pod has RunningFinalizer.
	Held bool
	// Mirror: a kubelet created it for a static pod.
	Mirror bool
	// Terminating: the pod has a deletionTimestamp, which is GraceEnds.
	Terminating bool
	GraceEnds   time.Time
	// GraceZero: deletionGracePeriodSeconds is 0. Without a finalizer the API server would have removed the pod.
	GraceZero    bool
	Confirmation Confirmation

	// Final: the phase is Succeeded or Failed. Others than the kubelet write phases too: the pod garbage collector writes
	// Failed. So it is evidence of no end; see Finished, Completed and UsesVolumes.
	Final bool
	// Succeeded: the phase is Succeeded, which only kubelets write.
	Succeeded bool
	// Running: a container status of any kind has the state running.
	Running bool
	// Reported: each of the containers in spec.containers has a status, and the end of none is a guess. One is missing of
	// a pod that its kubelet has not reported on, and of one that a kubelet refuses after a restart, whose containers may
	// run for a moment more.
	Reported bool
	// Generation is metadata.generation, which the API server raises with a deletion. ObservedGeneration is that of the
	// condition ContainersReady, which only kubelets write (KEP-5067, default from 1.34 on); 0 without that feature.
	// status.observedGeneration does not do: the pod garbage collector writes it together with the phase Failed
	// (markFailedAndDeletePodWithCondition in pkg/controller/podgc).
	Generation, ObservedGeneration int64
	// ContainersReadyEnded: the condition ContainersReady has the reason PodCompleted or PodFailed.
	ContainersReadyEnded bool
	// PhaseByKubelet: according to managedFields, a kubelet wrote the phase.
	PhaseByKubelet bool
}

// PodOf reads what is needed of a Pod, without keeping a reference to it.
func PodOf(o *v1.Pod) Pod {
	p := Pod{
		Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Node: o.Spec.NodeName,
		Held: slices.Contains(o.Finalizers, RunningFinalizer), Gated: HasVolumeGate(o), Generation: o.Generation,
		Final:     o.Status.Phase == v1.PodSucceeded || o.Status.Phase == v1.PodFailed,
		Succeeded: o.Status.Phase == v1.PodSucceeded,
		Running:   anyOf(&o.Status, func(c v1.ContainerStatus) bool { return c.State.Running != nil }),
		Reported:  reported(o),
	}
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		p.OwnerKind = unique.Make(owner.Kind).Value()
	}
	_, p.Mirror = o.Annotations[v1.MirrorPodAnnotationKey]
	if o.DeletionTimestamp != nil {
		p.Terminating, p.GraceEnds = true, o.DeletionTimestamp.Time
		p.GraceZero = o.DeletionGracePeriodSeconds != nil && *o.DeletionGracePeriodSeconds == 0
	}
	if value, found := o.Annotations[ConfirmAnnotation]; found {
		p.Confirmation = ConfirmedOther
		if o.UID != "" && value == string(o.UID) {
			p.Confirmation = ConfirmedThis
		}
	}
	p.readSpec(o)
	p.readConditions(o)
	p.PhaseByKubelet = p.Final && slices.ContainsFunc(o.ManagedFields, writesPhase)
	return p
}

// readSpec reads the claims and the gates.
func (p *Pod) readSpec(o *v1.Pod) {
	for i := range o.Spec.Volumes {
		switch v := &o.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			p.Claims = append(p.Claims, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			// The name is fixed (k8s.io/component-helpers/storage/ephemeral).
			p.Claims, p.Ephemeral = append(p.Claims, o.Name+"-"+v.Name), append(p.Ephemeral, o.Name+"-"+v.Name)
		}
	}
	slices.Sort(p.Claims)
	p.Claims = slices.Compact(p.Claims)
	for _, gate := range o.Spec.SchedulingGates {
		if gate.Name != VolumeGate {
			p.OtherGates = append(p.OtherGates, gate.Name)
		}
	}
}

func (p *Pod) readConditions(o *v1.Pod) {
	for i := range o.Status.Conditions {
		c := &o.Status.Conditions[i]
		if c.Type == v1.ContainersReady {
			p.ObservedGeneration = c.ObservedGeneration
			p.ContainersReadyEnded = c.Reason == podCompleted || c.Reason == podFailed
		}
		if c.Type == v1.PodScheduled {
			p.Unschedulable = c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable
		}
	}
}

// HasVolumeGate reports whether a pod has VolumeGate.
func HasVolumeGate(o *v1.Pod) bool {
	return slices.ContainsFunc(o.Spec.SchedulingGates, func(g v1.PodSchedulingGate) bool { return g.Name == VolumeGate })
}

// OfSet reports whether a StatefulSet controls the pod. Kinds of that name in other groups count: they name their pods
// alike.
func OfSet(o *v1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(o)
	return owner != nil && owner.Kind == StatefulSet
}

// HasClaims reports whether a volume of the pod is that of a claim.
func HasClaims(o *v1.Pod) bool {
	return slices.ContainsFunc(o.Spec.Volumes, func(v v1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	})
}

// anyOf reports whether a container is so, as far as the statuses show. Sidecars are among the init containers.
func anyOf(s *v1.PodStatus, is func(v1.ContainerStatus) bool) bool {
	return slices.ContainsFunc(s.ContainerStatuses, is) || slices.ContainsFunc(s.InitContainerStatuses, is) ||
		slices.ContainsFunc(s.EphemeralContainerStatuses, is)
}

// reported returns Pod.Reported.
//
// A kubelet whose runtime does not know a container, because it is that of another machine under the name of the node
// or its state was wiped, reports an end all the same: ContainerStatusUnknown (TerminatePod in pkg/kubelet/status), and
// before that the state waiting. So it does of a container that it never started, such as one whose image is missing.
// Only the latter has no trace of an earlier run, which a kubelet copies from the status before
// (convertToAPIContainerStatuses in pkg/kubelet). A kubelet that refuses a pod drops the statuses with that trace, and
// leaves the reason of its refusal (rejectPod).
func reported(o *v1.Pod) bool {
	guessed := func(c v1.ContainerStatus) bool {
		known := c.State.Running != nil || c.State.Terminated != nil && c.State.Terminated.Reason != statusUnknown
		return !known && (c.RestartCount > 0 || c.LastTerminationState.Terminated != nil || o.Status.Reason != "")
	}
	all := o.Status.ContainerStatuses
	return len(all) > 0 && len(all) >= len(o.Spec.Containers) && !anyOf(&o.Status, guessed)
}

// writesPhase reports whether an entry of managedFields says that a kubelet wrote status.phase. A write of the value
// that the field has already does not change the owner.
func writesPhase(entry metav1.ManagedFieldsEntry) bool {
	return (entry.Manager == kubelet || entry.Manager == kubeletWindows) &&
		entry.Operation == metav1.ManagedFieldsOperationUpdate &&
		entry.Subresource == "status" && hasPhase(entry.FieldsV1.GetRawBytes())
}

// hasPhase reports whether a set of fields has status.phase.
func hasPhase(fields []byte) bool {
	if !bytes.Contains(fields, []byte(`"f:phase"`)) {
		return false
	}
	var set, status map[string]json.RawMessage
	if json.Unmarshal(fields, &set) != nil || json.Unmarshal(set["f:status"], &status) != nil {
		return false
	}
	_, has := status["f:phase"]
	return has
}

// Finished reports whether the kubelet says that the pod has ended, and says so knowing of the deletion. A pod that the
// pod garbage collector has set to Failed has not finished by that.
func (p Pod) Finished() bool { return p.Terminating && p.Final && !p.Running && p.kubeletSays() }

// Completed reports whether the kubelet says that the pod has ended, though nobody has deleted it, such as that of a
// Job. Its volumes may still be mounted for a moment.
func (p Pod) Completed() bool {
	return !p.Terminating && p.Final && !p.Running && p.Reported && (p.Succeeded || p.PhaseByKubelet)
}

// kubeletSays reports whether it is the kubelet that speaks of the end of the pod.
//
// A kubelet writes a final phase only once no container of the pod can run, and starts none after that (mergePodStatus
// in pkg/kubelet/status). That holds also where it wrote the phase before the deletion: of a pod that has ended by
// itself, such as that of a Job, it writes nothing more when the pod is deleted.
//
// Where somebody else wrote the phase first, the kubelet does not write it again. A kubelet that tracks generations has
// seen the deletion once it has observed the generation, which the deletion raised; it starts no container from then
// on. Of one that does not, the reason of the condition is a trace that it leaves, unless the pod ended during init or
// without its image.
func (p Pod) kubeletSays() bool {
	switch {
	case !p.Reported:
		return false
	case p.Succeeded, p.PhaseByKubelet:
		return true
	case p.ObservedGeneration != 0:
		return p.ObservedGeneration == p.Generation
	}
	return p.ContainersReadyEnded
}

// Ending reports whether the kubelet has seen the deletion of the pod, and a container ran when it last said so. Only
// of a kubelet that tracks generations is that known.
func (p Pod) Ending() bool {
	return p.Terminating && p.Running && p.ObservedGeneration != 0 && p.ObservedGeneration == p.Generation
}

// UsesVolumes reports whether processes of the pod may use its volumes, now or once its kubelet starts them: it is
// bound to a node, and has not ended. Of a pod that is held, only the word of its kubelet is an end, and of one that
// was deleted too, only its release.
func (p Pod) UsesVolumes() bool {
	switch {
	case p.Node == "":
		return false
	case p.Held:
		return !p.Completed()
	}
	return !p.Final
}

// ShutDown reports whether the pod was deleted without grace, by force or by the kubelet that is done with it, and
// nothing holds it.
func (p Pod) ShutDown() bool { return p.GraceZero && !p.Held }
