package intree

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

func rules() Rules { return Rules{RetryStart: time.Second, RetryMax: 5 * time.Minute} }

// play answers each call of a session with the result of reply, after a time, and returns the steps.
func play(t *testing.T, s *Session, tracker *Tracker, cache PVs, reply func(Ask) Reply,
	takes time.Duration) (steps []Action) {
	t.Helper()
	sessiontest.Serve(t, s, now(), func(_ int, ask Ask) (Reply, time.Duration) {
		steps = append(steps, ask.Action)
		return reply(ask), takes
	}, func(r Reply, sent, now time.Time) { s.Answer(tracker, cache, r, sent, now) })
	return steps
}

// ok marks a reply as succeeded.
func ok(r Reply) Reply {
	r.Outcome = session.Succeeded
	return r
}

// server answers as an API server on which every read permits the deletion.
func server(ask Ask) Reply {
	switch ask.Call {
	case GetPV:
		return ok(Reply{Found: true, PV: due()})
	case CreatePV:
		return ok(Reply{PV: made()})
	case PatchPolicy, PatchFinalizers:
		return ok(Reply{PV: PV{Name: ask.Name, UID: ask.UID, ResourceVersion: "30", Policy: ask.Policy}})
	default:
		return ok(Reply{})
	}
}

// unprotected are the facts about a PV in use without a finalizer.
func unprotected() Facts {
	return Facts{Other: OtherAbsent, PV: altered(bound(), []func(*PV){guarded(WriterNone)})}
}

func TestSessionStepsToTwin(t *testing.T) {
	cache, tracker := holding(due())
	facts, found := tracker.Observe(due().Name, cache, now())
	s := Begin(facts, rules(), now())
	steps := play(t, &s, tracker, cache, server, 0)
	if want := []Action{ReadClaim, ReadAttachments, ReadPV, CreateTwin}; !found || !slices.Equal(steps, want) {
		t.Errorf("steps %v, want %v", steps, want)
	}
	sessiontest.Ends(t, &s, sessiontest.Waits(ReasonTwinNotReleased))
	if got, _ := tracker.Observe(due().Name, cache, now()); !got.TwinFound {
		t.Error("the twin is not known until the watch shows it")
	}
}

func TestCopiedSessionContinues(t *testing.T) {
	cache, tracker := holding(due(), sibling())
	facts, _ := tracker.Observe(due().Name, cache, now())
	s := Begin(facts, rules(), now())
	s.Answer(tracker, cache, ok(Reply{}), now(), now())
	copied := s
	first := play(t, &s, tracker, cache, server, 0)
	if second := play(t, &copied, tracker, cache, server, 0); !slices.Equal(first, second) || len(first) == 0 {
		t.Errorf("the copy made the steps %v, the original %v", second, first)
	}
}

