package fencing

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

func TestAskReportsThatAgentMayHaveFenced(t *testing.T) {
	for name, c := range map[string]struct {
		attempts func(*Facts)
		want     bool
	}{
		"it has":          {proved(power), true},
		"it has not":      {attempted(power, v1alpha1.ResultTimedOut), false},
		"another one has": {all(attempted(power, v1alpha1.ResultFailed), proved(bmc)), false},
		"it has before": {
			all(attempted(power, v1alpha1.ResultContradicted), attempted(power, v1alpha1.ResultFailed)), true},
		"it is at work":    {attempted(power, ""), false},
		"it may have":      {attempted(power, v1alpha1.ResultTimedOut, objectSeen), true},
		"it has, and then": {all(attempted(power, v1alpha1.ResultContradicted), proved(bmc)), true},
	} {
		f := facts(agents(power, bmc), c.attempts)
		var s Session
		s.Facts, s.Decision = f, Decision{Action: ReadRun, Run: Run{Attempt: 1, Agent: power}}
		if got := s.Ask().Acted; got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

type answer sessiontest.Answer[Action, Reply]

func play(t *testing.T, tracker *Tracker, f Facts, at time.Time, answers ...answer) (s Session, asked []Ask) {
	t.Helper()
	s = Begin(tracker, f, at)
	asked, _ = sessiontest.Play(t, &s, &s.Progress, at,
		func(r Reply, sent, now time.Time) { s.Answer(tracker, r, sent, now) }, answers)
	return s, asked
}

func reply(alter ...func(*Reply)) Reply {
	r := Reply{Outcome: session.Succeeded}
	for _, a := range alter {
		a(&r)
	}
	return r
}

func fenceIs(alter ...func(*Facts)) Reply {
	return Reply{Outcome: session.Succeeded, Found: true, Fence: facts(alter...).Fence}
}

func nodeIs(alter ...func(*objects.Node)) Reply {
	return reply(func(r *Reply) { r.Node = facts(down(alter...)).Node })
}

func leaseIs(version string) Reply {
	return reply(func(r *Reply) { r.Lease.ResourceVersion = version })
}

func runIs(state RunState) Reply { return reply(func(r *Reply) { r.Run.State = state }) }

func TestSessionReleasesFence(t *testing.T) {
	in := proved(power)
	s, asked := play(t, NewTracker(), facts(in, unread), now(),
		answer{ReadFence, fenceIs(in, func(f *Facts) { f.Fence.ResourceVersion = "11" }), 0}, answer{ReadNode, nodeIs(), 0},
		answer{ReadLease, leaseIs("7"), 0}, answer{AddTaint, reply(), 0},
		answer{ReadNode, nodeIs(tainted), 0}, answer{ReadLease, leaseIs("7"), 0}, answer{WriteStatus, reply(), 0})
	for i, want := range []Ask{
		{}, {}, {}, {NodeVersion: "20"}, {}, {}, {NodeVersion: "20"},
	} {
		got := asked[i]
		version := "11"
		if i == 0 {
			version = "10"
		}
		if got.Node != "node-1" || got.UID != "fence" || got.ResourceVersion != version {
			t.Errorf("asks %+v", got)
		}
		if got.Action == AddTaint && (got.NodeVersion != want.NodeVersion || got.Taint != OutOfService) {
			t.Errorf("taints the node of version %q with taint %d", got.NodeVersion, got.Taint)
		}
	}
	if status := asked[6].Status; status == nil || status.Phase != v1alpha1.PhaseReleased {
		t.Errorf("writes %+v", asked[6].Status)
	}
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonReleased))
	if s.ReadCount != 5 {
		t.Errorf("%d reads", s.ReadCount)
	}
}

