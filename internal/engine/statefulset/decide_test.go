package statefulset

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

type decision struct {
	facts  Facts
	action Action
	reason Reason
	after  time.Duration
}

func checkDecisions(t *testing.T, cases map[string]decision) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if d := Decide(c.facts, now()); d != (Decision{c.action, c.reason, c.after}) {
				t.Errorf("%v because %s after %s, want %v because %s after %s", d.Action, d.Reason, d.After,
					c.action, c.reason, c.after)
			}
		})
	}
}

func TestDecideOnKeptClaim(t *testing.T) {
	checkDecisions(t, map[string]decision{
		"nothing is known":                       {Facts{}, Wait, ReasonNoClaim, 0},
		"the set is not known":                   {facts(setUnknown), Wait, ReasonNotManaged, 0},
		"a claim of no set, without mark":        {facts(setAbsent, unmarked), Wait, ReasonNotManaged, 0},
		"a mark that cannot be read, and no set": {facts(setAbsent, garbageMark), Wait, ReasonNotManaged, 0},
		"the replica runs":                       {facts(), Wait, ReasonInUse, 0},
		"the replica has lost its pod":           {facts(podAbsent), Wait, ReasonInRange, 0},
		"the pod is not known":                   {facts(podUnknown), Wait, ReasonInRange, 0},
		"another pod has the pod's name":         {facts(podForeign), Wait, ReasonInRange, 0},
		"the set has no policy":                  {facts(noPolicy, unmarked), Wait, ReasonInUse, 0},
		"the set is being deleted":               {facts(setTerminating), Wait, ReasonSetTerminating, 0},
		"nothing is added to the claim of a set that is being deleted": {
			facts(setTerminating, unmarked, annotated, deleteBoth, allRead), Wait, ReasonSetTerminating, 0},
		"names collide": {facts(shared, unmarked), Wait, ReasonNamesCollide, 0},
		"names collide, scaled down, no pod": {
			facts(shared, unmarked, scaledDown, podAbsent), Wait, ReasonNamesCollide, 0},
		"scaled down, and the policy retains": {
			facts(unmarked, retain, scaledDown, podAbsent), Wait, ReasonRetained, 0},
		"scaled down, the policy retains, and the pod is going": {
			facts(unmarked, retain, scaledDown, podTerminating), Wait, ReasonRetained, 0},
		"scaled down without ever a pod": {
			facts(unmarked, scaledDown, podAbsent), Wait, ReasonNeverUsed, 0},
		"scaled down under Retain, and the policy turned": {
			facts(markRetain, scaledDown, podAbsent), Wait, ReasonNeverUsed, 0},
		"scaled down, made for another set of the name": {
			facts(setAgain, unmarked, scaledDown, podAbsent), Wait, ReasonNeverUsed, 0},
		"scaled down under Retain, and a foreign pod": {
			facts(markRetain, scaledDown, podForeign), Wait, ReasonPodRemains, 0},
		"an owner is gone": {facts(owned(podRef("pod0")), podAbsent), Wait, ReasonOwnerGone, 0},
		"the set was made again while its claim goes": {
			facts(owned(setRef("set0")), unmarked), Wait, ReasonOwnerGone, 0},
		"a claim that goes gets no mark": {facts(owned(podRef("pod0")), unmarked), Wait, ReasonOwnerGone, 0},
		"another controller": {
			facts(owned(controlling(foreignRef()))), Wait, ReasonConflictingController, 0},
		"another controller, and no policy that matters": {
			facts(owned(controlling(foreignRef())), retain, unmarked), Wait, ReasonInUse, 0},
		"another owner": {facts(owned(foreignRef())), Wait, ReasonInUse, 0},
		"the set and its ordinals start after the claim's": {
			facts(markRetain, startsLater, podAbsent), Wait, ReasonNeverUsed, 0},
	})
}