func TestSessionEnd(t *testing.T) {
	at := func(action Action, outcome session.Outcome) func(Ask) Reply {
		return func(ask Ask) Reply {
			if ask.Action == action {
				return Reply{Outcome: outcome}
			}
			return server(ask)
		}
	}
	another := func(ask Ask) Reply {
		r := server(ask)
		if ask.Action == ReadPV {
			r.PV.UID = "another"
		}
		return r
	}
	for _, c := range []struct {
		name  string
		facts Facts
		reply func(Ask) Reply
		want  sessiontest.End
	}{
		{"a read fails", with(claimUnread), at(ReadClaim, session.Unanswered), sessiontest.ReadFailed},
		{"a write fails", with(), at(CreateTwin, session.Unanswered), sessiontest.WriteFailed},
		{"the twin changed", with(twinIs(in(volume.PhaseReleased))), at(SetTwinDelete, session.Conflict),
			sessiontest.Conflicted},
		{"the twin is gone", with(twinIs(in(volume.PhaseReleased))), at(SetTwinDelete, session.Gone), sessiontest.Gone},
		{"the PV is gone", with(pvUnread), func(Ask) Reply { return ok(Reply{}) }, sessiontest.Gone},
		{"another PV has its name", with(pvUnread), another, sessiontest.Gone},
		{"a finalizer is added", unprotected(), server, sessiontest.Written("")},
		{"the finalizers are removed", with(deleted), server, sessiontest.Written("")},
		{"nothing is to be done", Facts{Other: OtherAbsent, PV: bound()}, server, sessiontest.Waits(ReasonProtected)},
		{"attached", with(attached), server, sessiontest.Polls(ReasonAttached)},
		{"a try failed a moment ago", with(failedJustNow), server, sessiontest.Timed(ReasonVolumeFailedDelete)},
		{"the next try is under way", with(twinIs(), func(f *Facts) { f.Failure.Message = "busy" }), server,
			sessiontest.Waits(ReasonVolumeFailedDelete)},
		{"the twin's name is taken, and is freed", with(), func(ask Ask) Reply {
			if ask.Action == ReadTwin {
				return ok(Reply{})
			}
			return at(CreateTwin, session.Conflict)(ask)
		}, sessiontest.Conflicted},
		{"another's finalizer is removed from a twin", with(twinIs(in(volume.PhaseReleased), going, guarded(WriterOther))),
			server, sessiontest.Written("")},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache, tracker := holding()
			s := Begin(c.facts, rules(), now())
			play(t, &s, tracker, cache, c.reply, 0)
			sessiontest.Ends(t, &s, c.want)
		})
	}
}

// shows returns the answer to GetClaim that shows a claim with this UID and spec.volumeName.
func shows(uid types.UID, pv string) Reply {
	return ok(Reply{Claim: pvclaim.Result{Found: true, UID: uid, VolumeName: pv}})
}

// A sibling that is to be deleted too keeps the volume if its claim exists or was restored from a backup.
func TestSiblingClaimKeepsVolume(t *testing.T) {
	other := sibling()
	for name, c := range map[string]struct {
		claim   Reply
		sibling PV
		want    sessiontest.End
	}{
		"its claim is gone":                  {ok(Reply{}), other, sessiontest.Waits(ReasonTwinNotReleased)},
		"its claim exists":                   {shows(other.Claim.UID, ""), other, sessiontest.Polls(ReasonSharedSource)},
		"another claim of the name names it": {shows("newer", other.Name), other, sessiontest.Polls(ReasonSharedSource)},
		"another claim of the name names this PV": {shows("newer", due().Name), other,
			sessiontest.Waits(ReasonTwinNotReleased)},
		"it names another volume now": {shows(other.Claim.UID, ""),
			PV{Name: other.Name, UID: other.UID}, sessiontest.Waits(ReasonTwinNotReleased)},
		"it was turned to Retain since it was seen": {ok(Reply{}),
			sibling(of(volume.PolicyRetain)), sessiontest.Waits(ReasonSharedSource)},
	} {
		t.Run(name, func(t *testing.T) {
			cache, tracker := holding(due(), other)
			facts, _ := tracker.Observe(due().Name, cache, now())
			s := Begin(facts, rules(), now())
			play(t, &s, tracker, cache, func(ask Ask) Reply {
				switch {
				case ask.Call == GetPV && ask.Name == other.Name:
					return ok(Reply{Found: true, PV: c.sibling})
				case ask.Call == GetClaim && ask.Claim == other.Claim:
					return c.claim
				}
				return server(ask)
			}, 0)
			sessiontest.Ends(t, &s, c.want)
		})
	}
}

func TestDryRunEndsBeforeFirstWrite(t *testing.T) {
	cache, tracker := holding()
	s := Begin(Facts{Other: OtherAbsent, PV: due()}, Rules{DryRun: true}, now())
	steps := play(t, &s, tracker, cache, server, 0)
	sessiontest.Ends(t, &s, sessiontest.DryRun)
	if want := []Action{ReadClaim, ReadAttachments, ReadPV}; !slices.Equal(steps, want) ||
		s.Decision.Action != CreateTwin {
		t.Errorf("steps %v, then %v", steps, s.Decision)
	}
}

