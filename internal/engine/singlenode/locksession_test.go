package singlenode

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
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
	if s.End != session.Written || s.Reason() != ReasonHolderGone || s.Requeue() != session.RequeueNever {
		t.Errorf("end %d, %s, requeue %d", s.End, s.Reason(), s.Requeue())
	}
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
		found  Reply
		reason Reason
	}{
		"it is there after all": {usersAre(user()), ReasonHolderRuns},
		"it is terminating":     {usersAre(user(ofUser(deleted))), ReasonHolderTerminating},
	} {
		s, _ := playLock(t, lockFacts(noHolder), answer{ReadHolder, c.found, 0})
		if s.End != session.Waiting || s.Reason() != c.reason {
			t.Errorf("%s: end %d, %s", name, s.End, s.Reason())
		}
	}
	s, _ := playLock(t, lockFacts(holder(ofUser(succeeded), endedFor(grace))), answer{ReadHolder, done(), 0},
		answer{FreeLock, done(), 0})
	if s.Reason() != ReasonHolderGone {
		t.Errorf("it is gone by now: %s", s.Reason())
	}
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
	if s.Reason() != ReasonVolumeFenced {
		t.Errorf("%s", s.Reason())
	}
	s, _ = playLock(t, f, answer{ReadHolder, usersAre(f.Holder), 0}, answer{ReadFence, fenceIs(), 0},
		answer{ReadNode, nodeBooted("boot-2"), 0})
	if s.End != session.Waiting || s.Reason() != ReasonHolderTerminating || s.Requeue() != session.RequeueAfter {
		t.Errorf("rebooted by now: end %d, %s, requeue %d", s.End, s.Reason(), s.Requeue())
	}
	s, _ = playLock(t, f, answer{ReadHolder, usersAre(f.Holder), 0}, answer{ReadFence, done(), 0})
	if s.End != session.Waiting || s.Reason() != ReasonHolderTerminating {
		t.Errorf("released by now: end %d, %s", s.End, s.Reason())
	}
}

func TestLockSessionEnds(t *testing.T) {
	gone := answer{ReadHolder, done(), 0}
	for name, c := range map[string]struct {
		answers []answer
		end     session.End
		reason  Reason
		requeue session.Requeue
	}{
		"the claim has changed": {[]answer{gone, {FreeLock, Reply{Outcome: session.Conflict}, 0}},
			session.Conflicted, "", session.RequeueSoon},
		"the claim is gone": {[]answer{gone, {FreeLock, Reply{Outcome: session.Gone}, 0}},
			session.ObjectGone, "", session.RequeueNever},
		"the write fails": {[]answer{gone, {FreeLock, Reply{}, 0}},
			session.CallFailed, ReasonAPIWriteFailed, session.RequeueRetry},
		"the read fails": {[]answer{{ReadHolder, Reply{}, 0}},
			session.CallFailed, ReasonAPIReadFailed, session.RequeueRetry},
		"a read that cannot end so": {[]answer{{ReadHolder, Reply{Outcome: session.Conflict}, 0}},
			session.Conflicted, "", session.RequeueSoon},
		"the holder has just ended": {[]answer{{ReadHolder, usersAre(user(ofUser(succeeded), endedFor(0))), 0}},
			session.Waiting, ReasonWaitsForUnmount, session.RequeueAfter},
	} {
		s, _ := playLock(t, lockFacts(noHolder), c.answers...)
		if s.End != c.end || s.Reason() != c.reason || s.Requeue() != c.requeue {
			t.Errorf("%s: end %d, %q, requeue %d", name, s.End, s.Reason(), s.Requeue())
		}
	}
}

func TestLockSessionStepsAreBounded(t *testing.T) {
	var answers []answer
	for range maxLockSteps {
		answers = append(answers, answer{ReadHolder, done(), session.LiveFor + time.Second})
	}
	s, _ := playLock(t, lockFacts(noHolder), answers...)
	if s.End != session.TooSlow || s.Requeue() != session.RequeueRetry {
		t.Errorf("end %d, %s, requeue %d", s.End, s.Reason(), s.Requeue())
	}
	answers[maxLockSteps-1].reply = Reply{}
	if s, _ = playLock(t, lockFacts(noHolder), answers...); s.End != session.CallFailed {
		t.Errorf("the last read fails: end %d", s.End)
	}
}
