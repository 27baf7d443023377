package statefulset

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func scaleTo(n int) Change { return Change{Kind: Scale, Replicas: n} }

// ofPolicy are the facts about the claim of a replica in range under a policy, with the wanted mark and owner.
func ofPolicy(p Policy, source Source, alter ...func(*Facts)) Facts {
	f := facts(func(f *Facts) { f.Set.Policy, f.Set.Source = p, source })
	f.Claim.Mark.WhenScaled = p.WhenScaled
	if p.WhenScaled == Retain && (source == SourceField || p.WhenDeleted == Retain) {
		unmarked(&f)
	}
	if p.WhenDeleted == Delete {
		ref := setRef("set")
		if source == SourceField {
			ref = controlling(ref)
		}
		f.Claim.Owners = []metav1.OwnerReference{ref}
	}
	both(alter...)(&f)
	return f
}

// The four cases of the policy have the same outcome from field and annotation, with and without a pod.
func TestForeseePolicies(t *testing.T) {
	for policy, want := range map[Policy]struct{ scaled, deleted Fate }{
		{}:                    {Kept, Kept},
		{WhenDeleted: Delete}: {Kept, Deleted},
		{WhenScaled: Delete}:  {Deleted, Kept},
		{Delete, Delete}:      {Deleted, Deleted},
	} {
		for _, source := range []Source{SourceField, SourceAnnotation} {
			for name, alter := range map[string]func(*Facts){"a pod": func(*Facts) {}, "no pod": podAbsent} {
				f := ofPolicy(policy, source, alter)
				if d := Decide(f, now()); d.Action != Wait {
					t.Fatalf("%s: %s: %v (%s)", policy, source, d.Action, d.Reason)
				}
				for change, c := range map[string]struct {
					change Change
					want   Fate
				}{
					"scaled down": {scaleTo(1), want.scaled}, "scaled to none": {scaleTo(0), want.scaled},
					"scaled up": {scaleTo(3), Kept}, "unchanged": {scaleTo(2), Kept},
					"deleted": {
						Change{Kind: DeleteSet}, want.deleted}, "orphaned": {Change{Kind: OrphanSet}, Kept},
				} {
					got := Foresee(f, c.change)
					if got.Fate != c.want || got.Text == "" {
						t.Errorf("%s from %s, %s, %s: %s (%s)", policy, source, name, change, got.Fate, got.Reason)
					}
					wantGrace := time.Duration(0)
					if c.change.Kind == Scale && c.want == Deleted && name == "no pod" {
						wantGrace = DefaultGrace
					}
					if got.Grace != wantGrace {
						t.Errorf("%s from %s, %s, %s: grace %s", policy, source, name, change, got.Grace)
					}
				}
			}
		}
	}
}

// Another owner keeps the claim, regardless of the kind of deletion.
func TestForeseeAnotherOwner(t *testing.T) {
	for _, policy := range []Policy{{}, {WhenDeleted: Delete}, {WhenScaled: Delete}, {Delete, Delete}} {
		for _, source := range []Source{SourceField, SourceAnnotation} {
			for _, alter := range []func(*Facts){func(*Facts) {}, podAbsent} {
				for _, ref := range []metav1.OwnerReference{foreignRef(), controlling(foreignRef())} {
					f := ofPolicy(policy, source, alter, owned(ref))
					for _, c := range []Change{scaleTo(1), {Kind: DeleteSet}, {Kind: OrphanSet}} {
						if got := Foresee(f, c); got.Fate != Kept {
							t.Errorf("%s from %s, %+v: %s (%s)", policy, source, c, got.Fate, got.Reason)
						}
					}
				}
			}
		}
	}
}

