package singlenode

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

// Call is a request to the API server. The zero value is none.
type Call uint8

const (
	// NoCall is no call.
	NoCall Call = iota
	// GetNamespace, GetPod, GetFence and GetNode read one object. They do not fail where there is none.
	GetNamespace
	// GetClaim reads a claim and, as far as whether something asks for its lock depends on them, its StorageClass and PV.
	// It does not fail where there is none.
	GetClaim
	GetPod
	GetFence
	GetNode
	// ListUsers lists the pods of a namespace, at least as new as the request, and returns those without Gate that name
	// one of some claims.
	ListUsers
	// PatchClaim writes LockAnnotation and Finalizer to a claim, or removes both.
	PatchClaim
	// PatchGate removes Gate from a pod.
	PatchGate
)

// Ask is a call that a session waits for, and what it is about. The zero value: it waits for none.
type Ask struct {
	Call Call
	// Action is the step that the call belongs to.
	Action Action
	// Namespace and Name are those of the object: for GetNamespace and ListUsers Name is empty, for GetFence and GetNode
	// it is the node's.
	Namespace, Name string
	// UID and ResourceVersion are what a write is bound to; without ResourceVersion it is bound to the UID alone. For
	// GetFence, UID is that of the pod of which the fence may show something.
	UID             types.UID
	ResourceVersion string
	// Lock is what PatchClaim writes, the zero Lock where it removes.
	Lock Lock
	// Mode is that of the namespace, by which GetClaim finds whether something asks for the lock.
	Mode Mode
	// Claims are the names that ListUsers is about.
	Claims []string
}

// Reply is the answer to an Ask. Only the fields of its call are set.
type Reply struct {
	Outcome session.Outcome
	// Mode is what GetNamespace has found, ModeOff where there is no such namespace.
	Mode Mode
	// Claim is what GetClaim has found, with Unasked as the reads show and Volume as far as known, or what PatchClaim has
	// written, without both. The zero value: there is none.
	Claim Claim
	// Users are what GetPod, none or one, and ListUsers have found, without Fence and Node.
	Users []User
	// Fence and Node are what GetFence and GetNode have found, without a Read.
	Fence podsafety.FenceFacts
	Node  podsafety.NodeFacts
}

// maxSteps bounds the steps of a session about a pod with so many claims, or users without a lock: at most a read and a
// write for each claim, and two reads for each user. Only reads that are too old before the next is answered take more.
func maxSteps(claims, users int) int { return 8 + 3*claims + 4*users }

// Session is the work on one gated pod, from its key to the next wait. It returns one Ask after the other.
type Session struct {
	session.Progress
	Facts Facts
	// Decision is the step that is carried out, or after End the last one.
	Decision Decision
}

// Begin returns a session on these facts, up to its first Ask or its End.
func Begin(f Facts, now time.Time) Session {
	s := Session{Facts: f}
	s.Facts.Claims, s.Facts.Users = slices.Clone(f.Claims), slices.Clone(f.Users)
	s.decide(now)
	return s
}

func (s *Session) decide(now time.Time) {
	s.Decision = Decide(s.Facts, now)
	s.Step(s.Decision.Action.Kind(), s.Facts.Rules.DryRun, maxSteps(len(s.Facts.Claims), len(s.Facts.Users)))
}

// claim returns the claim that the step is about.
func (s *Session) claim() *ClaimFacts {
	i := slices.IndexFunc(s.Facts.Claims, func(c ClaimFacts) bool { return c.Claim.Name == s.Decision.Claim })
	return &s.Facts.Claims[i]
}

// user returns the pod whose node or its fence is read.
func (s *Session) user() *User {
	i := slices.IndexFunc(s.Facts.Users, func(u User) bool { return u.Pod.UID == s.Decision.User })
	return &s.Facts.Users[i]
}

// Ask returns the call that the session waits for, the zero Ask after its End.
func (s *Session) Ask() Ask {
	if s.End != session.NotEnded {
		return Ask{}
	}
	pod := s.Facts.Pod
	ask := Ask{Action: s.Decision.Action, Namespace: pod.Namespace}
	switch s.Decision.Action {
	case ReadNamespace:
		ask.Call = GetNamespace
	case ReadClaim:
		ask.Call, ask.Name, ask.Mode = GetClaim, s.Decision.Claim, s.Facts.Mode
	case ReadFence:
		ask.Call, ask.Name, ask.UID = GetFence, s.user().Pod.Node, s.user().Pod.UID
	case ReadNode:
		ask.Call, ask.Name = GetNode, s.user().Pod.Node
	case ListPods:
		ask.Call, ask.Claims = ListUsers, pod.Claims
	case TakeLock:
		c := s.claim().Claim
		ask.Call, ask.Name, ask.UID, ask.ResourceVersion = PatchClaim, c.Name, c.UID, c.ResourceVersion
		ask.Lock = Lock{UID: pod.UID, Name: pod.Name}
	case RemoveGate:
		ask.Call, ask.Name, ask.UID = PatchGate, pod.Name, pod.UID
	case Wait, ReadHolder, FreeLock:
	}
	return ask
}

