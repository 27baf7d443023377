package statefulset

import "testing"

// TestForeseeUnattended compares the fates of a claim of ordinal 1 with and without volume-guard.
func TestForeseeUnattended(t *testing.T) {
	set, pod, other := setRef("set"), podRef("pod"), foreignRef()
	of := func(from Source, replicas int, alter ...func(*Facts)) Facts {
		return facts(deleteBoth, func(f *Facts) { f.Set.Source, f.Set.Replicas = from, replicas }, both(alter...))
	}
	down, remove, orphan := Change{Kind: Scale, Replicas: 1}, Change{Kind: DeleteSet}, Change{Kind: OrphanSet}
	for _, c := range []struct {
		sentence         string
		facts            Facts
		change           Change
		fate, unattended Fate
	}{
		{"field: its pod goes", of(SourceField, 2, owned(set)), down, Deleted, Deleted},
		{"field: its pod is gone already", of(SourceField, 1, podAbsent), down, Deleted, Kept},
		{"field: its pod is gone, held", of(SourceField, 1, podAbsent, held), down, Kept, Kept},
		{"field: in range", of(SourceField, 1, podAbsent, owned(set)), Change{Kind: Scale, Replicas: 2}, Kept, Kept},
		{"field: the set goes", of(SourceField, 2, owned(set)), remove, Deleted, Deleted},
		{"field: the set goes, not owned, no pod", of(SourceField, 1, podAbsent), remove, Kept, Kept},
		{"field: the set goes, another owner stays", of(SourceField, 2, podAbsent, owned(set, other)), remove, Kept, Kept},
		{"field: orphaned", of(SourceField, 2, owned(set)), orphan, Kept, Kept},
		{"annotation: its pod goes", of(SourceAnnotation, 2, owned(set)), down, Deleted, Kept},
		{"annotation: its pod goes, and owns it", of(SourceAnnotation, 1, owned(pod)), down, Deleted, Deleted},
		{"annotation: scaled up, its pod owns it", of(SourceAnnotation, 1, owned(pod)), Change{Kind: Scale, Replicas: 2},
			Kept, Kept},
		{"annotation: its pod is gone, the set owns", of(SourceAnnotation, 1, podAbsent, owned(set)), down, Deleted, Kept},
		{"annotation: the set goes, and owns it", of(SourceAnnotation, 2, owned(set)), remove, Deleted, Deleted},
		{"annotation: the set goes, not owned yet", of(SourceAnnotation, 2), remove, Deleted, Kept},
		{"annotation: the set goes, held, and owned", of(SourceAnnotation, 2, owned(set), held), remove, Kept, Deleted},
		{"annotation: orphaned, the set owns it", of(SourceAnnotation, 2, owned(set)), orphan, Kept, Kept},
		{"annotation: orphaned, its pod owns it", of(SourceAnnotation, 1, owned(pod)), orphan, Kept, Kept},
		{"annotation: orphaned, its pod is going", of(SourceAnnotation, 1, owned(pod), podTerminating), orphan, Deleted,
			Deleted},
		{"annotation: orphaned, another owner", of(SourceAnnotation, 1, owned(set, other)), orphan, Kept, Kept},
		{"annotation: orphaned, no owner", of(SourceAnnotation, 1), orphan, Kept, Kept},
		{"annotation: the set goes, with its pod", of(SourceAnnotation, 1, owned(pod)), remove, Deleted, Deleted},
		{"a foreign pod of the name owns it", of(SourceAnnotation, 2, owned(pod), podForeign), remove, Kept, Kept},
		{"an owner is gone, and the set lives", of(SourceField, 2, podAbsent, owned(pod, set)), down, Deleted, Kept},
		{"annotation: orphaned, the set and a pod that is going own it",
			of(SourceAnnotation, 1, owned(set, pod), podTerminating), orphan, Deleted, Deleted},
		{"annotation: orphaned, another and a pod that is going own it",
			of(SourceAnnotation, 1, owned(other, pod), podTerminating), orphan, Kept, Kept},
		{"annotation: the set goes, another owner stays", of(SourceAnnotation, 2, owned(other)), remove, Kept, Kept},
		{"it is terminating", of(SourceAnnotation, 2, terminatingClaim), orphan, Deleted, Deleted},
		{"it is of another template", of(SourceAnnotation, 2, podAbsent, owned(set), otherTemplates), remove, Kept, Kept},
		{"its set is not known", of(SourceAnnotation, 2, podAbsent, owned(set), setUnknown), remove, FateUnknown,
			FateUnknown},
		{"its pod's reference is left over", of(SourceAnnotation, 2, podAbsent, owned(pod)), down, Deleted, Deleted},
	} {
		if got := Foresee(c.facts, c.change); got.Fate != c.fate || got.Unattended != c.unattended {
			t.Errorf("%s: %v (%s), unattended %v; want %v, %v", c.sentence, got.Fate, got.Reason, got.Unattended, c.fate,
				c.unattended)
		}
	}
}

// TestForeseeOtherPod checks that a claim owned by its pod is deleted even while another pod uses it.
func TestForeseeOtherPod(t *testing.T) {
	if got := Foresee(facts(unmarked, otherPod), Change{Kind: Scale, Replicas: 1}); got.Fate != Deleted {
		t.Errorf("%v (%s), want deleted", got.Fate, got.Reason)
	}
}
