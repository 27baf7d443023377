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
	// RunningFinalizer holds a pod until there is evidence that its processes have ended, and the claims of its generic
	// ephemeral volumes as long as the pod.
	RunningFinalizer = "csi-reclaimer.io/running"
	// VolumeGate is the scheduling gate of pods that wait for the locks of their claims.
	VolumeGate = "csi-reclaimer.io/volume"
	// ConfirmAnnotation on a pod confirms that its processes cannot run any more. Its value is the UID of the pod.
	ConfirmAnnotation = "csi-reclaimer.io/confirm-force-delete"
	// NodeUnreachable is the condition of a pod whose kubelet the node controller has not heard from for a long time.
	NodeUnreachable v1.PodConditionType = "csi-reclaimer.io/NodeUnreachable"

	// StatefulSet is the kind of controllers that give the name of a pod to its replacement.
	StatefulSet = "StatefulSet"

	// kubelet and kubeletWindows are the field managers of kubelets: the first part of their user agent, which is the name
	// of their program. The manager of k3s and MicroK8s (kubelite) does not count, because their kube-controller-manager
	// belongs to the same program.
	kubelet, kubeletWindows = "kubelet", "kubelet.exe"
	// podCompleted and podFailed are the reasons of the condition ContainersReady that a kubelet sets when a pod has ended
	// (pkg/kubelet/status/generate.go: PodCompleted, PodFailed).
	podCompleted = "PodCompleted"
	podFailed    = "PodFailed"
	// statusUnknown is the termination reason that a kubelet gives to a container unknown to its runtime
	// (ContainerReasonStatusUnknown in pkg/kubelet/container).
	statusUnknown = "ContainerStatusUnknown"
	// evicted is status.reason of a pod that its kubelet ends or refuses for lack of resources.
	evicted = "Evicted"
)

// endedByKubelet are the reasons that a kubelet gives to pods that it ends itself, and to none that it refuses: in a
// graceful shutdown of the node (pkg/kubelet/nodeshutdown), and for a critical pod (pkg/kubelet/preemption). It writes
// them once no container runs (mergePodStatus).
var endedByKubelet = []string{"Terminated", "Preempting"}

// deadlineExceeded is the reason at activeDeadlineSeconds (pkg/kubelet/active_deadline.go). A kubelet also gives it to
// a pod that it has refused before, as it counts the time since the refusal.
const deadlineExceeded = "DeadlineExceeded"

// Confirmation is the result of reading ConfirmAnnotation. The zero value is NotConfirmed.
type Confirmation uint8

const (
	// NotConfirmed means that the pod does not have the annotation.
	NotConfirmed Confirmation = iota
	// ConfirmedOther means that the annotation does not have the pod's UID but, for example, that of an earlier pod with
	// the same name.
	ConfirmedOther
	// ConfirmedThis means that the annotation has the pod's UID.
	ConfirmedThis
)

// Pod holds the fields of a Pod that decisions are made from. The zero value is a pod that no decision acts on.
type Pod struct {
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
	// Node is spec.nodeName, which is empty until the pod is bound to a node.
	Node string
	// OwnerKind is the kind of the pod's controller, such as ReplicaSet, or "" without one.
	OwnerKind string
	// Claims names the claims of the pod's volumes, including the claims of its generic ephemeral volumes, sorted and
	// without duplicates. Ephemeral names only the latter.
	Claims, Ephemeral []string
	// Gated reports VolumeGate. OtherGates are the remaining scheduling gates, such as the gate of a queue.
	Gated      bool
	OtherGates []string
	// Unschedulable reports that the scheduler has found no node for the pod so far.
	Unschedulable bool

	// Held reports that the pod has RunningFinalizer. Finalizers are the others.
	Held       bool
	Finalizers []string
	// Mirror reports that a kubelet created the pod for a static pod.
	Mirror bool
	// Terminating reports that the pod has a deletionTimestamp, which is GraceEnds.
	Terminating bool
	GraceEnds   time.Time
	// GraceZero reports that deletionGracePeriodSeconds is 0. Without a finalizer the API server would have removed the
	// pod.
	GraceZero    bool
	Confirmation Confirmation

	// Final reports that the phase is Succeeded or Failed. The kubelet is not the only writer of phases: the pod garbage
	// collector writes Failed. The phase alone is therefore no evidence of an end; see Finished, Completed and
	// UsesVolumes.
	Final bool
	// Succeeded reports that the phase is Succeeded, which only kubelets write.
	Succeeded bool
	// Running reports that a container status of any kind has the state running.
	Running bool
	// Reported reports that each container in spec.containers has a status, and that no container's end is a guess. A
	// status is missing if the kubelet has not reported on the pod yet, or if it refuses the pod after a restart, when
	// containers may still run for a moment.
	Reported bool
	// Generation is metadata.generation, which the API server raises with a deletion. ObservedGeneration is the observed
	// generation of the condition ContainersReady, which only kubelets write (KEP-5067, default from 1.34 on), and 0
	// without that feature. The field status.observedGeneration is no substitute: the pod garbage collector writes it
	// together with the phase Failed (markFailedAndDeletePodWithCondition in pkg/controller/podgc).
	Generation, ObservedGeneration int64
	// ContainersReadyEnded reports that the condition ContainersReady has the reason PodCompleted or PodFailed.
	ContainersReadyEnded bool
	// PhaseByKubelet reports that a kubelet wrote the phase, according to managedFields.
	PhaseByKubelet bool
	// Unstarted reports that no kubelet has reported a container of the pod that runs or ran.
	Unstarted bool
	// Refusal reports that the kubelet refused the pod, of which no container was reported before. Its processes may run.
	Refusal bool
	// Refused reports such a refusal, and that the kubelet has found no container of the pod in its runtime since, and no
	// volume mounted. A refusal removes the container statuses, and the kubelet adds them only when it ends what its
	// runtime has of the pod (SyncTerminatingPod, SyncTerminatedPod in pkg/kubelet). Once the volumes are unmounted, it
	// reports a container that it did not find (TerminatePod in pkg/kubelet/status). It starts no container of a pod whose
	// phase is final. Another machine that had the name of the node before is not excluded.
	Refused bool
}

