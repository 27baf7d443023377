package podsafety

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Claim is the record of a claim. The zero value is a claim that no decision acts on.
type Claim struct {
	Namespace, Name string
	UID             types.UID
	// Pod and PodUID identify the pod of whose generic ephemeral volume this is the claim, and are empty without one.
	Pod    string
	PodUID types.UID
	// Held reports that the claim has objects.RunningFinalizer, and Protected that it has the finalizer of pvc-protection.
	Held, Protected, Terminating bool
}

// ClaimOf returns the record of a claim, which keeps no reference to o.
func ClaimOf(o metav1.Object) Claim {
	has := func(finalizer string) bool { return slices.Contains(o.GetFinalizers(), finalizer) }
	c := Claim{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), Held: has(objects.RunningFinalizer),
		Protected: has("kubernetes.io/pvc-protection"), Terminating: o.GetDeletionTimestamp() != nil}
	// The name as in podUsesPVCForDeletion. Spark's drivers and the StatefulSet controller make pods the controllers of
	// other claims, which outlive the pods' use of them.
	if pod, uid := objects.PodOwner(o); strings.HasPrefix(c.Name, pod+"-") {
		c.Pod, c.PodUID = pod, uid
	}
	return c
}

// ClaimFacts holds all knowledge of one claim and its pod. The zero value of every field means that the fact is unknown
// or argues for keeping the claim.
type ClaimFacts struct {
	Claim Claim
	// Mode is the mode of the claim's namespace.
	Mode Mode
	// Pod is the pod with the name of the claim's pod, from the watch cache or, when PodRead is set, from a live read. The
	// zero value means that no such pod exists.
	Pod     Pod
	PodRead session.Read
	// RemovingFinalizers removes the finalizer from all claims, because volume-guard is uninstalled.
	RemovingFinalizers bool
}

// ClaimAction is one step with a claim. The zero value is [LeaveClaim].
type ClaimAction string

const (
	// LeaveClaim does nothing until the next event.
	LeaveClaim ClaimAction = ""
	// HoldClaim adds the finalizer to the claim.
	HoldClaim ClaimAction = "HoldClaim"
	// AwaitPod keeps a claim that is terminating, because its pod may use it.
	AwaitPod ClaimAction = "AwaitPod"
	// ReadClaimPod reads the pod from the API server, to decide whether to release the claim.
	ReadClaimPod ClaimAction = "ReadClaimPod"
	// ReleaseClaim removes the finalizer from the claim.
	ReleaseClaim ClaimAction = "ReleaseClaim"
)

// DecideClaim returns the next step for one claim.
//
// Kubernetes keeps a claim that a pod on a node names, even if the pod was deleted by force. The claim of a generic
// ephemeral volume is an exception: a pod with a grace period of 0 does not count as its user (podIsShutDown in
// pkg/controller/volume/pvcprotection), which a held pod can be for as long as its processes run. Such a claim gets the
// finalizer before its deletion, because a terminating claim takes none.
//
// The claim is released once it is terminating and its pod is no longer held. The finalizer of another owner, as on a
// claim from a backup, goes in the same way.
func DecideClaim(f ClaimFacts, now time.Time) ClaimAction {
	c := f.Claim
	switch {
	case c.Held && f.RemovingFinalizers:
		return ReleaseClaim
	case f.RemovingFinalizers:
		return LeaveClaim
	case !c.Held && !c.Terminating && c.PodUID != "" && f.Mode == ModeEnforce:
		return HoldClaim
	case !c.Held, !c.Terminating:
		return LeaveClaim
	case c.PodUID == "":
		return ReleaseClaim // Kubernetes, too, counts the pod as a user only if it controls the claim
	case f.used():
		return AwaitPod
	case !f.PodRead.Fresh(now):
		return ReadClaimPod
	}
	return ReleaseClaim
}

// used reports whether processes of the claim's pod may use the claim: the pod is held, or may be in a moment. A pod
// without a node does not count once pvc-protection has removed its finalizer, because no kubelet starts a pod with
// such a claim (getPVCExtractPV in pkg/kubelet/volumemanager/populator). Until then, a scheduler may still bind the
// pod.
func (f ClaimFacts) used() bool {
	return f.Pod.UID == f.Claim.PodUID && (f.Pod.Node != "" || f.Claim.Protected) &&
		(f.Pod.Held || !f.Pod.Terminating && f.Mode == ModeEnforce)
}
