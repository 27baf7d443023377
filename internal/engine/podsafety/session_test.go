package podsafety

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

type answer sessiontest.Answer[Action, Reply]

// play answers the calls of a session. It returns the session, its calls and the time of its end.
func play(t *testing.T, tracker *Tracker, f Facts, answers ...answer) (s Session, asked []Ask, at time.Time) {
	t.Helper()
	s = Begin(tracker, f, now())
	asked, at = sessiontest.Play(t, &s, &s.Progress, now(),
		func(r Reply, sent, now time.Time) { s.Answer(tracker, r, sent, now) }, answers)
	return s, asked, at
}

func podIs(alter ...func(*Pod)) Reply {
	p := terminatingPod()
	for _, a := range alter {
		a(&p)
	}
	return Reply{Outcome: session.Succeeded, Found: true, Pod: p}
}

func done() Reply { return Reply{Outcome: session.Succeeded} }

func version(v string) func(*Pod) { return func(p *Pod) { p.ResourceVersion = v } }

func TestSessionReleasesFinishedPod(t *testing.T) {
	tracker := NewTracker()
	tracker.Saw(facts(pod(ended)).Pod, objects.NodeReady, ago(time.Second))
	f := facts(pod(ended), pod(noGrace))
	s, asked, _ := play(t, tracker, f, answer{RemoveFinalizer, done(), 0})
	if want := (Ask{RemoveFinalizer, "ns", "db-0", "a", "uid-1", "10"}); asked[0] != want {
		t.Errorf("asks %+v, want %+v", asked[0], want)
	}
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonFinished))
}

// A patch of an outdated version changes nothing. The pod is then judged again as a live read shows it.
func TestSessionReadsPodAfterConflict(t *testing.T) {
	conflict := answer{RemoveFinalizer, Reply{Outcome: session.Conflict}, 0}
	for name, c := range map[string]struct {
		then []answer
		want sessiontest.End
	}{
		"its end stands": {[]answer{{ReadPod, podIs(ended, noGrace, version("12")), 0}, {RemoveFinalizer, done(), 0}},
			sessiontest.Written(ReasonFinished)},
		"its end stands, after a while": {[]answer{{ReadPod, podIs(ended, noGrace, version("12")), time.Minute},
			{RemoveFinalizer, done(), 0}}, sessiontest.Written(ReasonFinished)},
		"it changes again": {[]answer{{ReadPod, podIs(ended, noGrace, version("12")), 0}, conflict}, sessiontest.Conflicted},
		"it runs":          {[]answer{{ReadPod, podIs(noGrace), 0}}, sessiontest.Timed(ReasonProcessesMayRun)},
		"it is gone":       {[]answer{{ReadPod, Reply{Outcome: session.Succeeded}, 0}}, sessiontest.Gone},
		"the read fails":   {[]answer{{ReadPod, Reply{}, 0}}, sessiontest.ReadFailed},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := NewTracker()
			tracker.Saw(facts(pod(ended)).Pod, objects.NodeReady, ago(time.Second))
			s, asked, _ := play(t, tracker, facts(pod(ended), pod(noGrace)), append([]answer{conflict}, c.then...)...)
			sessiontest.Ends(t, &s, c.want)
			if runs := s.Facts.Pod.Running; runs && !tracker.Sights["uid-1"].FinishedSince.IsZero() {
				t.Error("a pod that runs counts as finished")
			}
			if last := asked[len(asked)-1]; last.Action == RemoveFinalizer && last.ResourceVersion != "12" {
				t.Errorf("patches %+v", last)
			}
		})
	}
}

func TestSessionHoldsRunningPod(t *testing.T) {
	s, asked, _ := play(t, NewTracker(), facts(pod(runsUnheld)), answer{AddFinalizer, done(), 0})
	if want := (Ask{AddFinalizer, "ns", "db-0", "a", "uid-1", ""}); asked[0] != want {
		t.Errorf("asks %+v, want %+v", asked[0], want)
	}
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonHold))
}

func TestUninstallRemovesFinalizerByUID(t *testing.T) {
	_, asked, _ := play(t, NewTracker(), facts(removing), answer{RemoveFinalizerByUID, done(), 0})
	if want := (Ask{RemoveFinalizerByUID, "ns", "db-0", "a", "uid-1", ""}); asked[0] != want {
		t.Errorf("asks %+v, want %+v", asked[0], want)
	}
}

