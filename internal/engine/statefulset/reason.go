package statefulset

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// Reason is the reason of a decision. The same word appears as the reason of an Event, a value in the log, and a label
// of the metrics. Its Sentence has the meaning.
type Reason string

// Reasons to delete.
const (
	ReasonScaledDown      Reason = "ScaledDown"
	ReasonPodUsesOldClaim Reason = "PodUsesOldClaim"
)

// Reasons to change the mark and the owner references of a claim.
const (
	ReasonPolicyApplied Reason = "PolicyApplied"
	ReasonPolicyRemoved Reason = "PolicyRemoved"
	ReasonSetGone       Reason = "SetGone"
	ReasonUninstalled   Reason = "Uninstalled"
)

// Reasons to delay the deletion of a condemned claim.
const (
	ReasonScaleDownGrace        Reason = "ScaleDownGrace"
	ReasonPodRemains            Reason = "PodRemains"
	ReasonClaimHeld             Reason = "ClaimHeld"
	ReasonConflictingController Reason = "ConflictingController"
	ReasonOtherOwner            Reason = "OtherOwner"
	ReasonUsedByOtherPod        Reason = "UsedByOtherPod"
)

// Reasons to leave a claim alone.
const (
	ReasonNoClaim                 Reason = "NoClaim"
	ReasonNotManaged              Reason = "NotManaged"
	ReasonNamesCollide            Reason = "NamesCollide"
	ReasonSetTerminating          Reason = "SetTerminating"
	ReasonSetDeleted              Reason = "SetDeleted"
	ReasonOwnerGone               Reason = "OwnerGone"
	ReasonInUse                   Reason = "InUse"
	ReasonInRange                 Reason = "InRange"
	ReasonRetained                Reason = "Retained"
	ReasonNeverUsed               Reason = "NeverUsed"
	ReasonContested               Reason = "OwnerReferencesContested"
	ReasonOwnerReferenceMissing   Reason = "OwnerReferenceMissing"
	ReasonRetainedWhenDeleted     Reason = "RetainedWhenDeleted"
	ReasonNotOwned                Reason = "NotOwned"
	ReasonOrphaned                Reason = "Orphaned"
	ReasonClaimTerminating        Reason = "ClaimTerminating"
	ReasonPodUsesTerminatingClaim Reason = "PodUsesTerminatingClaim"
)

// Reasons about a set.
const (
	ReasonInvalidPolicy        Reason = "InvalidClaimRetention"
	ReasonAnnotationIgnored    Reason = "ClaimRetentionIgnored"
	ReasonNoTemplates          Reason = "NoVolumeClaimTemplates"
	ReasonSetComplete          Reason = "Complete"
	ReasonPodMissing           Reason = "PodMissing"
	ReasonOldClaimRemains      Reason = "OldClaimRemains"
	ReasonPodBoundBeforeVolume Reason = "PodBoundBeforeVolume"
	ReasonWoken                Reason = "Woken"
)

// Reasons that arise when a step is carried out.
const (
	ReasonAPIReadFailed  Reason = "APIReadFailed"
	ReasonAPIWriteFailed Reason = "APIWriteFailed"
	ReasonDryRun         Reason = "DryRun"
)

