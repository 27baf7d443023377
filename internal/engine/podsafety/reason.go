package podsafety

import (
	"fmt"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// Reason is the reason of a decision, and Sentence returns its meaning. The same word is the reason of Events, a value
// in the log and a label of the metrics.
type Reason string

// Evidence that no process of a pod runs: the reasons to remove the finalizer.
const (
	ReasonFinished     Reason = "Finished"
	ReasonNeverBound   Reason = "NeverBound"
	ReasonNodeGone     Reason = "NodeGone"
	ReasonNodeFenced   Reason = "NodeFenced"
	ReasonOutOfService Reason = "OutOfService"
	ReasonConfirmed    Reason = "Confirmed"
)

// Reasons for leaving a pod alone.
const (
	ReasonNothingToHold     Reason = "NothingToHold"
	ReasonNotTerminating    Reason = "NotTerminating"
	ReasonFinalizersRemoved Reason = "FinalizersRemoved"
)

// Reasons why a pod that is terminating is held.
const (
	ReasonProcessesMayRun       Reason = "ProcessesMayRun"
	ReasonEndOverdue            Reason = "EndOverdue"
	ReasonEndNotReported        Reason = "EndNotReported"
	ReasonWaitsForUnmount       Reason = "WaitsForUnmount"
	ReasonUnmountOverdue        Reason = "UnmountOverdue"
	ReasonVolumesFenced         Reason = "VolumesFenced"
	ReasonNodeUnreachable       Reason = "NodeUnreachable"
	ReasonNodeRecentlyGone      Reason = "NodeRecentlyGone"
	ReasonNodeGoneDuringEnd     Reason = "NodeGoneDuringEnd"
	ReasonOutOfServiceNodeReady Reason = "OutOfServiceNodeReady"
	ReasonConfirmationMismatch  Reason = "ConfirmationMismatch"
	ReasonGracePeriodRunning    Reason = "GracePeriodRunning"
)

// Reasons for acting.
const (
	ReasonHold     Reason = "Hold"
	ReasonOrphaned Reason = "Orphaned"
)

// Reasons that only the execution of a step finds.
const (
	ReasonAPIReadFailed  Reason = "APIReadFailed"
	ReasonAPIWriteFailed Reason = "APIWriteFailed"
	ReasonDryRun         Reason = "DryRun"
)

// table has a row for every reason, in the order of their declaration.
var table = reasons.NewTable([]reasons.Row[Reason]{
	{Reason: ReasonFinished, Sentence: "The kubelet reports that the processes of the pod have ended."},
	{Reason: ReasonNeverBound, Sentence: "The pod was never bound to a node, so it has no processes."},
	{Reason: ReasonNodeGone, Severity: reasons.Normal,
		Sentence: "The Node of the pod was deleted, and nothing has been heard of its kubelet since."},
	{Reason: ReasonNodeFenced, Severity: reasons.Normal,
		Sentence: "The node is fenced: it is proven that no process of the pod runs there."},
	{Reason: ReasonOutOfService, Severity: reasons.Normal,
		Sentence: "The node is not Ready, and somebody has declared by the taint node.kubernetes.io/out-of-service that it " +
			"is shut down."},
	{Reason: ReasonConfirmed, Severity: reasons.Warning,
		Sentence: "Somebody has confirmed, by the annotation " + objects.ConfirmAnnotation + ", that the processes of the " +
			"pod cannot run. If they do run, a replacement runs beside them."},
	{Reason: ReasonNothingToHold, Sentence: "The pod is not held."},
	{Reason: ReasonNotTerminating, Sentence: "The pod is held until its processes have ended; nobody has deleted it."},
	{Reason: ReasonFinalizersRemoved,
		Sentence: "The finalizers of volume-guard are removed from all pods (--release-finalizers)."},
	{Reason: ReasonProcessesMayRun, Severity: reasons.Counted,
		Sentence: "The pod is terminating, and its kubelet has not reported yet that its processes have ended."},
	{Reason: ReasonEndOverdue, Severity: reasons.Warning,
		Sentence: "The grace period of the pod passed more than a minute ago, and its kubelet has not reported that its " +
			"processes have ended. Its log says why. A reboot of the node ends them."},
	{Reason: ReasonEndNotReported, Severity: reasons.Warning,
		Sentence: "The phase of the pod is final, but the kubelet has not reported an end of each of its containers: it " +
			"refused the pod, it does not find a container that ran (ContainerStatusUnknown), or another program set the " +
			"phase. If you know that the processes cannot run: kubectl reclaim delete-pod --force."},
	{Reason: ReasonWaitsForUnmount, Severity: reasons.Counted,
		Sentence: "The processes of the pod have ended, and its volumes may still be mounted."},
	{Reason: ReasonUnmountOverdue, Severity: reasons.Warning,
		Sentence: "The processes of the pod ended more than a minute ago, and nothing shows that its volumes are " +
			"unmounted. The logs of the kubelet and of the driver's node plugin say why. A reboot of the node unmounts them."},
	{Reason: ReasonVolumesFenced, Severity: reasons.Warning,
		Sentence: "The processes of the pod have ended, and a fence keeps its node from volumes, or may, so that an " +
			"unmount does not end. The pod is released once the node is rebooted, or the fence has ended and the volumes are " +
			"unmounted. If you know that they are not mounted: kubectl reclaim delete-pod --force."},
	{Reason: ReasonNodeUnreachable, Severity: reasons.Warning,
		Sentence: "The pod is terminating, its node is not Ready, and its processes may run on, or its volumes be mounted. " +
			"The pod is released when the node returns, when it is fenced or tainted as node.kubernetes.io/out-of-service, " +
			"or, unless its kubelet was ending it, when its Node object is deleted. If you know that the processes cannot " +
			"run: kubectl reclaim delete-pod."},
	{Reason: ReasonNodeRecentlyGone, Severity: reasons.Normal,
		Sentence: "The Node of the pod does not exist, and its kubelet has had too little time to show that it runs."},
	{Reason: ReasonNodeGoneDuringEnd, Severity: reasons.Warning,
		Sentence: "The Node of the pod was deleted while its kubelet ended the pod. Without a Node the kubelet is silent, " +
			"whether it works or not. The pod is released when the kubelet reports its end, or a fence of the node is proven. " +
			"If you know that the processes cannot run: kubectl reclaim delete-pod --force."},
	{Reason: ReasonOutOfServiceNodeReady, Severity: reasons.Warning,
		Sentence: "The node has the taint node.kubernetes.io/out-of-service, but nothing shows that it is down. Kubernetes " +
			"detaches volumes under running processes on such a node. Remove the taint, or shut the node down."},
	{Reason: ReasonConfirmationMismatch, Severity: reasons.Warning,
		Sentence: "The annotation " + objects.ConfirmAnnotation + " does not have the UID of this pod, so it confirms " +
			"nothing."},
	{Reason: ReasonGracePeriodRunning, Severity: reasons.Normal,
		Sentence: "A force deletion is confirmed, but the pod was deleted with a grace period, which has not passed."},
	{Reason: ReasonHold, Sentence: "The pod is held until its processes have ended."},
	{Reason: ReasonOrphaned, Severity: reasons.Normal,
		Sentence: "The Node of the pod was deleted, and nothing has been heard of its kubelet since: the pod is deleted."},
	{Reason: ReasonAPIReadFailed, Severity: reasons.Warning,
		Sentence: "A read from the API server that the decision needs failed; volume-guard tries again."},
	{Reason: ReasonAPIWriteFailed, Severity: reasons.Warning,
		Sentence: "A write to the API server failed; volume-guard tries again."},
	{Reason: ReasonDryRun, Severity: reasons.Normal, Sentence: "Dry run, nothing is changed."},
})

// Reasons returns every reason, in the order of their declaration.
func Reasons() []Reason { return table.Reasons() }

// Sentence returns the meaning of the reason, and the action that a person can take.
func (r Reason) Sentence() string { return r.About().Sentence }

// EventType returns the type of the Events with this reason, Normal or Warning, or "" for a reason without Events.
func (r Reason) EventType() string { return r.About().Severity.EventType() }

// Waits reports whether a pod with this reason counts as waiting: it is terminating and held.
func (r Reason) Waits() bool { return r.About().Severity.Waits() }

// About returns the meaning and severity of the reason, or the zero value for an unknown word.
func (r Reason) About() reasons.About { return table.About(r) }

// Evidence reports whether the reason is evidence that no process of a pod runs.
func (r Reason) Evidence() bool {
	switch r {
	case ReasonFinished, ReasonNeverBound, ReasonNodeGone, ReasonNodeFenced, ReasonOutOfService, ReasonConfirmed:
		return true
	default:
		return false
	}
}

// Detail returns the details of this pod beyond the reason's sentence, or "".
func (f Facts) Detail(r Reason) string {
	switch r {
	case ReasonNodeUnreachable, ReasonNodeGone, ReasonNodeFenced, ReasonOutOfService, ReasonNodeRecentlyGone,
		ReasonNodeGoneDuringEnd,
		ReasonOutOfServiceNodeReady, ReasonOrphaned, ReasonProcessesMayRun, ReasonEndNotReported, ReasonEndOverdue,
		ReasonUnmountOverdue, ReasonVolumesFenced:
		return fmt.Sprintf("It is node %s.", f.Pod.Node)
	case ReasonGracePeriodRunning:
		return fmt.Sprintf("It passes at %s. To end it now: kubectl delete pod -n %s %s --force.",
			f.Pod.GraceEnds.UTC().Format(time.RFC3339), f.Pod.Namespace, f.Pod.Name)
	default:
		return ""
	}
}
