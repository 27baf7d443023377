package statefulset

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// The facts of a decision are the claim, its set, its pod, and the reads. The tests visit every combination of the
// first three after all reads, and the relevant reads with fewer states of the claim.

// everyMark returns every relevant mark: none, an invalid mark, the usual marks, a copy from another claim, and the
// marks of other sets.
func everyMark() []Mark {
	return []Mark{
		{}, {}, {Set: "db", UID: "set", Ordinal: 1, WhenScaled: Delete, Claim: "claim"},
		{Set: "db", UID: "set", Ordinal: 1, Claim: "claim"},
		{Set: "db", UID: "set", Ordinal: 1, WhenScaled: Delete, Claim: "claim0"},
		{Set: "db", UID: "set0", Ordinal: 1, WhenScaled: Delete, Claim: "claim"},
		{Set: "db", UID: "set", Ordinal: 2, WhenScaled: Delete, Claim: "claim"},
		{Set: "db0", UID: "set", Ordinal: 1, WhenScaled: Delete, Claim: "claim"},
	}
}

// everyOwners returns every list of at most two owners.
func everyOwners() [][]metav1.OwnerReference {
	refs := []metav1.OwnerReference{
		setRef("set"), setRef("set0"), podRef("pod"), podRef("pod0"), controlling(podRef("pod")), controlling(setRef("set")),
		foreignRef(), controlling(foreignRef()),
	}
	owners := [][]metav1.OwnerReference{nil}
	for i, ref := range refs {
		owners = append(owners, []metav1.OwnerReference{ref})
		for _, other := range refs[i+1:] {
			owners = append(owners, []metav1.OwnerReference{ref, other})
		}
	}
	return owners
}

// everyClaim visits every relevant state of a claim with these marks and owners.
func everyClaim(marks []Mark, owners [][]metav1.OwnerReference, visit func(Claim)) {
	for bits := range 1 << 3 {
		for i, mark := range marks {
			for _, own := range owners {
				c := facts().Claim
				c.Terminating, c.Protected, c.Hold = bits&1 != 0, bits&2 != 0, bits&4 != 0
				c.Mark, c.Marked = mark, i > 0
				c.Owners = own
				visit(c)
			}
		}
	}
}

// everySet visits every relevant state of a set.
func everySet(visit func(Seen, Set)) {
	policies := []Policy{{}, {WhenDeleted: Delete}, {WhenScaled: Delete}, {Delete, Delete}}
	visit(Unknown, Set{})
	visit(Absent, Set{})
	for _, source := range []Source{SourceNone, SourceField, SourceAnnotation} {
		for _, policy := range policies {
			if source == SourceNone && !policy.Keeps() {
				continue // has no policy
			}
			for _, replicas := range []int{1, 2} {
				for _, alter := range []func(*Set){
					func(*Set) {}, func(s *Set) { s.Terminating = true }, func(s *Set) { s.Invalid = "wrong" },
					func(s *Set) { s.Templates = nil },
				} {
					s := facts().Set
					s.Source, s.Policy, s.Replicas = source, policy, replicas
					alter(&s)
					visit(Found, s)
				}
			}
		}
	}
}

// everyPod visits every relevant state of a pod.
func everyPod(visit func(Seen, Pod)) {
	visit(Unknown, Pod{})
	visit(Absent, Pod{})
	for bits := range 1 << 3 {
		p := facts().Pod
		p.Terminating = bits&1 != 0
		if bits&2 != 0 {
			p.Controller = "other"
		}
		if bits&4 != 0 {
			p.Claims = nil
		}
		visit(Found, p)
	}
}

// fresh reports whether a read counts, independently of the code.
func fresh(r session.Read) bool { return r.Order > 0 && now().Sub(r.Sent) <= 5*time.Second }

// readInOrder reports whether claim, pod and set were read live in this order.
func readInOrder(f Facts) bool {
	return fresh(f.ClaimRead) && fresh(f.PodRead) && fresh(f.SetRead) && f.ClaimRead.Order < f.PodRead.Order &&
		f.PodRead.Order < f.SetRead.Order
}

// ofThisSet reports whether the set is known, alive, and gives the claim its name.
func ofThisSet(f Facts) bool {
	return f.SetSeen == Found && f.Set.UID != "" && !f.Set.Terminating && slices.Contains(f.Set.Templates, "data")
}

