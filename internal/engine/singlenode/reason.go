package singlenode

import "github.com/csi-reclaimer/csi-reclaimer/internal/reasons"

// Reason is the reason of a decision. The same word appears as the reason of an Event, a value in the log, and a label
// of the metrics. Its Sentence has the meaning.
type Reason string

// Reasons to remove the gate of a pod.
const (
	ReasonAcquired Reason = "LocksAcquired"
	ReasonNotAsked Reason = "NotAsked"
)

// Reasons to keep the gate of a pod.
const (
	ReasonClaimInUse       Reason = "ClaimInUse"
	ReasonUsedWithoutLock  Reason = "UsedWithoutLock"
	ReasonClaimMissing     Reason = "ClaimMissing"
	ReasonClaimTerminating Reason = "ClaimTerminating"
	ReasonClaimOfOther     Reason = "ClaimOfOtherPod"
	ReasonNotHeld          Reason = "NotHeld"
	ReasonOtherGates       Reason = "OtherSchedulingGates"
)

// Reasons to leave a pod alone.
const (
	ReasonNotGated Reason = "NotGated"
	ReasonPodEnded Reason = "PodEnded"
)

// Reasons to free the lock of a claim.
const (
	ReasonHolderGone      Reason = "HolderGone"
	ReasonHolderCompleted Reason = "HolderCompleted"
	ReasonVolumeFenced    Reason = "VolumeFenced"
	ReasonLockDamaged     Reason = "LockDamaged"
)

// Reasons to keep a lock, and Free for a claim without one.
const (
	ReasonFree                Reason = "Free"
	ReasonHolderRuns          Reason = "HolderRuns"
	ReasonHolderWaits         Reason = "HolderWaits"
	ReasonHolderUnschedulable Reason = "HolderUnschedulable"
	ReasonHolderFailed        Reason = "HolderFailed"
	ReasonHolderTerminating   Reason = "HolderTerminating"
	ReasonHolderUnreachable   Reason = "HolderUnreachable"
	ReasonWaitsForUnmount     Reason = "WaitsForUnmount"
)

// ReasonUninstalled is the reason to remove gates and locks when volume-guard is uninstalled.
const (
	ReasonUninstalled Reason = "Uninstalled"
)

// Reasons that arise when a step is carried out.
const (
	ReasonAPIReadFailed  Reason = "APIReadFailed"
	ReasonAPIWriteFailed Reason = "APIWriteFailed"
	ReasonDryRun         Reason = "DryRun"
)

