package statefulset

import (
	"fmt"

	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
)

// Reason is the reason of a decision. The same word appears as the reason of an Event, a value in the log, and a label
// of the metrics. Its Sentence has the meaning.
type Reason = reasons.Word[family]

// family gives a Reason the meaning that this package declares.
type family struct{}

// About implements reasons.Family.
func (family) About(word string) reasons.About { return table.About(word) }

var table reasons.Table[family]

// Reasons to delete.
var (
	ReasonScaledDown = table.Declare("ScaledDown", reasons.About{
		Severity: reasons.Normal, OnSet: true, Sentence: "The StatefulSet was scaled down, and its policy deletes the " +
			"claims of replicas that are scaled away."})
	ReasonPodUsesOldClaim = table.Declare("PodUsesOldClaim", reasons.About{
		Severity: reasons.Warning, OnSet: true, Sentence: "The pod was created with a claim that is being deleted because " +
			"the replica was scaled away before. The pod is deleted, so that its replacement gets a new claim."})
)

// Reasons to change the mark and the owner references of a claim.
var (
	ReasonPolicyApplied = table.Silent("PolicyApplied",
		"The claim gets the owner references and the annotation that the retention policy of its StatefulSet needs.")
	ReasonPolicyRemoved = table.Silent("PolicyRemoved",
		"The retention policy of the StatefulSet keeps the claim; volume-guard removes its owner references and annotation.")
	ReasonSetGone = table.Silent("SetGone",
		"The StatefulSet was deleted, and the claim stays; volume-guard removes its owner references and annotation.")
	ReasonUninstalled = table.Silent("Uninstalled",
		"The additions of volume-guard to claims and StatefulSets are removed (--release-finalizers).")
)

// Reasons to delay the deletion of a condemned claim.
var (
	ReasonScaleDownGrace = table.Normal("ScaleDownGrace",
		"The replica of the claim was scaled away, and its pod is gone: the claim is deleted when the grace period has "+
			"passed. To keep it, scale up again, or set whenScaled to Retain.")
	ReasonPodRemains = table.Counted("PodRemains",
		"The replica of the claim was scaled away, and its pod is not gone yet.")
	ReasonClaimHeld = table.Normal("ClaimHeld",
		"The replica of the claim was scaled away, but the annotation "+HoldAnnotation+" keeps the claim.")
	ReasonConflictingController = table.Declare("ConflictingController", reasons.About{
		Severity: reasons.Warning, OnSet: true, Sentence: "Another controller owns the claim, so the retention policy of " +
			"the StatefulSet is ignored for it. Remove the owner reference of that controller, or delete the claim yourself."})
	ReasonOtherOwner = table.Warning("OtherOwner",
		"The replica of the claim was scaled away, but the claim has an owner other than the StatefulSet and its pods, and "+
			"is kept. Remove that owner reference, or delete the claim yourself.")
	ReasonUsedByOtherPod = table.Warning("UsedByOtherPod",
		"The replica of the claim was scaled away, but another pod uses the claim. It is deleted after that pod.")
)