// markedBySet reports whether the mark says that this set had a pod with this very claim.
func markedBySet(f Facts) bool {
	m := f.Claim.Mark
	return m.UID == f.Set.UID && m.Set == "db" && m.Ordinal == 1 && m.Claim == f.Claim.UID
}

func podOfSet(f Facts) bool { return f.PodSeen == Found && f.Pod.Controller == f.Set.UID }

// mayDelete returns an objection to the deletion of the claim, empty for none.
func mayDelete(f Facts) string {
	foreign := func(ref metav1.OwnerReference) bool { return ref.UID == "foreign" }
	switch {
	case f.Claim.UID == "" || f.Claim.Terminating:
		return "there is nothing to delete"
	case f.Rules.Removing:
		return "volume-guard is uninstalled"
	case !ofThisSet(f):
		return "it is not of a set that lives"
	case f.Shared:
		return "it may be of another set"
	case !markedBySet(f):
		return "it never had a pod of the set"
	case f.Claim.Mark.WhenScaled != Delete:
		return "the policy retained it while it had a pod"
	case f.Set.Policy.WhenScaled != Delete:
		return "the policy retains it"
	case f.Set.Replicas != 1 || f.Set.Start != 0:
		return "its replica is to run"
	case f.Set.Invalid != "":
		return "the policy of the set is unclear"
	case f.Claim.Hold:
		return "it is held"
	case slices.ContainsFunc(f.Claim.Owners, foreign):
		return "it has an owner that lives"
	case f.OtherPod != "":
		return "another pod uses it"
	case !readInOrder(f):
		return "the read is outdated"
	case f.PodSeen == Absent && (f.Sight.CondemnedSince.IsZero() || now().Sub(f.Sight.CondemnedSince) < time.Minute):
		return "the grace period has not passed"
	case f.PodSeen == Absent:
		return ""
	case f.Set.Source != SourceAnnotation || !podOfSet(f) || !f.Pod.Terminating || !f.Claim.Protected:
		return "its pod is not gone"
	}
	return ""
}

// mayDeletePod returns an objection to the deletion of the pod, empty for none.
func mayDeletePod(f Facts) string {
	ofOld := func(ref metav1.OwnerReference) bool { return ref.UID == "pod0" && ref.Controller == nil }
	switch {
	case f.Rules.Removing:
		return "volume-guard is uninstalled"
	case !f.Claim.Terminating:
		return "its claim stays"
	case !ofThisSet(f) || !podOfSet(f) || f.Shared:
		return "it is not known to be the set's"
	case f.Pod.Terminating || len(f.Pod.Claims) == 0:
		return "it does not use the claim"
	case f.Set.Replicas != 2:
		return "the set deletes it"
	case f.Set.Source != SourceAnnotation || f.Set.Policy.WhenScaled != Delete:
		return "the claim is not deleted by our policy"
	case !markedBySet(f) || !slices.ContainsFunc(f.Claim.Owners, ofOld):
		return "the claim is not deleted by our reference"
	case !readInOrder(f):
		return "the read is outdated"
	}
	return ""
}

// mayPatch returns an objection to the change of the claim, empty for none.
func mayPatch(f Facts) string {
	w := f.wanted()
	newRef := func(ref metav1.OwnerReference) bool {
		return !slices.ContainsFunc(f.Claim.Owners, func(has metav1.OwnerReference) bool { return has.UID == ref.UID })
	}
	added := slices.ContainsFunc(w.Owners, newRef)
	lost := func(ref metav1.OwnerReference) bool {
		return !slices.ContainsFunc(w.Owners, func(has metav1.OwnerReference) bool { return has.UID == ref.UID })
	}
	adds := added || w.Mark != (Mark{}) && w.Mark != f.Claim.Mark
	switch {
	case f.Rules.Removing && (w.Mark != Mark{} || added):
		return "volume-guard is uninstalled"
	case f.Claim.Terminating && !f.Rules.Removing:
		return "it is terminating"
	case !f.Rules.Removing && !fresh(f.SetRead):
		return "the set was not read"
	case adds && !ofThisSet(f):
		return "there is no set for it"
	case adds && f.Shared:
		return "it may be of another set"
	case adds && f.Set.Policy.Keeps() && (added || w.Mark.WhenScaled == Delete):
		return "the policy keeps it"
	case added && (f.Set.Source != SourceAnnotation || f.Claim.Hold || f.Set.Invalid != ""):
		return "it is not ours to own"
	case added && !markedBySet(f) && !podOfSet(f):
		return "it never had a pod of the set"
	case w.Mark.WhenScaled == Delete && w.Mark != f.Claim.Mark && !podOfSet(f):
		return "it has no pod"
	case adds && f.Set.Replicas == 1 && (!fresh(f.PodRead) || f.PodRead.Order >= f.SetRead.Order):
		return "its pod may be gone"
	}
	for _, ref := range f.Claim.Owners {
		if ref.UID == "foreign" && lost(ref) {
			return "a foreign owner is removed"
		}
	}
	for _, ref := range w.Owners {
		ours := ref.Controller == nil && (ref.UID == "set" || ref.UID == "pod" && f.Set.Replicas == 1)
		if newRef(ref) && !ours {
			return "it gets an owner that it is not to have"
		}
	}
	return ""
}

