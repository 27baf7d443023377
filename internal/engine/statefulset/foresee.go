package statefulset

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// Change is a possible change of a set, its deletion in the zero value.
type Change struct {
	Kind ChangeKind
	// Replicas is the new number of replicas for Scale.
	Replicas int
}

// ChangeKind is a kind of Change.
type ChangeKind uint8

const (
	// DeleteSet deletes the set, and its pods with it.
	DeleteSet ChangeKind = iota
	// OrphanSet deletes the set alone (kubectl delete --cascade=orphan).
	OrphanSet
	// Scale sets the number of replicas.
	Scale
)

// Fate is the outcome for a claim.
type Fate string

const (
	// FateUnknown is the zero value, for a claim that was not judged.
	FateUnknown Fate = ""
	// Kept means that the claim stays.
	Kept Fate = "kept"
	// Deleted means that the claim is deleted.
	Deleted Fate = "deleted"
)

// String returns the text for people.
func (f Fate) String() string { return cmp.Or(string(f), "unknown") }

// Forecast is the effect of a Change on a claim and its reason.
type Forecast struct {
	Fate   Fate
	Reason Reason
	// Text is for people: the sentence of the reason, followed by details of this claim.
	Text string
	// Grace is the delay before the deletion of a claim without a pod.
	Grace time.Duration
	// Unattended is the fate without volume-guard, or with this controller disabled.
	Unattended Fate
}

// Foresee predicts the effect of a change of its set on a claim, from its current facts. It is a pure function.
//
// kube-controller-manager may not have written the owner references of the policy yet: under OrderedReady, a pod that
// is not Ready keeps it from that. So a claim is only kept if its present owners do not go with the change either.
func Foresee(f Facts, c Change) Forecast {
	present := f.goes(c)
	maintained := f.Maintained()
	fate, why := foresee(&f, c)
	if maintained && fate == Kept && present == Deleted {
		fate, why = Deleted, ReasonPolicyNotApplied
	}
	forecast := Forecast{Fate: fate, Reason: why, Text: why.Sentence(), Unattended: present}
	if maintained || f.Claim.Terminating || !f.given() {
		forecast.Unattended = fate
	}
	if more := f.Detail(why); more != "" {
		forecast.Text += " " + more
	}
	if fate == Deleted && c.Kind == Scale && !f.hasPod() {
		forecast.Grace = f.grace()
	}
	return forecast
}

func foresee(f *Facts, c Change) (Fate, Reason) {
	switch {
	case f.Claim.UID == "":
		return FateUnknown, ReasonNoClaim
	case f.Claim.Terminating:
		return Deleted, ReasonClaimTerminating
	case f.SetSeen == Unknown:
		return FateUnknown, ReasonNotManaged
	case !f.given():
		return Kept, ReasonNotManaged
	case f.doomed():
		return Deleted, ReasonOwnerGone
	case f.Shared && f.Set.Source != SourceField:
		return Kept, ReasonNamesCollide
	}
	switch c.Kind {
	case Scale:
		f.Set.Replicas = c.Replicas
		return f.scaled()
	case OrphanSet:
		return f.setOrphaned()
	case DeleteSet:
	}
	return f.setDeleted()
}

// scaled returns the fate of the claim for the number of replicas in f.
func (f Facts) scaled() (Fate, Reason) {
	switch {
	case f.Set.Terminating:
		return Kept, ReasonSetTerminating
	case !f.scaledAway():
		return Kept, ReasonInRange
	case f.Set.Policy.WhenScaled == Retain:
		return Kept, ReasonRetained
	case !f.hasPod():
		return f.decided()
	}
	if f.Maintained() {
		f = f.asKubernetes()
	}
	f.OtherPod = "" // the pod owns the claim, which is terminating while another pod uses it
	if why := f.keeper(); why != "" {
		return Kept, why
	}
	return Deleted, ReasonScaledDown
}

// Maintained reports whether kube-controller-manager maintains the owner references of the claim, and so decides about
// it: the set has the policy in its field, and the claim has a pod.
func (f Facts) Maintained() bool { return f.Set.Source == SourceField && f.hasPod() }