// table has a row for every reason, in the order of their declaration.
var table = reasons.NewTable([]reasons.Row[Reason]{
	{Reason: ReasonAcquired, Sentence: "The pod has the locks of its claims, and can be scheduled."},
	{Reason: ReasonNotAsked, Sentence: "Nothing asks for a lock of the claims of the pod. It can be scheduled."},
	{Reason: ReasonClaimInUse, Severity: reasons.Normal,
		Sentence: "The pod is not scheduled, because another pod has the lock of its claim."},
	{Reason: ReasonUsedWithoutLock, Severity: reasons.Warning,
		Sentence: "The pod is not scheduled, because another pod uses its claim without the lock: it was created before " +
			"the namespace had the label " + Label + ", or somebody has removed its scheduling gate. The pod is scheduled " +
			"once that one has ended."},
	{Reason: ReasonClaimMissing, Severity: reasons.Normal,
		Sentence: "The pod is not scheduled, because its claim does not exist."},
	{Reason: ReasonClaimTerminating, Severity: reasons.Normal,
		Sentence: "The pod is not scheduled, because its claim is being deleted. Delete the pod, or create the claim again " +
			"once it is gone."},
	{Reason: ReasonClaimOfOther, Severity: reasons.Warning,
		Sentence: "The pod is not scheduled, because the claim of its ephemeral volume belongs to something else."},
	{Reason: ReasonNotHeld, Severity: reasons.Warning,
		Sentence: "The pod is not scheduled, because it is not held: without the finalizer csi-reclaimer.io/running, its " +
			"object can go before its processes. The namespace needs the label csi-reclaimer.io/pod-safety=enforce, and " +
			"volume-guard the controller pod-safety."},
	{Reason: ReasonOtherGates, Severity: reasons.Normal,
		Sentence: "The pod is not scheduled, because it has other scheduling gates, too. It gets the locks of its claims " +
			"once these are removed."},
	{Reason: ReasonNotGated, Sentence: "The pod does not have the scheduling gate."},
	{Reason: ReasonPodEnded, Sentence: "The pod is being deleted, or has ended, and is not scheduled any more."},
	{Reason: ReasonHolderGone, Sentence: "The pod that had the lock does not exist any more."},
	{Reason: ReasonHolderCompleted, Sentence: "The processes of the pod that had the lock have ended."},
	{Reason: ReasonVolumeFenced, Severity: reasons.Normal,
		Sentence: "A fence keeps the node of the pod that had the lock from the volume."},
	{Reason: ReasonLockDamaged, Severity: reasons.Warning,
		Sentence: "The lock of the claim named no pod that uses the claim: somebody has changed the annotation " +
			LockAnnotation + ", or copied the claim together with it."},
	{Reason: ReasonFree, Sentence: "No pod has the lock of the claim."},
	{Reason: ReasonHolderRuns, Sentence: "The pod that has the lock uses the claim."},
	{Reason: ReasonHolderWaits, Sentence: "The pod that has the lock waits to be scheduled."},
	{Reason: ReasonHolderUnschedulable, Severity: reasons.Warning,
		Sentence: "The pod that has the lock fits no node, and other pods wait for its claim meanwhile. Make room for it, " +
			"or delete it: kubectl delete pod."},
	{Reason: ReasonHolderFailed, Severity: reasons.Warning,
		Sentence: "The pod that has the lock has ended by its phase, and nothing shows that its processes have, as where a " +
			"node has refused it. Delete the pod: kubectl delete pod."},
	{Reason: ReasonHolderTerminating, Severity: reasons.Counted,
		Sentence: "The pod that has the lock is terminating, and its processes may run."},
	{Reason: ReasonHolderUnreachable, Severity: reasons.Warning,
		Sentence: "The node of the pod that has the lock is not Ready, and the processes of the pod may run on. If it is " +
			"terminating, it is released when the node returns, is fenced, or is deleted. If you know that the processes " +
			"cannot run: kubectl reclaim confirm."},
	{Reason: ReasonWaitsForUnmount, Severity: reasons.Counted,
		Sentence: "The processes of the pod that has the lock have ended, and its volumes may still be mounted."},
	{Reason: ReasonUninstalled, Sentence: "What single-node has added is removed (--release-finalizers)."},
	{Reason: ReasonAPIReadFailed, Severity: reasons.Warning,
		Sentence: "A read from the API server that the decision needs failed; volume-guard tries again."},
	{Reason: ReasonAPIWriteFailed, Severity: reasons.Warning,
		Sentence: "A write to the API server failed; volume-guard tries again."},
	{Reason: ReasonDryRun, Severity: reasons.Normal, Sentence: "Dry run, nothing is changed."},
})

// Reasons returns every reason, in the order of their declaration.
func Reasons() []Reason { return table.Reasons() }

// Sentence returns the meaning of the reason and possible remedies.
func (r Reason) Sentence() string { return r.About().Sentence }

// EventType returns Normal or Warning, empty for a reason without Events.
func (r Reason) EventType() string { return r.About().Severity.EventType() }

// Waits reports whether an object with this reason counts as waiting.
func (r Reason) Waits() bool { return r.About().Severity.Waits() }

// About returns the sentence and severity of the reason, the zero value for an unknown reason.
func (r Reason) About() reasons.About { return table.About(r) }