// Live reads that expire before the next one is answered lead to a retry, never to a write.
func TestExpiredReadsEndSession(t *testing.T) {
	cache, tracker := holding()
	s := Begin(with(claimUnread), rules(), now())
	for _, step := range play(t, &s, tracker, cache, server, session.LiveFor+time.Second) {
		if step.Kind() == session.Writes {
			t.Errorf("%v after reads that are too old", step)
		}
	}
	sessiontest.Ends(t, &s, sessiontest.TooSlow)
}

func TestPreconditionsOfWrites(t *testing.T) {
	for name, c := range map[string]struct {
		facts   Facts
		action  Action
		version string
	}{
		"the volume is deleted": {with(deleted), RemoveFinalizerByUID, ""},
		"the policy is Retain":  {with(pvIs(of(volume.PolicyRetain))), RemoveFinalizer, "10"},
		"a finalizer is added":  {unprotected(), AddFinalizer, "10"},
		"the twin is to delete": {with(twinIs(in(volume.PhaseReleased))), SetTwinDelete, "20"},
		"the twin is to keep":   {with(twinIs(in(volume.PhaseFailed), of(volume.PolicyDelete))), SetTwinRetain, "20"},
		"the twin is deleted":   {with(twinIs(in(volume.PhaseFailed))), DeleteTwin, "20"},
		"the twin is freed": {with(twinIs(in(volume.PhaseReleased), going, guarded(WriterOther))), RemoveTwinFinalizer,
			"20"},
	} {
		s := Begin(c.facts, rules(), now())
		if ask := s.Ask(); ask.Action != c.action || ask.ResourceVersion != c.version || ask.UID == "" {
			t.Errorf("%s: %+v, want %v bound to %q", name, ask, c.action, c.version)
		}
	}
}

// The session and the tracker know the result of a write to a twin before the watch shows it.
func TestSessionRecordsTwinWrites(t *testing.T) {
	after := func(twin PV, change func(*PV)) PV { change(&twin); return twin }
	begin := func(f Facts) (*Session, cached, *Tracker) {
		cache, tracker := holding(f.PV, f.Twin)
		s := Begin(f, rules(), now())
		return &s, cache, tracker
	}
	for name, c := range map[string]struct {
		facts  Facts
		action Action
		change func(*PV)
	}{
		"set to Delete": {with(twinIs(in(volume.PhaseReleased))), SetTwinDelete, of(volume.PolicyDelete)},
		"set to Retain": {with(twinIs(in(volume.PhaseReleased), of(volume.PolicyDelete)),
			siblings(sibling(of(volume.PolicyRetain)))), SetTwinRetain, of(volume.PolicyRetain)},
	} {
		s, cache, tracker := begin(c.facts)
		if s.Decision.Action != c.action {
			t.Fatalf("%s: %s", name, s.Decision.Action)
		}
		twin := after(c.facts.Twin, c.change)
		twin.ResourceVersion = "30"
		s.Answer(tracker, cache, ok(Reply{PV: twin}), now(), now())
		if got := tracker.Expectations[twin.Name]; s.Facts.Twin != twin || got != twin {
			t.Errorf("%s: the session has %+v, the tracker %+v", name, s.Facts.Twin, got)
		}
	}

	s, cache, tracker := begin(with(twinIs(in(volume.PhaseFailed))))
	if s.Decision.Action != DeleteTwin {
		t.Fatalf("a twin that failed: %s", s.Decision.Action)
	}
	s.Answer(tracker, cache, ok(Reply{}), now(), now())
	if _, accepted := tracker.DeletionAccepted[made().UID]; !accepted || !s.Facts.Twin.Terminating ||
		!tracker.Failures[due().UID].Until.After(now()) || s.Facts.Failure != tracker.Failures[due().UID].Failure {
		t.Errorf("its deletion: accepted %t, terminating %t, the next try at %v", accepted, s.Facts.Twin.Terminating,
			s.Facts.Failure.Until)
	}
}

