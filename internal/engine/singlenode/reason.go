package singlenode

import "github.com/csi-reclaimer/csi-reclaimer/internal/reasons"

// Reason is the reason of a decision. The same word appears as the reason of an Event, a value in the log, and a label
// of the metrics. Its Sentence has the meaning.
type Reason = reasons.Word[family]

// family gives a Reason the meaning that this package declares.
type family struct{}

// About implements reasons.Family.
func (family) About(word string) reasons.About { return table.About(word) }

var table reasons.Table[family]

// Reasons to remove the gate of a pod.
var (
	ReasonAcquired = table.Silent("LocksAcquired", "The pod has the locks of its claims, and can be scheduled.")
	ReasonNotAsked = table.Silent("NotAsked", "The claims of the pod need no lock. It can be scheduled.")
)

// Reasons to keep the gate of a pod.
var (
	ReasonClaimInUse = table.Normal("ClaimInUse",
		"The pod is not scheduled, because another pod has the lock of its claim.")
	ReasonUsedWithoutLock = table.Warning("UsedWithoutLock",
		"The pod is not scheduled, because another pod uses its claim without the lock: it was created before the "+
			"namespace had the label "+Label+", or its scheduling gate was removed. The pod is scheduled once the other pod "+
			"has ended.")
	ReasonClaimMissing     = table.Normal("ClaimMissing", "The pod is not scheduled, because its claim does not exist.")
	ReasonClaimTerminating = table.Normal("ClaimTerminating",
		"The pod is not scheduled, because its claim is being deleted. Delete the pod, or create the claim again once it "+
			"is gone.")
	ReasonClaimOfOther = table.Warning("ClaimOfOtherPod",
		"The pod is not scheduled, because the claim of its ephemeral volume belongs to something else.")
	ReasonNotHeld = table.Warning("NotHeld",
		"The pod is not scheduled, because it is not held: without the finalizer csi-reclaimer.io/running, its object can "+
			"go before its processes. The namespace needs the label csi-reclaimer.io/pod-safety=enforce, and volume-guard the "+
			"controller pod-safety.")
	ReasonOtherGates = table.Normal("OtherSchedulingGates",
		"The pod is not scheduled, because it has other scheduling gates, too. It gets the locks of its claims once these "+
			"are removed.")
)

// Reasons to leave a pod alone.
var (
	ReasonNotGated = table.Silent("NotGated", "The pod does not have the scheduling gate.")
	ReasonPodEnded = table.Silent("PodEnded", "The pod is being deleted, or has ended, and is not scheduled any more.")
)

// Reasons to free the lock of a claim.
var (
	ReasonHolderGone     = table.Silent("HolderGone", "The pod that had the lock does not exist any more.")
	ReasonHolderReleased = table.Silent("HolderReleased",
		"The pod that had the lock is released, and other finalizers keep its object. No other pod can use the claim, "+
			"which is being deleted, or the end of the pod is confirmed.")
	ReasonHolderCompleted = table.Silent("HolderCompleted", "The processes of the pod that had the lock have ended.")
	ReasonVolumeFenced    = table.Normal("VolumeFenced",
		"A fence keeps the node of the pod that had the lock from the volume.")
	ReasonLockDamaged = table.Warning("LockDamaged",
		"The lock of the claim named no pod that uses the claim: the annotation "+LockAnnotation+
			" was changed, or copied together with the claim.")
)

// Reasons to keep a lock, and Free for a claim without one.
var (
	ReasonFree                = table.Silent("Free", "No pod has the lock of the claim.")
	ReasonHolderRuns          = table.Silent("HolderRuns", "The pod that has the lock uses the claim.")
	ReasonHolderWaits         = table.Silent("HolderWaits", "The pod that has the lock waits to be scheduled.")
	ReasonHolderUnschedulable = table.Warning("HolderUnschedulable",
		"The pod that has the lock fits no node, and other pods that need its claim would wait. Make room for it, or "+
			"delete it: kubectl delete pod.")
	ReasonHolderFailed = table.Warning("HolderFailed",
		"The phase of the pod that has the lock is final, but nothing shows that its processes have ended, for example "+
			"after its node refused it. Delete the pod: kubectl delete pod. If it then stays as EndNotReported, confirm its "+
			"end: kubectl reclaim delete-pod --force.")
	ReasonHolderTerminating = table.Counted("HolderTerminating",
		"The pod that has the lock is terminating, and its processes may run.")
	ReasonHolderStays = table.Warning("HolderStays",
		"The pod that has the lock is terminating, is not held, and stays: its kubelet has not ended it, or other "+
			"finalizers keep its object, with which the lock goes. If you know that its processes cannot run: kubectl reclaim "+
			"confirm.")
	ReasonHolderUnreachable = table.Warning("HolderUnreachable",
		"The node of the pod that has the lock is not Ready, and the processes of the pod may run on, or its volumes be "+
			"mounted. If it is terminating, it is released when the node returns, is fenced, or is deleted. If you know that "+
			"the processes cannot run: kubectl reclaim confirm.")
	ReasonWaitsForUnmount = table.Counted("WaitsForUnmount",
		"The processes of the pod that has the lock have ended, and its volumes may still be mounted.")
)

// ReasonUninstalled is the reason to remove gates and locks when volume-guard is uninstalled.
var (
	ReasonUninstalled = table.Silent("Uninstalled", "The gates and locks of single-node are removed "+
		"(--release-finalizers).")
)

// Reasons that arise when a step is carried out.
var (
	ReasonAPIReadFailed, ReasonAPIWriteFailed = table.APIFailures("decision", "volume-guard")
	ReasonDryRun                              = table.DryRun()
)

// Reasons returns every reason, in the order of their declaration.
func Reasons() []Reason { return table.Reasons() }
