package podhold

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Call is a request to the API server. The zero value is none.
type Call uint8

const (
	// NoCall is no call.
	NoCall Call = iota
	// GetPod, GetNode, GetLease and GetFence read one object. They do not fail where there is none.
	GetPod
	GetNode
	GetLease
	GetFence
	// PatchFinalizers adds Finalizer to a pod, or removes it.
	PatchFinalizers
	// DeletePod deletes a pod with grace 0 and the UID as precondition.
	DeletePod
)

// Ask is a call that a Session waits for, and what it is about. The zero value: it waits for none.
type Ask struct {
	Call Call
	// Action is the step that the call belongs to.
	Action Action
	// Namespace and Name are the pod's. Node is the name of the node that GetNode, GetLease and GetFence read about.
	Namespace, Name, Node string
	// UID and ResourceVersion are what a write is bound to; without ResourceVersion it is bound to the UID alone.
	UID             types.UID
	ResourceVersion string
	// Add and Remove are finalizers of PatchFinalizers.
	Add, Remove []string
}

// Outcome is how a call ended. The zero value: nothing is known of it.
type Outcome uint8

const (
	// Unanswered: the call was refused or not answered. It may have been carried out.
	Unanswered Outcome = iota
	// Succeeded: the call did what it was for.
	Succeeded
	// Conflict: nothing was done, for the pod is not as it was read.
	Conflict
	// Gone: nothing was done, for there is no pod of the UID.
	Gone
)

// Reply is the answer to an Ask. Only the fields of its call are set.
type Reply struct {
	Outcome Outcome
	// Found: GetPod found a pod of the name, and Pod is it.
	Found bool
	Pod   Pod
	// Node, Lease and Fence are what the other reads found, without a Read.
	Node  NodeFacts
	Lease LeaseFacts
	Fence FenceFacts
}

// End is how a session ended. The zero value: it has not.
type End uint8

const (
	// NotEnded: the session waits for the answer to its Ask.
	NotEnded End = iota
	// Waiting: there is nothing to do now, for the Decision's reason.
	Waiting
	// Skipped: the Decision is what a dry run leaves out.
	Skipped
	// Written: the last write of the finalizer succeeded.
	Written
	// PodGone: the pod does not exist any more.
	PodGone
	// Conflicted: what was to be written had changed.
	Conflicted
	// CallFailed: the API server refused a call or did not answer it.
	CallFailed
	// TooSlow: each read was too old when the next was answered.
	TooSlow
)

// maxSteps bounds the steps of one session: at most four reads come before the deletion, and four and a write after it.
// Only reads that are too old before the next is answered take more.
const maxSteps = 16

// Session is the work on one pod, from its key to the next wait. It returns one Ask after the other.
type Session struct {
	Facts Facts
	// Reads counts the live reads, and Steps the steps.
	Reads, Steps int
	// Decision is the step that is carried out, or after End the last one.
	Decision Decision
	End      End
}

// Begin returns a session on these facts, up to its first Ask or its End. What the facts show of the pod is recorded
// in t.
func Begin(t *Tracker, f Facts, now time.Time) Session {
	f.Sight = t.Saw(f.Pod, now)
	s := Session{Facts: f}
	s.decide(now)
	return s
}

// decide begins the next step.
func (s *Session) decide(now time.Time) {
	s.Decision = Decide(s.Facts, now)
	s.Steps++
	switch {
	case s.Decision.Action == Wait:
		s.End = Waiting
	case s.Steps > maxSteps:
		s.End = TooSlow
	case s.Facts.Rules.DryRun && !s.Decision.Action.Reads():
		s.End = Skipped
	}
}

