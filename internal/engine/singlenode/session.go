package singlenode

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Ask is the call that a session waits for, or no call in its zero value.
type Ask struct {
	// Action is the step that the call carries out.
	Action Action
	// Namespace and Name identify the object. Name is empty for ReadNamespace and ListPods, and the name of the node for
	// ReadFence and ReadNode.
	Namespace, Name string
	// UID and ResourceVersion are the preconditions of a write; an empty ResourceVersion leaves only the UID. For
	// ReadFence, UID is the UID of the pod whose evidence the fence may give.
	UID             types.UID
	ResourceVersion string
	// Lock is the lock that TakeLock writes, and the zero Lock for FreeLock.
	Lock Lock
	// Mode is the mode of the namespace, which ReadClaim needs to set Claim.Unasked.
	Mode Mode
	// Claims are the claim names for ListPods.
	Claims []string
}

// Reply is the answer to an Ask, with only the fields of its call set.
type Reply struct {
	Outcome session.Outcome
	// Mode is the result of ReadNamespace, ModeOff if the namespace does not exist.
	Mode Mode
	// Claim is the result of ReadClaim, with Unasked and, as far as known, Volume, or of a write of the lock, without
	// these two. The zero value means that the claim does not exist.
	Claim Claim
	// Users are the results of ListPods, or of ReadHolder with at most one entry, without Fence and Node.
	Users []User
	// Fence and Node are the results of ReadFence and ReadNode.
	Fence objects.Fence
	Node  objects.Node
}

// maxSteps bounds the steps of a session: at most a read and a write for each claim, and two reads for each user
// without a lock. A session exceeds it only if its reads expire before the next one is answered, or if its writes do
// not last.
func maxSteps(claims, users int) int { return 8 + 3*claims + 4*users }

// Session is the work on one gated pod, from its key to the next wait. It issues one Ask at a time.
type Session struct {
	session.State[Facts, Decision, Reason]
}

// Begin starts a session with these facts and advances to its first Ask or its End. The slices of f are cloned.
func Begin(f Facts, now time.Time) Session {
	var s Session
	s.Facts = f
	s.Facts.Claims, s.Facts.Users = slices.Clone(f.Claims), slices.Clone(f.Users)
	s.decide(now)
	return s
}

func (s *Session) decide(now time.Time) {
	s.Decided(Decide(s.Facts, now), s.Facts.Rules.DryRun, maxSteps(len(s.Facts.Claims), len(s.Facts.Users)))
}

func (s *Session) claim() *ClaimFacts {
	i := slices.IndexFunc(s.Facts.Claims, func(c ClaimFacts) bool { return c.Claim.Name == s.Decision.Claim })
	return &s.Facts.Claims[i]
}

// user returns the pod whose node or fence is read.
func (s *Session) user() *User {
	i := slices.IndexFunc(s.Facts.Users, func(u User) bool { return u.Pod.UID == s.Decision.User })
	return &s.Facts.Users[i]
}

// Ask returns the pending call, the zero Ask after the End.
func (s *Session) Ask() Ask {
	if s.End != session.NotEnded {
		return Ask{}
	}
	pod := s.Facts.Pod
	ask := Ask{Action: s.Decision.Action, Namespace: pod.Namespace}
	switch s.Decision.Action {
	case ReadClaim:
		ask.Name, ask.Mode = s.Decision.Claim, s.Facts.Mode
	case ReadFence:
		ask.Name, ask.UID = s.user().Pod.Node, s.user().Pod.UID
	case ReadNode:
		ask.Name = s.user().Pod.Node
	case ListPods:
		ask.Claims = pod.Claims
	case TakeLock:
		c := s.claim().Claim
		ask.Name, ask.UID, ask.ResourceVersion = c.Name, c.UID, c.ResourceVersion
		ask.Lock = Lock{UID: pod.UID, Name: pod.Name}
	case RemoveGate:
		ask.Name, ask.UID = pod.Name, pod.UID
	case Wait, ReadNamespace, ReadHolder, FreeLock:
	}
	return ask
}

