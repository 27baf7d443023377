package statefulset

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestFindGap(t *testing.T) {
	runs := Replica{Pod: Pod{UID: "pod", Bound: true, Ready: true}, Claims: true}
	starts := Replica{Pod: Pod{UID: "pod", Bound: true}, Claims: true}
	stops := Replica{Pod: Pod{UID: "pod", Bound: true, Ready: true, Terminating: true}, Claims: true}
	pending := Replica{Pod: Pod{UID: "pod"}, Claims: true}
	pendingAlone := Replica{Pod: Pod{UID: "pod"}}
	pendingOnOld := Replica{Pod: Pod{UID: "pod"}, Claims: true, Leaving: true}
	losesClaim := Replica{Pod: Pod{UID: "pod", Bound: true, Ready: true}, Leaving: true}
	stuck := Replica{Pod: Pod{UID: "pod", Bound: true, Pending: true}}
	stuckOnOld := Replica{Pod: stuck.Pod, Leaving: true}
	stuckAndGoes := Replica{Pod: Pod{UID: "pod", Bound: true, Pending: true, Terminating: true}}
	begun := Replica{Pod: Pod{UID: "pod", Bound: true}}
	noVolume := Replica{Pod: stuck.Pod, Claims: true, NoVolume: true}
	unscheduled := Replica{Pod: Pod{UID: "pod", Pending: true}, Claims: true, NoVolume: true}
	noPod, nothing := Replica{Claims: true}, Replica{}
	oldClaim, oldClaims := Replica{Claims: true, Leaving: true}, Replica{Leaving: true}
	for name, c := range map[string]struct {
		replicas          []Replica
		ordered, parallel Gap
	}{
		"no replicas":                        {nil, GapNone, GapNone},
		"all run":                            {[]Replica{runs, runs}, GapNone, GapNone},
		"the last is missing":                {[]Replica{runs, nothing}, GapOpen, GapOpen},
		"the first is missing":               {[]Replica{nothing, runs}, GapOpen, GapOpen},
		"a pod is missing, not a claim":      {[]Replica{runs, noPod}, GapOpen, GapOpen},
		"a claim is missing, not a pod":      {[]Replica{runs, pendingAlone}, GapOpen, GapOpen},
		"a pod is pending":                   {[]Replica{runs, pending}, GapNone, GapNone},
		"a pod is bound and loses its claim": {[]Replica{runs, losesClaim}, GapNone, GapNone},
		"a claim of a pod that is bound is missing, not started": {[]Replica{runs, stuck}, GapOpen, GapOpen},
		"the same, of the first":                                 {[]Replica{stuck, runs}, GapOpen, GapOpen},
		"the same, and another leaves":                           {[]Replica{runs, stuckOnOld}, GapNone, GapNone},
		"the same, and the pod goes":                             {[]Replica{runs, stuckAndGoes}, GapNone, GapNone},
		"the same, and the pod was started":                      {[]Replica{runs, begun}, GapNone, GapNone},
		"a pod is bound without a volume":                        {[]Replica{runs, noVolume}, GapNoVolume, GapNoVolume},
		"and one is missing":                                     {[]Replica{noVolume, nothing}, GapNoVolume, GapOpen},
		"and one waits for an old claim":                         {[]Replica{noVolume, oldClaim}, GapNoVolume, GapNoVolume},
		"a pod waits to be scheduled":                            {[]Replica{runs, unscheduled}, GapNone, GapNone},
		"an old claim is there":                                  {[]Replica{runs, oldClaim}, GapOldClaim, GapOldClaim},
		"one of two old claims is there":                         {[]Replica{runs, oldClaims}, GapOldClaim, GapOldClaim},
		"a pod is pending on an old claim":                       {[]Replica{runs, pendingOnOld}, GapOldClaim, GapOldClaim},
		"one waits for a pod to start":                           {[]Replica{starts, nothing}, GapNone, GapOpen},
		"one waits for a pod to stop":                            {[]Replica{stops, nothing}, GapNone, GapOpen},
		"one waits for a pending pod":                            {[]Replica{pending, nothing}, GapNone, GapOpen},
		"one waits for an old claim":                             {[]Replica{oldClaim, nothing}, GapOldClaim, GapOpen},
		"an old claim, and all others run":                       {[]Replica{oldClaim, runs}, GapOldClaim, GapOldClaim},
	} {
		for _, start := range []int{0, 5} {
			for parallel, want := range map[bool]Gap{false: c.ordered, true: c.parallel} {
				s := Set{Start: start, Replicas: len(c.replicas), Parallel: parallel}
				if got := FindGap(s, func(n int) Replica { return c.replicas[n-start] }); got != want {
					t.Errorf("%s, from %d, parallel %t: %d, want %d", name, start, parallel, got, want)
				}
			}
		}
	}
}