func TestSessionKeepsPodsFromNodeWithoutVolumes(t *testing.T) {
	in := all(agents(storage), proved(storage))
	s, asked := play(t, NewTracker(), facts(in, unread), now(), answer{ReadFence, fenceIs(in), 0},
		answer{ReadNode, nodeIs(), 0}, answer{ReadLease, leaseIs("7"), 0}, answer{AddTaint, reply(), 0},
		answer{ReadNode, nodeIs(shunned), 0}, answer{ReadLease, leaseIs("7"), 0})
	sessiontest.Ends(t, &s, sessiontest.Timed(ReasonFenced))
	if asked[3].Taint != VolumesFenced || asked[3].NodeVersion != "20" {
		t.Errorf("asks %+v", asked[3])
	}
	s, asked = play(t, NewTracker(), facts(in, unread), now(), answer{ReadFence, fenceIs(in), 0},
		answer{ReadNode, nodeIs(shunned, rebooted), 0}, answer{ReadLease, leaseIs("7"), 0}, answer{RemoveTaint, reply(), 0},
		answer{ReadNode, nodeIs(rebooted), 0}, answer{ReadLease, leaseIs("7"), 0})
	if asked[3].Taint != NoTaint || s.End != session.Waiting {
		t.Errorf("asks %+v, end %d", asked[3], s.End)
	}
}

func TestSessionStartsAndReadsAgent(t *testing.T) {
	open := attempted(power, "")
	s, asked := play(t, NewTracker(), facts(open, unread), now(), answer{ReadFence, fenceIs(open), 0},
		answer{ReadRun, runIs(RunAbsent), 0}, answer{StartRun, reply(), 0}, answer{ReadRun, runIs(Running), 0})
	for _, ask := range asked[1:] {
		if ask.Run != (Run{Attempt: 1, Agent: power}) || ask.Acted || ask.Agent.Name != power || ask.Agent.Job == nil ||
			ask.BootID != "boot" {
			t.Errorf("asks %+v", ask)
		}
	}
	sessiontest.Ends(t, &s, sessiontest.Timed(ReasonFencing))
	if s.Decision.After != agentPoll {
		t.Errorf("after %s", s.Decision.After)
	}
	s, _ = play(t, NewTracker(), facts(open, unfence(v1alpha1.UnfenceNow)), now(), answer{ReadRun, runIs(Running), 0},
		answer{StopRun, reply(), 0}, answer{ReadRun, runIs(RunAbsent), 0}, answer{WriteStatus, reply(), 0})
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonAgentCanceled))
}

// No event of the watch follows a write that changes nothing.
func TestAgentIsReadAgainAfterRecordOfItsObject(t *testing.T) {
	in := all(agents(storage), attempted(storage, ""))
	s, _ := play(t, NewTracker(), facts(in, unread), now(), answer{ReadFence, fenceIs(in), 0},
		answer{ReadRun, runIs(Running), 0}, answer{WriteStatus, reply(), 0})
	if s.End != session.Written || s.Requeue() != session.RequeueAfter || s.Decision.After != agentPoll {
		t.Errorf("end %d, requeue %d after %s", s.End, s.Requeue(), s.Decision.After)
	}
}

// The terminating pods are recorded before an agent is started.
func TestSessionRecordsAttempt(t *testing.T) {
	left := reply(func(r *Reply) { r.Remaining.Held = []HeldPod{{UID: "pod"}} })
	s, asked := play(t, NewTracker(), facts(unread), now(), answer{ReadFence, fenceIs(), 0}, answer{ReadNode, nodeIs(), 0},
		answer{ListRemaining, left, 0}, answer{WriteStatus, reply(), 0})
	if !asked[2].PodsOnly || !s.Facts.Remaining.PodsOnly {
		t.Errorf("lists more than pods: %+v", asked[2])
	}
	if a := asked[3].Status.Attempts; s.Reason() != ReasonFencing || len(a) != 1 || a[0].BootID != "boot" ||
		!slices.Equal(a[0].TerminatingPods, []types.UID{"pod"}) {
		t.Errorf("%s, %+v", s.Reason(), a)
	}
}

