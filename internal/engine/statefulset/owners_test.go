package statefulset

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// These cases go beyond upstream: the source of the policy, marks, and reasons to keep a claim.
func TestWanted(t *testing.T) {
	ours := []metav1.OwnerReference{setRef("set"), podRef("pod"), foreignRef()}
	theirs := []metav1.OwnerReference{controlling(setRef("set")), controlling(podRef("pod")), foreignRef()}
	has := func(refs []metav1.OwnerReference) func(*Facts) { return owned(refs...) }
	mark := func(when Retention) Mark {
		return Mark{Set: "db", UID: "set", Ordinal: 1, WhenScaled: when, Claim: "claim"}
	}
	for name, c := range map[string]struct {
		facts  Facts
		mark   Mark
		owners []metav1.OwnerReference
	}{
		"nothing is known":                     {Facts{}, Mark{}, nil},
		"the field, with the mark":             {facts(), mark(Delete), nil},
		"the field, without the mark":          {facts(unmarked), mark(Delete), nil},
		"the field, and no pod":                {facts(unmarked, podAbsent), Mark{}, nil},
		"the field, for the set alone":         {facts(unmarked, deleteWithSet), Mark{}, nil},
		"references of Kubernetes stay":        {facts(has(theirs)), mark(Delete), theirs},
		"our pod goes where it is back":        {facts(has(ours[1:])), mark(Delete), ours[2:]},
		"our pod goes where the field retains": {facts(scaledDown, retain, has(ours[1:])), Mark{}, ours[2:]},
		"our pod stays where it goes":          {facts(scaledDown, has(ours)), mark(Delete), ours[1:]},
		"ours go where it is held":             {facts(deleteBoth, held, has(ours)), mark(Delete), ours[2:]},
		"ours go where the field retains":      {facts(has(ours)), mark(Delete), ours[2:]},
		"ours stay where it deletes":           {facts(deleteBoth, has(ours[:1])), mark(Delete), ours[:1]},
		"a pod that is kept goes":              {facts(deleteWithSet, scaledDown, has(ours[:2])), mark(Retain), ours[:1]},
		"the mark stays as long as they do": {facts(deleteWithSet, has(ours), podAbsent, func(f *Facts) {
			f.Claim.Owners = ours[:1]
		}), mark(Retain), ours[:1]},
		"the mark goes with them": {facts(retain, has(ours[:1])), Mark{}, nil},

		"no policy: ours go":                 {facts(noPolicy, has(ours)), Mark{}, ours[2:]},
		"no policy: Kubernetes' owners stay": {facts(noPolicy, has(theirs)), Mark{}, theirs},
		"a policy that retains: all go":      {facts(annotated, retain, has(theirs)), Mark{}, theirs[2:]},
		"the annotation, for the set":        {facts(annotated, unmarked, deleteWithSet), mark(Retain), ours[:1]},
		"the annotation, no pod":             {facts(annotated, unmarked, podAbsent, deleteBoth), Mark{}, nil},
		"the annotation, marked, no pod":     {facts(annotated, podAbsent, deleteBoth), mark(Delete), ours[:1]},
		"the set of Kubernetes is kept": {
			facts(annotated, podAbsent, unmarked, deleteWithSet, has(theirs[:1])), Mark{}, theirs[:1]},
		"the set of Kubernetes goes": {facts(annotated, podAbsent, unmarked, has(theirs[:1])), Mark{}, nil},
		"retained, and no pod": {
			facts(annotated, podAbsent, deleteWithSet, has(ours[:1])), mark(Retain), ours[:1]},
		"a foreign pod stays": {facts(annotated, podForeign, has(ours[1:2])), mark(Delete), ours[1:2]},
		"held":                {facts(annotated, deleteBoth, held, has(ours)), mark(Delete), ours[2:]},
		"wrong": {
			facts(annotated, deleteBoth, invalid, has(ours)), mark(Delete), ours[2:]},

		"names collide":             {facts(annotated, deleteBoth, shared, has(ours)), Mark{}, ours[2:]},
		"names collide, Kubernetes": {facts(shared, has(theirs)), Mark{}, theirs},
		"the pod is not known":      {facts(retain, podUnknown, has(ours[:1])), mark(Delete), ours[:1]},
		"an owner is gone": {
			facts(retain, has([]metav1.OwnerReference{podRef("pod0")})), mark(Delete), []metav1.OwnerReference{podRef("pod0")}},
		"the set is gone":             {facts(setAbsent, podUnknown, has(ours)), Mark{}, ours[2:]},
		"the set is gone, Kubernetes": {facts(setAbsent, podUnknown, has(theirs)), Mark{}, theirs},
		"uninstalled":                 {facts(uninstalled, deleteBoth, has(ours)), Mark{}, ours[2:]},
		"uninstalled, unknown":        {facts(uninstalled, setUnknown, podUnknown, has(ours)), Mark{}, ours[2:]},
	} {
		w := c.facts.wanted()
		same := slices.EqualFunc(w.Owners, c.owners, func(a, b metav1.OwnerReference) bool {
			return a.UID == b.UID && a.Kind == b.Kind && a.Name == b.Name && a.APIVersion == b.APIVersion &&
				isController(a) == isController(b)
		})
		if w.Mark != c.mark || !same {
			t.Errorf("%s: %q, %v, want %q, %v", name, w.Mark, w.Owners, c.mark, c.owners)
		}
		patched := c.facts
		if patched.Claim = patched.Claim.with(w); patched.wanted().differs(patched.Claim) {
			t.Errorf("%s: it changes again: %+v", name, patched.wanted())
		}
	}
}

func TestReferencesToSetAndPod(t *testing.T) {
	f := facts()
	if !f.ofSet(setRef("any")) || !f.ofPod(podRef("any")) || f.ofSet(podRef("set")) || f.ofPod(setRef("pod")) {
		t.Error("set and pod")
	}
	for name, alter := range map[string]func(*metav1.OwnerReference){
		"another version": func(r *metav1.OwnerReference) { r.APIVersion += "beta1" },
		"another kind":    func(r *metav1.OwnerReference) { r.Kind += "s" },
		"another name":    func(r *metav1.OwnerReference) { r.Name += "0" },
	} {
		set, pod := setRef("set"), podRef("pod")
		alter(&set)
		alter(&pod)
		if f.ofSet(set) || f.ofPod(pod) {
			t.Errorf("%s counts", name)
		}
	}
}

func TestClaimAfterPatch(t *testing.T) {
	w := wanted{Mark: facts().Claim.Mark, Owners: []metav1.OwnerReference{foreignRef()}}
	c := Claim{Name: "data-db-1"}.with(w)
	if c.Name != "data-db-1" || !c.Marked || c.Mark != w.Mark || len(c.Owners) != 1 {
		t.Errorf("%+v", c)
	}
	if c = c.with(wanted{}); c.Marked || c.Mark != (Mark{}) || c.Owners != nil {
		t.Errorf("%+v", c)
	}
}
