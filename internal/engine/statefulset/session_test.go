package statefulset

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

type answer sessiontest.Answer[Action, Reply]

func play(t *testing.T, tracker *Tracker, f Facts, answers ...answer) (s Session, asked []Ask) {
	t.Helper()
	s = Begin(tracker, f, now())
	asked, _ = sessiontest.Play(t, &s, &s.Progress, now(),
		func(r Reply, sent, now time.Time) { s.Answer(tracker, r, sent, now) }, answers)
	return s, asked
}

func alter[T any](o T, alter ...func(*T)) T {
	for _, a := range alter {
		a(&o)
	}
	return o
}

func claimIs(a ...func(*Claim)) Reply {
	return Reply{Outcome: session.Succeeded, Found: true, Claim: alter(facts().Claim, a...)}
}

func gotClaim(a ...func(*Claim)) answer { return answer{ReadClaim, claimIs(a...), 0} }

func gotPod(a ...func(*Pod)) answer {
	return answer{ReadPod, Reply{Outcome: session.Succeeded, Found: true, Pod: alter(facts().Pod, a...)}, 0}
}

func gotSet(a ...func(*Set)) answer {
	return answer{ReadSet, Reply{Outcome: session.Succeeded, Found: true, Set: alter(facts().Set, a...)}, 0}
}

// none finds no object, and wrote succeeds.
func none(read Action) answer   { return answer{read, Reply{Outcome: session.Succeeded}, 0} }
func wrote(write Action) answer { return answer{write, Reply{Outcome: session.Succeeded}, 0} }

func ended(write Action, as session.Outcome) answer { return answer{write, Reply{Outcome: as}, 0} }

func away(s *Set)         { s.Replicas = 1 }
func byAnnotation(s *Set) { s.Source = SourceAnnotation }
func newer(c *Claim)      { c.ResourceVersion = "11" }

// abandoned is a claim whose grace period has passed, with the tracker that has recorded it.
func abandoned(alter ...func(*Facts)) (*Tracker, Facts) {
	f := facts(append([]func(*Facts){scaledDown, podAbsent}, alter...)...)
	tracker := NewTracker()
	Begin(tracker, f, ago(DefaultGrace))
	return tracker, f
}

func TestCondemnedClaimIsDeletedAfterGrace(t *testing.T) {
	tracker := NewTracker()
	f := facts(scaledDown, podAbsent)
	s, _ := play(t, tracker, f)
	sessiontest.Ends(t, &s, sessiontest.Timed(ReasonScaleDownGrace))
	if s.Decision.After != DefaultGrace {
		t.Fatalf("after %s", s.Decision.After)
	}
	tracker, f = abandoned()
	s, asked := play(t, tracker, f, gotClaim(newer), none(ReadPod), gotSet(away), wrote(DeleteClaim))
	for i, want := range []Ask{
		{Action: ReadClaim, Name: "data-db-1", UID: "claim"}, {Action: ReadPod, Name: "db-1"}, {Action: ReadSet, Name: "db"},
		{Action: DeleteClaim, Name: "data-db-1", UID: "claim", ResourceVersion: "11"},
	} {
		got := asked[i]
		if got.Action != want.Action || got.Namespace != "ns" || got.Name != want.Name || got.UID != want.UID ||
			got.ResourceVersion != want.ResourceVersion || got.Mark != want.Mark || got.Owners != nil {
			t.Errorf("asks %+v, want %+v", got, want)
		}
	}
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonScaledDown))
	if s.ReadCount != 3 {
		t.Errorf("%d reads", s.ReadCount)
	}
}

// A broken watch may skip the result of a live read, and then no event enqueues the claim again.
func TestRetryWhileWatchLagsBehindRead(t *testing.T) {
	tracker, f := abandoned()
	s, _ := play(t, tracker, f, gotClaim(), none(ReadPod), gotSet())
	sessiontest.Ends(t, &s, sessiontest.Polls(ReasonInRange))
	s, _ = play(t, tracker, facts(podAbsent)) // the watch shows it
	sessiontest.Ends(t, &s, sessiontest.Waits(ReasonInRange))
}

