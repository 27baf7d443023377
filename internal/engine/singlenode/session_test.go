package singlenode

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// answer is one reply of a server, with its duration.
type answer struct {
	action Action
	reply  Reply
	takes  time.Duration
}

// worker is a session about a pod or a lock.
type worker interface {
	Ask() Ask
	Answer(r Reply, sent, now time.Time)
	Ended() session.End
	Next() (session.Kind, string, string)
}

// play answers a session, checks each Ask, and returns all of them.
func play(t *testing.T, s worker, answers ...answer) (asked []Ask) {
	t.Helper()
	at := now()
	for i := 0; s.Ended() == session.NotEnded; i++ {
		ask := s.Ask()
		if kind, action, _ := s.Next(); kind != ask.Action.Kind() || action != ask.Action.String() {
			t.Errorf("the next step is %s, and it asks %+v", action, ask)
		}
		asked = append(asked, ask)
		if i == len(answers) {
			t.Fatalf("asks %+v", ask)
		}
		if ask.Action != answers[i].action {
			t.Fatalf("ask %d is %+v, want %v", i, ask, answers[i].action)
		}
		sent := at
		at = at.Add(answers[i].takes)
		s.Answer(answers[i].reply, sent, at)
	}
	if len(asked) != len(answers) {
		t.Fatalf("asked %d times, want %d", len(asked), len(answers))
	}
	if s.Ask().Action != Wait {
		t.Errorf("asks %+v after its end", s.Ask())
	}
	return asked
}

func playPod(t *testing.T, f Facts, answers ...answer) (s Session, asked []Ask) {
	t.Helper()
	s = Begin(f, now())
	asked = play(t, &s, answers...)
	return s, asked
}

func playLock(t *testing.T, f LockFacts, answers ...answer) (s LockSession, asked []Ask) {
	t.Helper()
	s = BeginLock(f, now())
	asked = play(t, &s, answers...)
	return s, asked
}

func done() Reply { return Reply{Outcome: session.Succeeded} }

func claimIs(c Claim) Reply { return Reply{Outcome: session.Succeeded, Claim: c} }

// wrote is the reply to TakeLock.
func wrote(name string) Reply {
	c := lockedBy(claim(name), own())
	c.ResourceVersion, c.Volume = "6", objects.Volume{}
	return claimIs(c)
}

func usersAre(u ...User) Reply { return Reply{Outcome: session.Succeeded, Users: u} }

func modeIs(m Mode) Reply { return Reply{Outcome: session.Succeeded, Mode: m} }

func same(a, b Ask) bool {
	claims := slices.Equal(a.Claims, b.Claims)
	a.Claims, b.Claims = nil, nil
	return claims && a.Action == b.Action && a.Namespace == b.Namespace && a.Name == b.Name &&
		a.UID == b.UID && a.ResourceVersion == b.ResourceVersion && a.Lock == b.Lock && a.Mode == b.Mode
}

func TestPodGetsLocksAndLosesGate(t *testing.T) {
	f := facts(second(ClaimFacts{Claim: claim("assets")}))
	s, asked := playPod(t, f, answer{TakeLock, wrote("assets"), 0}, answer{TakeLock, wrote("data"), 0},
		answer{ListPods, usersAre(), 0}, answer{RemoveGate, done(), 0})
	for i, want := range []Ask{
		{Action: TakeLock, Namespace: "ns", Name: "assets", UID: "uid-of-assets", ResourceVersion: "5",
			Lock: own()},
		{Action: TakeLock, Namespace: "ns", Name: "data", UID: "uid-of-data", ResourceVersion: "5",
			Lock: own()},
		{Action: ListPods, Namespace: "ns", Claims: []string{"data", "assets"}},
		{Action: RemoveGate, Namespace: "ns", Name: "web-1", UID: "uid-1"},
	} {
		if !same(asked[i], want) {
			t.Errorf("ask %d: %+v, want %+v", i, asked[i], want)
		}
	}
	if s.End != session.Written || s.Reason() != ReasonAcquired || s.Requeue() != session.RequeueNever {
		t.Errorf("end %d, %s, requeue %d", s.End, s.Reason(), s.Requeue())
	}
	if got := s.Facts.Claims[0].Claim; got.Volume.Driver != driver || got.ResourceVersion != "6" || !got.Locked {
		t.Errorf("the claim is known as %+v", got)
	}
	if f.Claims[0].Claim.Locked {
		t.Error("the facts of the caller are changed")
	}
}

func TestLockOfEarlierSessionIsReadLive(t *testing.T) {
	lockedData := lockedBy(claim("data"), own())
	s, asked := playPod(t, facts(lock(own(), session.Read{})), answer{ReadClaim, claimIs(lockedData), 0},
		answer{ListPods, usersAre(), 0}, answer{RemoveGate, done(), 0})
	if want := (Ask{Action: ReadClaim, Namespace: "ns", Name: "data",
		Mode: ModeAll}); !same(asked[0], want) {
		t.Errorf("%+v", asked[0])
	}
	if s.Reason() != ReasonAcquired {
		t.Errorf("%s", s.Reason())
	}
}