// table has a row for every reason, in the order of their declaration.
var table = reasons.NewTable([]reasons.Row[Reason]{
	{Reason: ReasonScaledDown, Severity: reasons.Normal, OnSet: true,
		Sentence: "The StatefulSet was scaled down, and its policy deletes the claims of replicas that are scaled away."},
	{Reason: ReasonPodUsesOldClaim, Severity: reasons.Warning, OnSet: true,
		Sentence: "The pod was created with a claim that is being deleted because the replica was scaled away before. The " +
			"pod is deleted, so that its replacement gets a new claim."},
	{Reason: ReasonPolicyApplied, Sentence: "The claim gets what the retention policy of its StatefulSet needs."},
	{Reason: ReasonPolicyRemoved,
		Sentence: "The retention policy of the StatefulSet keeps the claim; what volume-guard has added to it is removed."},
	{Reason: ReasonSetGone,
		Sentence: "The StatefulSet was deleted, and the claim stays; what volume-guard has added to it is removed."},
	{Reason: ReasonUninstalled,
		Sentence: "What volume-guard has added to claims and StatefulSets is removed (--release-finalizers)."},
	{Reason: ReasonScaleDownGrace, Severity: reasons.Normal,
		Sentence: "The replica of the claim was scaled away, and its pod is gone: the claim is deleted when the grace " +
			"period has passed. To keep it, scale up again, or set whenScaled to Retain."},
	{Reason: ReasonPodRemains, Severity: reasons.Counted,
		Sentence: "The replica of the claim was scaled away, and its pod is not gone yet."},
	{Reason: ReasonClaimHeld, Severity: reasons.Normal,
		Sentence: "The replica of the claim was scaled away, but the annotation " + HoldAnnotation + " keeps the claim."},
	{Reason: ReasonConflictingController, Severity: reasons.Warning, OnSet: true,
		Sentence: "Another controller owns the claim, so the retention policy of the StatefulSet is ignored for it. Remove " +
			"the owner reference of that controller, or delete the claim yourself."},
	{Reason: ReasonOtherOwner, Severity: reasons.Warning,
		Sentence: "The replica of the claim was scaled away, but the claim has an owner other than the StatefulSet and its " +
			"pods, and is kept. Remove that owner reference, or delete the claim yourself."},
	{Reason: ReasonUsedByOtherPod, Severity: reasons.Warning,
		Sentence: "The replica of the claim was scaled away, but another pod uses the claim. It is deleted after that pod."},
	{Reason: ReasonNoClaim, Sentence: "There is no such claim."},
	{Reason: ReasonNotManaged, Sentence: "The claim belongs to no StatefulSet."},
	{Reason: ReasonNamesCollide, Severity: reasons.Warning,
		Sentence: "The templates of more than one StatefulSet give the claim its name, so volume-guard keeps it. Give one " +
			"of the StatefulSets or templates another name."},
	{Reason: ReasonSetTerminating, Sentence: "The StatefulSet is being deleted."},
	{Reason: ReasonSetDeleted, Sentence: "The StatefulSet was deleted, and garbage collection deletes the claim."},
	{Reason: ReasonOwnerGone, Severity: reasons.Counted,
		Sentence: "An owner of the claim is gone: garbage collection deletes the claim, unless it has another owner."},
	{Reason: ReasonInUse, Sentence: "The claim is that of a pod of the StatefulSet."},
	{Reason: ReasonInRange, Sentence: "The StatefulSet is to have a pod with this claim."},
	{Reason: ReasonRetained,
		Sentence: "The replica of the claim was scaled away, and the policy of the StatefulSet retains it. If nobody needs " +
			"the data: kubectl delete pvc."},
	{Reason: ReasonNeverUsed,
		Sentence: "The claim has had no pod since the policy of the StatefulSet deletes claims, and is kept. If nobody " +
			"needs the data: kubectl delete pvc."},
	{Reason: ReasonContested, Severity: reasons.Warning,
		Sentence: "Another program removes the owner reference or the annotation of volume-guard from the claim each time, " +
			"so it is not added again. If kube-controller-manager has the feature gate StatefulSetAutoDeletePVC, enable it " +
			"in the API server, too."},
	{Reason: ReasonOwnerReferenceMissing, Severity: reasons.Warning,
		Sentence: "The policy of the StatefulSet deletes the claim with it (whenDeleted: Delete), but the StatefulSet was " +
			"deleted before it was made the owner of the claim, and nothing deletes the claim. If nobody needs the data: " +
			"kubectl delete pvc."},
	{Reason: ReasonRetainedWhenDeleted, Sentence: "The policy of the StatefulSet retains its claims when it is deleted."},
	{Reason: ReasonNotOwned,
		Sentence: "The StatefulSet does not own the claim, which has had no pod since the policy deletes claims."},
	{Reason: ReasonOrphaned, Sentence: "The StatefulSet is deleted without its dependents, and its claims stay."},
	{Reason: ReasonClaimTerminating, Sentence: "The claim is being deleted."},
	{Reason: ReasonPodUsesTerminatingClaim, Severity: reasons.Warning, OnSet: true,
		Sentence: "The claim is being deleted while a pod of the StatefulSet uses it. Its data is gone when the pod ends: " +
			"copy what you need, then delete the pod."},
	{Reason: ReasonInvalidPolicy, Severity: reasons.Warning,
		Sentence: "An annotation of the StatefulSet is not valid: volume-guard retains its claims until that is corrected."},
	{Reason: ReasonAnnotationIgnored, Severity: reasons.Warning,
		Sentence: "The API server has the field spec.persistentVolumeClaimRetentionPolicy, so the annotation " +
			PolicyAnnotation + " is ignored. Set the field, and remove the annotation."},
	{Reason: ReasonNoTemplates, Severity: reasons.Normal,
		Sentence: "The StatefulSet has no volumeClaimTemplates, so its retention policy has no effect."},
	{Reason: ReasonSetComplete, Sentence: "The StatefulSet has all its pods."},
	{Reason: ReasonPodMissing, Severity: reasons.Counted,
		Sentence: "The StatefulSet lacks a pod, or the claim of one. It is woken if nothing happens."},
	{Reason: ReasonOldClaimRemains, Severity: reasons.Counted,
		Sentence: "The StatefulSet lacks a pod, which waits until the claim of its predecessor is gone."},
	{Reason: ReasonPodBoundBeforeVolume, Severity: reasons.Warning,
		Sentence: "A pod of the StatefulSet was bound to a node before its claim had a volume, and starts when it has one. " +
			"None is created where the StorageClass has volumeBindingMode: WaitForFirstConsumer. Delete the pod, and its " +
			"replacement is scheduled with the claim: kubectl delete pod."},
	{Reason: ReasonWoken, Severity: reasons.Normal,
		Sentence: "The StatefulSet has lacked a pod, or the claim of one, and nothing happened: it is written to, so that " +
			"its controller creates what is missing."},
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

// Detail returns details of this claim that the sentence of the reason lacks, empty if no details apply.
func (f Facts) Detail(r Reason) string {
	switch r {
	case ReasonScaledDown, ReasonScaleDownGrace, ReasonPodRemains, ReasonRetained, ReasonNeverUsed, ReasonClaimHeld:
		return fmt.Sprintf("It is ordinal %d of StatefulSet %s, which has %s.", f.Ordinal, f.SetName, f.Set.ordinals())
	case ReasonUsedByOtherPod:
		return fmt.Sprintf("It is pod %s.", f.OtherPod)
	case ReasonConflictingController, ReasonOtherOwner:
		return f.otherOwners()
	case ReasonInvalidPolicy:
		return f.Set.Invalid
	case ReasonOwnerReferenceMissing:
		return fmt.Sprintf("It is ordinal %d of StatefulSet %s, which had the UID %s.", f.Ordinal, f.Last.Name, f.Last.UID)
	default:
		return ""
	}
}

// ordinals names the ordinals of a set.
func (s Set) ordinals() string {
	switch s.Replicas {
	case 0:
		return "no replicas"
	case 1:
		return fmt.Sprintf("the ordinal %d", s.Start)
	}
	return fmt.Sprintf("the ordinals %d to %d", s.Start, s.Start+s.Replicas-1)
}

// otherOwners names the first owner that is neither the set nor its pod.
func (f Facts) otherOwners() string {
	for _, ref := range f.Claim.Owners {
		if !f.ofSet(ref) && !f.ofPod(ref) {
			return fmt.Sprintf("It is %s %s.", ref.Kind, ref.Name)
		}
	}
	return ""
}