// A list of pods alone does not show that the node is empty.
func TestSessionListsVolumeAttachmentsBeforeEnd(t *testing.T) {
	in := proved(power)
	s, asked := play(t, NewTracker(), facts(in, unread), now(), answer{ReadFence, fenceIs(in), 0},
		answer{ReadNode, nodeIs(rebooted), 0}, answer{ReadLease, leaseIs("8"), 0}, answer{ListRemaining, reply(), 0},
		answer{ListRemaining, reply(knowsAll), 0}, answer{WriteStatus, reply(), 0})
	if !asked[3].PodsOnly || asked[4].PodsOnly || s.Reason() != ReasonUnfencing {
		t.Errorf("asks %+v, %s", asked[3], s.Reason())
	}
}

func knowsAll(r *Reply) { r.Remaining.AttachmentsListed = true }

// In a large cluster, a list takes longer than the reads before it are valid. They are made again, and the list is not.
func TestListMayTakeLong(t *testing.T) {
	const long = session.LiveFor + time.Second
	in := proved(power)
	reads := []answer{{ReadFence, fenceIs(in), 0}, {ReadNode, nodeIs(rebooted), 0}, {ReadLease, leaseIs("8"), 0}}
	answers := append(slices.Clone(reads), answer{ListRemaining, reply(), long})
	answers = append(answers, reads...)
	answers = append(answers, answer{ListRemaining, reply(knowsAll), long})
	answers = append(answers, reads...)
	s, _ := play(t, NewTracker(), facts(in, unread), now(), append(answers, answer{WriteStatus, reply(), 0})...)
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonUnfencing))

	s, _ = play(t, NewTracker(), facts(unread), now(), answer{ReadFence, fenceIs(), 0}, answer{ReadNode, nodeIs(), 0},
		answer{ListRemaining, reply(), long}, answer{ReadFence, fenceIs(), 0}, answer{ReadNode, nodeIs(), 0},
		answer{WriteStatus, reply(), 0})
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonFencing))
}

// A list of VolumeAttachments counts that was sent since no pod keeps the fence, in whatever session.
func TestSessionsAskForListSinceNodeIsEmpty(t *testing.T) {
	tracker, in, at := NewTracker(), all(proved(power), saysWait(ReasonRemainsOnNode)), now()
	since := func(boot string, pods int) time.Time {
		t.Helper()
		at = at.Add(nodePoll)
		answers := []answer{{ReadFence, fenceIs(in), 0},
			{ReadNode, nodeIs(func(n *objects.Node) { n.BootID = boot }), 0}, {ReadLease, leaseIs("8"), 0},
			{ListRemaining, reply(func(r *Reply) { r.Remaining.Leaving.Pods = pods }), 0}}
		if pods > 0 {
			s, _ := play(t, tracker, facts(in, unread), at, answers...)
			sessiontest.Ends(t, &s, sessiontest.Timed(ReasonRemainsOnNode))
			return time.Time{}
		}
		s, asked := play(t, tracker, facts(in, unread), at, append(answers, answer{ListRemaining, reply(), 0})...)
		sessiontest.Ends(t, &s, sessiontest.Timed(ReasonAwaitsVolumeList))
		return asked[len(answers)].Since
	}
	if first := since("boot2", 0); !first.Equal(at) || !since("boot2", 0).Equal(first) {
		t.Errorf("%s, and then another time", first)
	}
	since("boot2", 1)
	if again := since("boot2", 0); !again.Equal(at) {
		t.Errorf("%s, before a pod was on the node", again)
	}
	if other := since("boot3", 0); !other.Equal(at) {
		t.Errorf("%s, before the node was rebooted", other)
	}
}