// A lock in the watch cache may be gone.
func TestStaleLockIsNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		answers []answer
		reason  Reason
	}{
		"another has it":      {[]answer{{ReadClaim, claimIs(lockedBy(claim("data"), other())), 0}}, ReasonClaimInUse},
		"the claim is gone":   {[]answer{{ReadClaim, claimIs(Claim{}), 0}}, ReasonClaimMissing},
		"it is being deleted": {[]answer{{ReadClaim, claimIs(with(claim("data"), terminating)), 0}}, ReasonClaimTerminating},
		"no holder": {[]answer{{ReadClaim, claimIs(claim("data")), 0}, {TakeLock, wrote("data"), 0},
			{ListPods, usersAre(user()), 0}}, ReasonUsedWithoutLock},
	} {
		s, _ := playPod(t, facts(lock(own(), session.Read{})), c.answers...)
		if s.End != session.Waiting || s.Reason() != c.reason {
			t.Errorf("%s: end %d, %s", name, s.End, s.Reason())
		}
	}
}

func with(c Claim, alter func(*Claim)) Claim {
	alter(&c)
	return c
}

// The watch lags: the namespace asks for all locks by now, and another pod has the lock of the claim.
func TestStaleCacheLetsNoPodRun(t *testing.T) {
	f := facts(mode(ModeOff), ofClaim(unasked))
	s, asked := playPod(t, f, answer{ReadNamespace, modeIs(ModeAll), 0},
		answer{ReadClaim, claimIs(lockedBy(claim("data"), other())), 0})
	if asked[0].Name != "" || asked[0].Namespace != "ns" || asked[1].Mode != ModeAll {
		t.Errorf("%+v", asked)
	}
	if s.Reason() != ReasonClaimInUse {
		t.Errorf("%s", s.Reason())
	}
}

func TestGateGoesWithoutNeededLocks(t *testing.T) {
	s, asked := playPod(t, facts(mode(ModeSelected), ofClaim(unasked)), answer{ReadNamespace, modeIs(ModeSelected), 0},
		answer{ReadClaim, claimIs(with(claim("data"), unasked)), 0}, answer{RemoveGate, done(), 0})
	if asked[1].Mode != ModeSelected || s.Reason() != ReasonNotAsked || s.End != session.Written {
		t.Errorf("%+v, end %d, %s", asked[1], s.End, s.Reason())
	}
	s, _ = playPod(t, facts(mode(ModeUnknown)), answer{ReadNamespace, modeIs(ModeOff), 0}, answer{RemoveGate, done(), 0})
	if s.Reason() != ReasonNotAsked {
		t.Errorf("%s", s.Reason())
	}
}

// One list can contain two pods of one name, because its pages stem from several moments.
func TestFenceOfEachUserIsRead(t *testing.T) {
	first := user(ofUser(deleted), fenceSeen)
	again := user(ofUser(deleted), fenceSeen, ofUser(func(p *Pod) { p.UID, p.Node = "uid-9", "b" }))
	locks := answer{TakeLock, wrote("data"), 0}
	lists := func() answer { return answer{ListPods, usersAre(first, again), 0} }
	fence, node := answer{ReadFence, fenceIs(), 0}, answer{ReadNode, nodeBooted("boot-1"), 0}
	s, asked := playPod(t, facts(), locks, lists(), fence, node, fence, node, answer{RemoveGate, done(), 0})
	for i, want := range map[int]Ask{
		2: {Action: ReadFence, Namespace: "ns", Name: "a", UID: "uid-0"},
		3: {Action: ReadNode, Namespace: "ns", Name: "a"},
		4: {Action: ReadFence, Namespace: "ns", Name: "b", UID: "uid-9"},
		5: {Action: ReadNode, Namespace: "ns", Name: "b"},
	} {
		if !same(asked[i], want) {
			t.Errorf("ask %d: %+v, want %+v", i, asked[i], want)
		}
	}
	if s.Reason() != ReasonAcquired {
		t.Errorf("%s", s.Reason())
	}
	s, _ = playPod(t, facts(), locks, lists(), fence, node, fence, answer{ReadNode, nodeBooted("boot-2"), 0})
	if s.End != session.Waiting || s.Reason() != ReasonUsedWithoutLock || s.Decision.User != "uid-9" {
		t.Errorf("the second has rebooted: end %d, %s of %s", s.End, s.Reason(), s.Decision.User)
	}
}

