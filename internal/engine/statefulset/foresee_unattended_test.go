package statefulset

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestForeseeUnattended compares the fates of a claim of ordinal 1 with and without volume-guard.
func TestForeseeUnattended(t *testing.T) {
	set := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "set"}
	pod := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "db-1", UID: "pod"}
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "db", UID: "other"}
	always := Policy{WhenDeleted: Delete, WhenScaled: Delete}
	of := func(from Source, replicas int, seen Seen, owners ...metav1.OwnerReference) Facts {
		f := Facts{
			Claim: Claim{Name: "data-db-1", UID: "claim", Owners: owners, Marked: true,
				Mark: Mark{Set: "db", UID: "set", Ordinal: 1, WhenScaled: Delete, Claim: "claim"}},
			Ordinal: 1, SetSeen: Found, SetName: "db", PodSeen: seen,
			Set: Set{Name: "db", UID: "set", Replicas: replicas, Templates: []string{"data"}, Policy: always, Source: from},
		}
		if seen == Found {
			f.Pod = Pod{Name: "db-1", UID: "pod", Controller: "set"}
		}
		return f
	}
	held := func(f Facts) Facts { f.Claim.Hold = true; return f }
	stops := func(f Facts) Facts { f.Pod.Terminating = true; return f }
	foreign := func(f Facts) Facts { f.Pod.Controller = ""; return f }
	going := func(f Facts) Facts { f.Claim.Terminating = true; return f }
	logs := func(f Facts) Facts { f.Set.Templates = []string{"logs"}; return f }
	unseen := func(f Facts) Facts { f.SetSeen = Unknown; return f }
	down, remove, orphan := Change{Kind: Scale, Replicas: 1}, Change{Kind: DeleteSet}, Change{Kind: OrphanSet}
	for sentence, c := range map[string]struct {
		facts            Facts
		change           Change
		fate, unattended Fate
	}{
		"field: its pod goes":            {of(SourceField, 2, Found, set), down, Deleted, Deleted},
		"field: its pod is gone already": {of(SourceField, 1, Absent), down, Deleted, Kept},
		"field: its pod is gone, held":   {held(of(SourceField, 1, Absent)), down, Kept, Kept},
		"field: in range": {
			of(SourceField, 1, Absent, set), Change{Kind: Scale, Replicas: 2}, Kept, Kept},
		"field: the set goes":                    {of(SourceField, 2, Found, set), remove, Deleted, Deleted},
		"field: the set goes, not owned, no pod": {of(SourceField, 1, Absent), remove, Kept, Kept},
		"field: the set goes, another owner stays": {
			of(SourceField, 2, Absent, set, other), remove, Kept, Kept},
		"field: orphaned":          {of(SourceField, 2, Found, set), orphan, Kept, Kept},
		"annotation: its pod goes": {of(SourceAnnotation, 2, Found, set), down, Deleted, Kept},
		"annotation: its pod goes, and owns it": {
			of(SourceAnnotation, 1, Found, pod), down, Deleted, Deleted},
		"annotation: scaled up, its pod owns it": {
			of(SourceAnnotation, 1, Found, pod), Change{Kind: Scale, Replicas: 2}, Kept, Kept},
		"annotation: its pod is gone, the set owns": {
			of(SourceAnnotation, 1, Absent, set), down, Deleted, Kept},
		"annotation: the set goes, and owns it": {
			of(SourceAnnotation, 2, Found, set), remove, Deleted, Deleted},
		"annotation: the set goes, not owned yet": {of(SourceAnnotation, 2, Found), remove, Deleted, Kept},
		"annotation: the set goes, held, and owned": {
			held(of(SourceAnnotation, 2, Found, set)), remove, Kept, Deleted},
		"annotation: orphaned, the set owns it": {of(SourceAnnotation, 2, Found, set), orphan, Kept, Kept},
		"annotation: orphaned, its pod owns it": {of(SourceAnnotation, 1, Found, pod), orphan, Kept, Kept},
		"annotation: orphaned, its pod is going": {
			stops(of(SourceAnnotation, 1, Found, pod)), orphan, Deleted, Deleted},
		"annotation: orphaned, another owner": {
			of(SourceAnnotation, 1, Found, set, other), orphan, Kept, Kept},
		"annotation: orphaned, no owner": {of(SourceAnnotation, 1, Found), orphan, Kept, Kept},
		"annotation: the set goes, with its pod": {
			of(SourceAnnotation, 1, Found, pod), remove, Deleted, Deleted},
		"a foreign pod of the name owns it": {
			foreign(of(SourceAnnotation, 2, Found, pod)), remove, Kept, Kept},
		"an owner is gone, and the set lives": {of(SourceField, 2, Absent, pod, set), down, Deleted, Kept},
		"annotation: orphaned, the set and a pod that is going own it": {
			stops(of(SourceAnnotation, 1, Found, set, pod)), orphan, Deleted, Deleted},
		"annotation: orphaned, another and a pod that is going own it": {
			stops(of(SourceAnnotation, 1, Found, other, pod)), orphan, Kept, Kept},
		"annotation: the set goes, another owner stays": {of(SourceAnnotation, 2, Found, other), remove, Kept, Kept},
		"it is terminating": {
			going(of(SourceAnnotation, 2, Found)), orphan, Deleted, Deleted},
		"it is of another template": {
			logs(of(SourceAnnotation, 2, Absent, set)), remove, Kept, Kept},
		"its set is not known": {
			unseen(of(SourceAnnotation, 2, Absent, set)), remove, FateUnknown, FateUnknown},
		"its pod's reference is left over": {
			of(SourceAnnotation, 2, Absent, pod), down, Deleted, Deleted},
	} {
		if got := Foresee(c.facts, c.change); got.Fate != c.fate || got.Unattended != c.unattended {
			t.Errorf("%s: %v (%s), unattended %v; want %v, %v", sentence, got.Fate, got.Reason, got.Unattended, c.fate,
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
