package statefulset

import (
	"testing"
	"time"
)

type decision struct {
	name  string
	facts Facts
	want  Decision
}

func waits(r Reason) Decision          { return Decision{Reason: r} }
func does(a Action, r Reason) Decision { return Decision{Action: a, Reason: r} }

func checkDecisions(t *testing.T, cases []decision) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if d := Decide(c.facts, now()); d != c.want {
				t.Errorf("%v because %s after %s, want %v because %s after %s", d.Action, d.Reason, d.After,
					c.want.Action, c.want.Reason, c.want.After)
			}
		})
	}
}

func TestDecideOnKeptClaim(t *testing.T) {
	checkDecisions(t, []decision{
		{"nothing is known", Facts{}, waits(ReasonNoClaim)},
		{"the set is not known", facts(setUnknown), waits(ReasonNotManaged)},
		{"a claim of no set, without mark", facts(setAbsent, unmarked), waits(ReasonNotManaged)},
		{"a mark that cannot be read, and no set", facts(setAbsent, garbageMark), waits(ReasonNotManaged)},
		{"the replica runs", facts(), waits(ReasonInUse)},
		{"the replica has lost its pod", facts(podAbsent), waits(ReasonInRange)},
		{"the pod is not known", facts(podUnknown), waits(ReasonInRange)},
		{"another pod has the pod's name", facts(podForeign), waits(ReasonInRange)},
		{"the set has no policy", facts(noPolicy, unmarked), waits(ReasonInUse)},
		{"the set is being deleted", facts(setTerminating), waits(ReasonSetTerminating)},
		{"nothing is added to the claim of a set that is being deleted",
			facts(setTerminating, unmarked, annotated, deleteBoth, allRead), waits(ReasonSetTerminating)},
		{"names collide", facts(shared, unmarked), waits(ReasonNamesCollide)},
		{"names collide, scaled down, no pod", facts(shared, unmarked, scaledDown, podAbsent), waits(ReasonNamesCollide)},
		{"scaled down, and the policy retains", facts(unmarked, retain, scaledDown, podAbsent), waits(ReasonRetained)},
		{"scaled down, the policy retains, and the pod is going", facts(unmarked, retain, scaledDown, podTerminating),
			waits(ReasonRetained)},
		{"scaled down without ever a pod", facts(unmarked, scaledDown, podAbsent), waits(ReasonNeverUsed)},
		{"scaled down under Retain, and the policy turned", facts(markRetain, scaledDown, podAbsent), waits(ReasonNeverUsed)},
		{"scaled down, made for another set of the name", facts(setAgain, unmarked, scaledDown, podAbsent),
			waits(ReasonNeverUsed)},
		{"scaled down under Retain, and a foreign pod", facts(markRetain, scaledDown, podForeign), waits(ReasonPodRemains)},
		{"an owner is gone", facts(owned(podRef("pod0")), podAbsent), waits(ReasonOwnerGone)},
		{"the set was made again while its claim goes", facts(owned(setRef("set0")), unmarked), waits(ReasonOwnerGone)},
		{"a claim that goes gets no mark", facts(owned(podRef("pod0")), unmarked), waits(ReasonOwnerGone)},
		{"another controller", facts(owned(controlling(foreignRef()))), waits(ReasonConflictingController)},
		{"another controller, and no policy that matters", facts(owned(controlling(foreignRef())), retain, unmarked),
			waits(ReasonInUse)},
		{"another owner", facts(owned(foreignRef())), waits(ReasonInUse)},
		{"the set and its ordinals start after the claim's", facts(markRetain, startsLater, podAbsent),
			waits(ReasonNeverUsed)},
	})
}