// Evidence from before our own deletion is read again, because the patch is bound to the pod after the deletion.
func TestEvidenceIsReadAgainAfterForceDelete(t *testing.T) {
	tracker := NewTracker()
	out := Reply{Outcome: session.Succeeded, Node: outOfService()}
	s, asked, _ := play(t, tracker, facts(seen(objects.NodeTainted)),
		answer{ReadPod, podIs(), 0}, answer{ReadNode, out, 0}, answer{ForceDelete, done(), 0},
		answer{ReadPod, podIs(noGrace, version("13")), 0}, answer{ReadNode, out, 0}, answer{RemoveFinalizer, done(), 0})
	if asked[2].UID != "uid-1" || asked[5].ResourceVersion != "13" {
		t.Errorf("deletes %+v, patches %+v", asked[2], asked[5])
	}
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonOutOfService))
	if !tracker.Sights["uid-1"].Forced {
		t.Errorf("%+v", tracker.Sights["uid-1"])
	}
}

func TestSessionWaitsForLeaseOfGoneNode(t *testing.T) {
	tracker := NewTracker()
	gone := Reply{Outcome: session.Succeeded}
	lease := Reply{Outcome: session.Succeeded, Lease: objects.Lease{Found: true, ResourceVersion: "5"}}
	f := facts(seen(objects.NodeAbsent), pod(noGrace), pod(unseen))
	s, _, at := play(t, tracker, f, answer{ReadPod, podIs(noGrace, unseen), 0}, answer{ReadNode, gone, 0},
		answer{ReadLease, lease, time.Second})
	sessiontest.Ends(t, &s, sessiontest.Timed(ReasonNodeRecentlyGone))
	if s.Decision.After != LeaseDuration+time.Second {
		t.Errorf("after %s", s.Decision.After)
	}
	if s := tracker.Sights["uid-1"]; s.LeaseVersion != "5" || !s.LeaseSince.Equal(at) {
		t.Errorf("%+v", s)
	}
	if s := tracker.sawLease("uid-2", objects.Lease{}, at); !s.LeaseSince.Equal(at) || s.LeaseVersion != "" {
		t.Errorf("no Lease: %+v", s)
	}
	renewed := tracker.sawLease("uid-1", objects.Lease{ResourceVersion: "6"}, at.Add(time.Second))
	if renewed.LeaseVersion != "6" || !renewed.LeaseSince.Equal(at.Add(time.Second)) {
		t.Errorf("a renewal: %+v", renewed)
	}
	if same := tracker.sawLease("uid-1", objects.Lease{ResourceVersion: "6"}, at.Add(time.Minute)); same != renewed {
		t.Errorf("no renewal: %+v", same)
	}
}

func TestSessionEnds(t *testing.T) {
	bound := facts(pod(ended), pod(noGrace))
	tainted := facts(pod(noGrace), seen(objects.NodeTainted))
	for name, c := range map[string]struct {
		watched Facts
		answers []answer
		want    sessiontest.End
	}{
		"the pod is gone": {tainted, []answer{{ReadPod, Reply{Outcome: session.Succeeded}, 0}}, sessiontest.Gone},
		"the pod is not found": {tainted, []answer{{ReadPod, Reply{Outcome: session.Succeeded, Pod: terminatingPod()}, 0}},
			sessiontest.Gone},
		"another has its name": {tainted, []answer{{ReadPod, podIs(func(p *Pod) { p.UID = "2" }), 0}}, sessiontest.Gone},
		"the read fails":       {tainted, []answer{{ReadPod, Reply{}, 0}}, sessiontest.ReadFailed},
		"it is released by then": {tainted, []answer{{ReadPod, podIs(func(p *Pod) { p.Held = false }), 0}},
			sessiontest.Waits(ReasonNothingToHold)},
		"the pod has changed since its read": {
			tainted, []answer{{ReadPod, podIs(noGrace), 0},
				{ReadNode, Reply{Outcome: session.Succeeded, Node: outOfService()}, 0},
				{RemoveFinalizer, Reply{Outcome: session.Conflict}, 0}}, sessiontest.Conflicted},
		"the pod went":    {bound, []answer{{RemoveFinalizer, Reply{Outcome: session.Gone}, 0}}, sessiontest.Gone},
		"the write fails": {bound, []answer{{RemoveFinalizer, Reply{}, 0}}, sessiontest.WriteFailed},
		"the hold of a running pod meets another write": {
			facts(pod(runsUnheld)), []answer{{AddFinalizer, Reply{Outcome: session.Conflict}, 0}}, sessiontest.Conflicted},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := NewTracker()
			tracker.Saw(facts(pod(ended)).Pod, objects.NodeReady, ago(time.Second))
			s, _, _ := play(t, tracker, c.watched, c.answers...)
			sessiontest.Ends(t, &s, c.want)
		})
	}
}

func TestStaleReadsAreRepeatedWithinLimit(t *testing.T) {
	s, _, _ := play(t, NewTracker(), facts(pod(noGrace), seen(objects.NodeTainted)),
		sessiontest.Stale(maxSteps, answer{ReadPod, podIs(noGrace), 0})...)
	sessiontest.Ends(t, &s, sessiontest.TooSlow)
}

