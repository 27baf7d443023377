package statefulset

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Owner references of a claim follow upstream's isClaimOwnerUpToDate and updateClaimOwnerRefForSetAndPod
// (pkg/controller/statefulset/stateful_set_utils.go), with one difference: references from this package have no
// controller=true. This lets other controllers, and a kube-controller-manager with the policy, tell them apart.

// ofSet and ofPod report whether a reference names the set, or the pod of the claim, with any UID.
func (f Facts) ofSet(ref metav1.OwnerReference) bool {
	return ref.APIVersion == appsv1.SchemeGroupVersion.String() && ref.Kind == "StatefulSet" && ref.Name == f.Set.Name
}

func (f Facts) ofPod(ref metav1.OwnerReference) bool { return names(ref, f.Set.PodName(f.Ordinal)) }

// names reports whether a reference names the pod of this name.
func names(ref metav1.OwnerReference, pod string) bool {
	return ref.APIVersion == v1.SchemeGroupVersion.String() && ref.Kind == "Pod" && ref.Name == pod
}

func isController(ref metav1.OwnerReference) bool { return ref.Controller != nil && *ref.Controller }

// gone reports whether a reference names a former set of this name, or a former pod of the claim.
func (f Facts) gone(ref metav1.OwnerReference) bool {
	return f.ofSet(ref) && ref.UID != f.Set.UID ||
		f.ofPod(ref) && (f.PodSeen == Absent || f.PodSeen == Found && ref.UID != f.Pod.UID)
}

// stale reports whether an owner of the claim is gone. Garbage collection is about to delete the claim or, if another
// owner lives, to remove the reference.
func (f Facts) stale() bool { return slices.ContainsFunc(f.Claim.Owners, f.gone) }

// doomed reports whether all owners of the claim are gone, so that garbage collection deletes it.
func (f Facts) doomed() bool { return f.stale() && len(f.without(f.gone)) == 0 }

// otherController reports whether an object other than the set and its pod controls the claim.
func (f Facts) otherController() bool {
	return slices.ContainsFunc(f.Claim.Owners, func(ref metav1.OwnerReference) bool {
		return isController(ref) && !f.ofSet(ref) && !f.ofPod(ref)
	})
}

// OtherOwner returns the kind and name of the first owner of the claim other than the set and its pod, empty for none.
func (f Facts) OtherOwner() string {
	for _, ref := range f.Claim.Owners {
		if !f.ofSet(ref) && !f.ofPod(ref) {
			return ref.Kind + " " + ref.Name
		}
	}
	return ""
}

// owns reports whether an object of this UID owns the claim.
func (f Facts) owns(uid types.UID) bool {
	return slices.ContainsFunc(f.Claim.Owners, func(ref metav1.OwnerReference) bool { return ref.UID == uid })
}

// added reports whether volume-guard has added the reference, to this claim or to the one it was copied from. Such a
// reference names the set or the pod of the mark, while references of kube-controller-manager have controller=true.
func (f Facts) added(ref metav1.OwnerReference) bool {
	m := f.Claim.Mark
	return !isController(ref) && (ref.UID == m.UID || names(ref, m.pod()))
}

// addedPod returns the UID of the pod that volume-guard has added as an owner of the claim, empty for none.
func (f Facts) addedPod() types.UID {
	for _, ref := range f.Claim.Owners {
		if f.added(ref) && ref.Kind == "Pod" {
			return ref.UID
		}
	}
	return ""
}

// orphaned reports whether the pod of this UID lives on without the set of the claim's mark.
func (f Facts) orphaned(pod types.UID) bool {
	return f.PodSeen == Found && f.Pod.UID == pod && !f.Pod.Terminating && f.Pod.Controller != f.Claim.Mark.UID
}

// without returns the references that drop does not match.
func (f Facts) without(drop func(metav1.OwnerReference) bool) []metav1.OwnerReference {
	return slices.DeleteFunc(slices.Clone(f.Claim.Owners), drop)
}

// policyOwners returns which of set and pod should own the claim according to the policy. Another controller, a hold or
// an invalid annotation excludes both. Otherwise:
//
//	Retain when deleted, Retain when scaled: none
//	Delete when deleted, Retain when scaled: the set
//	Retain when deleted, Delete when scaled: the pod, if it is scaled away
//	Delete when deleted, Delete when scaled: the pod, if it is scaled away, and else the set
func (f Facts) policyOwners() (set, pod bool) {
	if f.otherController() || f.Claim.Hold || f.Set.Invalid != "" {
		return false, false
	}
	pod = f.Set.Policy.WhenScaled == Delete && f.scaledAway() && f.hasPod()
	return f.Set.Policy.WhenDeleted == Delete && !pod, pod
}