func TestDecideOnCondemnedClaim(t *testing.T) {
	gone := both(scaledDown, podAbsent)
	ready := both(gone, abandonedLongAgo)
	checkDecisions(t, []decision{
		{"its pod is there", facts(scaledDown), waits(ReasonPodRemains)},
		{"its pod is terminating", facts(scaledDown, podTerminating), waits(ReasonPodRemains)},
		{"its pod is not known", facts(scaledDown, podUnknown), waits(ReasonPodRemains)},
		{"a foreign pod of the name", facts(scaledDown, podForeign), waits(ReasonPodRemains)},
		{"it has just lost its pod", facts(gone), Decision{Wait, ReasonScaleDownGrace, DefaultGrace}},
		{"a part of the grace is over", facts(gone, func(f *Facts) { f.Sight.CondemnedSince = ago(20 * time.Second) }),
			Decision{Wait, ReasonScaleDownGrace, 40 * time.Second}},
		{"the set gives it longer", facts(ready, grace(time.Hour)),
			Decision{Wait, ReasonScaleDownGrace, time.Hour - DefaultGrace}},
		{"the set gives it no grace", facts(gone, grace(0)), does(ReadClaim, ReasonScaledDown)},
		{"the flag gives it longer", facts(ready, func(f *Facts) { f.Rules.Grace = time.Hour }),
			Decision{Wait, ReasonScaleDownGrace, time.Hour - DefaultGrace}},
		{"the grace is over", facts(ready), does(ReadClaim, ReasonScaledDown)},
		{"the claim was read", facts(ready, claimRead), does(ReadPod, ReasonScaledDown)},
		{"the pod was read before", facts(ready, claimRead, podAt(read(1))), does(ReadPod, ReasonScaledDown)},
		{"the pod was read", facts(ready, claimRead, podRead), does(ReadSet, ReasonScaledDown)},
		{"the set was read before", facts(ready, claimRead, podRead, setAt(read(2))), does(ReadSet, ReasonScaledDown)},
		{"all was read", facts(ready, allRead), does(DeleteClaim, ReasonScaledDown)},
		{"the claim was read too long ago", facts(ready, allRead, claimAt(old(1))), does(ReadClaim, ReasonScaledDown)},
		{"the pod was read too long ago", facts(ready, allRead, podAt(old(2))), does(ReadPod, ReasonScaledDown)},
		{"the set was read too long ago", facts(ready, allRead, setAt(old(3))), does(ReadSet, ReasonScaledDown)},
		{"ordinals start later", facts(startsLater, podAbsent, abandonedLongAgo, allRead),
			does(DeleteClaim, ReasonScaledDown)},
		{"by the annotation", facts(ready, annotated, allRead), does(DeleteClaim, ReasonScaledDown)},
		{"by the annotation, owned by the set", facts(ready, annotated, deleteBoth, owned(setRef("set")), allRead),
			does(DeleteClaim, ReasonScaledDown)},
		{"its pod is gone, and owned it", facts(ready, owned(controlling(podRef("pod"))), allRead),
			does(DeleteClaim, ReasonScaledDown)},

		{"held", facts(ready, held, allRead), waits(ReasonClaimHeld)},
		{"held, and Kubernetes, which does not know that, decides", facts(scaledDown, held), waits(ReasonPodRemains)},
		{"held, its pod is there, by the annotation", facts(scaledDown, held, annotated), waits(ReasonClaimHeld)},
		{"an invalid annotation", facts(ready, invalid, allRead), waits(ReasonInvalidPolicy)},
		{"its mark is a copy", facts(ready, copiedMark, allRead), does(PatchClaim, ReasonPolicyRemoved)},
		{"its mark is a copy, and not read", facts(ready, copiedMark), does(ReadSet, ReasonPolicyRemoved)},
		{"its mark was a copy", facts(ready, unmarked, allRead), waits(ReasonNeverUsed)},
		{"another controller", facts(ready, owned(controlling(foreignRef())), allRead), waits(ReasonConflictingController)},
		{"another owner", facts(ready, owned(foreignRef()), allRead), waits(ReasonOtherOwner)},
		{"another pod", facts(ready, otherPod, allRead), waits(ReasonUsedByOtherPod)},
		{"names collide", facts(ready, shared, unmarked, allRead), waits(ReasonNamesCollide)},
		{"the set is terminating", facts(ready, setTerminating, allRead), waits(ReasonSetTerminating)},
		{"the set is another one", facts(ready, unmarked, func(f *Facts) { f.Set.UID = "set2" }, allRead),
			waits(ReasonNeverUsed)},
	})
}