// PodOf returns the record of a Pod, which keeps no reference to o.
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
	for _, name := range o.Finalizers {
		if name != RunningFinalizer {
			p.Finalizers = append(p.Finalizers, name)
		}
	}
	p.readSpec(o)
	p.readConditions(o)
	p.PhaseByKubelet = p.Final && slices.ContainsFunc(o.ManagedFields, writesPhase)
	p.readRefusal(o)
	return p
}

func (p *Pod) readRefusal(o *v1.Pod) {
	p.Unstarted = Unstarted(o)
	p.Refusal = p.PhaseByKubelet && refused(o) && p.Unstarted
	all := len(o.Status.ContainerStatuses)
	p.Refused = p.Refusal && all > 0 && all >= len(o.Spec.Containers) && anyOf(&o.Status, notFound)
}

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

// HasVolumeGate reports whether the pod has VolumeGate.
func HasVolumeGate(o *v1.Pod) bool {
	return slices.ContainsFunc(o.Spec.SchedulingGates, func(g v1.PodSchedulingGate) bool { return g.Name == VolumeGate })
}

// OfSet reports whether a StatefulSet controls the pod. Kinds with that name in other groups count too, because they
// name their pods alike.
func OfSet(o *v1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(o)
	return owner != nil && owner.Kind == StatefulSet
}

// PodOwner returns the name and UID of the pod that controls an object, as it does the claim of its generic ephemeral
// volume, or "" if no pod does.
func PodOwner(o metav1.Object) (name string, uid types.UID) {
	owner := metav1.GetControllerOfNoCopy(o)
	if owner == nil || owner.Kind != "Pod" || owner.APIVersion != v1.SchemeGroupVersion.String() {
		return "", ""
	}
	return owner.Name, owner.UID
}

// HasClaims reports whether the pod has a volume with a claim, including generic ephemeral volumes.
func HasClaims(o *v1.Pod) bool {
	return slices.ContainsFunc(o.Spec.Volumes, func(v v1.Volume) bool {
		return v.PersistentVolumeClaim != nil || v.Ephemeral != nil
	})
}

// anyOf reports whether is holds for any container status. Sidecars are among the init containers.
func anyOf(s *v1.PodStatus, is func(v1.ContainerStatus) bool) bool {
	return slices.ContainsFunc(s.ContainerStatuses, is) || slices.ContainsFunc(s.InitContainerStatuses, is) ||
		slices.ContainsFunc(s.EphemeralContainerStatuses, is)
}

// reported returns Pod.Reported.
//
// A kubelet whose runtime does not know a container reports its end all the same: ContainerStatusUnknown (TerminatePod
// in pkg/kubelet/status), and the state waiting before that. The container may belong to another machine with the name
// of the node, or the state of the runtime may have been wiped. A container that never started, for example for lack of
// its image, is reported in the same way, but without a trace of an earlier run. A kubelet copies that trace from the
// earlier status (convertToAPIContainerStatuses in pkg/kubelet). A kubelet that refuses a pod drops the statuses with
// the trace, and leaves the reason of its refusal (rejectPod).
func reported(o *v1.Pod) bool {
	guessed := func(c v1.ContainerStatus) bool {
		end := c.State.Terminated
		known := c.State.Running != nil || end != nil && (end.Reason != statusUnknown || sameRun(c))
		return !known && (c.RestartCount > 0 || c.LastTerminationState.Terminated != nil || refused(o))
	}
	all := o.Status.ContainerStatuses
	return len(all) > 0 && len(all) >= len(o.Spec.Containers) && !anyOf(&o.Status, guessed)
}

