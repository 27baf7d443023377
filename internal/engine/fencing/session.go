package fencing

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/reasons"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Ask is a call that a Session waits for. The zero value means that the session waits for none.
type Ask struct {
	Action Action
	// Node is the name of the node and of its NodeFence.
	Node string
	// UID and ResourceVersion are those of the NodeFence, and preconditions of each write to it.
	UID             types.UID
	ResourceVersion string
	// NodeVersion is the resourceVersion of the Node, a precondition of AddTaint and RemoveTaint.
	NodeVersion string
	Status      *v1alpha1.NodeFenceStatus
	// Run and Agent are set for ReadRun, StartRun and StopRun, as Status is for WriteStatus and Taint for AddTaint.
	Taint Taint
	Run   Run
	Agent v1alpha1.Agent
	// BootID is the boot ID of the node at the beginning of the run's attempt, "" if unknown.
	BootID string
	// PodsOnly limits ListRemaining to pods, so that it does not list VolumeAttachments. Otherwise, each list of
	// VolumeAttachments counts that was sent after Since.
	PodsOnly bool
	Since    time.Time
	// Acted reports that the agent may have fenced the node, or may do so later.
	Acted bool
}

// Reply is the answer to an Ask. Only the fields of its call are set, and the session sets their Read.
type Reply struct {
	Outcome session.Outcome
	// Found reports that ReadFence found a NodeFence, which is Fence.
	Found bool
	Fence Fence
	Node  objects.Node
	Lease objects.Lease
	// Run is the result of ReadRun, or only the error of a failed StartRun or StopRun in its Message.
	Run       RunFacts
	Remaining RemainingFacts
}

// maxSteps bounds the steps of one session: five reads, and as many again after a run was started or the taint changed.
const maxSteps = 24

// Session is the work on one NodeFence, from its key to the next wait. It yields one Ask at a time, which its caller
// executes and answers.
type Session struct {
	session.State[Facts, Decision, Reason]
}

// Tracker holds one process's observation times of all fences, and is not safe for concurrent use.
type Tracker struct{ Fences map[types.UID]Sight }

// NewTracker returns an empty Tracker.
func NewTracker() *Tracker { return &Tracker{Fences: map[types.UID]Sight{}} }

// Forget drops the record of a deleted fence.
func (t *Tracker) Forget(fence types.UID) { delete(t.Fences, fence) }

// saw records the state of the Lease and any contradiction of the proof, and returns the record.
func (t *Tracker) saw(f Facts, now time.Time) Sight {
	s := t.Fences[f.Fence.UID]
	if f.LeaseRead.Order == 0 {
		return s
	}
	if s.LeaseSince.IsZero() || s.LeaseVersion != f.Lease.ResourceVersion {
		s.LeaseVersion, s.LeaseSince = f.Lease.ResourceVersion, now
	}
	f.Sight = s
	switch {
	case !f.runsOn(now):
		s.RunsSince = time.Time{}
	case s.RunsSince.IsZero():
		s.RunsSince = now
	}
	t.Fences[f.Fence.UID] = s
	return s
}

// emptied records the time since which no pod keeps the fence, or no time if a pod may keep it. It returns the record.
func (t *Tracker) emptied(f Facts, empty bool, now time.Time) Sight {
	s, known := t.Fences[f.Fence.UID]
	if !known && !empty {
		return f.Sight
	}
	switch basis := f.Basis(); {
	case !empty:
		s.EmptySince, s.EmptyBasis = time.Time{}, Basis{}
	case s.EmptySince.IsZero(), s.EmptyBasis != basis:
		s.EmptySince, s.EmptyBasis = now, basis
	}
	t.Fences[f.Fence.UID] = s
	return s
}

// listed keeps the pods of the first list with a Basis, and counts only these in later ones. Pods that were bound to
// the node later do not count: the fence has released none of them, and Kubernetes replaces a pod that names its node
// as often as the pod is deleted. Leaving counts only the pods that were terminating and held then. Another pod is
// started by the boot that the Basis names, so no lock relies on the fence for it (fenced in the engine singlenode),
// and a tenant can keep it terminating for years.
func (t *Tracker) listed(f *Facts) {
	s, r := t.Fences[f.Fence.UID], &f.Remaining
	if s.Before == nil || s.BeforeBasis != r.Basis {
		s.Before, s.BeforeBasis = map[types.UID]bool{}, r.Basis
		for pod := range r.Pods {
			s.Before[pod] = false
		}
		for _, pod := range r.Held {
			s.Before[pod.UID] = true
		}
		t.Fences[f.Fence.UID] = s
		return
	}
	for pod, counts := range r.Pods {
		if _, before := s.Before[pod]; counts && !before {
			r.All.Pods--
		}
	}
	for _, pod := range r.Held {
		if !s.Before[pod.UID] {
			r.Leaving.Pods--
		}
	}
}