// mayReport returns an objection to the report that a deleted set left the claim behind, empty for none.
func mayReport(f Facts) string {
	last := f.Last
	switch {
	case f.Claim.UID == "" || f.Claim.Terminating || f.Rules.Removing:
		return "there is nothing to do about it"
	case last.UID == "" || !slices.Contains(last.Templates, "data"):
		return "no set is known to have had it"
	case last.Policy.WhenDeleted != Delete || last.Orphans || last.Source == SourceAnnotation && last.Invalid != "":
		return "the set was to leave it"
	case f.Claim.ByController.IsZero() || f.Claim.ByController.Before(last.Created):
		return "it was not created for the set"
	case len(f.Claim.Owners) > 0:
		return "garbage collection, or an owner, decides about it"
	case f.Claim.Marked || f.Claim.Hold:
		return "it is kept for another reason"
	case f.SetSeen == Unknown || f.SetSeen == Found && slices.Contains(f.Set.Templates, "data"):
		return "another set may have it"
	case f.PodSeen != Absent || f.OtherPod != "":
		return "a pod may use it"
	case f.Sight.LeftSince.IsZero() || now().Sub(f.Sight.LeftSince) < 30*time.Second:
		return "Kubernetes may still delete it"
	}
	return ""
}

// broken returns the promise that a decision breaks, empty for none.
func broken(f Facts, d Decision) string {
	switch d.Action {
	case DeleteClaim:
		return mayDelete(f)
	case DeletePod:
		return mayDeletePod(f)
	case PatchClaim:
		return mayPatch(f)
	case Wait:
		if mayDelete(f) == "" && !f.wanted().differs(f.Claim) {
			return "a condemned claim is kept for ever"
		}
		if why := mayReport(f); (why == "") != (d.Reason == ReasonOwnerReferenceMissing) {
			return "it is said to be left behind, or is and that is not said: " + why
		}
	case ReadClaim, ReadPod, ReadSet:
		if f.Rules.Removing || f.SetSeen == Unknown && f.Claim.Mark == (Mark{}) {
			return "something is read for nothing"
		}
	}
	return ""
}

// judge checks the decision on the facts and returns its action.
func judge(t *testing.T, f Facts) Action {
	t.Helper()
	d := Decide(f, now())
	if wrong := broken(f, d); wrong != "" {
		t.Fatalf("%v (%v): %s\n%+v", d.Action, d.Reason, wrong, f)
	}
	if d.After < 0 || d.After > DefaultGrace || d.After > 0 && d.Action != Wait || d.Reason == "" {
		t.Fatalf("%v (%v) waits %s\n%+v", d.Action, d.Reason, d.After, f)
	}
	return d.Action
}

// reads returns the relevant orders and ages of the three reads.
func reads() [][3]session.Read {
	return [][3]session.Read{
		{read(1), read(2), read(3)}, {}, {read(2), read(1), read(3)}, {read(1), read(3), read(2)}, {{}, read(1), read(2)},
		{{}, {}, read(1)}, {{}, read(2), read(1)}, {old(1), read(2), read(3)}, {read(1), old(2), read(3)},
		{read(1), read(2), old(3)},
	}
}