// asKubernetes drops the facts that the StatefulSet controller does not know.
func (f Facts) asKubernetes() Facts {
	f.Claim.Hold, f.Set.Invalid, f.Shared = false, "", false
	return f
}

// decided returns the outcome of Decide after the grace period, provided that live reads confirm the facts.
func (f Facts) decided() (Fate, Reason) {
	now := time.Time{}.Add(time.Hour)
	f.Rules, f.Set.GraceGiven = Rules{Grace: time.Nanosecond}, false
	f.ClaimRead, f.PodRead = session.Read{Sent: now, Order: 1}, session.Read{Sent: now, Order: 2}
	f.SetRead = session.Read{Sent: now, Order: 3}
	f.Sight = Sight{CondemnedSince: now.Add(-time.Minute)}
	for range maxSteps {
		switch d := Decide(f, now); {
		case d.Action == PatchClaim:
			f.Claim = f.Claim.with(f.wanted())
		case d.Action == DeleteClaim, d.Reason == ReasonUsedByOtherPod:
			return Deleted, d.Reason
		default:
			return Kept, d.Reason
		}
	}
	return FateUnknown, ReasonNotManaged
}

// setDeleted returns the fate of the claim when its set is deleted.
func (f Facts) setDeleted() (Fate, Reason) {
	refs := f.ownersAtDeletion()
	others := slices.DeleteFunc(slices.Clone(refs), func(ref metav1.OwnerReference) bool {
		return ref.UID == f.Set.UID || f.hasPod() && ref.UID == f.Pod.UID || f.gone(ref)
	})
	switch {
	case len(others) == len(refs):
		return Kept, f.notOwned()
	case len(others) > 0:
		return Kept, ReasonOtherOwner
	}
	return Deleted, ReasonSetDeleted
}

// ownersAtDeletion returns the owner references of the claim at the deletion of its set. If Kubernetes has the policy,
// its controller maintains them for claims with a pod.
func (f Facts) ownersAtDeletion() []metav1.OwnerReference {
	if f.Maintained() && !f.stale() {
		return f.asKubernetes().policyRefs()
	}
	return f.wanted().Owners
}

// notOwned returns the reason why the set does not own the claim.
func (f Facts) notOwned() Reason {
	switch {
	case f.Set.Policy.WhenDeleted == Retain:
		return ReasonRetainedWhenDeleted
	case f.Set.Invalid != "":
		return ReasonInvalidPolicy
	case f.Claim.Hold:
		return ReasonClaimHeld
	case f.otherController():
		return ReasonConflictingController
	}
	return ReasonNotOwned
}

// setOrphaned returns the fate of the claim when its set is deleted alone. The claim follows an owning pod that was
// condemned before, unless volume-guard can still remove its own reference.
func (f Facts) setOrphaned() (Fate, Reason) {
	if !f.hasPod() || !f.owns(f.Pod.UID) || f.OtherOwner() != "" || f.addedPod() == f.Pod.UID && !f.Pod.Terminating {
		return Kept, ReasonOrphaned
	}
	return Deleted, ReasonScaledDown
}

// goes returns the effect of a change of the set on the claim if no program changes its owner references before: it
// goes once all its owners are gone.
func (f Facts) goes(c Change) Fate {
	f.Set.Replicas = c.Replicas // counts for Scale alone
	goes := func(ref metav1.OwnerReference) bool {
		switch {
		case ref.UID == f.Set.UID:
			return c.Kind == DeleteSet
		case f.hasPod() && ref.UID == f.Pod.UID:
			return f.podGoes(c)
		}
		return f.gone(ref)
	}
	stays := func(ref metav1.OwnerReference) bool {
		removed := ref.UID == f.Set.UID && c.Kind == OrphanSet // from the dependents of the set
		return !goes(ref) && !removed
	}
	if !slices.ContainsFunc(f.Claim.Owners, goes) || slices.ContainsFunc(f.Claim.Owners, stays) {
		return Kept
	}
	return Deleted
}

// podGoes reports whether the change deletes the pod of the claim, with the replicas of the set in f.
func (f Facts) podGoes(c Change) bool {
	return f.Pod.Terminating || c.Kind == DeleteSet || c.Kind == Scale && f.scaledAway()
}