// Answer takes the reply to the session's Ask, which was sent at that time, and continues up to the next Ask or the
// End.
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
		u.Fence = r.Fence
		u.Fence.Read = s.Live(sent)
	case ReadNode:
		u := s.user()
		u.Node = r.Node
		u.Node.Read = s.Live(sent)
	default:
		s.End = session.Written
	}
}

// Next returns the step that the session waits for.
func (s *Session) Next() (kind session.Kind, action, reason string) {
	return s.Decision.Action.Kind(), s.Decision.Action.String(), string(s.Decision.Reason)
}

// Requeue returns when another session begins after this one has ended.
func (s *Session) Requeue() session.Requeue { return s.Progress.Requeue(s.Decision.After) }

// Reason returns the reason to report after the session has ended, empty for none.
func (s *Session) Reason() Reason { return reasonAfter(s.Progress, s.Decision) }

// LockSession is the work on the lock of one claim, from its key to the next wait. It returns one Ask after the other.
type LockSession struct {
	session.Progress
	Facts LockFacts
	// Decision is the step that is carried out, or after End the last one.
	Decision Decision
}

// maxLockSteps bounds the steps of a LockSession: three reads and a write. Only reads that are too old before the next
// is answered take more.
const maxLockSteps = 8

// BeginLock returns a session on these facts, up to its first Ask or its End.
func BeginLock(f LockFacts, now time.Time) LockSession {
	s := LockSession{Facts: f}
	s.decide(now)
	return s
}

func (s *LockSession) decide(now time.Time) {
	s.Decision = DecideLock(s.Facts, now)
	s.Step(s.Decision.Action.Kind(), s.Facts.Rules.DryRun, maxLockSteps)
}

// Ask returns the call that the session waits for, the zero Ask after its End.
func (s *LockSession) Ask() Ask {
	if s.End != session.NotEnded {
		return Ask{}
	}
	c := s.Facts.Claim
	ask := Ask{Action: s.Decision.Action, Namespace: c.Namespace}
	switch s.Decision.Action {
	case ReadHolder:
		ask.Call, ask.Name = GetPod, c.Lock.Name
	case ReadFence:
		ask.Call, ask.Name, ask.UID = GetFence, s.Facts.Holder.Pod.Node, s.Facts.Holder.Pod.UID
	case ReadNode:
		ask.Call, ask.Name = GetNode, s.Facts.Holder.Pod.Node
	case FreeLock:
		ask.Call, ask.Name, ask.UID, ask.ResourceVersion = PatchClaim, c.Name, c.UID, c.ResourceVersion
		if s.Facts.Rules.Removing {
			ask.ResourceVersion = ""
		}
	case Wait, ReadNamespace, ReadClaim, ListPods, TakeLock, RemoveGate:
	}
	return ask
}

// Answer takes the reply to the session's Ask, which was sent at that time, and continues up to the next Ask or the
// End.
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
		f.Holder.Fence = r.Fence
		f.Holder.Fence.Read = s.Live(sent)
	case ReadNode:
		f.Holder.Node = r.Node
		f.Holder.Node.Read = s.Live(sent)
	default:
		s.End = session.Written
	}
}

// Next returns the step that the session waits for.
func (s *LockSession) Next() (kind session.Kind, action, reason string) {
	return s.Decision.Action.Kind(), s.Decision.Action.String(), string(s.Decision.Reason)
}

// Requeue returns when another session begins after this one has ended.
func (s *LockSession) Requeue() session.Requeue { return s.Progress.Requeue(s.Decision.After) }

// Reason returns the reason to report after the session has ended, empty for none.
func (s *LockSession) Reason() Reason { return reasonAfter(s.Progress, s.Decision) }

// reasonAfter returns the reason to report after a session has ended, empty for none.
func reasonAfter(p session.Progress, d Decision) Reason {
	switch {
	case p.End == session.Skipped:
		return ReasonDryRun
	case p.End == session.TooSlow, p.End == session.CallFailed && d.Action.Kind() == session.Reads:
		return ReasonAPIReadFailed
	case p.End == session.CallFailed:
		return ReasonAPIWriteFailed
	case p.End == session.Waiting, p.End == session.Written:
		return d.Reason
	}
	return ""
}