func TestForesee(t *testing.T) {
	drop, orphan := Change{Kind: DeleteSet}, Change{Kind: OrphanSet}
	noRefs := func(f *Facts) { f.Claim.Owners = nil }
	of := func(from Source) func(...func(*Facts)) Facts {
		return func(alter ...func(*Facts)) Facts { return ofPolicy(Policy{Delete, Delete}, from, alter...) }
	}
	field, annotation := of(SourceField), of(SourceAnnotation)
	ownedByPod, controlledByPod := owned(podRef("pod")), owned(controlling(podRef("pod")))
	for _, c := range []struct {
		name   string
		facts  Facts
		change Change
		fate   Fate
		reason Reason
	}{
		{"no claim", Facts{}, drop, FateUnknown, ReasonNoClaim},
		{"it is terminating", facts(terminatingClaim), orphan, Deleted, ReasonClaimTerminating},
		{"the set is not known", facts(setUnknown), drop, FateUnknown, ReasonNotManaged},
		{"the set is gone", facts(setAbsent), drop, Kept, ReasonNotManaged},
		{"it is of no template", facts(otherTemplates), drop, Kept, ReasonNotManaged},
		{"its owners are gone", facts(owned(podRef("pod0"))), scaleTo(2), Deleted, ReasonOwnerGone},
		{"its set was made again", facts(unmarked, owned(setRef("set0"))), orphan, Deleted, ReasonOwnerGone},
		{"one of its owners is gone", facts(owned(podRef("pod0"), foreignRef())), drop, Kept, ReasonOtherOwner},
		{"a pod that is gone owns it, and the set", facts(owned(podRef("pod0"), setRef("set"))), drop, Deleted,
			ReasonSetDeleted},
		{"names collide, annotation", annotation(shared), drop, Kept, ReasonNamesCollide},
		{"names collide, field", field(shared), drop, Deleted, ReasonSetDeleted},
		{"names collide, field, scaled", field(shared), scaleTo(1), Deleted, ReasonScaledDown},
		{"names collide, field, no pod", field(shared, podAbsent), scaleTo(1), Kept, ReasonNamesCollide},

		{"held, field", facts(held), scaleTo(1), Deleted, ReasonScaledDown},
		{"held, field, no pod", facts(held, podAbsent), scaleTo(1), Kept, ReasonClaimHeld},
		{"held, annotation", facts(held, annotated), scaleTo(1), Kept, ReasonClaimHeld},
		{"held, field, set deleted", field(held), drop, Deleted, ReasonSetDeleted},
		{"held, annotation, set deleted", annotation(held), drop, Kept, ReasonClaimHeld},
		{"wrong, field, no pod", facts(invalid, podAbsent), scaleTo(1), Kept, ReasonInvalidPolicy},
		{"wrong, annotation", annotation(invalid), scaleTo(1), Kept, ReasonInvalidPolicy},
		{"wrong, annotation, set deleted", annotation(invalid), drop, Kept, ReasonInvalidPolicy},
		{"another controller", facts(owned(controlling(foreignRef()))), scaleTo(1), Kept, ReasonConflictingController},
		{"another controller, set deleted", annotation(noRefs, owned(controlling(foreignRef()))), drop, Kept,
			ReasonConflictingController},
		{"another pod, field", facts(otherPod), scaleTo(1), Deleted, ReasonScaledDown},
		{"another pod, no pod", facts(otherPod, podAbsent), scaleTo(1), Deleted, ReasonUsedByOtherPod},

		{"the set is going", facts(setTerminating), scaleTo(1), Kept, ReasonSetTerminating},
		{"it never had a pod", facts(unmarked, podAbsent), scaleTo(1), Kept, ReasonNeverUsed},
		{"it was retained", facts(markRetain, podAbsent), scaleTo(1), Kept, ReasonNeverUsed},
		{"a foreign pod of the name", facts(podForeign), scaleTo(1), Kept, ReasonPodRemains},
		{"a pod that is not known", facts(podUnknown), scaleTo(1), Kept, ReasonPodRemains},
		{"the policy retains", facts(retain, unmarked), scaleTo(1), Kept, ReasonRetained},
		{"no policy", facts(noPolicy, unmarked), drop, Kept, ReasonRetainedWhenDeleted},
		{"the set does not own it, field", field(podAbsent, noRefs), drop, Kept, ReasonNotOwned},
		{"the set does not own it yet, field", field(noRefs), drop, Deleted, ReasonSetDeleted},
		{"the set does not own it yet, annotation", annotation(unmarked, noRefs), drop, Deleted, ReasonSetDeleted},
		{"the set owns it again, annotation", annotation(podAbsent, noRefs), drop, Deleted, ReasonSetDeleted},
		{"its condemned pod goes with the set, annotation", facts(annotated, scaledDown), drop, Deleted, ReasonSetDeleted},
		{"its condemned pod goes with the set, field", facts(scaledDown), drop, Deleted, ReasonSetDeleted},
		{"a foreign pod of the name owns it", facts(podForeign, ownedByPod), drop, Kept, ReasonRetainedWhenDeleted},
		{"the policy is about to retain, field", field(retain, unmarked, noRefs), drop, Kept, ReasonRetainedWhenDeleted},
		{"the policy is about to retain, and is not applied, field", field(retain, unmarked), drop, Deleted,
			ReasonPolicyNotApplied},
		{"a condemned pod owns it, and the policy is about to retain", facts(retain, scaledDown, controlledByPod),
			scaleTo(1), Deleted, ReasonPolicyNotApplied},
		{"its pod, which is going, owns it, and the replica is to be back", facts(controlledByPod, podTerminating),
			scaleTo(2), Deleted, ReasonPolicyNotApplied},
		{"its pod owns it, and the replica is to be back", facts(controlledByPod), scaleTo(2), Kept, ReasonInRange},
		{"no pod, and the policy retains a claim that Kubernetes owns", field(retain, unmarked, podAbsent), drop, Deleted,
			ReasonSetDeleted},

		{"orphaned, its pod owns it by us", facts(annotated, scaledDown, ownedByPod), orphan, Kept, ReasonOrphaned},
		{"orphaned, its pod owns it by us and is going", facts(annotated, scaledDown, ownedByPod, podTerminating), orphan,
			Deleted, ReasonScaledDown},
		{"orphaned, its pod owns it by Kubernetes", facts(scaledDown, controlledByPod), orphan, Deleted, ReasonScaledDown},
		{"orphaned, its pod owns it by Kubernetes, and another",
			facts(scaledDown, owned(controlling(podRef("pod")), foreignRef())), orphan, Kept, ReasonOrphaned},
		{"orphaned, a foreign pod owns it", facts(scaledDown, podForeign, controlledByPod), orphan, Kept, ReasonOrphaned},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Foresee(c.facts, c.change); got.Fate != c.fate || got.Reason != c.reason {
				t.Errorf("%s (%s), want %s (%s)", got.Fate, got.Reason, c.fate, c.reason)
			}
		})
	}
}

func TestForeseeText(t *testing.T) {
	got := Foresee(facts(podAbsent, grace(time.Hour)), scaleTo(1))
	want := ReasonScaledDown.Sentence() + " It is ordinal 1 of StatefulSet db, which has the ordinal 0."
	if got.Fate != Deleted || got.Grace != time.Hour || got.Text != want {
		t.Errorf("%s after %s: %s", got.Fate, got.Grace, got.Text)
	}
	if got := Foresee(facts(), Change{Kind: OrphanSet}); got.Text != ReasonOrphaned.Sentence() {
		t.Errorf("%q", got.Text)
	}
}

func TestFates(t *testing.T) {
	for fate, want := range map[Fate]string{FateUnknown: "unknown", Kept: "kept", Deleted: "deleted"} {
		if fate.String() != want {
			t.Errorf("%q, want %q", fate, want)
		}
	}
}