func TestSessionEnds(t *testing.T) {
	lost := session.Unanswered
	locks := answer{TakeLock, wrote("data"), 0}
	lists := answer{ListPods, usersAre(), 0}
	for name, c := range map[string]struct {
		answers []answer
		end     session.End
		reason  Reason
		requeue session.Requeue
	}{
		"the claim has changed": {[]answer{{TakeLock, Reply{Outcome: session.Conflict}, 0}},
			session.Conflicted, "", session.RequeueSoon},
		"the claim is gone": {[]answer{{TakeLock, Reply{Outcome: session.Gone}, 0}},
			session.Conflicted, "", session.RequeueSoon},
		"the lock is refused": {[]answer{{TakeLock, Reply{Outcome: lost}, 0}},
			session.CallFailed, ReasonAPIWriteFailed, session.RequeueRetry},
		"the list is refused": {[]answer{locks, {ListPods, Reply{Outcome: lost}, 0}},
			session.CallFailed, ReasonAPIReadFailed, session.RequeueRetry},
		"another uses the claim": {[]answer{locks, {ListPods, usersAre(user()), 0}},
			session.Waiting, ReasonUsedWithoutLock, session.RequeueAfter},
		"another has just ended": {[]answer{locks, {ListPods, usersAre(user(ofUser(succeeded), endedFor(0))), 0}},
			session.Waiting, ReasonUsedWithoutLock, session.RequeueAfter},
		"the pod is gone": {[]answer{locks, lists, {RemoveGate, Reply{Outcome: session.Gone}, 0}},
			session.ObjectGone, "", session.RequeueNever},
		"the gate stays": {[]answer{locks, lists, {RemoveGate, Reply{Outcome: lost}, 0}},
			session.CallFailed, ReasonAPIWriteFailed, session.RequeueRetry},
	} {
		s, _ := playPod(t, facts(), c.answers...)
		if s.End != c.end || s.Reason() != c.reason || s.Requeue() != c.requeue {
			t.Errorf("%s: end %d, %q, requeue %d", name, s.End, s.Reason(), s.Requeue())
		}
	}
}

// An admission webhook may remove the finalizer from each write.
func TestSessionStepsAreBounded(t *testing.T) {
	stripped := claimIs(with(lockedBy(claim("data"), own()), unkept))
	var answers []answer
	for range maxSteps(1, 0) {
		answers = append(answers, answer{TakeLock, stripped, 0})
	}
	s, _ := playPod(t, facts(), answers...)
	if s.End != session.TooSlow || s.Requeue() != session.RequeueRetry || s.Reason() != ReasonAPIReadFailed {
		t.Errorf("end %d, %s, requeue %d", s.End, s.Reason(), s.Requeue())
	}
}

func TestExpiredListIsRepeated(t *testing.T) {
	s, _ := playPod(t, facts(), answer{TakeLock, wrote("data"), 0},
		answer{ListPods, usersAre(), session.LiveFor + time.Second}, answer{ListPods, usersAre(), 0},
		answer{RemoveGate, done(), 0})
	if s.Reason() != ReasonAcquired {
		t.Errorf("%s", s.Reason())
	}
}

func TestDryRunMakesNoWrites(t *testing.T) {
	dry := func(f *Facts) { f.Rules.DryRun = true }
	s, asked := playPod(t, facts(dry))
	if s.End != session.Skipped || s.Reason() != ReasonDryRun || len(asked) != 0 {
		t.Errorf("end %d, %s", s.End, s.Reason())
	}
	l, _ := playLock(t, lockFacts(noHolder, func(f *LockFacts) { f.Rules.DryRun = true }), answer{ReadHolder, done(), 0})
	if l.End != session.Skipped || l.Reason() != ReasonDryRun || l.Requeue() != session.RequeueNever {
		t.Errorf("end %d, %s", l.End, l.Reason())
	}
}

func TestSessionHasEnoughSteps(t *testing.T) {
	f := facts(mode(ModeUnknown), lock(own(), session.Read{}))
	answers := []answer{{ReadNamespace, modeIs(ModeAll), 0}, {ReadClaim, claimIs(claim("data")), 0},
		{TakeLock, wrote("data"), 0}}
	var all []User
	for _, name := range []string{"e", "f", "g", "h"} {
		second(ClaimFacts{Claim: lockedBy(claim(name), own())})(&f)
		answers = append(answers, answer{ReadClaim, claimIs(claim(name)), 0}, answer{TakeLock, wrote(name), 0})
		u := user(ofUser(deleted), fenceSeen)
		u.Pod.UID, u.Pod.Name = types.UID(name), name
		all = append(all, u)
	}
	answers = append(answers, answer{ListPods, usersAre(all...), 0})
	for range all {
		answers = append(answers, answer{ReadFence, fenceIs(), 0}, answer{ReadNode, nodeBooted("boot-1"), 0})
	}
	s, _ := playPod(t, f, append(answers, answer{RemoveGate, done(), 0})...)
	if s.Reason() != ReasonAcquired {
		t.Errorf("%s", s.Reason())
	}
}