func TestDecideOnCondemnedClaim(t *testing.T) {
	gone := both(scaledDown, podAbsent)
	ready := both(gone, abandonedLongAgo)
	checkDecisions(t, map[string]decision{
		"its pod is there":          {facts(scaledDown), Wait, ReasonPodRemains, 0},
		"its pod is terminating":    {facts(scaledDown, podTerminating), Wait, ReasonPodRemains, 0},
		"its pod is not known":      {facts(scaledDown, podUnknown), Wait, ReasonPodRemains, 0},
		"a foreign pod of the name": {facts(scaledDown, podForeign), Wait, ReasonPodRemains, 0},
		"it has just lost its pod":  {facts(gone), Wait, ReasonScaleDownGrace, DefaultGrace},
		"a part of the grace is over": {
			facts(gone, func(f *Facts) { f.Sight.CondemnedSince = ago(20 * time.Second) }), Wait, ReasonScaleDownGrace,
			40 * time.Second},
		"the set gives it longer": {
			facts(ready, grace(time.Hour)), Wait, ReasonScaleDownGrace, time.Hour - DefaultGrace},
		"the set gives it no grace": {facts(gone, grace(0)), ReadClaim, ReasonScaledDown, 0},
		"the flag gives it longer": {
			facts(ready, func(f *Facts) { f.Rules.Grace = time.Hour }), Wait, ReasonScaleDownGrace, time.Hour - DefaultGrace},
		"the grace is over":  {facts(ready), ReadClaim, ReasonScaledDown, 0},
		"the claim was read": {facts(ready, claimRead), ReadPod, ReasonScaledDown, 0},
		"the pod was read before": {
			facts(ready, claimRead, func(f *Facts) { f.PodRead = read(1) }), ReadPod, ReasonScaledDown, 0},
		"the pod was read": {facts(ready, claimRead, podRead), ReadSet, ReasonScaledDown, 0},
		"the set was read before": {
			facts(ready, claimRead, podRead, func(f *Facts) { f.SetRead = read(2) }), ReadSet, ReasonScaledDown, 0},
		"all was read": {facts(ready, allRead), DeleteClaim, ReasonScaledDown, 0},
		"the claim was read too long ago": {
			facts(ready, allRead, func(f *Facts) { f.ClaimRead = old(1) }), ReadClaim, ReasonScaledDown, 0},
		"the pod was read too long ago": {
			facts(ready, allRead, func(f *Facts) { f.PodRead = old(2) }), ReadPod, ReasonScaledDown, 0},
		"the set was read too long ago": {
			facts(ready, allRead, func(f *Facts) { f.SetRead = old(3) }), ReadSet, ReasonScaledDown, 0},
		"ordinals start later": {
			facts(startsLater, podAbsent, abandonedLongAgo, allRead), DeleteClaim, ReasonScaledDown, 0},
		"by the annotation": {facts(ready, annotated, allRead), DeleteClaim, ReasonScaledDown, 0},
		"by the annotation, owned by the set": {
			facts(ready, annotated, deleteBoth, owned(setRef("set")), allRead), DeleteClaim, ReasonScaledDown, 0},
		"its pod is gone, and owned it": {
			facts(ready, owned(controlling(podRef("pod"))), allRead), DeleteClaim, ReasonScaledDown, 0},

		"held":                  {facts(ready, held, allRead), Wait, ReasonClaimHeld, 0},
		"an invalid annotation": {facts(ready, invalid, allRead), Wait, ReasonInvalidPolicy, 0},
		"its mark is a copy":    {facts(ready, copiedMark, allRead), PatchClaim, ReasonPolicyRemoved, 0},
		"its mark is a copy, and not read": {
			facts(ready, copiedMark), ReadSet, ReasonPolicyRemoved, 0},
		"its mark was a copy": {facts(ready, unmarked, allRead), Wait, ReasonNeverUsed, 0},
		"another controller": {
			facts(ready, owned(controlling(foreignRef())), allRead), Wait, ReasonConflictingController, 0},
		"another owner":          {facts(ready, owned(foreignRef()), allRead), Wait, ReasonOtherOwner, 0},
		"another pod":            {facts(ready, otherPod, allRead), Wait, ReasonUsedByOtherPod, 0},
		"names collide":          {facts(ready, shared, unmarked, allRead), Wait, ReasonNamesCollide, 0},
		"the set is terminating": {facts(ready, setTerminating, allRead), Wait, ReasonSetTerminating, 0},
		"the set is another one": {
			facts(ready, unmarked, func(f *Facts) { f.Set.UID = "set2" }, allRead), Wait, ReasonNeverUsed, 0},
	})
}