// owners returns the wanted references of the claim. References to neither the set nor its pod stay.
func (f Facts) owners() []metav1.OwnerReference {
	switch {
	case f.Shared, f.Set.Source == SourceNone:
		return f.without(f.added)
	case f.Set.Source == SourceField:
		return f.without(f.leftOver)
	}
	return f.policyRefs()
}

// policyRefs returns the wanted references of the claim according to the policy alone.
func (f Facts) policyRefs() []metav1.OwnerReference {
	set, pod := f.policyOwners()
	refs := f.without(func(ref metav1.OwnerReference) bool {
		return f.ofSet(ref) && !set || f.ofPod(ref) && f.hasPod() && !pod
	})
	if set && (f.marked() || f.hasPod()) && !f.owns(f.Set.UID) {
		refs = append(refs, metav1.OwnerReference{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "StatefulSet",
			Name: f.Set.Name, UID: f.Set.UID})
	}
	if pod && !f.owns(f.Pod.UID) {
		refs = append(refs, metav1.OwnerReference{APIVersion: v1.SchemeGroupVersion.String(), Kind: "Pod",
			Name: f.Pod.Name, UID: f.Pod.UID})
	}
	return refs
}

// leftOver reports whether the reference stems from a time when the API server lacked the field, and would delete a
// claim that the field keeps. A kube-controller-manager with the field removes it, too, if the claim has a pod. If that
// pod is scaled away, it does so only once the others are Ready.
func (f Facts) leftOver(ref metav1.OwnerReference) bool {
	set, pod := f.policyOwners()
	return f.added(ref) && (f.ofSet(ref) && !set || f.ofPod(ref) && !pod)
}

// mark returns the wanted mark of the claim next to these owners.
func (f Facts) mark(owners []metav1.OwnerReference) Mark {
	p, now := f.Set.Policy, Mark{}
	if f.marked() {
		now = f.Claim.Mark
	}
	needed := p.WhenScaled == Delete || f.Set.Source == SourceAnnotation && p.WhenDeleted == Delete ||
		slices.ContainsFunc(owners, f.added)
	switch {
	case f.Shared, !needed:
		return Mark{}
	case f.hasPod():
		return Mark{Set: f.Set.Name, UID: f.Set.UID, Ordinal: f.Ordinal, WhenScaled: p.WhenScaled, Claim: f.Claim.UID}
	case p.WhenScaled == Retain:
		now.WhenScaled = Retain // a later policy does not reach back, until the claim has a pod again
	}
	return now
}

// wanted is the wanted state of a claim.
type wanted struct {
	Mark Mark
	// Owners are all owner references, including references that others have added.
	Owners []metav1.OwnerReference
}

// wanted returns the wanted state of the claim. A claim that has lost an owner is left unchanged to garbage collection.
func (f Facts) wanted() wanted {
	switch {
	case f.Rules.Removing, !f.given():
		return wanted{Owners: f.without(f.added)}
	case f.stale(), f.PodSeen == Unknown:
		return wanted{f.Claim.Mark, f.Claim.Owners}
	}
	owners := f.owners()
	return wanted{f.mark(owners), owners}
}

// adds reports whether the claim lacks a part of w.
func (w wanted) adds(c Claim) bool {
	return w.Mark != c.Mark && w.Mark != Mark{} || slices.ContainsFunc(w.Owners, func(ref metav1.OwnerReference) bool {
		return !slices.ContainsFunc(c.Owners, func(has metav1.OwnerReference) bool { return has.UID == ref.UID })
	})
}

// differs reports whether the claim lacks a part of w, or has more.
func (w wanted) differs(c Claim) bool {
	return w.adds(c) || len(w.Owners) != len(c.Owners) || c.Marked && w.Mark == Mark{}
}

// with returns the claim after a patch.
func (c Claim) with(w wanted) Claim {
	c.Mark, c.Marked, c.Owners = w.Mark, w.Mark != Mark{}, w.Owners
	return c
}

// String identifies mark and owners for comparison.
func (w wanted) String() string {
	text := []string{w.Mark.String()}
	for _, ref := range w.Owners {
		text = append(text, string(ref.UID))
	}
	return strings.Join(text, " ")
}