// The state of the node is read after the agent has reported success.
func TestSessionRecordsProof(t *testing.T) {
	open := attempted(power, "")
	s, asked := play(t, NewTracker(), facts(open, unread), now(), answer{ReadFence, fenceIs(open), 0},
		answer{ReadRun, runIs(RunSucceeded), 0}, answer{ReadNode, nodeIs(), 0}, answer{ReadLease, leaseIs("7"), 0},
		answer{WriteStatus, reply(), 0})
	if p := asked[4].Status.Proof; s.Reason() != ReasonFenced || p == nil || p.LeaseVersion != "7" || p.BootID != "boot" {
		t.Errorf("%s, proof %+v", s.Reason(), p)
	}
}

// Reads do not count any more after a run was started or stopped, or after the taint has changed.
func TestWritesInvalidateReads(t *testing.T) {
	over := all(proved(power), ending, allUndone, terminating)
	s, _ := play(t, NewTracker(), facts(over, unread), now(), answer{ReadFence, fenceIs(over), 0},
		answer{ReadNode, nodeIs(tainted), 0}, answer{ReadLease, leaseIs("7"), 0}, answer{RemoveTaint, reply(), 0},
		answer{ReadNode, nodeIs(), 0},
		answer{WriteStatus, reply(), 0})
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonEnded))
}

func TestSessionRemovesTaintWithoutFence(t *testing.T) {
	alone := func(f *Facts) { *f = Facts{Fence: Fence{Name: "node-1"}, TaintSeen: true} }
	s, asked := play(t, NewTracker(), facts(alone), now(), answer{ReadFence, reply(), 0}, answer{ReadNode,
		nodeIs(tainted), 0},
		answer{RemoveTaint, reply(), 0}, answer{ReadNode, nodeIs(), 0})
	sessiontest.Ends(t, &s, sessiontest.Waits(ReasonNoFence))
	if asked[2].Node != "node-1" || asked[2].NodeVersion != "20" {
		t.Errorf("asks %+v", asked[2])
	}
	// A fence exists, which the watch has not shown yet.
	s, _ = play(t, NewTracker(), facts(alone), now(), answer{ReadFence, fenceIs(), 0}, answer{ReadNode, nodeIs(), 0},
		answer{ListRemaining, reply(), 0}, answer{WriteStatus, reply(), 0})
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonFencing))
	if s.Facts.Fence.UID != "fence" {
		t.Errorf("the fence is %+v", s.Facts.Fence)
	}
}

func TestSessionEnds(t *testing.T) {
	in := proved(power)
	read, node, lease := answer{ReadFence, fenceIs(in), 0}, answer{ReadNode, nodeIs(), 0}, answer{ReadLease,
		leaseIs("7"), 0}
	for name, c := range map[string]struct {
		answers []answer
		want    sessiontest.End
	}{
		"the fence is gone": {[]answer{{ReadFence, reply(), 0}}, sessiontest.Gone},
		"it was made again": {
			[]answer{{ReadFence, fenceIs(func(f *Facts) { f.Fence.UID = "fence2" }), 0}}, sessiontest.Gone},
		"it is not found": {
			[]answer{{ReadFence, Reply{Outcome: session.Succeeded, Fence: facts().Fence}, 0}}, sessiontest.Gone},
		"a read fails": {
			[]answer{read, {ReadNode, Reply{}, 0}}, sessiontest.ReadFailed},
		"the node changed": {
			[]answer{read, node, lease, {AddTaint, Reply{Outcome: session.Conflict}, 0}}, sessiontest.Conflicted},
		"the taint is refused": {
			[]answer{read, node, lease, {AddTaint, Reply{}, 0}}, sessiontest.WriteFailed},
		"the node is Ready": {
			[]answer{read, {ReadNode, nodeIs(ready), 0}, lease}, sessiontest.Timed(ReasonNodeStillReady)},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := play(t, NewTracker(), facts(in, unread), now(), c.answers...)
			sessiontest.Ends(t, &s, c.want)
		})
	}
}