// Reasons to leave a claim alone.
var (
	ReasonPolicyNotApplied = table.Silent("PolicyNotApplied",
		"The retention policy keeps the claim, but the StatefulSet or the pod still owns it, and the claim goes with them. "+
			"kube-controller-manager removes that owner reference once the pods before it are Ready. Wait for that, or remove "+
			"the reference.")
	ReasonNoClaim      = table.Silent("NoClaim", "The claim does not exist.")
	ReasonNotManaged   = table.Silent("NotManaged", "The claim belongs to no StatefulSet.")
	ReasonNamesCollide = table.Warning("NamesCollide",
		"The templates of more than one StatefulSet give the claim its name, so volume-guard keeps it. Give one of the "+
			"StatefulSets or templates another name.")
	ReasonSetTerminating = table.Silent("SetTerminating", "The StatefulSet is being deleted.")
	ReasonSetDeleted     = table.Silent("SetDeleted",
		"The StatefulSet was deleted, and garbage collection deletes the claim.")
	ReasonOwnerGone = table.Counted("OwnerGone",
		"An owner of the claim is gone: garbage collection deletes the claim, unless it has another owner.")
	ReasonInUse    = table.Silent("InUse", "A pod of the StatefulSet has the claim.")
	ReasonInRange  = table.Silent("InRange", "The StatefulSet should have a pod with this claim.")
	ReasonRetained = table.Silent("Retained",
		"The replica of the claim was scaled away, and the policy of the StatefulSet retains it.")
	ReasonNeverUsed = table.Silent("NeverUsed",
		"The claim has had no pod since the policy of the StatefulSet deletes claims, and is kept.")
	ReasonContested = table.Warning("OwnerReferencesContested",
		"Another program removes the owner reference or the annotation of volume-guard from the claim each time, so it is "+
			"not added again. If kube-controller-manager has the feature gate StatefulSetAutoDeletePVC, enable it in the API "+
			"server, too.")
	ReasonOwnerReferenceMissing = table.Warning("OwnerReferenceMissing",
		"The policy of the StatefulSet deletes the claim with it (whenDeleted: Delete), but the StatefulSet was deleted "+
			"before it was made the owner of the claim, and nothing deletes the claim. If the data is not needed: kubectl "+
			"delete pvc.")
	ReasonRetainedWhenDeleted = table.Silent("RetainedWhenDeleted",
		"The policy of the StatefulSet retains its claims when it is deleted.")
	ReasonNotOwned = table.Silent("NotOwned",
		"The StatefulSet does not own the claim, which has had no pod since the policy deletes claims.")
	ReasonOrphaned = table.Silent("Orphaned",
		"The StatefulSet is deleted without its dependents, and its claims stay.")
	ReasonClaimTerminating        = table.Silent("ClaimTerminating", "The claim is being deleted.")
	ReasonPodUsesTerminatingClaim = table.Declare("PodUsesTerminatingClaim", reasons.About{
		Severity: reasons.Warning, OnSet: true, Sentence: "The claim is being deleted while a pod of the StatefulSet uses " +
			"it. Its data is gone when the pod ends: copy the data that you need, then delete the pod."})
)

// Reasons about a set.
var (
	ReasonInvalidPolicy = table.Warning("InvalidClaimRetention",
		"An annotation of the StatefulSet is not valid: volume-guard retains its claims until that is corrected.")
	ReasonAnnotationIgnored = table.Warning("ClaimRetentionIgnored",
		"The API server has the field spec.persistentVolumeClaimRetentionPolicy, so the annotation "+PolicyAnnotation+
			" is ignored. Set the field, and remove the annotation.")
	ReasonNoTemplates = table.Normal("NoVolumeClaimTemplates",
		"The StatefulSet has no volumeClaimTemplates, so its retention policy has no effect.")
	ReasonSetComplete = table.Silent("Complete", "The StatefulSet has all its pods.")
	ReasonPodMissing  = table.Counted("PodMissing",
		"The StatefulSet lacks a pod, or the claim of one. It is woken if nothing happens.")
	ReasonOldClaimRemains = table.Counted("OldClaimRemains",
		"The StatefulSet lacks a pod, which waits until the claim of its predecessor is gone.")
	ReasonPodBoundBeforeVolume = table.Warning("PodBoundBeforeVolume",
		"A pod of the StatefulSet was bound to a node before its claim had a volume, and starts when it has one. None is "+
			"created where the StorageClass has volumeBindingMode: WaitForFirstConsumer. Delete the pod, and its replacement "+
			"is scheduled with the claim: kubectl delete pod.")
	ReasonWoken = table.Normal("Woken",
		"The StatefulSet lacked a pod, or the claim of a pod, and its controller did not act. volume-guard updates the "+
			"StatefulSet, so that the controller creates the missing object.")
)

// Reasons that arise when a step is carried out.
var (
	ReasonAPIReadFailed, ReasonAPIWriteFailed = table.APIFailures("decision", "volume-guard")
	ReasonDryRun                              = table.DryRun()
)

// Reasons returns every reason, in the order of their declaration.
func Reasons() []Reason { return table.Reasons() }

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
	if owner := f.OtherOwner(); owner != "" {
		return "It is " + owner + "."
	}
	return ""
}