// Without the policy in Kubernetes, a claim goes with its condemned pod.
func TestDecideOnClaimOfCondemnedPod(t *testing.T) {
	goes := both(annotated, scaledDown, podTerminating, owned(podRef("pod")))
	checkDecisions(t, map[string]decision{
		"the pod runs yet": {
			facts(annotated, scaledDown, owned(podRef("pod"))), Wait, ReasonPodRemains, 0},
		"the pod is terminating": {facts(goes), ReadClaim, ReasonScaledDown, 0},
		"the claim was read":     {facts(goes, claimRead), ReadPod, ReasonScaledDown, 0},
		"the pod was read":       {facts(goes, claimRead, podRead), ReadSet, ReasonScaledDown, 0},
		"all was read":           {facts(goes, allRead), DeleteClaim, ReasonScaledDown, 0},
		"its mark is a copy, the pod is another's": {
			facts(goes, copiedMark, podForeign, allRead), PatchClaim, ReasonPolicyRemoved, 0},
		"nothing protects the claim": {facts(goes, unprotected, allRead), Wait, ReasonPodRemains, 0},
		"held": {
			facts(annotated, scaledDown, podTerminating, held, allRead), Wait, ReasonClaimHeld, 0},
		"another pod uses it": {facts(goes, otherPod, allRead), Wait, ReasonUsedByOtherPod, 0},
		"a foreign pod of the name": {
			facts(annotated, scaledDown, podForeign, podTerminating, allRead), Wait, ReasonPodRemains, 0},
		"Kubernetes has the policy": {
			facts(scaledDown, podTerminating, owned(controlling(podRef("pod"))), allRead), Wait, ReasonPodRemains, 0},
	})
}

func TestDecideOnTerminatingClaim(t *testing.T) {
	reused := both(annotated, terminatingClaim, owned(podRef("pod0")))
	warned := func(alter ...func(*Facts)) decision {
		return decision{facts(append([]func(*Facts){reused, allRead}, alter...)...), Wait, ReasonPodUsesTerminatingClaim, 0}
	}
	going := func(alter ...func(*Facts)) decision {
		return decision{facts(append([]func(*Facts){reused, allRead}, alter...)...), Wait, ReasonClaimTerminating, 0}
	}
	checkDecisions(t, map[string]decision{
		"a new pod uses the claim of the old one": {facts(reused), ReadClaim, ReasonPodUsesOldClaim, 0},
		"the claim was read": {
			facts(reused, claimRead), ReadPod, ReasonPodUsesOldClaim, 0},
		"the pod was read": {
			facts(reused, claimRead, podRead), ReadSet, ReasonPodUsesOldClaim, 0},
		"all was read": {
			facts(reused, allRead), DeletePod, ReasonPodUsesOldClaim, 0},

		"deleted by a person": {
			facts(annotated, terminatingClaim, allRead), Wait, ReasonPodUsesTerminatingClaim, 0},
		"deleted by Kubernetes": {
			facts(terminatingClaim, owned(controlling(podRef("pod0"))), allRead), Wait, ReasonPodUsesTerminatingClaim, 0},
		"the owner is the pod itself": {
			facts(annotated, terminatingClaim, owned(podRef("pod")), allRead), Wait, ReasonPodUsesTerminatingClaim, 0},
		"its owner was the set": {
			facts(annotated, deleteBoth, terminatingClaim, owned(setRef("set")), allRead), Wait,
			ReasonPodUsesTerminatingClaim, 0},
		"without our mark":            warned(unmarked),
		"its mark is a copy":          warned(copiedMark),
		"names collide":               warned(shared),
		"Kubernetes has the policy":   warned(func(f *Facts) { f.Set.Source = SourceField }),
		"the policy keeps by scaling": warned(deleteWithSet),
		"the set was made again":      warned(setAgain),

		"no pod":                      going(podAbsent),
		"a pod that is not known":     going(podUnknown),
		"the pod is going":            going(podTerminating),
		"a foreign pod":               going(podForeign),
		"the pod has another claim":   going(podElsewhere),
		"scaled away again":           going(scaledDown),
		"the set is going":            going(setTerminating),
		"the set is gone":             going(setAbsent),
		"the set is not known":        going(setUnknown),
		"the policy keeps all":        going(retain),
		"the set has other templates": going(otherTemplates),
	})
}