// A refused taint hides no call for a person.
func TestSessionWithoutTaintCallsPerson(t *testing.T) {
	in := all(agents(storage), proved(storage))
	for _, c := range []struct {
		node  Reply
		lease string
		want  Reason
	}{{nodeIs(ready), "8", ReasonNeedsReboot}, {nodeIs(), "7", ReasonAPIWriteFailed}} {
		s, _ := play(t, NewTracker(), facts(in, unread), now(), answer{ReadFence, fenceIs(in), 0},
			answer{ReadNode, c.node, 0}, answer{ReadLease, leaseIs(c.lease), 0}, answer{AddTaint, Reply{}, 0})
		sessiontest.Ends(t, &s, sessiontest.Failed(c.want))
	}
}

func TestStaleReadsAreRepeatedWithinLimit(t *testing.T) {
	s, _ := play(t, NewTracker(), facts(unread), now(), sessiontest.Stale(maxSteps, answer{ReadFence, fenceIs(), 0})...)
	sessiontest.Ends(t, &s, sessiontest.TooSlow)
}

func TestDryRunMakesNoWrites(t *testing.T) {
	in := proved(power)
	s, _ := play(t, NewTracker(), facts(in, unread, func(f *Facts) { f.Rules.DryRun = true }), now(),
		answer{ReadFence, fenceIs(in), 0}, answer{ReadNode, nodeIs(), 0}, answer{ReadLease, leaseIs("7"), 0})
	sessiontest.Ends(t, &s, sessiontest.DryRun)
	if s.Decision.Action != AddTaint {
		t.Errorf("leaves out %s", s.Decision.Action)
	}
	s, _ = play(t, NewTracker(), facts(attempted(power, ""), func(f *Facts) { f.Rules.DryRun = true }), now(),
		answer{ReadRun, runIs(RunAbsent), 0})
	sessiontest.Ends(t, &s, sessiontest.DryRun)
	if s.Decision.Action != StartRun {
		t.Errorf("leaves out %s", s.Decision.Action)
	}
}

// The error that kept an agent from starting is in the status once its time is over.
func TestRefusedRunIsRemembered(t *testing.T) {
	for _, action := range []Action{StartRun, StopRun} {
		tracker, open := NewTracker(), attempted(power, "")
		state, begin := RunAbsent, facts(open)
		if action == StopRun {
			state, begin = Running, facts(open, terminating)
		}
		refuse := Reply{Run: RunFacts{Message: "no PodTemplate"}}
		s, _ := play(t, tracker, begin, now(), answer{ReadRun, runIs(state), 0}, answer{action, refuse, 0})
		sessiontest.Ends(t, &s, sessiontest.Failed(ReasonAgentUnusable))
		if got := tracker.Fences["fence"]; got.RefusedBy != "no PodTemplate" ||
			got.Refused != (Run{Attempt: 1, Agent: power}) {
			t.Errorf("%+v", got)
		}
	}
	tracker, open := NewTracker(), attempted(power, "")
	refuse := Reply{Run: RunFacts{Message: "no PodTemplate"}}
	play(t, tracker, facts(open), now(), answer{ReadRun, runIs(RunAbsent), 0}, answer{StartRun, refuse, 0})
	later := facts(attempted(power, "", startedAgo(time.Hour)))
	_, asked := play(t, tracker, later, now(), answer{ReadRun, runIs(RunAbsent), 0}, answer{WriteStatus, reply(), 0})
	if words := asked[1].Status.Attempts[0].Message; words != "no PodTemplate" {
		t.Errorf("the attempt says %q", words)
	}
	if s := Begin(tracker, facts(attempted(power, "", startedAgo(time.Hour)), ran(RunAbsent, silence)), now()); s.Ask().
		Status.Attempts[0].Message != "no PodTemplate" {
		t.Errorf("what is remembered does not count from the beginning: %+v", s.Ask())
	}
	play(t, tracker, facts(open), now(), answer{ReadRun, runIs(RunAbsent), 0}, answer{StartRun, reply(), 0},
		answer{ReadRun, runIs(Running), 0})
	if got := tracker.Fences["fence"]; got.RefusedBy != "" {
		t.Errorf("%+v", got)
	}
	s, _ := play(t, tracker, facts(open), now(), answer{ReadRun, Reply{}, 0})
	sessiontest.Ends(t, &s, sessiontest.Failed(ReasonAgentUnusable))
	if tracker.Forget("fence"); len(tracker.Fences) != 0 {
		t.Errorf("%+v", tracker.Fences)
	}
}