// Without the policy in Kubernetes, a claim goes with its condemned pod.
func TestDecideOnClaimOfCondemnedPod(t *testing.T) {
	goes := both(annotated, scaledDown, podTerminating, owned(podRef("pod")))
	checkDecisions(t, []decision{
		{"the pod runs yet", facts(annotated, scaledDown, owned(podRef("pod"))), waits(ReasonPodRemains)},
		{"the pod is terminating", facts(goes), does(ReadClaim, ReasonScaledDown)},
		{"the claim was read", facts(goes, claimRead), does(ReadPod, ReasonScaledDown)},
		{"the pod was read", facts(goes, claimRead, podRead), does(ReadSet, ReasonScaledDown)},
		{"all was read", facts(goes, allRead), does(DeleteClaim, ReasonScaledDown)},
		{"its mark is a copy, the pod is another's", facts(goes, copiedMark, podForeign, allRead),
			does(PatchClaim, ReasonPolicyRemoved)},
		{"nothing protects the claim", facts(goes, unprotected, allRead), waits(ReasonPodRemains)},
		{"held", facts(annotated, scaledDown, podTerminating, held, allRead), waits(ReasonClaimHeld)},
		{"another pod uses it", facts(goes, otherPod, allRead), waits(ReasonUsedByOtherPod)},
		{"a foreign pod of the name", facts(annotated, scaledDown, podForeign, podTerminating, allRead),
			waits(ReasonPodRemains)},
		{"Kubernetes has the policy", facts(scaledDown, podTerminating, owned(controlling(podRef("pod"))), allRead),
			waits(ReasonPodRemains)},
	})
}

func TestDecideOnTerminatingClaim(t *testing.T) {
	reused := both(annotated, terminatingClaim, owned(podRef("pod0")))
	after := func(reason Reason) func(string, ...func(*Facts)) decision {
		return func(name string, alter ...func(*Facts)) decision {
			return decision{name, facts(reused, allRead, both(alter...)), waits(reason)}
		}
	}
	warned, going := after(ReasonPodUsesTerminatingClaim), after(ReasonClaimTerminating)
	checkDecisions(t, []decision{
		{"a new pod uses the claim of the old one", facts(reused), does(ReadClaim, ReasonPodUsesOldClaim)},
		{"the claim was read", facts(reused, claimRead), does(ReadPod, ReasonPodUsesOldClaim)},
		{"the pod was read", facts(reused, claimRead, podRead), does(ReadSet, ReasonPodUsesOldClaim)},
		{"all was read", facts(reused, allRead), does(DeletePod, ReasonPodUsesOldClaim)},

		{"deleted by a person", facts(annotated, terminatingClaim, allRead), waits(ReasonPodUsesTerminatingClaim)},
		{"deleted by Kubernetes", facts(terminatingClaim, owned(controlling(podRef("pod0"))), allRead),
			waits(ReasonPodUsesTerminatingClaim)},
		{"the owner is the pod itself", facts(annotated, terminatingClaim, owned(podRef("pod")), allRead),
			waits(ReasonPodUsesTerminatingClaim)},
		{"its owner was the set", facts(annotated, deleteBoth, terminatingClaim, owned(setRef("set")), allRead),
			waits(ReasonPodUsesTerminatingClaim)},
		warned("without our mark", unmarked),
		warned("its mark is a copy", copiedMark),
		warned("names collide", shared),
		warned("Kubernetes has the policy", func(f *Facts) { f.Set.Source = SourceField }),
		warned("the policy keeps by scaling", deleteWithSet),
		warned("the set was made again", setAgain),

		going("no pod", podAbsent),
		going("a pod that is not known", podUnknown),
		going("the pod is going", podTerminating),
		going("a foreign pod", podForeign),
		going("the pod has another claim", podElsewhere),
		going("scaled away again", scaledDown),
		going("the set is going", setTerminating),
		going("the set is gone", setAbsent),
		going("the set is not known", setUnknown),
		going("the policy keeps all", retain),
		going("the set has other templates", otherTemplates),
	})
}

