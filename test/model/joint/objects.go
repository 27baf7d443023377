package joint

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
)

// Names on the objects.
const (
	namespace, volumeName, agentName = "ns", "data", "agent"
	lateName                         = "late"
	driver                           = "nfs.example.com"
	fenceUID                         = types.UID("fence")
)

func uidOf(slot int) types.UID { return types.UID("pod-" + strconv.Itoa(slot)) }

func podName(slot int) string { return "web-" + strconv.Itoa(slot) }

// claimName returns the name of the claim, which for a generic ephemeral volume is fixed.
func (w *World) claimName() string {
	if w.Ephemeral {
		return podName(0) + "-" + volumeName
	}
	return volumeName
}

// source returns the volume of a pod.
func (w *World) source() v1.VolumeSource {
	if w.Ephemeral {
		return v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}
	}
	return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: w.claimName()}}
}

// slotOf returns the number of the pod with a UID, -1 for none.
func slotOf(uid types.UID) int {
	for slot := range maxPods {
		if uidOf(slot) == uid {
			return slot
		}
	}
	return -1
}

func nodeName(n uint8) string { return [...]string{"", "a", "b"}[n] }

func bootID(n uint8) string { return "boot-" + strconv.Itoa(int(n)) }

// machineID returns the ID that distinguishes machines, empty in a world without it.
func (w *World) machineID(n uint8) string {
	if w.Without == TheMachine {
		return ""
	}
	return "machine-" + strconv.Itoa(int(n))
}

// number returns the number at the end of a boot ID or a machine ID, 0 for an empty ID.
func number(id string) uint8 {
	if id == "" {
		return 0
	}
	return id[len(id)-1] - '0'
}

// podObject returns a pod as the API server has it.
func (w *World) podObject(slot int, p pod, now time.Time) *v1.Pod {
	o := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: podName(slot), UID: uidOf(slot), ResourceVersion: "1",
			Generation: 1},
		Spec: v1.PodSpec{
			NodeName: nodeName(p.node), Containers: []v1.Container{{Name: "web"}},
			Volumes: []v1.Volume{{Name: volumeName, VolumeSource: w.source()}},
		},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
	if p.gated {
		o.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: singlenode.Gate}}
	}
	if p.held {
		o.Finalizers = []string{objects.RunningFinalizer}
	}
	if p.foreground {
		o.Finalizers = append(o.Finalizers, metav1.FinalizerDeleteDependents)
	}
	if p.confirmed {
		o.Annotations = map[string]string{objects.ConfirmAnnotation: string(o.UID)}
	}
	if p.terminating { // the grace period is over by when that matters
		grace := int64(30)
		if p.graceZero {
			grace = 0
		}
		o.DeletionTimestamp, o.DeletionGracePeriodSeconds = &metav1.Time{Time: now.Add(-time.Second)}, &grace
		o.Generation = 2
	}
	setStatus(o, p)
	return o
}

func setStatus(o *v1.Pod, p pod) {
	state, before, observed, restarts := v1.ContainerState{}, v1.ContainerState{}, int64(1), int32(0)
	switch p.statuses {
	case running:
		o.Status.Phase, state.Running = v1.PodRunning, &v1.ContainerStateRunning{}
	case waiting:
		o.Status.Phase, state.Waiting, restarts = v1.PodRunning, &v1.ContainerStateWaiting{}, 1
	case over:
		state.Terminated = &v1.ContainerStateTerminated{}
	case lost:
		state.Terminated = &v1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown"}
		before = state // the kubelet has found the status running, and lost the container
	case noStatus:
	}
	if p.observed {
		observed = 2
	}
	if p.statuses != noStatus {
		o.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "web", State: state, LastTerminationState: before,
			RestartCount: restarts}}
		o.Status.Conditions = []v1.PodCondition{{Type: v1.ContainersReady, ObservedGeneration: observed}}
	}
	if p.ended {
		o.Status.Phase = v1.PodFailed
		if p.succeeded {
			o.Status.Phase = v1.PodSucceeded
		}
		manager := "kube-controller-manager"
		if p.byKubelet {
			manager = "kubelet"
		}
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate,
			Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:phase":{}}}`)}}
	}
}