func TestDecideOnClaimWithoutSet(t *testing.T) {
	read := func(f *Facts) { f.PodRead, f.SetRead = read(1), read(2) }
	alone := func(f *Facts) { f.Pod.Controller = "" }
	checkDecisions(t, map[string]decision{
		"as the watch shows it": {facts(setAbsent), ReadSet, ReasonSetGone, 0},
		"the set was read":      {facts(setAbsent, setRead), PatchClaim, ReasonSetGone, 0},
		"the set was read too long ago": {
			facts(setAbsent, func(f *Facts) { f.SetRead = old(3) }), ReadSet, ReasonSetGone, 0},
		"its mark is a copy":          {facts(setAbsent, copiedMark, setRead), PatchClaim, ReasonSetGone, 0},
		"its set has other templates": {facts(otherTemplates, setRead), PatchClaim, ReasonSetGone, 0},
		"the set owns it": {
			facts(setAbsent, owned(setRef("set")), read), Wait, ReasonSetDeleted, 0},
		"a controller owns it": {
			facts(setAbsent, owned(controlling(setRef("set"))), read), Wait, ReasonSetDeleted, 0},
		"another one owns it": {
			facts(setAbsent, owned(foreignRef()), read), PatchClaim, ReasonSetGone, 0},
		"its condemned pod owns it": {
			facts(setAbsent, owned(podRef("pod"))), ReadPod, ReasonSetGone, 0},
		"the pod goes with the set": {
			facts(setAbsent, owned(podRef("pod")), read), Wait, ReasonSetDeleted, 0},
		"the pod is orphaned": {
			facts(setAbsent, owned(podRef("pod")), alone, read), PatchClaim, ReasonSetGone, 0},
		"the pod is orphaned, as the watch shows it": {
			facts(setAbsent, owned(podRef("pod")), alone), ReadPod, ReasonSetGone, 0},
		"the orphaned pod was read, the set before": {
			facts(setAbsent, owned(podRef("pod")), alone, podRead,
				func(f *Facts) { f.SetRead = session.Read{Sent: now(), Order: 1} }),
			ReadSet, ReasonSetGone, 0},
		"the orphaned pod is going": {
			facts(setAbsent, owned(podRef("pod")), alone, podTerminating, read), Wait, ReasonSetDeleted, 0},
		"the orphaned pod is another one": {
			facts(setAbsent, owned(podRef("pod0")), alone, read), Wait, ReasonSetDeleted, 0},
		"the pod is gone": {facts(setAbsent, owned(podRef("pod")), podAbsent, read), Wait, ReasonSetDeleted, 0},
		"a pod owns it for another controller": {
			facts(setAbsent, owned(controlling(podRef("pod"))), read), PatchClaim, ReasonSetGone, 0},
	})
}

