package podsafety

import (
	"fmt"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// Reason is the reason of a decision, and Sentence returns its meaning. The same word is the reason of Events, a value
// in the log and a label of the metrics.
type Reason = reasons.Word[family]

// family gives a Reason the meaning that this package declares.
type family struct{}

// About implements reasons.Family.
func (family) About(word string) reasons.About { return table.About(word) }

var table reasons.Table[family]

// Evidence that no process of a pod runs: the reasons to remove the finalizer.
var (
	ReasonFinished   = table.Silent("Finished", "The kubelet reports that the processes of the pod have ended.")
	ReasonNeverBound = table.Silent("NeverBound", "The pod was never bound to a node, so it has no processes.")
	ReasonNodeGone   = table.Normal("NodeGone",
		"The Node of the pod was deleted, and nothing has been heard of its kubelet since.")
	ReasonNodeFenced = table.Normal("NodeFenced",
		"The node is fenced: it is proven that no process of the pod runs there.")
	ReasonRefused = table.Normal("Refused",
		"The kubelet refused the pod and has no container of it, and no other machine has had the name of the node since "+
			"before the pod was bound to it.")
	ReasonOutOfService = table.Normal("OutOfService",
		"The node is not Ready, and the taint node.kubernetes.io/out-of-service declares that it is shut down.")
	ReasonConfirmed = table.Warning("Confirmed",
		"The annotation "+objects.ConfirmAnnotation+" confirms that the processes of the pod "+
			"cannot run. If they do run, a replacement runs beside them.")
)

// Reasons for leaving a pod alone.
var (
	ReasonNothingToHold  = table.Silent("NothingToHold", "The pod is not held.")
	ReasonNotTerminating = table.Silent("NotTerminating",
		"The pod is held until its processes have ended; it is not being deleted.")
	ReasonFinalizersRemoved = table.Silent("FinalizersRemoved",
		"The finalizers of volume-guard are removed from all pods (--release-finalizers).")
)

// Reasons why a pod that is terminating is held.
var (
	ReasonProcessesMayRun = table.Counted("ProcessesMayRun",
		"The pod is terminating, and its kubelet has not reported yet that its processes have ended.")
	ReasonEndOverdue = table.Warning("EndOverdue",
		"The grace period of the pod passed more than a minute ago, and its kubelet has not reported that its processes "+
			"have ended. Its log says why. A reboot of the node ends them.")
	ReasonEndNotReported = table.Warning("EndNotReported",
		"The phase of the pod is final, but the kubelet has not reported an end of each of its containers: it refused the "+
			"pod, it does not find a container that ran (ContainerStatusUnknown), or another program set the phase. If you "+
			"know that the processes cannot run: kubectl reclaim delete-pod --force.")
	ReasonWaitsForNodeStatus = table.Normal("WaitsForNodeStatus",
		"The kubelet refused the pod and has no container of it. The pod is released once the kubelet's next report of its "+
			"Node shows the same machine as before, after up to 5 minutes unless nodeStatusReportFrequency is set. If you "+
			"know that the processes cannot run: kubectl reclaim delete-pod --force.")
	ReasonWaitsForUnmount = table.Counted("WaitsForUnmount",
		"The processes of the pod have ended, and its volumes may still be mounted.")
	ReasonUnmountOverdue = table.Warning("UnmountOverdue",
		"The processes of the pod ended more than a minute ago, and nothing shows that its volumes are unmounted. The logs "+
			"of the kubelet and of the driver's node plugin say why. A reboot of the node unmounts them.")
	ReasonVolumesFenced = table.Warning("VolumesFenced",
		"The processes of the pod have ended, and a fence keeps its node from volumes, or may, so that an unmount does not "+
			"end. The pod is released once the node is rebooted or the fence has ended, and the volumes are unmounted. If it "+
			"waits after a reboot: kubectl reclaim unfence. If you know that they are not mounted: kubectl reclaim delete-pod "+
			"--force.")
	ReasonNodeUnreachable = table.Warning("NodeUnreachable",
		"The pod is terminating, its node is not Ready, and its processes may run on, or its volumes be mounted. The pod "+
			"is released when the node returns, when it is fenced or tainted as node.kubernetes.io/out-of-service, or, unless "+
			"its kubelet was ending it, when its Node object is deleted. If you know that the processes cannot run: kubectl "+
			"reclaim delete-pod --force.")
	ReasonNodeRecentlyGone = table.Normal("NodeRecentlyGone",
		"The Node of the pod does not exist, and its kubelet has had too little time to show that it runs.")
	ReasonNodeGoneDuringEnd = table.Warning("NodeGoneDuringEnd",
		"The Node of the pod was deleted while its kubelet ended the pod. Without a Node the kubelet is silent, whether it "+
			"works or not. The pod is released when the kubelet reports its end, or a fence of the node is proven. If you know "+
			"that the processes cannot run: kubectl reclaim delete-pod --force.")
	ReasonOutOfServiceNodeReady = table.Warning("OutOfServiceNodeReady",
		"The node has the taint node.kubernetes.io/out-of-service, but nothing shows that it is down. Kubernetes detaches "+
			"volumes under running processes on such a node. Remove the taint, or shut the node down.")
	ReasonConfirmationMismatch = table.Warning("ConfirmationMismatch",
		"The annotation "+objects.ConfirmAnnotation+" does not have the UID of this pod, so it confirms nothing.")
	ReasonGracePeriodRunning = table.Normal("GracePeriodRunning",
		"A force deletion is confirmed, but the pod was deleted with a grace period, which has not passed.")
)

// Reasons for acting.
var (
	ReasonHold     = table.Silent("Hold", "The pod is held until its processes have ended.")
	ReasonOrphaned = table.Normal("Orphaned",
		"The Node of the pod was deleted, and nothing has been heard of its kubelet since: the pod is deleted.")
)

// Reasons that only the execution of a step finds.
var (
	ReasonAPIReadFailed, ReasonAPIWriteFailed = table.APIFailures("decision", "volume-guard")
	ReasonDryRun                              = table.DryRun()
)

// Reasons returns every reason, in the order of their declaration.
func Reasons() []Reason { return table.Reasons() }

// Evidence reports whether the reason is evidence that no process of a pod runs.
func Evidence(r Reason) bool {
	switch r {
	case ReasonFinished, ReasonRefused, ReasonNeverBound, ReasonNodeGone, ReasonNodeFenced, ReasonOutOfService,
		ReasonConfirmed:
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
		ReasonUnmountOverdue, ReasonVolumesFenced, ReasonWaitsForNodeStatus, ReasonRefused:
		return fmt.Sprintf("It is node %s.", f.Pod.Node)
	case ReasonGracePeriodRunning:
		return fmt.Sprintf("It passes at %s. To end it now: kubectl delete pod -n %s %s --force.",
			f.Pod.GraceEnds.UTC().Format(time.RFC3339), f.Pod.Namespace, f.Pod.Name)
	default:
		return ""
	}
}
