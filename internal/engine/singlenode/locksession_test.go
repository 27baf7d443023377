package singlenode

import (
	"testing"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/test/framework/sessiontest"
)

func TestLockOfDeletedPodIsFreed(t *testing.T) {
	s, asked := playLock(t, lockFacts(noHolder), answer{ReadHolder, done(), 0}, answer{FreeLock, done(), 0})
	for i, want := range []Ask{
		{Action: ReadHolder, Namespace: "ns", Name: "web-0"},
		{Action: FreeLock, Namespace: "ns", Name: "data", UID: "uid-of-data", ResourceVersion: "5"},
	} {
		if !same(asked[i], want) {
			t.Errorf("ask %d: %+v, want %+v", i, asked[i], want)
		}
	}
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonHolderGone))
}

// Another version of volume-guard may have changed the claim, so the removal must not depend on its resourceVersion.
func TestUninstallRemovesLockByUIDAlone(t *testing.T) {
	_, asked := playLock(t, lockFacts(lockRemoving), answer{FreeLock, done(), 0})
	if want := (Ask{Action: FreeLock, Namespace: "ns", Name: "data",
		UID: "uid-of-data"}); !same(asked[0], want) {
		t.Errorf("%+v", asked[0])
	}
}

func TestHolderIsReadLive(t *testing.T) {
	for name, c := range map[string]struct {
		found Reply
		want  sessiontest.End
	}{
		"it is there after all": {usersAre(user()), sessiontest.Timed(ReasonHolderRuns)},
		"it is terminating":     {usersAre(user(ofUser(deleted))), sessiontest.Timed(ReasonHolderTerminating)},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := playLock(t, lockFacts(noHolder), answer{ReadHolder, c.found, 0})
			sessiontest.Ends(t, &s, c.want)
		})
	}
	s, _ := playLock(t, lockFacts(holder(ofUser(succeeded), endedFor(grace))), answer{ReadHolder, done(), 0},
		answer{FreeLock, done(), 0})
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonHolderGone))
}

// fenceIs is a fence of volumes for the run boot-1 of a node, and nodeBooted a Node in a run.
func fenceIs() Reply {
	u := user(fenced(driver, session.Read{}))
	return Reply{Outcome: session.Succeeded, Fence: u.Fence}
}

func nodeBooted(boot string) Reply {
	return Reply{Outcome: session.Succeeded, Node: objects.Node{Found: true, BootID: boot}}
}

func TestFenceOfHolderIsReadLive(t *testing.T) {
	f := lockFacts(holder(ofUser(deleted), fenceSeen))
	s, asked := playLock(t, f, answer{ReadHolder, usersAre(f.Holder), 0}, answer{ReadFence, fenceIs(), 0},
		answer{ReadNode, nodeBooted("boot-1"), 0}, answer{FreeLock, done(), 0})
	for i, want := range map[int]Ask{
		1: {Action: ReadFence, Namespace: "ns", Name: "a", UID: "uid-0"},
		2: {Action: ReadNode, Namespace: "ns", Name: "a"},
	} {
		if !same(asked[i], want) {
			t.Errorf("ask %d: %+v, want %+v", i, asked[i], want)
		}
	}
	sessiontest.Ends(t, &s, sessiontest.Written(ReasonVolumeFenced))
	s, _ = playLock(t, f, answer{ReadHolder, usersAre(f.Holder), 0}, answer{ReadFence, fenceIs(), 0},
		answer{ReadNode, nodeBooted("boot-2"), 0})
	sessiontest.Ends(t, &s, sessiontest.Timed(ReasonHolderTerminating))
	s, _ = playLock(t, f, answer{ReadHolder, usersAre(f.Holder), 0}, answer{ReadFence, done(), 0})
	sessiontest.Ends(t, &s, sessiontest.Timed(ReasonHolderTerminating))
}

func TestLockSessionEnds(t *testing.T) {
	gone, conflict := answer{ReadHolder, done(), 0}, Reply{Outcome: session.Conflict}
	for name, c := range map[string]struct {
		answers []answer
		want    sessiontest.End
	}{
		"the claim has changed":     {[]answer{gone, {FreeLock, conflict, 0}}, sessiontest.Conflicted},
		"the claim is gone":         {[]answer{gone, {FreeLock, Reply{Outcome: session.Gone}, 0}}, sessiontest.Gone},
		"the write fails":           {[]answer{gone, {FreeLock, Reply{}, 0}}, sessiontest.WriteFailed},
		"the read fails":            {[]answer{{ReadHolder, Reply{}, 0}}, sessiontest.ReadFailed},
		"a read that cannot end so": {[]answer{{ReadHolder, conflict, 0}}, sessiontest.Conflicted},
		"the holder has just ended": {[]answer{{ReadHolder, usersAre(user(ofUser(succeeded), endedFor(0))), 0}},
			sessiontest.Timed(ReasonWaitsForUnmount)},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := playLock(t, lockFacts(noHolder), c.answers...)
			sessiontest.Ends(t, &s, c.want)
		})
	}
}

func TestLockSessionStepsAreBounded(t *testing.T) {
	answers := sessiontest.Stale(maxLockSteps, answer{ReadHolder, done(), 0})
	s, _ := playLock(t, lockFacts(noHolder), answers...)
	sessiontest.Ends(t, &s, sessiontest.TooSlow)
	answers[maxLockSteps-1].Reply = Reply{}
	s, _ = playLock(t, lockFacts(noHolder), answers...)
	sessiontest.Ends(t, &s, sessiontest.ReadFailed)
}