// Answer applies the reply to the pending Ask and advances to the next one or to the End. sent is when the call was
// made.
func (s *Session) Answer(r Reply, sent, now time.Time) {
	if s.Took(r.Outcome) {
		s.succeeded(r, sent)
	}
	switch {
	case s.End == session.NotEnded:
		s.decide(now)
	case s.End == session.ObjectGone && s.Decision.Action == TakeLock:
		s.End = session.Conflicted // the claim is gone, not the pod
	}
}

func (s *Session) succeeded(r Reply, sent time.Time) {
	switch f := &s.Facts; s.Decision.Action {
	case ReadNamespace:
		f.Mode, f.ModeRead = r.Mode, s.Live(sent)
	case ReadClaim:
		c := s.claim()
		c.Claim, c.Read = r.Claim, s.Live(sent)
	case TakeLock:
		c := s.claim()
		r.Claim.Volume = c.Claim.Volume
		c.Claim, c.Read = r.Claim, s.Live(sent)
	case ListPods:
		f.Users, f.UsersRead = r.Users, s.Live(sent)
	case ReadFence:
		u := s.user()
		u.Fence, u.FenceRead = r.Fence, s.Live(sent)
	case ReadNode:
		u := s.user()
		u.Node, u.NodeRead = r.Node, s.Live(sent)
	default:
		s.End = session.Written
	}
}

// LockSession is the work on the lock of one claim, from its key to the next wait. It issues one Ask at a time.
type LockSession struct {
	session.State[LockFacts, Decision, Reason]
}

// maxLockSteps bounds the steps of a LockSession: three reads and a write. A session exceeds it only if its reads
// expire before the next one is answered.
const maxLockSteps = 8

// BeginLock starts a session with these facts and advances to its first Ask or its End.
func BeginLock(f LockFacts, now time.Time) LockSession {
	var s LockSession
	s.Facts = f
	s.decide(now)
	return s
}

func (s *LockSession) decide(now time.Time) {
	s.Decided(DecideLock(s.Facts, now), s.Facts.Rules.DryRun, maxLockSteps)
}

// Ask returns the pending call, the zero Ask after the End.
func (s *LockSession) Ask() Ask {
	if s.End != session.NotEnded {
		return Ask{}
	}
	c := s.Facts.Claim
	ask := Ask{Action: s.Decision.Action, Namespace: c.Namespace}
	switch s.Decision.Action {
	case ReadHolder:
		ask.Name = c.Lock.Name
	case ReadFence:
		ask.Name, ask.UID = s.Facts.Holder.Pod.Node, s.Facts.Holder.Pod.UID
	case ReadNode:
		ask.Name = s.Facts.Holder.Pod.Node
	case FreeLock:
		ask.Name, ask.UID, ask.ResourceVersion = c.Name, c.UID, c.ResourceVersion
		if s.Facts.Rules.Removing {
			ask.ResourceVersion = ""
		}
	case Wait, ReadNamespace, ReadClaim, ListPods, TakeLock, RemoveGate:
	}
	return ask
}

// Answer applies the reply to the pending Ask and advances to the next one or to the End. sent is when the call was
// made.
func (s *LockSession) Answer(r Reply, sent, now time.Time) {
	if s.Took(r.Outcome) {
		s.succeeded(r, sent)
	}
	if s.End == session.NotEnded {
		s.decide(now)
	}
}

func (s *LockSession) succeeded(r Reply, sent time.Time) {
	switch f := &s.Facts; s.Decision.Action {
	case ReadHolder:
		f.Holder, f.HolderRead = User{}, s.Live(sent)
		if len(r.Users) > 0 {
			f.Holder = r.Users[0]
		}
	case ReadFence:
		f.Holder.Fence, f.Holder.FenceRead = r.Fence, s.Live(sent)
	case ReadNode:
		f.Holder.Node, f.Holder.NodeRead = r.Node, s.Live(sent)
	default:
		s.End = session.Written
	}
}