// everySituation visits every state of the claim, the set and the pod.
func everySituation(marks []Mark, owners [][]metav1.OwnerReference, visit func(Facts)) {
	everySet(func(setSeen Seen, s Set) {
		everyPod(func(podSeen Seen, p Pod) {
			everyClaim(marks, owners, func(c Claim) {
				visit(Facts{Claim: c, Ordinal: 1, SetSeen: setSeen, SetName: "db", Set: s, PodSeen: podSeen, Pod: p})
			})
		})
	})
}

const sets, pods = 2 + 9*8, 10

func TestNoCombinationOfObjectsBreaksAPromise(t *testing.T) {
	t.Parallel()
	visited, decided, reported := 0, map[Action]int{}, 0
	last := facts(left).Last
	everySituation(everyMark(), everyOwners(), func(f Facts) {
		both(allRead, abandonedLongAgo, leftLongAgo)(&f)
		f.Last, f.Claim.ByController = last, ago(time.Hour)
		decided[judge(t, f)]++
		visited++
		if mayReport(f) == "" {
			reported++
		}
	})
	if reported == 0 {
		t.Error("nothing leads to a report")
	}
	for _, a := range []Action{DeleteClaim, DeletePod, PatchClaim, Wait} {
		if decided[a] == 0 {
			t.Errorf("nothing leads to %s", a)
		}
	}
	if want := sets * pods * 8 * 8 * 37; visited != want {
		t.Errorf("visited %d combinations, want %d", visited, want)
	}
}

func TestNoCombinationOfReadsBreaksAPromise(t *testing.T) {
	t.Parallel()
	visited := 0
	owners := [][]metav1.OwnerReference{nil, {podRef("pod")}, {podRef("pod0")}}
	sights := []Sight{{}, {CondemnedSince: ago(time.Minute - time.Nanosecond)}, {CondemnedSince: ago(time.Minute)}}
	everySituation(everyMark()[:5], owners, func(f Facts) {
		for i, r := range reads() {
			f.ClaimRead, f.PodRead, f.SetRead, f.Sight = r[0], r[1], r[2], sights[2]
			judge(t, f)
			visited++
			if i > 0 {
				continue
			}
			for _, f.Sight = range sights[:2] {
				judge(t, f)
				visited++
			}
			f.Sight = sights[2]
			for bits := 1; bits < 1<<3; bits++ {
				f.Shared, f.Rules.Removing, f.OtherPod = bits&1 != 0, bits&2 != 0, []string{"", "backup"}[bits>>2]
				judge(t, f)
				visited++
			}
			f.Shared, f.Rules.Removing, f.OtherPod = false, false, ""
		}
	})
	if want := sets * pods * 8 * 5 * 3 * (10 + 2 + 7); visited != want {
		t.Errorf("visited %d combinations, want %d", visited, want)
	}
}

// One unknown fact about a claim is enough to prevent its deletion, and any addition to it.
func TestUnknownFactKeepsClaim(t *testing.T) {
	for name, forget := range map[string]func(*Facts){
		"the set":            setUnknown,
		"the pod":            podUnknown,
		"the mark":           garbageMark,
		"whose mark it is":   copiedMark,
		"the templates":      func(f *Facts) { f.Set.Templates = nil },
		"the UID of the set": func(f *Facts) { f.Set.UID = "" },
		"the policy":         func(f *Facts) { f.Set.Policy = Policy{} },
		"the reads": func(f *Facts) {
			f.ClaimRead, f.PodRead, f.SetRead = session.Read{}, session.Read{}, session.Read{}
		},
		"when it was condemned": func(f *Facts) { f.Sight = Sight{} },
		"the claim":             func(f *Facts) { f.Claim = Claim{} },
		"anything":              func(f *Facts) { *f = Facts{} },
	} {
		for _, source := range []func(*Facts){func(*Facts) {}, annotated} {
			f := facts(source, scaledDown, podAbsent, abandonedLongAgo, allRead)
			if d := Decide(f, now()); d.Action != DeleteClaim {
				t.Fatalf("%v (%s)", d.Action, d.Reason)
			}
			forget(&f)
			d := Decide(f, now())
			if d.Action == DeleteClaim || d.Action == DeletePod || d.Action == PatchClaim && f.wanted().adds(f.Claim) {
				t.Errorf("%s: %v (%s)", name, d.Action, d.Reason)
			}
		}
	}
}