// claimObject returns the claim as the API server has it.
func (w *World) claimObject(at claim, now time.Time) *v1.PersistentVolumeClaim {
	o := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: w.claimName(),
		UID: "claim", ResourceVersion: "1"}}
	if w.Ephemeral {
		owner := w.podObject(0, pod{}, now)
		o.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, v1.SchemeGroupVersion.WithKind("Pod"))}
	}
	if at.lock > 0 {
		slot := int(at.lock) - 1
		lock := singlenode.Lock{UID: uidOf(slot), Name: podName(slot)}
		o.Annotations = map[string]string{singlenode.LockAnnotation: lock.String()}
	}
	if at.kept {
		o.Finalizers = append(o.Finalizers, singlenode.Finalizer)
	}
	if at.protected {
		o.Finalizers = append(o.Finalizers, pvc.Finalizer)
	}
	if at.held {
		o.Finalizers = append(o.Finalizers, objects.RunningFinalizer)
	}
	if at.terminating {
		o.DeletionTimestamp = &metav1.Time{Time: now}
	}
	return o
}

// nodeObject returns Node a as the API server has it.
func (w *World) nodeObject(n node) *v1.Node {
	ready := v1.ConditionUnknown
	if n.ready {
		ready = v1.ConditionTrue
	}
	o := &v1.Node{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1"}, Status: v1.NodeStatus{
		Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: ready}},
		NodeInfo:   v1.NodeSystemInfo{BootID: bootID(n.shown), MachineID: w.machineID(n.shownMachine)},
	}}
	for value, has := range map[string]bool{"nodeshutdown": n.taint, objects.OwnTaintValue: n.own} {
		if has {
			o.Spec.Taints = append(o.Spec.Taints, v1.Taint{Key: v1.TaintNodeOutOfService, Value: value})
		}
	}
	if n.shunned {
		o.Spec.Taints = append(o.Spec.Taints, v1.Taint{Key: objects.VolumesFencedTaint, Effect: v1.TaintEffectNoSchedule})
	}
	return o
}

// The current and the former resourceVersion of a Lease.
const currentLease, formerLease = "current", "former"

// fencedDriver is the driver of the volumes that a fence covers.
func (w *World) fencedDriver() string {
	if w.Uncovered {
		return "other." + driver
	}
	return driver
}

// agents returns the agents of the fences of a world.
func (w *World) agents() []v1alpha1.Agent {
	all := []v1alpha1.Agent{w.agent(agentName, w.Agent)}
	if w.Tried {
		all = append(all, w.agent(lateName, Volumes))
	}
	return all
}

// agent returns an agent of this kind.
func (w *World) agent(name string, kind Agent) v1alpha1.Agent {
	a := v1alpha1.Agent{Name: name, Timeout: metav1.Duration{Duration: time.Hour}}
	switch kind {
	case Volumes:
		a.Covers = v1alpha1.CoversVolumes
		a.NetworkFence = &v1alpha1.NetworkFenceAgent{Driver: w.fencedDriver(), Volumes: v1alpha1.VolumesAll}
	case Power:
		a.Covers, a.Job = v1alpha1.CoversUntilUnfenced, &v1alpha1.JobAgent{Undo: true}
	case Reboot:
		a.Covers, a.Job = v1alpha1.CoversReboot, &v1alpha1.JobAgent{}
	case NoAgent:
	}
	return a
}