func TestDryRunMakesNoWrites(t *testing.T) {
	tracker := NewTracker()
	tracker.Saw(facts(pod(ended)).Pod, objects.NodeReady, ago(time.Second))
	f := facts(pod(ended), pod(noGrace), func(f *Facts) { f.Rules.DryRun = true })
	s, _, _ := play(t, tracker, f)
	sessiontest.Ends(t, &s, sessiontest.DryRun)
}

// A deletion without an answer may have been carried out.
func TestUnansweredForceDeleteCounts(t *testing.T) {
	tracker := NewTracker()
	play(t, tracker, facts(pod(confirmed), pod(func(p *Pod) { p.GraceEnds = now() })),
		answer{ReadPod, podIs(confirmed, func(p *Pod) { p.GraceEnds = now() }), 0}, answer{ForceDelete, Reply{}, 0})
	if !tracker.Sights["uid-1"].Forced {
		t.Error("the kubelet would be taken for the one that set the grace to 0")
	}
}

func TestSessionReadsFenceLive(t *testing.T) {
	fenced := Reply{Outcome: session.Succeeded, Fence: objects.Fence{InForce: true, Coverage: v1alpha1.CoversUntilUnfenced,
		BootID: "boot"}}
	s, _, _ := play(t, NewTracker(), facts(pod(noGrace), func(f *Facts) { f.FenceSeen = true }),
		answer{ReadPod, podIs(noGrace), 0}, answer{ReadFence, fenced, 0},
		answer{ReadNode, Reply{Outcome: session.Succeeded, Node: down()}, 0}, answer{RemoveFinalizer, done(), 0})
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonNodeFenced))
}

// The heartbeat in the first read counts as one from before.
func TestSessionWaitsForHeartbeatOfRefusedPod(t *testing.T) {
	t.Parallel()
	tracker := NewTracker()
	tracker.Complete = ago(time.Hour)
	tracker.SawStart(Pod{UID: "uid-1", Unstarted: true}, false)
	tracker.Saw(facts(pod(turnedDown)).Pod, objects.NodeReady, ago(time.Minute))
	f := facts(pod(turnedDown), storage(Storage{Machine: machine("m"), BootID: "boot", Since: ago(2 * time.Hour)}))
	for i, beat := range []int64{7, 7, 8} {
		n := objects.Node{Found: true, Ready: objects.ReadyTrue, Machine: machine("m"), BootID: "boot", Heartbeat: beat}
		answers := []answer{{ReadPod, podIs(turnedDown, version("12")), 0},
			{ReadNode, Reply{Outcome: session.Succeeded, Node: n}, 0}}
		want := ReasonWaitsForNodeStatus
		if beat == 8 {
			answers, want = append(answers, answer{RemoveFinalizer, done(), 0}), ReasonRefused
		}
		s, asked, _ := play(t, tracker, f, answers...)
		if s.Reason() != want || beat == 8 && asked[2].ResourceVersion != "12" {
			t.Errorf("session %d: %s, %+v", i, s.Reason(), asked)
		}
	}
	if tracker.Saw(terminatingPod(), objects.NodeReady, now()); tracker.Sights["uid-1"].Heartbeat != 0 {
		t.Error("a heartbeat counts that was read before the kubelet found no container")
	}
	play(t, tracker, facts(seen(objects.NodeTainted)), answer{ReadPod, podIs(), 0},
		answer{ReadNode, Reply{Outcome: session.Succeeded, Node: objects.Node{Found: true, Heartbeat: 7}}, 0})
	if tracker.Sights["uid-1"].Heartbeat != 0 {
		t.Error("the heartbeat is of a pod that was not refused")
	}
}

func TestTrackerSawStart(t *testing.T) {
	t.Parallel()
	unread := Pod{UID: "uid", Unstarted: true}
	bound := unread
	bound.Node = "a"
	started := bound
	started.Unstarted = false
	for name, c := range map[string]struct {
		states  []Pod
		created bool
		want    bool
	}{
		"without a node":                  {[]Pod{unread}, false, true},
		"without a node, and bound":       {[]Pod{unread, bound}, false, true},
		"bound at its creation":           {[]Pod{bound}, true, true},
		"first seen bound":                {[]Pod{bound}, false, false},
		"started":                         {[]Pod{unread, started}, false, false},
		"started, and seen as it was":     {[]Pod{unread, started, bound}, false, false},
		"created and started at one time": {[]Pod{started}, true, false},
	} {
		tracker := NewTracker()
		tracker.Complete = now()
		for _, p := range c.states {
			tracker.SawStart(p, c.created)
		}
		if got := tracker.Unread["uid"]; got.Equal(now()) != c.want || len(tracker.Unread) > 1 {
			t.Errorf("%s: %v", name, tracker.Unread)
		}
		tracker.Saw(Pod{UID: "uid", Held: true, Terminating: true}, objects.NodeReady, now())
		if len(tracker.Unread) != 0 {
			t.Errorf("%s: a live read shows the start, and it counts as not started", name)
		}
		if tracker.Forget("uid"); len(tracker.Unread) != 0 {
			t.Errorf("%s: it is remembered", name)
		}
		tracker = NewTracker()
		for _, p := range c.states {
			tracker.SawStart(p, c.created)
		}
		if len(tracker.Unread) != 0 {
			t.Errorf("%s, before pods and nodes have an order: %v", name, tracker.Unread)
		}
	}
}