// A change by a person just before the deletion keeps the claim.
func TestLiveReadsKeepClaim(t *testing.T) {
	gone, scaled := none(ReadPod), gotSet(away)
	same := gotClaim()
	for _, c := range []struct {
		name    string
		answers []answer
		reason  Reason
	}{
		{"it is held", []answer{gotClaim(func(c *Claim) { c.Hold = true })}, ReasonClaimHeld},
		{"it got another owner", []answer{gotClaim(func(c *Claim) { c.Owners = []metav1.OwnerReference{foreignRef()} })},
			ReasonOtherOwner},
		{"it is terminating", []answer{gotClaim(func(c *Claim) { c.Terminating = true })}, ReasonClaimTerminating},
		{"it has no mark", []answer{gotClaim(func(c *Claim) { c.Mark, c.Marked = Mark{}, false })}, ReasonNeverUsed},
		{"its mark is a copy", []answer{gotClaim(func(c *Claim) { c.Mark.Claim = "claim0" }), gotSet(away),
			wrote(PatchClaim)}, ReasonPolicyRemoved},
		{"its pod is back", []answer{same, gotPod()}, ReasonPodRemains},
		{"the set was scaled up", []answer{same, gone, gotSet()}, ReasonInRange},
		{"the set is going", []answer{same, gone, gotSet(away, func(s *Set) { s.Terminating = true })}, ReasonSetTerminating},
		{"the grace was changed", []answer{same, gone,
			gotSet(away, func(s *Set) { s.Grace, s.GraceGiven = time.Hour, true })}, ReasonScaleDownGrace},
		{"an annotation is wrong", []answer{same, gone, gotSet(away, func(s *Set) { s.Invalid = "wrong" })},
			ReasonInvalidPolicy},
		{"the policy retains", []answer{same, gone, gotSet(away, func(s *Set) { s.Policy = Policy{} }), wrote(PatchClaim)},
			ReasonPolicyRemoved},
		{"the set is another", []answer{same, gone, gotSet(away, func(s *Set) { s.UID = "set2" }), wrote(PatchClaim)},
			ReasonPolicyRemoved},
		{"the set is gone", []answer{same, gone, none(ReadSet), wrote(PatchClaim)}, ReasonSetGone},
		{"nothing has changed", []answer{same, gone, scaled, wrote(DeleteClaim)}, ReasonScaledDown},
	} {
		t.Run(c.name, func(t *testing.T) {
			tracker, f := abandoned()
			if s, _ := play(t, tracker, f, c.answers...); s.Reason() != c.reason {
				t.Errorf("%s, want %s", s.Reason(), c.reason)
			}
		})
	}
}

func TestSessionEnds(t *testing.T) {
	same, gone, scaled := gotClaim(), none(ReadPod), gotSet(away)
	for _, c := range []struct {
		name    string
		answers []answer
		want    sessiontest.End
	}{
		{"the claim is gone", []answer{none(ReadClaim)}, sessiontest.Gone},
		{"the claim is not found", []answer{{ReadClaim, Reply{Outcome: session.Succeeded, Claim: facts().Claim}, 0}},
			sessiontest.Gone},
		{"it was made again", []answer{gotClaim(func(c *Claim) { c.UID = "claim2" })}, sessiontest.Gone},
		{"a read fails", []answer{same, ended(ReadPod, session.Unanswered)}, sessiontest.ReadFailed},
		{"the claim changed", []answer{same, gone, scaled, ended(DeleteClaim, session.Conflict)}, sessiontest.Conflicted},
		{"the claim went", []answer{same, gone, scaled, ended(DeleteClaim, session.Gone)}, sessiontest.Gone},
		{"the deletion fails", []answer{same, gone, scaled, ended(DeleteClaim, session.Unanswered)}, sessiontest.WriteFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			tracker, f := abandoned()
			s, _ := play(t, tracker, f, c.answers...)
			sessiontest.Ends(t, &s, c.want)
		})
	}
}

func TestRepeatsOfExpiredReadsAreBounded(t *testing.T) {
	tracker, f := abandoned()
	s, _ := play(t, tracker, f, sessiontest.Stale(maxSteps, answer{ReadClaim, claimIs(), 0})...)
	sessiontest.Ends(t, &s, sessiontest.TooSlow)
}

func TestDryRunMakesNoWrites(t *testing.T) {
	tracker, f := abandoned(func(f *Facts) { f.Rules.DryRun = true })
	s, _ := play(t, tracker, f, gotClaim(), none(ReadPod), gotSet(away))
	sessiontest.Ends(t, &s, sessiontest.DryRun)
	if s.Decision.Action != DeleteClaim {
		t.Errorf("leaves out %s", s.Decision.Action)
	}
}

