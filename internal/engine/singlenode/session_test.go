package singlenode

import (
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

type answer sessiontest.Answer[Action, Reply]

func playPod(t *testing.T, f Facts, answers ...answer) (s Session, asked []Ask) {
	t.Helper()
	s = Begin(f, now())
	asked, _ = sessiontest.Play(t, &s, &s.Progress, now(), s.Answer, answers)
	return s, asked
}

func playLock(t *testing.T, f LockFacts, answers ...answer) (s LockSession, asked []Ask) {
	t.Helper()
	s = BeginLock(f, now())
	asked, _ = sessiontest.Play(t, &s, &s.Progress, now(), s.Answer, answers)
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
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonAcquired))
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
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonAcquired))
}

// A lock in the watch cache may be gone.
func TestStaleLockIsNotUsed(t *testing.T) {
	for name, c := range map[string]struct {
		answers []answer
		want    sessiontest.End
	}{
		"another has it": {[]answer{{ReadClaim, claimIs(lockedBy(claim("data"), other())), 0}},
			sessiontest.Waits(ReasonClaimInUse)},
		"the claim is gone": {[]answer{{ReadClaim, claimIs(Claim{}), 0}}, sessiontest.Waits(ReasonClaimMissing)},
		"it is being deleted": {[]answer{{ReadClaim, claimIs(with(claim("data"), terminating)), 0}},
			sessiontest.Waits(ReasonClaimTerminating)},
		"no holder": {[]answer{{ReadClaim, claimIs(claim("data")), 0}, {TakeLock, wrote("data"), 0},
			{ListPods, usersAre(user()), 0}}, sessiontest.Timed(ReasonUsedWithoutLock)},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := playPod(t, facts(lock(own(), session.Read{})), c.answers...)
			sessiontest.Ends(t, &s, c.want)
		})
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
	sessiontest.Ends(t, &s, sessiontest.Waits(ReasonClaimInUse))
}

func TestGateGoesWithoutNeededLocks(t *testing.T) {
	s, asked := playPod(t, facts(mode(ModeSelected), ofClaim(unasked)), answer{ReadNamespace, modeIs(ModeSelected), 0},
		answer{ReadClaim, claimIs(with(claim("data"), unasked)), 0}, answer{RemoveGate, done(), 0})
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonNotAsked))
	if asked[1].Mode != ModeSelected {
		t.Errorf("%+v", asked[1])
	}
	s, _ = playPod(t, facts(mode(ModeUnknown)), answer{ReadNamespace, modeIs(ModeOff), 0}, answer{RemoveGate, done(), 0})
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonNotAsked))
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
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonAcquired))
	s, _ = playPod(t, facts(), locks, lists(), fence, node, fence, answer{ReadNode, nodeBooted("boot-2"), 0})
	sessiontest.Ends(t, &s, sessiontest.Timed(ReasonUsedWithoutLock))
	if s.Decision.User != "uid-9" {
		t.Errorf("the second has rebooted: waits for %s", s.Decision.User)
	}
}

func TestSessionEnds(t *testing.T) {
	lost := session.Unanswered
	locks := answer{TakeLock, wrote("data"), 0}
	lists := answer{ListPods, usersAre(), 0}
	for name, c := range map[string]struct {
		answers []answer
		want    sessiontest.End
	}{
		"the claim has changed": {[]answer{{TakeLock, Reply{Outcome: session.Conflict}, 0}}, sessiontest.Conflicted},
		"the claim is gone":     {[]answer{{TakeLock, Reply{Outcome: session.Gone}, 0}}, sessiontest.Conflicted},
		"the lock is refused":   {[]answer{{TakeLock, Reply{Outcome: lost}, 0}}, sessiontest.WriteFailed},
		"the list is refused":   {[]answer{locks, {ListPods, Reply{Outcome: lost}, 0}}, sessiontest.ReadFailed},
		"another uses the claim": {[]answer{locks, {ListPods, usersAre(user()), 0}},
			sessiontest.Timed(ReasonUsedWithoutLock)},
		"another has just ended": {[]answer{locks, {ListPods, usersAre(user(ofUser(succeeded), endedFor(0))), 0}},
			sessiontest.Timed(ReasonUsedWithoutLock)},
		"the pod is gone": {[]answer{locks, lists, {RemoveGate, Reply{Outcome: session.Gone}, 0}}, sessiontest.Gone},
		"the gate stays":  {[]answer{locks, lists, {RemoveGate, Reply{Outcome: lost}, 0}}, sessiontest.WriteFailed},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := playPod(t, facts(), c.answers...)
			sessiontest.Ends(t, &s, c.want)
		})
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
	sessiontest.Ends(t, &s, sessiontest.TooSlow)
}

func TestExpiredListIsRepeated(t *testing.T) {
	s, _ := playPod(t, facts(), answer{TakeLock, wrote("data"), 0},
		answer{ListPods, usersAre(), session.LiveFor + time.Second}, answer{ListPods, usersAre(), 0},
		answer{RemoveGate, done(), 0})
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonAcquired))
}

func TestDryRunMakesNoWrites(t *testing.T) {
	dry := func(f *Facts) { f.Rules.DryRun = true }
	s, _ := playPod(t, facts(dry))
	sessiontest.Ends(t, &s, sessiontest.DryRun)
	l, _ := playLock(t, lockFacts(noHolder, func(f *LockFacts) { f.Rules.DryRun = true }), answer{ReadHolder, done(), 0})
	sessiontest.Ends(t, &l, sessiontest.DryRun)
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
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonAcquired))
}