func TestTrackerLags(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node Storage
		want bool
	}{
		"a later node":     {Storage{Machine: machine("m"), Since: now().Add(time.Second)}, true},
		"of the same time": {Storage{Machine: machine("m"), Since: now()}, true},
		"an earlier one":   {Storage{Machine: machine("m"), Since: ago(time.Second)}, false},
		"one that is away": {Storage{Machine: machine("m"), Since: now(), Away: true}, false},
		"no machine":       {Storage{Since: now()}, false},
	} {
		tracker := NewTracker()
		tracker.Complete, tracker.Storages["a"] = now(), c.node
		if got := tracker.Lags(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestNodeAwayAtFirstZeroGrace(t *testing.T) {
	for first, away := range map[objects.NodeSeen]bool{objects.NodeReady: false, objects.NodeUnseen: true,
		objects.NodeTaintedReady: true,
		objects.NodeTainted:      true, objects.NodeNotReady: true, objects.NodeAbsent: true} {
		tracker, forced := NewTracker(), facts(pod(ended), pod(noGrace)).Pod
		tracker.Saw(facts(pod(ended)).Pod, objects.NodeNotReady, ago(time.Minute))
		tracker.Saw(forced, first, ago(time.Second))
		if got := tracker.Saw(forced, objects.NodeReady, now()); got.NodeAway != away {
			t.Errorf("%d: %+v", first, got)
		}
	}
}

func TestTrackerSaw(t *testing.T) {
	held := terminatingPod()
	at := func(p Pod, alter ...func(*Pod)) Pod {
		for _, a := range alter {
			a(&p)
		}
		return p
	}
	first, second := ago(time.Minute), now()
	for name, c := range map[string]struct {
		then, later Pod
		want        Sight
	}{
		"it runs":       {at(held, runs), at(held, runs), Sight{}},
		"it terminates": {held, held, Sight{}},
		"it is not held": {
			at(held, noGrace, func(p *Pod) { p.Held = false }), at(held, ended, func(p *Pod) { p.Held = false }),
			Sight{}},
		"it loses its grace": {at(held, noGrace), at(held, noGrace), Sight{GraceZeroSince: first}},
		"it finishes, then loses its grace": {at(held, ended), at(held, ended, noGrace),
			Sight{FinishedSince: first, FinishedWithGrace: true, GraceZeroSince: second}},
		"it loses its grace, then finishes": {at(held, noGrace), at(held, ended, noGrace),
			Sight{FinishedSince: second, GraceZeroSince: first}},
		"it loses its grace, then finishes, seen twice": {at(held, ended, noGrace), at(held, ended, noGrace),
			Sight{FinishedSince: first, GraceZeroSince: first}},
		"its end is none after all": {at(held, ended, noGrace), at(held, ended, noGrace, func(p *Pod) { p.Running = true }),
			Sight{GraceZeroSince: first}},
		"it is refused": {at(held, turnedDown), at(held, turnedDown),
			Sight{GraceZeroSince: first, RefusedSince: first}},
		"a container of it is found": {at(held, turnedDown), at(held, noGrace), Sight{GraceZeroSince: first}},
		"the order of events is reversed": {at(held, ended, noGrace), at(held, ended),
			Sight{FinishedSince: first, FinishedWithGrace: true, GraceZeroSince: first}},
	} {
		tracker := NewTracker()
		tracker.Saw(c.then, objects.NodeReady, first)
		if got := tracker.Saw(c.later, objects.NodeReady, second); got != c.want || tracker.Sights[held.UID] != c.want {
			t.Errorf("%s: %+v", name, got)
		}
		if _, known := tracker.Sights[held.UID]; known && !c.later.Terminating {
			t.Errorf("%s: a pod that runs is remembered", name)
		}
		tracker.Forget(held.UID)
		if len(tracker.Sights) != 0 {
			t.Errorf("%s: is remembered", name)
		}
	}
}