// refused records why a run could not be started or stopped, with an empty why after a success.
func (t *Tracker) refused(fence types.UID, run Run, why string) {
	s := t.Fences[fence]
	s.Refused, s.RefusedBy = run, why
	t.Fences[fence] = s
}

// Begin returns a session on these facts, up to its first Ask or its End, and records the facts in t.
func Begin(t *Tracker, f Facts, now time.Time) Session {
	f.Sight = t.saw(f, now)
	var s Session
	s.Facts = f
	s.decide(t, now)
	return s
}

func (s *Session) decide(t *Tracker, now time.Time) {
	s.Decided(Decide(s.Facts, now), s.Facts.Rules.DryRun, maxSteps)
	if s.Decision.Empty || s.End != session.NotEnded {
		s.Facts.Sight = t.emptied(s.Facts, s.Decision.Empty, now)
	}
}

// Ask returns the call that the session waits for, or the zero Ask after its End.
func (s *Session) Ask() Ask {
	if s.End != session.NotEnded {
		return Ask{}
	}
	fence, d := s.Facts.Fence, s.Decision
	ask := Ask{Action: d.Action, Node: fence.Name, UID: fence.UID, ResourceVersion: fence.ResourceVersion,
		NodeVersion: s.Facts.Node.ResourceVersion, Status: d.Status, Taint: d.Taint, Run: d.Run,
		PodsOnly: d.PodsOnly, Since: s.Facts.Sight.EmptySince}
	if agent := fence.agent(d.Run.Agent); agent != nil {
		ask.Agent, ask.Acted = *agent, fence.acted(agent.Name)
		ask.BootID = find(&fence.Status, d.Run.Attempt).BootID
	}
	return ask
}

// Answer applies the reply to the pending Ask and advances to the next one or the End. sent is the time at which the
// call was made.
func (s *Session) Answer(t *Tracker, r Reply, sent, now time.Time) {
	if action := s.Decision.Action; action == StartRun || action == StopRun {
		t.refused(s.Facts.Fence.UID, s.Decision.Run, r.Run.Message)
	}
	if !s.Took(r.Outcome) {
		return
	}
	s.succeeded(r, sent)
	if s.Decision.Action == ListRemaining {
		t.listed(&s.Facts)
	}
	if s.End == session.NotEnded {
		s.Facts.Sight = t.saw(s.Facts, now)
		s.decide(t, now)
	}
}

func (s *Session) succeeded(r Reply, sent time.Time) {
	f := &s.Facts
	switch s.Decision.Action {
	case ReadFence:
		switch of := f.Fence.UID; {
		case r.Found && (r.Fence.UID == of || of == ""):
			f.Fence = r.Fence
		case of != "":
			s.End = session.ObjectGone
			return
		}
		f.FenceRead = s.Live(sent)
	case ReadNode:
		f.Node, f.NodeRead = r.Node, s.Live(sent)
	case ReadLease:
		f.Lease, f.LeaseRead = r.Lease, s.Live(sent)
	case ReadRun:
		f.Run = r.Run
		f.Run.Of, f.Run.Read = s.Decision.Run, s.Live(sent)
	case ListRemaining:
		f.Remaining = r.Remaining
		f.Remaining.Read, f.Remaining.Basis, f.Remaining.PodsOnly = s.Live(sent), f.Basis(), s.Decision.PodsOnly
	case StartRun, StopRun:
		f.Run = RunFacts{} // the outcome is read
	case AddTaint, RemoveTaint:
		f.Node, f.NodeRead = objects.Node{}, session.Read{}
	default:
		s.End = session.Written
	}
}

// Reason returns the reason to report after the session has ended, or "".
func (s *Session) Reason() Reason {
	if s.End != session.CallFailed {
		return s.State.Reason()
	}
	switch d := s.Decision; d.Action {
	case ReadRun, StartRun, StopRun:
		return ReasonAgentUnusable
	case AddTaint:
		// VolumesFenced replaces a wait. If that is for a person, the person has to act with and without the taint.
		if d.Reason.About().Severity == reasons.Warning {
			return d.Reason
		}
	default:
	}
	return s.State.Reason()
}
