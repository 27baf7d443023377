package statefulset

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// These are the cases of the tests of pkg/controller/statefulset of Kubernetes 1.36 (the same as in 1.30), for the
// writes of this package where Kubernetes lacks the policy. Each test names its source.
//
// One thing differs: kube-controller-manager adds references with controller=true, and changes references to the set
// and its pods that lack it. This package adds references without it, and accepts either form.

// policyCase is a policy, the range of the replica, and the expected owners of its claim.
type policyCase struct {
	policy       Policy
	scaledAway   bool
	byPod, bySet bool
	conflict     bool
}

func policyCases() map[string]policyCase {
	return map[string]policyCase{
		"Retain":              {},
		"Retain, scaled away": {scaledAway: true},
		"with the set":        {policy: Policy{WhenDeleted: Delete}, bySet: true},
		"with the set, scaled away": {
			policy: Policy{WhenDeleted: Delete}, scaledAway: true, bySet: true},
		"with the replica, in range": {policy: Policy{WhenScaled: Delete}},
		"with the replica, scaled away": {
			policy: Policy{WhenScaled: Delete}, scaledAway: true, byPod: true},
		"with both, in range":    {policy: Policy{Delete, Delete}, bySet: true},
		"with both, scaled away": {policy: Policy{Delete, Delete}, scaledAway: true, byPod: true},
		"with both, and another controller": {
			policy: Policy{Delete, Delete}, scaledAway: true, conflict: true},
	}
}

func (c policyCase) facts() Facts {
	f := facts(annotated)
	f.Set.Policy, f.Claim.Mark.WhenScaled = c.policy, c.policy.WhenScaled
	if c.scaledAway {
		f.Set.Replicas = 1
	}
	if c.policy.Keeps() {
		unmarked(&f)
	}
	if c.conflict {
		f.Claim.Owners = append(f.Claim.Owners, controlling(foreignRef()))
	}
	return f
}

// sameOwners reports whether the claim has the wanted references.
func sameOwners(f Facts) bool {
	w := f.wanted()
	return !wanted{f.Claim.Mark, w.Owners}.differs(f.Claim)
}

func hasOwner(refs []metav1.OwnerReference, uid types.UID) bool {
	return slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool { return ref.UID == uid })
}

// everyOwner visits each combination of references to the pod, the set, and two other pods.
func everyOwner(visit func(name string, byPod, bySet bool, refs []metav1.OwnerReference)) {
	others := []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "a"}, {APIVersion: "v1", Kind: "Pod", Name: "b", UID: "b"},
	}
	for bits := range 1 << 4 {
		var refs []metav1.OwnerReference
		byPod, bySet, name := bits&1 != 0, bits&2 != 0, "references without controller"
		if byPod {
			refs = append(refs, podRef("pod"))
		}
		if bySet {
			refs = append(refs, setRef("set"))
		}
		if bits&4 != 0 {
			name = "references with controller=true"
			for i := range refs {
				refs[i] = controlling(refs[i])
			}
		}
		if bits&8 != 0 {
			name += ", and others"
			refs = append(refs, others...)
		}
		visit(name, byPod, bySet, refs)
	}
}

// Source: TestIsClaimOwnerUpToDate.
func TestUpToDateOwners(t *testing.T) {
	for policy, c := range policyCases() {
		if c.conflict {
			continue // is a case of TestUpdateClaimOwnerRefForSetAndPod
		}
		everyOwner(func(name string, byPod, bySet bool, refs []metav1.OwnerReference) {
			f := c.facts()
			f.Claim.Owners = refs
			if got, want := sameOwners(f), byPod == c.byPod && bySet == c.bySet; got != want {
				t.Errorf("%s, %s, by the pod %t, by the set %t: up to date %t", policy, name, byPod, bySet, got)
			}
		})
	}
}