func TestReplicaOf(t *testing.T) {
	s := Set{Name: "db", UID: "set", Templates: []string{"data", "logs"}}
	claims := func(change ...func(*Claim)) func(string) Claim {
		return func(name string) Claim {
			c := Claim{Name: name, UID: "claim", Bound: true}
			if name == "data-db-1" {
				return alter(c, change...)
			}
			return c
		}
	}
	ofOld := func(c *Claim) { c.Owners = append(c.Owners, controlling(podRef("pod0"))) }
	for name, c := range map[string]struct {
		pod                       Pod
		claim                     func(string) Claim
		claims, leaving, noVolume bool
	}{
		"both are there":               {Pod{UID: "pod"}, claims(), true, false, false},
		"one is missing":               {Pod{}, claims(func(c *Claim) { *c = Claim{} }), false, false, false},
		"one has no volume":            {Pod{}, claims(func(c *Claim) { c.Bound = false }), true, false, true},
		"one is terminating":           {Pod{}, claims(func(c *Claim) { c.Terminating = true }), true, true, false},
		"one is of an old pod":         {Pod{UID: "pod"}, claims(ofOld), true, true, false},
		"one is of a pod that is gone": {Pod{}, claims(ofOld), true, true, false},
		"one is of an old set": {
			Pod{}, claims(func(c *Claim) { c.Owners = []metav1.OwnerReference{setRef("set0")} }), true, true, false},
		"one is of an old pod and another": {
			Pod{}, claims(ofOld, func(c *Claim) { c.Owners = append(c.Owners, foreignRef()) }), true, false, false},
		"all are of the set": {
			Pod{}, claims(func(c *Claim) { c.Owners = []metav1.OwnerReference{setRef("set")} }), true, false, false},
	} {
		r := ReplicaOf(s, 1, c.pod, c.claim)
		if r.Claims != c.claims || r.Leaving != c.leaving || r.NoVolume != c.noVolume || r.Pod.UID != c.pod.UID {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// setFacts are the facts about a quiet set with a policy that deletes claims, which lacks a pod.
func setFacts(change ...func(*SetFacts)) SetFacts {
	return alter(SetFacts{Set: facts().Set, Gap: GapOpen, Sight: SetSight{QuietSince: ago(Quiet)}}, change...)
}

func TestDecideSet(t *testing.T) {
	policy := func(p Policy, from Source) func(*SetFacts) {
		return func(f *SetFacts) { f.Set.Policy, f.Set.Source = p, from }
	}
	woken := func(f *SetFacts) { f.Set.Woken = true }
	gap := func(g Gap) func(*SetFacts) { return func(f *SetFacts) { f.Gap = g } }
	quiet := func(d time.Duration, wakes int) func(*SetFacts) {
		return func(f *SetFacts) { f.Sight = SetSight{QuietSince: ago(d), Wakes: wakes} }
	}
	noTemplates := func(f *SetFacts) { f.Set.Templates = nil }
	uninstalled := func(f *SetFacts) { f.Rules.Removing = true }
	sharedSet := func(f *SetFacts) { f.Shared = true }
	wrong := func(f *SetFacts) { f.Set.Invalid = "wrong" }
	ignored := func(f *SetFacts) { f.Set.Ignored = true }
	retains, withSet := policy(Policy{}, SourceField), policy(Policy{WhenDeleted: Delete}, SourceField)
	rests := func(why Reason) SetDecision { return SetDecision{Reason: why} }
	lacksFor := func(d time.Duration) SetDecision { return SetDecision{SetWait, ReasonPodMissing, d} }
	wakes := SetDecision{Wake, ReasonWoken, 0}
	for _, c := range []struct {
		name  string
		facts SetFacts
		want  SetDecision
	}{
		{"nothing is known", SetFacts{}, rests(ReasonSetTerminating)},
		{"it is being deleted", setFacts(func(f *SetFacts) { f.Set.Terminating = true }), rests(ReasonSetTerminating)},
		{"it has all", setFacts(gap(GapNone)), rests(ReasonSetComplete)},
		{"it lacks a pod", setFacts(), wakes},
		{"since it was seen", setFacts(func(f *SetFacts) { f.Sight = SetSight{} }), lacksFor(Quiet)},
		{"for a short time", setFacts(quiet(Quiet-time.Second, 0)), lacksFor(time.Second)},
		{"after it was woken", setFacts(quiet(Quiet, 1)), lacksFor(Quiet)},
		{"long after it was", setFacts(quiet(4*Quiet, 2)), wakes},
		{"woken again and again", setFacts(quiet(maxQuiet-1, 100)), lacksFor(1)},
		{"and again", setFacts(quiet(maxQuiet, 100)), wakes},
		{"its pods are to be Ready for a minute", setFacts(func(f *SetFacts) { f.Set.MinReady = time.Minute }),
			lacksFor(time.Minute)},
		{"it has all, and has just changed", setFacts(gap(GapNone), quiet(0, 0)), rests(ReasonSetComplete)},
		{"it has all, by the annotation", setFacts(gap(GapNone), policy(Policy{Delete, Delete}, SourceAnnotation)),
			rests(ReasonSetComplete)},
		{"an old claim is there", setFacts(gap(GapOldClaim)), rests(ReasonOldClaimRemains)},
		{"an old claim is there, and it is woken", setFacts(gap(GapOldClaim), woken), rests(ReasonOldClaimRemains)},
		{"by the annotation", setFacts(policy(Policy{WhenScaled: Delete}, SourceAnnotation)), wakes},
		{"no claim is ever deleted", setFacts(retains), rests(ReasonSetComplete)},
		{"claims go with the set alone", setFacts(withSet), rests(ReasonSetComplete)},
		{"an old claim that the policy keeps", setFacts(withSet, gap(GapOldClaim)), rests(ReasonSetComplete)},
		{"a pod is bound without a volume", setFacts(gap(GapNoVolume)), rests(ReasonPodBoundBeforeVolume)},
		{"a pod is bound without a volume, and it is woken", setFacts(gap(GapNoVolume), woken),
			rests(ReasonPodBoundBeforeVolume)},
		{"the same, and the policy keeps claims", setFacts(withSet, gap(GapNoVolume)), rests(ReasonSetComplete)},
		{"it has no templates", setFacts(noTemplates), rests(ReasonSetComplete)},
		{"no templates, and the annotation", setFacts(noTemplates, policy(Policy{WhenDeleted: Delete}, SourceAnnotation)),
			rests(ReasonNoTemplates)},
		{"no templates, and an annotation that retains", setFacts(noTemplates, policy(Policy{}, SourceAnnotation)),
			rests(ReasonSetComplete)},
		{"it shares names", setFacts(sharedSet), rests(ReasonNamesCollide)},
		{"it shares names, and retains", setFacts(sharedSet, retains), rests(ReasonSetComplete)},
		{"an annotation is wrong", setFacts(gap(GapNone), wrong), rests(ReasonInvalidPolicy)},
		{"an annotation is ignored", setFacts(gap(GapNone), ignored), rests(ReasonAnnotationIgnored)},
		{"it is complete again", setFacts(gap(GapNone), woken), SetDecision{EndWake, ReasonSetComplete, 0}},
		{"it was woken, and lacks it yet", setFacts(woken), wakes},
		{"it was woken, and retains by now", setFacts(woken, retains), rests(ReasonSetComplete)},
		{"uninstalled", setFacts(uninstalled), rests(ReasonUninstalled)},
		{"uninstalled, woken", setFacts(uninstalled, woken), SetDecision{EndWake, ReasonUninstalled, 0}},
	} {
		if got := DecideSet(c.facts, now()); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestDetailOfSet(t *testing.T) {
	f := setFacts(func(f *SetFacts) { f.Set.Invalid = "wrong" })
	for r, want := range map[Reason]string{
		ReasonInvalidPolicy: "wrong", ReasonSetComplete: "",
		ReasonAnnotationIgnored: `The field says {"whenDeleted":"Retain","whenScaled":"Delete"}.`,
	} {
		if got := f.Detail(r); got != want {
			t.Errorf("%s: %q", r, got)
		}
	}
}

func TestTrackerRecordsSets(t *testing.T) {
	tracker, open := NewTracker(), setFacts()
	first, second, third := ago(time.Minute), ago(time.Second), now()
	check := func(name string, got, want SetSight) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	check("it is seen", tracker.SetSeen(open, first), SetSight{QuietSince: first})
	check("it is seen again", tracker.SetSeen(open, second), SetSight{QuietSince: first})
	check("it is woken", tracker.Woke(open, second), SetSight{QuietSince: second, Wakes: 1})
	check("it changes", tracker.SetChanged(open, third), SetSight{QuietSince: third, Wakes: 1})
	waits := setFacts(func(f *SetFacts) { f.Gap = GapOldClaim })
	check("it waits", tracker.SetChanged(waits, third), SetSight{QuietSince: third})
	if len(tracker.Sets) != 1 {
		t.Errorf("%+v", tracker.Sets)
	}
	tracker.SetSeen(setFacts(func(f *SetFacts) { f.Gap = GapNone }), third)
	if len(tracker.Sets) != 0 {
		t.Error("a set that lacks nothing is remembered")
	}
	tracker.SetSeen(open, first)
	if tracker.ForgetSet("set"); len(tracker.Sets) != 0 {
		t.Error("a set that is gone is remembered")
	}
}