// notFound reports whether a kubelet reports the end of a container because its runtime does not know it.
func notFound(c v1.ContainerStatus) bool {
	return c.State.Terminated != nil && c.State.Terminated.Reason == statusUnknown
}

// Unstarted returns Pod.Unstarted. A guess about a container that the runtime does not know counts as no report of it,
// unless the status has its ID: at its start, a kubelet makes such a guess about the container that it last reported.
func Unstarted(o *v1.Pod) bool {
	ran := func(c v1.ContainerStatus) bool {
		end := c.State.Terminated
		return c.State.Running != nil || end != nil && end.Reason != statusUnknown ||
			c.LastTerminationState.Terminated != nil || c.RestartCount > 0 || c.ContainerID != ""
	}
	mayBe := o.Status.Phase == "" || o.Status.Phase == v1.PodPending || o.Status.Phase == v1.PodFailed
	return mayBe && !anyOf(&o.Status, ran)
}

// sameRun reports whether the last run of a container is the one that has ended, according to its runtime. A kubelet
// reports that of a container which it waits to restart. For a container that it does not find, it has no containerID.
func sameRun(c v1.ContainerStatus) bool {
	last := c.LastTerminationState.Terminated
	return c.ContainerID != "" && last != nil && last.ContainerID == c.ContainerID
}

// refused reports whether the kubelet may have refused the pod. It gives the reason Evicted also to pods that it ends,
// then with the condition DisruptionTarget (pkg/kubelet/eviction).
func refused(o *v1.Pod) bool {
	ends := slices.Contains(endedByKubelet, o.Status.Reason) || o.Status.Reason == deadlineExceeded && !Unstarted(o) ||
		o.Status.Reason == evicted && slices.ContainsFunc(o.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.DisruptionTarget && c.Reason == v1.PodReasonTerminationByKubelet
		})
	return o.Status.Reason != "" && !ends
}

// writesPhase reports whether an entry of managedFields shows that a kubelet wrote status.phase. A write of an
// unchanged value does not change the owner of a field.
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

// Finished reports whether the kubelet reports the end of a terminating pod, so that it starts no container any more.
// The phase Failed that the pod garbage collector writes is no such report.
func (p Pod) Finished() bool { return p.Terminating && p.Final && !p.Running && p.kubeletSays() }

// Completed reports whether the kubelet reports the end of a pod that was not deleted, such as a pod of a Job. Its
// volumes may still be mounted for a moment.
func (p Pod) Completed() bool {
	return !p.Terminating && p.Final && !p.Running && p.Reported && (p.Succeeded || p.PhaseByKubelet)
}

// kubeletSays reports whether the kubelet itself has reported the end of the pod.
//
// A kubelet writes a final phase only once no container of the pod can run, and starts none after that (mergePodStatus
// in pkg/kubelet/status). A phase that it wrote before the deletion counts too, because the kubelet does not write
// again when a pod is deleted that has ended by itself, such as a pod of a Job.
//
// If another program wrote the phase first, the kubelet does not write it again. A kubelet that tracks generations has
// seen the deletion once it has observed the generation, which the deletion raised. It starts no container from then
// on, except one that it was about to start for the pod as it was before (SetContainerReadiness in pkg/kubelet/status
// takes the newer pod). An older kubelet leaves only the reason of the condition as a trace, unless the pod ended
// during init or without its image.
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

// Ending reports whether the kubelet has seen the deletion of the pod and last reported a running container. This is
// known only of kubelets that track generations.
func (p Pod) Ending() bool {
	return p.Terminating && p.Running && p.ObservedGeneration != 0 && p.ObservedGeneration == p.Generation
}

// UsesVolumes reports whether processes of the pod may use its volumes, now or once its kubelet starts them: the pod is
// bound to a node and has not ended. For a held pod only the report of its kubelet counts as an end, and for a held pod
// that was deleted only its release.
func (p Pod) UsesVolumes() bool {
	switch {
	case p.Node == "":
		return false
	case p.Held:
		return !p.Completed()
	}
	return !p.Final
}

// ShutDown reports whether the pod is terminating without a grace period, after a force deletion or once its kubelet is
// done with it, and is not held, so that only other finalizers keep its object.
func (p Pod) ShutDown() bool { return p.Terminating && p.GraceZero && !p.Held }