// Source: TestUpdateClaimOwnerRefForSetAndPod.
func TestOwnersAfterChange(t *testing.T) {
	for policy, c := range policyCases() {
		everyOwner(func(name string, _, _ bool, refs []metav1.OwnerReference) {
			f := c.facts()
			others := len(slices.DeleteFunc(slices.Clone(refs), func(r metav1.OwnerReference) bool {
				return r.UID == "pod" || r.UID == "set"
			})) + len(f.Claim.Owners)
			f.Claim.Owners = append(f.Claim.Owners, refs...)
			owners := f.wanted().Owners
			if hasOwner(owners, "pod") != c.byPod || hasOwner(owners, "set") != c.bySet {
				t.Errorf("%s, %s: %v", policy, name, owners)
			}
			for _, ref := range owners {
				if !hasOwner(f.Claim.Owners, ref.UID) {
					if isController(ref) || ref.BlockOwnerDeletion != nil {
						t.Errorf("%s, %s: adds %v", policy, name, ref)
					}
				} else if ref.UID != "pod" && ref.UID != "set" {
					others--
				}
			}
			if others != 0 {
				t.Errorf("%s, %s: %d of the others are missing", policy, name, others)
			}
			f.Claim.Owners, f.Claim.Mark = owners, f.wanted().Mark
			if f.Claim.Marked = f.Claim.Mark != (Mark{}); f.wanted().differs(f.Claim) {
				t.Errorf("%s, %s: it changes again", policy, name)
			}
		})
	}
}

// Source: TestClaimOwnerUpToDateEdgeCases.
func TestUpToDateUnusualOwners(t *testing.T) {
	away, bySet := policyCases()["with both, scaled away"], policyCases()["with the set"]
	other := func(ref metav1.OwnerReference) metav1.OwnerReference {
		ref.Name, ref.UID = "other", "other"
		return controlling(ref)
	}
	strange := setRef("set")
	strange.APIVersion = "appsv1"
	for name, c := range map[string]struct {
		policy policyCase
		refs   []metav1.OwnerReference
		want   bool
	}{
		"the pod":            {away, []metav1.OwnerReference{controlling(podRef("pod"))}, true},
		"a pod that is gone": {away, []metav1.OwnerReference{controlling(podRef("pod0"))}, true},
		"the pod and another": {
			away, []metav1.OwnerReference{controlling(podRef("pod")), other(podRef(""))}, false},
		"the set":            {bySet, []metav1.OwnerReference{controlling(setRef("set"))}, true},
		"a set that is gone": {bySet, []metav1.OwnerReference{controlling(setRef("set0"))}, true},
		"the set and another": {
			bySet, []metav1.OwnerReference{controlling(setRef("set")), other(setRef(""))}, false},
		"the pod, not controlling (*)": {away, []metav1.OwnerReference{podRef("pod")}, true},
		"the set, not controlling (*)": {bySet, []metav1.OwnerReference{strange}, true},
		// (*) Not up to date for kube-controller-manager, which has all its references controlling: the difference.
	} {
		f := c.policy.facts()
		f.Claim.Owners = c.refs
		if got := sameOwners(f); got != c.want {
			t.Errorf("%s: up to date %t: %v", name, got, f.wanted().Owners)
		}
	}
}