// Kubernetes creates claims, and makes the set their owner in a later sync. A deletion of the set between the two
// leaves them behind.
func TestDecideOnClaimLeftBehind(t *testing.T) {
	since := func(d time.Duration) func(*Facts) { return func(f *Facts) { f.Sight.LeftSince = ago(d) } }
	checkDecisions(t, map[string]decision{
		"it has just been seen":         {facts(left), Wait, ReasonNotManaged, Settling},
		"it is not reported yet":        {facts(left, since(Settling-time.Second)), Wait, ReasonNotManaged, time.Second},
		"it stays":                      {facts(left, leftLongAgo), Wait, ReasonOwnerReferenceMissing, 0},
		"all was read":                  {facts(left, leftLongAgo, allRead), Wait, ReasonOwnerReferenceMissing, 0},
		"its pod is there":              {facts(left, leftLongAgo, podUnknown), Wait, ReasonNotManaged, 0},
		"it is held":                    {facts(left, leftLongAgo, held), Wait, ReasonNotManaged, 0},
		"it is terminating":             {facts(left, leftLongAgo, terminatingClaim), Wait, ReasonClaimTerminating, 0},
		"volume-guard is uninstalled":   {facts(left, leftLongAgo, uninstalled), Wait, ReasonUninstalled, 0},
		"the set is not known":          {facts(left, leftLongAgo, setUnknown), Wait, ReasonNotManaged, 0},
		"a set that is not remembered":  {facts(left, leftLongAgo, forgotten), Wait, ReasonNotManaged, 0},
		"a new set gives it the name":   {facts(left, leftLongAgo, again), Wait, ReasonInRange, 0},
		"the new set is scaled to less": {facts(left, leftLongAgo, again, scaledDown), Wait, ReasonNeverUsed, 0},
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
	checkDecisions(t, map[string]decision{
		"a claim gets its mark": {facts(unmarked), ReadSet, ReasonPolicyApplied, 0},
		"the set was read":      {facts(unmarked, setRead), PatchClaim, ReasonPolicyApplied, 0},
		"the set was read too long ago": {
			facts(unmarked, func(f *Facts) { f.SetRead = old(1) }), ReadSet, ReasonPolicyApplied, 0},
		"a mark that cannot be read": {facts(garbageMark, setRead), PatchClaim, ReasonPolicyApplied, 0},
		"a mark that cannot be read, no pod": {
			facts(garbageMark, podAbsent, setRead), PatchClaim, ReasonPolicyRemoved, 0},
		"the mark is a copy": {facts(copiedMark, setRead), PatchClaim, ReasonPolicyApplied, 0},
		"the mark is a copy, no pod": {
			facts(copiedMark, podAbsent, setRead), PatchClaim, ReasonPolicyRemoved, 0},
		"the mark is a copy, and the set does not get the claim": {
			facts(annotated, deleteBoth, copiedMark, podAbsent, setRead), PatchClaim, ReasonPolicyRemoved, 0},
		"the mark is of another ordinal": {
			facts(func(f *Facts) { f.Claim.Mark.Ordinal = 2 }, setRead), PatchClaim, ReasonPolicyApplied, 0},
		"the mark is of another set": {
			facts(func(f *Facts) { f.Claim.Mark.Set = "db2" }, podAbsent, setRead), PatchClaim, ReasonPolicyRemoved, 0},
		"the mark is of a set that is gone, no pod": {
			facts(setAgain, podAbsent, setRead), PatchClaim, ReasonPolicyRemoved, 0},
		"the mark is of a set that is gone": {
			facts(setAgain, setRead), PatchClaim, ReasonPolicyApplied, 0},
		"the policy retains, as the watch shows it": {facts(retain), ReadSet, ReasonPolicyRemoved, 0},
		"the policy retains": {
			facts(retain, setRead), PatchClaim, ReasonPolicyRemoved, 0},
		"the policy retains, scaled away": {
			facts(retain, scaledDown, setRead), PatchClaim, ReasonPolicyRemoved, 0},
		"the policy is no more": {
			facts(noPolicy, setRead), PatchClaim, ReasonPolicyRemoved, 0},
		"names collide by now": {
			facts(shared, setRead), PatchClaim, ReasonPolicyRemoved, 0},
		"the policy retains a claim without a pod": {
			facts(annotated, deleteWithSet, owned(setRef("set")), scaledDown, podAbsent, podRead, setRead),
			PatchClaim, ReasonPolicyApplied, 0},
		"the set gets the claim": {facts(annotated, deleteBoth, setRead), PatchClaim, ReasonPolicyApplied, 0},

		"a pod that was scaled away gets the claim, as the watch shows it": {
			facts(condemnedPod), ReadPod, ReasonPolicyApplied, 0},
		"it was read": {facts(condemnedPod, podRead), ReadSet, ReasonPolicyApplied, 0},
		"the set was read before it": {
			facts(condemnedPod, podRead, func(f *Facts) { f.SetRead = read(1) }), ReadSet, ReasonPolicyApplied, 0},
		"the set was read after it": {
			facts(condemnedPod, podRead, setRead), PatchClaim, ReasonPolicyApplied, 0},
		"it was read too long ago": {
			facts(condemnedPod, setRead, func(f *Facts) { f.PodRead = old(2) }), ReadPod, ReasonPolicyApplied, 0},
		"a pod that was scaled away gives the mark only after it was read": {
			facts(markRetain, scaledDown, setRead), ReadPod, ReasonPolicyApplied, 0},
		"a pod that is back loses the claim": {
			facts(annotated, owned(podRef("pod")), setRead), PatchClaim, ReasonPolicyApplied, 0},

		"others remove it again and again": {
			facts(unmarked, setRead, func(f *Facts) { f.Sight = Sight{Added: "db/set/1/Delete/claim", Additions: 3} }),
			Wait, ReasonContested, 0},
		"others have removed it twice": {
			facts(unmarked, setRead, func(f *Facts) { f.Sight = Sight{Added: "db/set/1/Delete/claim", Additions: 2} }),
			PatchClaim, ReasonPolicyApplied, 0},
		"others have removed something else": {
			facts(unmarked, setRead, func(f *Facts) { f.Sight = Sight{Added: "db/set/1/Retain/claim", Additions: 3} }),
			PatchClaim, ReasonPolicyApplied, 0},
		"a contested mark is removed": {
			facts(retain, setRead, func(f *Facts) { f.Sight = Sight{Added: "", Additions: 3} }),
			PatchClaim, ReasonPolicyRemoved, 0},

		"uninstalled":                     {facts(uninstalled), PatchClaim, ReasonUninstalled, 0},
		"uninstalled, an unreadable mark": {facts(uninstalled, garbageMark), PatchClaim, ReasonUninstalled, 0},
		"uninstalled, without a set":      {facts(uninstalled, setUnknown), PatchClaim, ReasonUninstalled, 0},
		"uninstalled, nothing is left":    {facts(uninstalled, unmarked), Wait, ReasonUninstalled, 0},
		"uninstalled, nothing is deleted": {
			facts(uninstalled, unmarked, scaledDown, podAbsent, abandonedLongAgo, allRead), Wait, ReasonUninstalled, 0},
	})
}