// fenceObject returns the NodeFence of node a as the API server has it, at the time now.
func (w *World) fenceObject(f fence, now time.Time) *v1alpha1.NodeFence {
	o := &v1alpha1.NodeFence{ObjectMeta: metav1.ObjectMeta{Name: nodeName(nodeA), UID: fenceUID, ResourceVersion: "1"}}
	o.Spec = v1alpha1.NodeFenceSpec{Agents: w.agents(), Unfence: v1alpha1.UnfenceWhenReturned}
	if f.now || f.terminating && w.Without == TheReboot {
		o.Spec.Unfence = v1alpha1.UnfenceNow
	}
	if f.finalized {
		o.Finalizers = []string{"csi-reclaimer.io/fence"}
	}
	if f.terminating {
		o.DeletionTimestamp = &metav1.Time{Time: now}
	}
	for _, c := range []struct {
		name string
		is   condition
	}{{v1alpha1.ConditionFenced, f.fenced}, {v1alpha1.ConditionReleased, f.released},
		{v1alpha1.ConditionReturned, f.returned}} {
		status := metav1.ConditionFalse
		if c.is == isTrue {
			status = metav1.ConditionTrue
		}
		why := ""
		if f.vacant && c.name == v1alpha1.ConditionFenced {
			why = string(fencing.ReasonNodeDeleted)
		}
		if c.is != noCondition { // it is long ago: the object of a fence that has returned goes at once
			o.Status.Conditions = append(o.Status.Conditions, metav1.Condition{Type: c.name, Status: status, Reason: why,
				LastTransitionTime: metav1.NewTime(now.Add(-48 * time.Hour))})
		}
	}
	o.Status.Attempts = w.tried(f, now)
	number := int32(len(o.Status.Attempts)) + 1
	if f.begun {
		o.Status.Attempts = append(o.Status.Attempts, w.attempt(f, number, now))
	}
	if f.proven {
		p := &v1alpha1.Proof{Attempt: number, Agent: agentName, Covers: w.agents()[0].Covers, BootID: bootID(f.proofBoot),
			MachineID: w.machineID(f.proofMachine), LeaseVersion: currentLease}
		if f.renewed {
			p.LeaseVersion = formerLease
		}
		if w.Agent == Volumes {
			p.Volumes = []v1alpha1.CoveredVolumes{{Agent: agentName, Driver: w.fencedDriver(), Volumes: v1alpha1.VolumesAll}}
		}
		o.Status.Proof = p
	}
	return o
}

// results are the results of attempts by their numbers.
var results = []v1alpha1.Result{"", v1alpha1.ResultProven, v1alpha1.ResultFailed, v1alpha1.ResultTimedOut,
	v1alpha1.ResultCanceled, v1alpha1.ResultContradicted}

// tried returns the attempts that have ended before the fence begins: one of its agent, and one of the late agent.
func (w *World) tried(f fence, now time.Time) []v1alpha1.Attempt {
	if !w.Tried {
		return nil
	}
	long, at := metav1.NewTime(now.Add(-time.Hour)), metav1.NewTime(now)
	late := v1alpha1.Attempt{Number: 2, Agent: lateName, Result: v1alpha1.ResultTimedOut, StartedAt: long, EndedAt: &long}
	if f.undoingLate {
		late.UndoTry, late.UndoTriedAt = 1, &at
	}
	if f.undoneLate {
		late.UndoneAt = &at
	}
	return []v1alpha1.Attempt{{Number: 1, Agent: agentName, Result: v1alpha1.ResultFailed, StartedAt: long,
		EndedAt: &long}, late}
}

func (w *World) attempt(f fence, number int32, now time.Time) v1alpha1.Attempt {
	a := v1alpha1.Attempt{Number: number, Agent: agentName, Result: results[f.result], BootID: bootID(f.boot),
		MachineID: w.machineID(f.machine), StartedAt: metav1.NewTime(now), ObjectSeen: f.seen}
	for slot, terminating := range f.covers {
		if terminating {
			a.TerminatingPods = append(a.TerminatingPods, uidOf(slot))
		}
	}
	at := metav1.NewTime(now)
	if f.result != 0 {
		a.EndedAt = &at
	}
	if f.undoing {
		a.UndoTry, a.UndoTriedAt = 1, &at
	}
	if f.undone {
		a.UndoneAt = &at
	}
	return a
}

// fenceOf returns a NodeFence as node fencing reads it (FenceOf in its engine).
func fenceOf(o *v1alpha1.NodeFence) fencing.Fence {
	return fencing.Fence{Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation,
		Terminating: o.DeletionTimestamp != nil, Finalized: len(o.Finalizers) > 0, Spec: o.Spec, Status: o.Status}
}