// After a name conflict, the existing twin is read, and every other fact is read again.
func TestExistingTwinIsRead(t *testing.T) {
	cache, tracker := holding(due())
	s := Begin(proven(), rules(), now())
	s.Answer(tracker, cache, Reply{Outcome: session.Conflict}, now(), now())
	if s.End != session.NotEnded || s.Ask().Action != ReadTwin || s.Ask().Name != made().Name {
		t.Fatalf("ended as %v, asks %+v", s.End, s.Ask())
	}
	twin := made()
	twin.Phase = volume.PhaseReleased
	s.Answer(tracker, cache, ok(Reply{Found: true, PV: twin}), now(), now())
	if s.Ask().Action != ReadClaim || s.Facts.Twin != twin {
		t.Errorf("after a look at it: %s, want all to be read a second time", s.Ask().Action)
	}
}

// The twin of a missing PV is ended only if a live read does not find that PV.
func TestOrphanedTwin(t *testing.T) {
	original, namesake := due(), due()
	namesake.UID = "new"
	for name, c := range map[string]struct {
		reply Reply
		want  Action
	}{
		"gone":        {ok(Reply{}), DeleteTwin},
		"a new one":   {ok(Reply{Found: true, PV: namesake}), DeleteTwin},
		"still there": {ok(Reply{Found: true, PV: original}), Wait},
	} {
		cache, tracker := holding(made())
		s := Begin(orphaned(func(f *Facts) { f.OriginalGone, f.OriginalRead = false, session.Read{} }), rules(), now())
		if ask := s.Ask(); ask.Action != ReadOriginal || ask.Name != original.Name {
			t.Fatalf("asks %+v", ask)
		}
		s.Answer(tracker, cache, c.reply, now(), now())
		if s.Decision.Action != c.want {
			t.Errorf("%s: %s, want %s", name, s.Decision.Action, c.want)
		}
	}
}

// A claim that a live read finds keeps the volume, and so does another claim that names the PV.
func TestLiveClaimKeepsVolume(t *testing.T) {
	for name, c := range map[string]struct {
		reply Reply
		want  Reason
	}{
		"it exists":              {shows(due().Claim.UID, ""), ReasonClaimStillExists},
		"another, naming the PV": {shows("new", due().Name), ReasonClaimNamesPV},
	} {
		cache, tracker := holding(due())
		s := Begin(with(claimUnread), rules(), now())
		s.Answer(tracker, cache, c.reply, now(), now())
		if s.End != session.Waiting || s.Decision.Reason != c.want {
			t.Errorf("%s: %s because %s", name, s.Decision.Action, s.Decision.Reason)
		}
	}
}

// All siblings are read before the decision, and the age of the first read counts.
func TestEverySiblingIsRead(t *testing.T) {
	third := sibling()
	third.Name, third.UID, third.Claim.Name, third.Claim.UID = "third", "third-uid", "thirds", "thirds-uid"
	kept := third
	kept.Policy = volume.PolicyRetain
	for name, c := range map[string]struct {
		third PV
		asks  []string
		want  Reason
	}{
		"both are to be deleted": {third, []string{"other", "others", "third", "thirds"}, ReasonReclaim},
		"the second is kept":     {kept, []string{"other", "others", "third"}, ReasonSharedSource},
	} {
		cache, tracker := holding(due(), sibling(), third)
		facts, _ := tracker.Observe(due().Name, cache, now())
		facts.Claim, facts.ClaimRead, facts.AttachmentsRead = proven().Claim, proven().ClaimRead, proven().AttachmentsRead
		s := Begin(facts, rules(), now())
		sent := now()
		var asks []string
		for s.Decision.Action == ReadSiblings && s.End == session.NotEnded {
			ask := s.Ask()
			asks = append(asks, ask.Name+ask.Claim.Name)
			reply := ok(Reply{})
			switch ask.Name {
			case "other":
				reply = ok(Reply{Found: true, PV: sibling()})
			case "third":
				reply = ok(Reply{Found: true, PV: c.third})
			}
			s.Answer(tracker, cache, reply, sent, sent)
			sent = sent.Add(time.Second)
		}
		if !slices.Equal(asks, c.asks) || s.Decision.Reason != c.want || s.Facts.SiblingsRead.Sent != now() ||
			len(s.Facts.Siblings) != 2 {
			t.Errorf("%s: asked for %v, then %s, read %+v: %v", name, asks, s.Decision.Reason, s.Facts.SiblingsRead,
				s.Facts.Siblings)
		}
	}
}