func TestDecideOnClaimWithoutSet(t *testing.T) {
	bothRead := func(f *Facts) { f.PodRead, f.SetRead = read(1), read(2) }
	alone := func(f *Facts) { f.Pod.Controller = "" }
	checkDecisions(t, []decision{
		{"as the watch shows it", facts(setAbsent), does(ReadSet, ReasonSetGone)},
		{"the set was read", facts(setAbsent, setRead), does(PatchClaim, ReasonSetGone)},
		{"the set was read too long ago", facts(setAbsent, setAt(old(3))), does(ReadSet, ReasonSetGone)},
		{"its mark is a copy", facts(setAbsent, copiedMark, setRead), does(PatchClaim, ReasonSetGone)},
		{"its set has other templates", facts(otherTemplates, setRead), does(PatchClaim, ReasonSetGone)},
		{"the set owns it", facts(setAbsent, owned(setRef("set")), bothRead), waits(ReasonSetDeleted)},
		{"a controller owns it", facts(setAbsent, owned(controlling(setRef("set"))), bothRead), waits(ReasonSetDeleted)},
		{"another one owns it", facts(setAbsent, owned(foreignRef()), bothRead), does(PatchClaim, ReasonSetGone)},
		{"its condemned pod owns it", facts(setAbsent, owned(podRef("pod"))), does(ReadPod, ReasonSetGone)},
		{"the pod goes with the set", facts(setAbsent, owned(podRef("pod")), bothRead), waits(ReasonSetDeleted)},
		{"the pod is orphaned", facts(setAbsent, owned(podRef("pod")), alone, bothRead), does(PatchClaim, ReasonSetGone)},
		{"the pod is orphaned, as the watch shows it", facts(setAbsent, owned(podRef("pod")), alone),
			does(ReadPod, ReasonSetGone)},
		{"the orphaned pod was read, the set before",
			facts(setAbsent, owned(podRef("pod")), alone, podRead, setAt(read(1))), does(ReadSet, ReasonSetGone)},
		{"the orphaned pod is going", facts(setAbsent, owned(podRef("pod")), alone, podTerminating, bothRead),
			waits(ReasonSetDeleted)},
		{"the orphaned pod is another one", facts(setAbsent, owned(podRef("pod0")), alone, bothRead),
			waits(ReasonSetDeleted)},
		{"the pod is gone", facts(setAbsent, owned(podRef("pod")), podAbsent, bothRead), waits(ReasonSetDeleted)},
		{"a pod owns it for another controller", facts(setAbsent, owned(controlling(podRef("pod"))), bothRead),
			does(PatchClaim, ReasonSetGone)},
	})
}