// Source: TestUpdateClaimControllerRef.
func TestChangedReferences(t *testing.T) {
	set := setRef("set")
	someone := metav1.OwnerReference{APIVersion: "someone", Kind: "Else", Name: "foo"}
	namesake := metav1.OwnerReference{APIVersion: "someone", Kind: "else", Name: "db", UID: "pod"}
	for name, c := range map[string]struct{ has, want []metav1.OwnerReference }{
		"as they should be": {
			[]metav1.OwnerReference{controlling(set), someone}, []metav1.OwnerReference{controlling(set), someone}},
		"not controlling: the difference": {[]metav1.OwnerReference{set}, []metav1.OwnerReference{set}},
		"another kind of the name": {
			[]metav1.OwnerReference{namesake}, []metav1.OwnerReference{namesake, set}},
		"none": {nil, []metav1.OwnerReference{set}},
		// Upstream's update would remove these, but is never called for them: isClaimOwnerUpToDate takes them for references
		// to a former set, and leaves them to garbage collection. This package does the same.
		"controlling, without UID": {
			[]metav1.OwnerReference{controlling(setRef(""))}, []metav1.OwnerReference{controlling(setRef(""))}},
		"without UID": {[]metav1.OwnerReference{setRef("")}, []metav1.OwnerReference{setRef("")}},
	} {
		f := policyCases()["with both, in range"].facts()
		f.Claim.Owners = c.has
		same := func(a, b metav1.OwnerReference) bool {
			return a.UID == b.UID && a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name &&
				isController(a) == isController(b)
		}
		if got := f.wanted().Owners; !slices.EqualFunc(got, c.want, same) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Source: TestHasUnexpectedController. A claim with an unexpected controller gets no owner from this package. If a
// policy retains all claims, kube-controller-manager considers no controller unexpected, and neither side adds an
// owner.
func TestUnexpectedControllers(t *testing.T) {
	yes, no := true, false
	custom := func(controller *bool) metav1.OwnerReference {
		return metav1.OwnerReference{
			APIVersion: "chipmunks/v1", Kind: "CustomController", Name: "simon", UID: "other", Controller: controller}
	}
	for name, c := range map[string]struct {
		refs []metav1.OwnerReference
		want bool
	}{
		"custom":                  {[]metav1.OwnerReference{custom(&yes)}, true},
		"custom, not controlling": {[]metav1.OwnerReference{custom(&no)}, false},
		"custom, not said":        {[]metav1.OwnerReference{custom(nil)}, false},
		"another pod": {
			[]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "simon", UID: "other", Controller: &yes}}, true},
		"another set": {
			[]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Set", Name: "simon", UID: "other", Controller: &yes}}, true},
		"the set":                        {[]metav1.OwnerReference{controlling(setRef("set"))}, false},
		"a set of the name that is gone": {[]metav1.OwnerReference{controlling(setRef("stale"))}, true},
		"the pod":                        {[]metav1.OwnerReference{controlling(podRef("pod"))}, false},
		"a pod of the name that is gone": {[]metav1.OwnerReference{controlling(podRef("stale"))}, true},
		"the pod, and another": {
			[]metav1.OwnerReference{controlling(podRef("pod")), custom(&yes)}, true},
		"the pod, and one not controlling": {
			[]metav1.OwnerReference{controlling(podRef("pod")), custom(&no)}, false},
	} {
		for policy, p := range policyCases() {
			if p.conflict {
				continue
			}
			f := p.facts()
			f.Claim.Owners = c.refs
			if got := f.otherController() || f.stale(); got != c.want {
				t.Errorf("%s, %s: unexpected %t", name, policy, got)
			}
			adds := wanted{f.Claim.Mark, f.wanted().Owners}.adds(f.Claim)
			if needs := p.bySet && !hasOwner(c.refs, "set") || p.byPod && !hasOwner(c.refs, "pod"); adds != (needs && !c.want) {
				t.Errorf("%s, %s: adds an owner: %t", name, policy, adds)
			}
		}
	}
}

// Source: TestHasStaleOwnerRef.
func TestStaleReferences(t *testing.T) {
	for name, c := range map[string]struct {
		pod  types.UID
		name string
		want bool
	}{
		"the pod":                  {"pod", "db-1", false},
		"another of its name":      {"pod0", "db-1", true},
		"one of another name":      {"pod7", "db-7", false},
		"one without a UID":        {"", "db-1", true},
		"an owner that is gone by": {"pod0", "db-1", true},
		"the pod of a namesake":    {"pod", "db-7", false},
	} {
		ref := podRef(c.pod)
		ref.Name = c.name
		if got := facts(owned(ref)).stale(); got != c.want {
			t.Errorf("%s: stale %t", name, got)
		}
	}
}

// Source: TestPodClaimIsStale. A pod waits until its old claims are gone.
func TestPodWaitsForOldClaims(t *testing.T) {
	const missing, exists, stale, withRef = "missing", "exists", "stale", "with a reference"
	for name, c := range map[string]struct {
		claims []string
		noPod  bool
		want   bool
	}{
		"all are missing":                {claims: []string{missing, missing}},
		"none":                           {},
		"one exists":                     {claims: []string{missing, exists}},
		"all are owned by the pod":       {claims: []string{withRef, withRef}},
		"one is stale":                   {claims: []string{stale, exists}, want: true},
		"one is stale, one is missing":   {claims: []string{stale, missing}, want: true},
		"one is owned, one is stale":     {claims: []string{withRef, stale}, want: true},
		"one is owned, there is no pod":  {claims: []string{withRef}, noPod: true, want: true},
		"one exists, and there is none":  {claims: []string{exists}, noPod: true},
		"all are missing, and a pod too": {claims: []string{missing, missing}, noPod: true},
	} {
		f := facts()
		f.Set.Templates = nil
		claims := map[string]Claim{}
		for i, state := range c.claims {
			template := string(rune('a' + i))
			f.Set.Templates = append(f.Set.Templates, template)
			claim := Claim{Name: f.Set.ClaimName(template, 1), UID: "claim"}
			switch state {
			case missing:
				continue
			case stale:
				claim.Owners = []metav1.OwnerReference{podRef("pod0")}
			case withRef:
				claim.Owners = []metav1.OwnerReference{podRef("pod")}
			}
			claims[claim.Name] = claim
		}
		if c.noPod {
			f.Pod = Pod{}
		}
		r := ReplicaOf(f.Set, 1, f.Pod, func(name string) Claim { return claims[name] })
		if r.Leaving != c.want {
			t.Errorf("%s: waits %t", name, r.Leaving)
		}
		if want := !slices.Contains(c.claims, missing); r.Claims != want {
			t.Errorf("%s: has its claims %t", name, r.Claims)
		}
	}
}

// Source: TestOrphanedPodsWithPVCDeletePolicy.
func TestOwnersOfClaimsOfOrphanedPods(t *testing.T) {
	for policy, c := range policyCases() {
		if c.conflict {
			continue
		}
		owned := c.facts()
		owners := owned.wanted().Owners
		if hasOwner(owners, "pod") != c.byPod || hasOwner(owners, "set") != c.bySet {
			t.Errorf("%s: a pod of the set: %v", policy, owners)
		}
		for name, alter := range map[string]func(*Facts){
			"an orphan, before the set adopts it": podForeign,
			"a pod of the set with another name":  podAbsent,
		} {
			f := c.facts()
			unmarked(&f)
			alter(&f)
			if w := f.wanted(); len(w.Owners) != 0 || w.Mark != (Mark{}) {
				t.Errorf("%s: %s: %+v", policy, name, w)
			}
		}
	}
}

// Source: TestStaleOwnerRefOnScaleup. The set waits until the old claim is gone, which no rule prevents.
func TestScaleUpWaitsForOldClaim(t *testing.T) {
	for policy, c := range policyCases() {
		if c.policy.WhenScaled != Delete || c.scaledAway {
			continue
		}
		f := c.facts()
		f.Claim.Owners = []metav1.OwnerReference{controlling(podRef("stale"))}
		podAbsent(&f)
		if f.wanted().differs(f.Claim) || Decide(f, now()) != wait(ReasonOwnerGone) {
			t.Errorf("%s: %+v", policy, Decide(f, now()))
		}
		claim := f.Claim
		gap := func() Gap {
			return FindGap(f.Set, func(ordinal int) Replica {
				if ordinal == 0 {
					return Replica{Pod: Pod{UID: "pod-0", Bound: true, Ready: true}, Claims: true}
				}
				return ReplicaOf(f.Set, ordinal, Pod{}, func(string) Claim { return claim })
			})
		}
		if gap() != GapOldClaim {
			t.Errorf("%s: while the old claim is there: %d", policy, gap())
		}
		if claim = (Claim{}); gap() != GapOpen {
			t.Errorf("%s: after it is gone: %d", policy, gap())
		}
	}
}