// A reply without Found means a missing object, regardless of its other fields.
func TestReplyNotFound(t *testing.T) {
	cache, tracker := holding()
	none := func(ask Ask) Reply { r := server(ask); r.Found = false; return r }
	s := Begin(with(pvUnread), rules(), now())
	if play(t, &s, tracker, cache, none, 0); s.End != session.ObjectGone {
		t.Errorf("the PV is gone: ended as %d", s.End)
	}
	s = Begin(orphaned(func(f *Facts) { f.OriginalGone, f.OriginalRead = false, session.Read{} }), rules(), now())
	s.Answer(tracker, cache, ok(Reply{PV: due()}), now(), now())
	if !s.Facts.OriginalGone || s.Decision.Action != DeleteTwin {
		t.Errorf("the original is gone: %t, then %s", s.Facts.OriginalGone, s.Decision.Action)
	}
	if subject := s.Subject(); subject.UID != made().UID {
		t.Errorf("the session is about %+v", subject)
	}
	s = Begin(with(func(f *Facts) { f.Siblings, f.SiblingsRead = []PV{sibling()}, session.Read{} }), rules(), now())
	s.Answer(tracker, cache, ok(Reply{PV: sibling()}), now(), now())
	if len(s.Facts.Siblings) > 0 {
		t.Errorf("the sibling is gone: %v", s.Facts.Siblings)
	}
}

// The delay after a failed twin is longer if the plugin is missing.
func TestDelayAfterFailedTwin(t *testing.T) {
	kept := pvIs(of(volume.PolicyRetain))
	for name, c := range map[string]struct {
		facts Facts
		delay time.Duration
	}{
		"it failed":                     {with(twinIs(in(volume.PhaseFailed))), time.Second},
		"it failed, and has no plugin":  {with(twinIs(in(volume.PhaseFailed), pluginGone)), time.Hour},
		"it did not fail":               {with(twinIs(in(volume.PhaseReleased)), kept), 0},
		"it failed, and its PV is gone": {orphaned(func(f *Facts) { f.Twin.Phase = volume.PhaseFailed }), 0},
	} {
		cache, tracker := holding()
		s := Begin(c.facts, rules(), now())
		if s.Ask().Call != DeletePV {
			t.Fatalf("%s: asks %+v", name, s.Ask())
		}
		s.Answer(tracker, cache, ok(Reply{}), now(), now())
		var delay time.Duration
		for _, f := range tracker.Failures {
			delay = f.Until.Sub(now())
		}
		if delay != c.delay {
			t.Errorf("%s: the next try waits %s, want %s", name, delay, c.delay)
		}
	}
}

// The tracker expects the result of a write before the watch shows it, so the write is not repeated.
func TestSessionRecordsExpectations(t *testing.T) {
	for name, facts := range map[string]Facts{
		"the finalizer is added":             unprotected(),
		"the finalizers are removed":         with(deleted),
		"a finalizer is removed from a twin": with(twinIs(in(volume.PhaseReleased), going, guarded(WriterOther))),
	} {
		cache, tracker := holding()
		s := Begin(facts, rules(), now())
		ask := s.Ask()
		play(t, &s, tracker, cache, server, 0)
		if _, known := tracker.Expectations[ask.Name]; !known || ask.Call != PatchFinalizers {
			t.Errorf("%s: asked for %+v, expected %v", name, ask, tracker.Expectations)
		}
	}
}