// Ask returns the call that the session waits for, the zero Ask after its End.
func (s *Session) Ask() Ask {
	if s.End != NotEnded {
		return Ask{}
	}
	pod := s.Facts.Pod
	ask := Ask{Action: s.Decision.Action, Namespace: pod.Namespace, Name: pod.Name, Node: pod.Node, UID: pod.UID}
	switch s.Decision.Action {
	case ReadPod:
		ask.Call = GetPod
	case ReadNode:
		ask.Call = GetNode
	case ReadLease:
		ask.Call = GetLease
	case ReadFence:
		ask.Call = GetFence
	case ForceDelete:
		ask.Call = DeletePod
	case AddFinalizer:
		ask.Call, ask.Add = PatchFinalizers, []string{Finalizer}
	case RemoveFinalizer:
		ask.Call, ask.Remove, ask.ResourceVersion = PatchFinalizers, []string{Finalizer}, pod.ResourceVersion
	case RemoveFinalizerByUID:
		ask.Call, ask.Remove = PatchFinalizers, []string{Finalizer}
	case Wait:
	}
	return ask
}

// Answer takes the reply to the session's Ask, which was sent at that time, and continues up to the next Ask or the
// End. What it shows of the pod is recorded in t.
func (s *Session) Answer(t *Tracker, r Reply, sent, now time.Time) {
	if s.Decision.Action == ForceDelete {
		s.Facts.Sight = t.forced(s.Facts.Pod.UID)
	}
	switch r.Outcome {
	case Succeeded:
		s.succeeded(t, r, sent, now)
	case Conflict:
		s.End = Conflicted
	case Gone:
		s.End = PodGone
	default:
		s.End = CallFailed
	}
	if s.End == NotEnded {
		s.decide(now)
	}
}

func (s *Session) succeeded(t *Tracker, r Reply, sent, now time.Time) {
	f := &s.Facts
	switch s.Decision.Action {
	case ReadPod:
		if !r.Found || r.Pod.UID != f.Pod.UID {
			s.End = PodGone
			return
		}
		f.Pod, f.PodRead, f.Sight = r.Pod, s.live(sent), t.Saw(r.Pod, now)
	case ReadNode:
		f.Node = r.Node
		f.Node.Read = s.live(sent)
	case ReadLease:
		f.Lease = r.Lease
		f.Lease.Read, f.Sight = s.live(sent), t.sawLease(f.Pod.UID, r.Lease, now)
	case ReadFence:
		f.Fence = r.Fence
		f.Fence.Read = s.live(sent)
	case ForceDelete:
		// The evidence is read again: the patch that removes the finalizer is bound to the pod as it is after this.
		f.PodRead, f.Node.Read, f.Lease.Read, f.Fence.Read = Read{}, Read{}, Read{}, Read{}
	default:
		s.End = Written
	}
}

// live numbers a live read that was sent at this time.
func (s *Session) live(sent time.Time) Read {
	s.Reads++
	return Read{Sent: sent, Order: s.Reads}
}

// Requeue is when another session begins.
type Requeue uint8

const (
	// RequeueNever: an event begins it.
	RequeueNever Requeue = iota
	// RequeueSoon: in a moment.
	RequeueSoon
	// RequeueRetry: after a delay that grows with each try.
	RequeueRetry
	// RequeueAfter: after Decision.After.
	RequeueAfter
)

// Requeue returns when another session begins after this one has ended.
func (s *Session) Requeue() Requeue {
	switch {
	case s.End == Conflicted:
		return RequeueSoon
	case s.End == CallFailed, s.End == TooSlow:
		return RequeueRetry
	case s.Decision.After > 0:
		return RequeueAfter
	}
	return RequeueNever
}

// Reason returns the reason to report after the session has ended, empty for none.
func (s *Session) Reason() Reason {
	switch {
	case s.End == Skipped:
		return ReasonDryRun
	case s.End == TooSlow, s.End == CallFailed && s.Decision.Action.Reads():
		return ReasonAPIReadFailed
	case s.End == CallFailed:
		return ReasonAPIWriteFailed
	case s.End == Waiting, s.End == Written:
		return s.Decision.Reason
	}
	return ""
}
