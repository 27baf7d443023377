package podsafety

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Ask is a call that a Session waits for, with its arguments. The zero value means that the session waits for none.
type Ask struct {
	// Action is the step that the call carries out.
	Action Action
	// Namespace and Name are the pod's. Node is the name of the pod's node, for ReadNode, ReadLease and ReadFence.
	Namespace, Name, Node string
	// UID and ResourceVersion are preconditions of a write. Without ResourceVersion, the UID is the only one.
	UID             types.UID
	ResourceVersion string
}

// Reply is the answer to an Ask. Only the fields of its call are set.
type Reply struct {
	Outcome session.Outcome
	// Found reports that ReadPod found a pod with this name, which is Pod.
	Found bool
	Pod   Pod
	// Node, Lease and Fence are the results of the other reads.
	Node  objects.Node
	Lease objects.Lease
	Fence objects.Fence
}

// maxSteps bounds the steps of one session: at most a refused write and four reads come before the deletion, and four
// reads and a write after it. More steps are needed only if reads are too old before the next one is answered.
const maxSteps = 16

// Session is the work on one pod, from its key to the next wait. It yields one Ask at a time, which its caller executes
// and answers.
type Session struct {
	session.State[Facts, Decision, Reason]
}

// Begin returns a session on these facts, up to its first Ask or its End, and records the state of the pod in t.
func Begin(t *Tracker, f Facts, now time.Time) Session {
	f.Sight = t.Saw(f.Pod, f.NodeSeen, now)
	var s Session
	s.Facts = f
	s.decide(now)
	return s
}

func (s *Session) decide(now time.Time) {
	s.Decided(Decide(s.Facts, now), s.Facts.Rules.DryRun, maxSteps)
}

// Ask returns the call that the session waits for, or the zero Ask after its End.
func (s *Session) Ask() Ask {
	if s.End != session.NotEnded {
		return Ask{}
	}
	pod := s.Facts.Pod
	ask := Ask{Action: s.Decision.Action, Namespace: pod.Namespace, Name: pod.Name, Node: pod.Node, UID: pod.UID}
	if ask.Action == RemoveFinalizer {
		ask.ResourceVersion = pod.ResourceVersion
	}
	return ask
}

// Answer applies the reply to the pending Ask and advances to the next one or the End. sent is the time at which the
// call was made. New states of the pod are recorded in t.
func (s *Session) Answer(t *Tracker, r Reply, sent, now time.Time) {
	if s.Decision.Action == ForceDelete {
		s.Facts.Sight = t.forced(s.Facts.Pod.UID)
	}
	switch {
	case r.Outcome == session.Conflict && s.Decision.Action == RemoveFinalizer && s.Facts.PodRead.Order == 0:
		s.Facts.Outdated = true // without a read, each session would fail until the watch shows the pod as it is
	case s.Took(r.Outcome):
		s.succeeded(t, r, sent, now)
	}
	if s.End == session.NotEnded {
		s.decide(now)
	}
}

func (s *Session) succeeded(t *Tracker, r Reply, sent, now time.Time) {
	f := &s.Facts
	switch s.Decision.Action {
	case ReadPod:
		if !r.Found || r.Pod.UID != f.Pod.UID {
			s.End = session.ObjectGone
			return
		}
		f.Pod, f.PodRead, f.Outdated = r.Pod, s.Live(sent), false
		f.Sight = t.Saw(r.Pod, f.NodeSeen, now)
	case ReadNode:
		f.Node, f.NodeRead = r.Node, s.Live(sent)
		if f.Pod.Refused {
			f.Sight = t.sawNode(f.Pod.UID, r.Node)
		}
	case ReadLease:
		f.Lease, f.LeaseRead, f.Sight = r.Lease, s.Live(sent), t.sawLease(f.Pod.UID, r.Lease, now)
	case ReadFence:
		f.Fence, f.FenceRead = r.Fence, s.Live(sent)
	case ForceDelete:
		// The evidence is read again, because the patch that removes the finalizer is bound to the pod after this deletion.
		f.PodRead, f.NodeRead, f.LeaseRead, f.FenceRead = session.Read{}, session.Read{}, session.Read{}, session.Read{}
	default:
		s.End = session.Written
	}
}