// Kubernetes creates claims, and makes the set their owner in a later sync. A deletion of the set between the two
// leaves them behind.
func TestDecideOnClaimLeftBehind(t *testing.T) {
	since := func(d time.Duration) func(*Facts) { return func(f *Facts) { f.Sight.LeftSince = ago(d) } }
	checkDecisions(t, []decision{
		{"it has just been seen", facts(left), Decision{Wait, ReasonNotManaged, Settling}},
		{"it is not reported yet", facts(left, since(Settling-time.Second)), Decision{Wait, ReasonNotManaged, time.Second}},
		{"it stays", facts(left, leftLongAgo), waits(ReasonOwnerReferenceMissing)},
		{"all was read", facts(left, leftLongAgo, allRead), waits(ReasonOwnerReferenceMissing)},
		{"its pod is there", facts(left, leftLongAgo, podUnknown), waits(ReasonNotManaged)},
		{"it is held", facts(left, leftLongAgo, held), waits(ReasonNotManaged)},
		{"it is terminating", facts(left, leftLongAgo, terminatingClaim), waits(ReasonClaimTerminating)},
		{"volume-guard is uninstalled", facts(left, leftLongAgo, uninstalled), waits(ReasonUninstalled)},
		{"the set is not known", facts(left, leftLongAgo, setUnknown), waits(ReasonNotManaged)},
		{"a set that is not remembered", facts(left, leftLongAgo, forgotten), waits(ReasonNotManaged)},
		{"a new set gives it the name", facts(left, leftLongAgo, again), waits(ReasonInRange)},
		{"the new set is scaled to less", facts(left, leftLongAgo, again, scaledDown), waits(ReasonNeverUsed)},
	})
	if got, want := facts(left).Detail(ReasonOwnerReferenceMissing),
		"It is ordinal 1 of StatefulSet db, which had the UID set."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func forgotten(f *Facts) { f.Last = Set{} }
func again(f *Facts) {
	f.SetSeen, f.Set = Found, facts().Set
	f.Set.UID = "set2"
}

func TestDecideOnChange(t *testing.T) {
	condemnedPod := both(annotated, scaledDown)
	checkDecisions(t, []decision{
		{"a claim gets its mark", facts(unmarked), does(ReadSet, ReasonPolicyApplied)},
		{"the set was read", facts(unmarked, setRead), does(PatchClaim, ReasonPolicyApplied)},
		{"the set was read too long ago", facts(unmarked, setAt(old(1))), does(ReadSet, ReasonPolicyApplied)},
		{"a mark that cannot be read", facts(garbageMark, setRead), does(PatchClaim, ReasonPolicyApplied)},
		{"a mark that cannot be read, no pod", facts(garbageMark, podAbsent, setRead), does(PatchClaim, ReasonPolicyRemoved)},
		{"the mark is a copy", facts(copiedMark, setRead), does(PatchClaim, ReasonPolicyApplied)},
		{"the mark is a copy, no pod", facts(copiedMark, podAbsent, setRead), does(PatchClaim, ReasonPolicyRemoved)},
		{"the mark is a copy, and the set does not get the claim",
			facts(annotated, deleteBoth, copiedMark, podAbsent, setRead), does(PatchClaim, ReasonPolicyRemoved)},
		{"the mark is of another ordinal", facts(func(f *Facts) { f.Claim.Mark.Ordinal = 2 }, setRead),
			does(PatchClaim, ReasonPolicyApplied)},
		{"the mark is of another set", facts(func(f *Facts) { f.Claim.Mark.Set = "db2" }, podAbsent, setRead),
			does(PatchClaim, ReasonPolicyRemoved)},
		{"the mark is of a set that is gone, no pod", facts(setAgain, podAbsent, setRead),
			does(PatchClaim, ReasonPolicyRemoved)},
		{"the mark is of a set that is gone", facts(setAgain, setRead), does(PatchClaim, ReasonPolicyApplied)},
		{"the policy retains, as the watch shows it", facts(retain), does(ReadSet, ReasonPolicyRemoved)},
		{"the policy retains", facts(retain, setRead), does(PatchClaim, ReasonPolicyRemoved)},
		{"the policy retains, scaled away", facts(retain, scaledDown, setRead), does(PatchClaim, ReasonPolicyRemoved)},
		{"the policy is no more", facts(noPolicy, setRead), does(PatchClaim, ReasonPolicyRemoved)},
		{"names collide by now", facts(shared, setRead), does(PatchClaim, ReasonPolicyRemoved)},
		{"the policy retains a claim without a pod",
			facts(annotated, deleteWithSet, owned(setRef("set")), scaledDown, podAbsent, podRead, setRead),
			does(PatchClaim, ReasonPolicyApplied)},
		{"the set gets the claim", facts(annotated, deleteBoth, setRead), does(PatchClaim, ReasonPolicyApplied)},

		{"a pod that was scaled away gets the claim, as the watch shows it", facts(condemnedPod),
			does(ReadPod, ReasonPolicyApplied)},
		{"it was read", facts(condemnedPod, podRead), does(ReadSet, ReasonPolicyApplied)},
		{"the set was read before it", facts(condemnedPod, podRead, setAt(read(1))), does(ReadSet, ReasonPolicyApplied)},
		{"the set was read after it", facts(condemnedPod, podRead, setRead), does(PatchClaim, ReasonPolicyApplied)},
		{"it was read too long ago", facts(condemnedPod, setRead, podAt(old(2))), does(ReadPod, ReasonPolicyApplied)},
		{"a pod that was scaled away gives the mark only after it was read", facts(markRetain, scaledDown, setRead),
			does(ReadPod, ReasonPolicyApplied)},
		{"a pod that is back loses the claim", facts(annotated, owned(podRef("pod")), setRead),
			does(PatchClaim, ReasonPolicyApplied)},

		{"others remove it again and again", facts(unmarked, setRead, added("db/set/1/Delete/claim", 3)),
			waits(ReasonContested)},
		{"others have removed it twice", facts(unmarked, setRead, added("db/set/1/Delete/claim", 2)),
			does(PatchClaim, ReasonPolicyApplied)},
		{"others have removed something else", facts(unmarked, setRead, added("db/set/1/Retain/claim", 3)),
			does(PatchClaim, ReasonPolicyApplied)},
		{"a contested mark is removed", facts(retain, setRead, added("", 3)), does(PatchClaim, ReasonPolicyRemoved)},

		{"uninstalled", facts(uninstalled), does(PatchClaim, ReasonUninstalled)},
		{"uninstalled, an unreadable mark", facts(uninstalled, garbageMark), does(PatchClaim, ReasonUninstalled)},
		{"uninstalled, without a set", facts(uninstalled, setUnknown), does(PatchClaim, ReasonUninstalled)},
		{"uninstalled, nothing is left", facts(uninstalled, unmarked), waits(ReasonUninstalled)},
		{"uninstalled, nothing is deleted", facts(uninstalled, unmarked, scaledDown, podAbsent, abandonedLongAgo, allRead),
			waits(ReasonUninstalled)},
	})
}