func TestClaimGetsMark(t *testing.T) {
	s, asked := play(t, NewTracker(), facts(unmarked), gotSet(), wrote(PatchClaim))
	want := Mark{Set: "db", UID: "set", Ordinal: 1, WhenScaled: Delete, Claim: "claim"}
	if a := asked[1]; a.Mark != want || a.UID != "claim" || a.ResourceVersion != "10" || len(a.Owners) != 0 ||
		a.Name != "data-db-1" {
		t.Errorf("asks %+v", a)
	}
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonPolicyApplied))
}

// If the watch still shows a deleted pod, the pod must not mark a claim that an earlier policy has retained.
func TestRetainedClaimGetsNoMarkFromDeletedPod(t *testing.T) {
	s, _ := play(t, NewTracker(), facts(unmarked, scaledDown), none(ReadPod))
	sessiontest.Ends(t, &s, sessiontest.Polls(ReasonNeverUsed))
}

// A change uses the references that result from the live read of the set.
func TestOwnersFollowLiveReadOfPolicy(t *testing.T) {
	uids := func(refs []metav1.OwnerReference) (uids []string) {
		for _, ref := range refs {
			uids = append(uids, string(ref.UID))
		}
		return uids
	}
	for _, c := range []struct {
		name    string
		facts   Facts
		answers []answer
		want    []string
	}{
		{"the set", facts(annotated, deleteBoth), []answer{gotSet(byAnnotation,
			func(s *Set) { s.Policy = Policy{Delete, Delete} })}, []string{"set"}},
		{"the pod", facts(annotated, deleteBoth, scaledDown, owned(setRef("set"), foreignRef())),
			[]answer{gotPod(), gotSet(byAnnotation, away, func(s *Set) { s.Policy = Policy{Delete, Delete} })},
			[]string{"foreign", "pod"}},
		{"the pod, which is scaled away by now", facts(annotated, deleteBoth),
			[]answer{gotSet(byAnnotation, away), gotPod(), gotSet(byAnnotation, away)}, []string{"pod"}},
		{"no owner: uninstalled", facts(uninstalled,
			owned(setRef("set"), podRef("pod"), foreignRef(), controlling(podRef("pod")))), nil, []string{"foreign", "pod"}},
		{"no owner: the set was orphaned", facts(setAbsent, owned(podRef("pod"), foreignRef())),
			[]answer{gotPod(func(p *Pod) { p.Controller = "" }), none(ReadSet)}, []string{"foreign"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, asked := play(t, NewTracker(), c.facts, append(c.answers, wrote(PatchClaim))...)
			if got := uids(asked[len(asked)-1].Owners); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestPodOnOldClaimIsDeleted(t *testing.T) {
	f := facts(annotated, terminatingClaim, owned(podRef("pod0")))
	going := claimIs(func(c *Claim) { c.Terminating, c.Owners = true, []metav1.OwnerReference{podRef("pod0")} })
	s, asked := play(t, NewTracker(), f, answer{ReadClaim, going, 0},
		gotPod(func(p *Pod) { p.UID = "pod7" }), gotSet(byAnnotation), wrote(DeletePod))
	if a := asked[3]; a.Namespace != "ns" || a.Name != "db-1" || a.UID != "pod7" || a.ResourceVersion != "" {
		t.Errorf("asks %+v", a)
	}
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonPodUsesOldClaim))
}

// A mark that others remove each time is added three times. Failed calls do not count, and neither do marks that this
// process has removed in between.
func TestRepeatedAdditionsAreBounded(t *testing.T) {
	tracker := NewTracker()
	add := func(outcome session.Outcome) {
		t.Helper()
		play(t, tracker, facts(unmarked), gotSet(), ended(PatchClaim, outcome))
	}
	remove := func() {
		t.Helper()
		keeps := func(s *Set) { s.Policy = Policy{} }
		play(t, tracker, facts(retain), gotSet(keeps), wrote(PatchClaim))
	}
	for range maxAdditions + 1 {
		add(session.Conflict)
		add(session.Unanswered)
	}
	for range maxAdditions + 1 {
		add(session.Succeeded)
		remove()
	}
	for range maxAdditions {
		add(session.Succeeded)
	}
	s, _ := play(t, tracker, facts(unmarked))
	sessiontest.Ends(t, &s, sessiontest.Waits(ReasonContested))
	other := facts(unmarked, annotated, deleteBoth)
	s, _ = play(t, tracker, other, answer{ReadSet, Reply{Outcome: session.Succeeded, Found: true, Set: other.Set}, 0},
		wrote(PatchClaim))
	if s.End != session.Written || tracker.Claims["claim"].Additions != 1 {
		t.Errorf("end %d, %+v", s.End, tracker.Claims["claim"])
	}
}

// TestUnseenGenerationBeginsGraceAgain: in a generation between two that were seen, the set may have been scaled up.
func TestUnseenGenerationBeginsGraceAgain(t *testing.T) {
	tracker, f := abandoned()
	at := func(generation int64, of time.Time) time.Time {
		f.Set.Generation = generation
		return tracker.saw(f, of).CondemnedSince
	}
	begun := at(7, ago(time.Minute))
	for _, seen := range []int64{7, 8, 7, 9} {
		if since := at(seen, ago(time.Second)); !since.Equal(begun) {
			t.Errorf("generation %d: since %s, want %s", seen, since, begun)
		}
	}
	if since := at(11, now()); !since.Equal(now()) {
		t.Errorf("generation 11 after 9: since %s", since)
	}
}

func TestTrackerRecordsCondemnedSince(t *testing.T) {
	for name, sign := range map[string]func(*Facts){
		"scaled up":          func(f *Facts) { f.Set.Replicas = 2 },
		"the policy turned":  retain,
		"the pod is back":    func(f *Facts) { *f = facts(scaledDown) },
		"the pod is unknown": podUnknown,
		"held":               held,
		"another pod":        otherPod,
		"another owner":      owned(foreignRef()),
		"wrong annotation":   invalid,
		"the set is going":   setTerminating,
		"the claim is going": terminatingClaim,
		"the set is gone":    setAbsent,
	} {
		tracker, f := abandoned()
		if since := tracker.Claims["claim"].CondemnedSince; !since.Equal(ago(DefaultGrace)) {
			t.Fatalf("%s: since %s", name, since)
		}
		if s := tracker.saw(f, now()); !s.CondemnedSince.Equal(ago(DefaultGrace)) {
			t.Errorf("%s: begins again without a sign of the contrary", name)
		}
		kept := f
		sign(&kept)
		if s := tracker.saw(kept, now()); s != (Sight{}) || len(tracker.Claims) != 0 {
			t.Errorf("%s: %+v", name, s)
		}
		if s := tracker.saw(f, now()); !s.CondemnedSince.Equal(now()) {
			t.Errorf("%s: after it: since %s", name, s.CondemnedSince)
		}
		tracker.ForgetClaim("claim")
		if len(tracker.Claims) != 0 {
			t.Errorf("%s: is remembered", name)
		}
	}
	tracker := NewTracker()
	if Begin(tracker, facts(scaledDown, podAbsent, func(f *Facts) { f.Claim.UID = "" }), now()); len(tracker.Claims) != 0 {
		t.Error("a claim without UID is remembered")
	}
}

func TestTrackerRecordsLeftSince(t *testing.T) {
	tracker := NewTracker()
	s := Begin(tracker, facts(left), ago(Settling))
	if s.Requeue() != session.RequeueAfter || s.Decision.After != Settling {
		t.Errorf("%+v, due again %v", s.Decision, s.Requeue())
	}
	later := Begin(tracker, facts(left), now())
	sessiontest.Ends(t, &later, sessiontest.Waits(ReasonOwnerReferenceMissing))
	if s := tracker.saw(facts(left, owned(setRef("set"))), now()); s != (Sight{}) || len(tracker.Claims) != 0 {
		t.Errorf("it got its owner: %+v", s)
	}
	if s := tracker.saw(facts(left), now()); !s.LeftSince.Equal(now()) || !s.CondemnedSince.IsZero() {
		t.Errorf("after it: %+v", s)
	}
}

// A session with a result that differs from the watch ends the grace period.
func TestLiveReadEndsGrace(t *testing.T) {
	tracker, f := abandoned()
	play(t, tracker, f, gotClaim(), gotPod())
	if len(tracker.Claims) != 0 {
		t.Errorf("%+v", tracker.Claims)
	}
}