// A renewal that was in flight when the node was fenced contradicts no proof, but repeated renewals do.
func TestRepeatedRenewalsContradictProof(t *testing.T) {
	in := proved(power)
	look := func(tracker *Tracker, at time.Time, version string, then ...answer) Session {
		t.Helper()
		s, _ := play(t, tracker, facts(in, unread), at, append([]answer{{ReadFence, fenceIs(in), 0},
			{ReadNode, nodeIs(tainted), 0}, {ReadLease, leaseIs(version), 0}}, then...)...)
		return s
	}
	released := answer{WriteStatus, reply(), 0}
	at := func(d time.Duration) time.Time { return now().Add(d) }

	once := NewTracker()
	if s := look(once, at(0), "8"); s.Reason() != ReasonNodeRuns {
		t.Errorf("%s", s.Reason())
	}
	if s := look(once, at(SilentAfter-1), "8"); s.Reason() != ReasonNodeRuns {
		t.Errorf("%s", s.Reason())
	}
	if s := look(once, at(SilentAfter), "8", released); s.Reason() != ReasonReleased {
		t.Errorf("one renewal: %s", s.Reason())
	}
	if s := look(once, at(SilentAfter+time.Hour), "9"); s.Reason() != ReasonNodeRuns {
		t.Errorf("it counts from before it was silent: %s", s.Reason())
	}

	again := NewTracker()
	look(again, at(0), "8")
	look(again, at(20*time.Second), "9")
	if s := look(again, at(SilentAfter+10*time.Second), "9"); s.Reason() != ReasonNodeRuns {
		t.Errorf("renewals for 20 seconds: %s", s.Reason())
	}
	if s := look(again, at(SilentAfter+15*time.Second), "10", released); s.Reason() != ReasonContradicted {
		t.Errorf("renewals for 55 seconds: %s", s.Reason())
	}
}

func TestTrackerMeasuresLeaseSilence(t *testing.T) {
	tracker := NewTracker()
	f := facts(proved(power), down())
	f.Sight = Sight{}
	if s := tracker.saw(f, ago(time.Hour)); s.LeaseVersion != "7" || !s.LeaseSince.Equal(ago(time.Hour)) {
		t.Errorf("%+v", s)
	}
	if s := tracker.saw(f, now()); !s.LeaseSince.Equal(ago(time.Hour)) {
		t.Errorf("begins again: %+v", s)
	}
	f.LeaseRead = session.Read{}
	f.Lease.ResourceVersion = ""
	if s := tracker.saw(f, now()); s.LeaseVersion != "7" {
		t.Errorf("what was not read counts: %+v", s)
	}
	f.Lease, f.LeaseRead = objects.Lease{ResourceVersion: "8"}, read(3)
	if s := tracker.saw(f, now()); s.LeaseVersion != "8" || !s.LeaseSince.Equal(now()) || !s.RunsSince.Equal(now()) {
		t.Errorf("%+v", s)
	}
	if s := tracker.saw(f, now().Add(SilentAfter)); !s.RunsSince.IsZero() {
		t.Errorf("it is silent, and runs: %+v", s)
	}
	empty := NewTracker() // a node without Lease counts from when that was first seen
	f.Lease.ResourceVersion = ""
	if s := empty.saw(f, now()); !s.LeaseSince.Equal(now()) {
		t.Errorf("%+v", s)
	}
}
