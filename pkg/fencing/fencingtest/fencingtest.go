// Package fencingtest drives the decisions about the fences of nodes without input and output, as net/http/httptest
// does for handlers: for model checkers, and for tests of programs that fence nodes.
//
// A [Tracker] records what was seen of fences, and a [Session] asks for one call after the other, to which the caller
// answers. All state is plain, so that it can be copied and encoded.
package fencingtest

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/podhold"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/nodefence"
)

// Facts, Tracker, Session and the rest are those that the controller works with.
type (
	// Facts is all that is known of one NodeFence, and Rules are the settings.
	Facts = fencing.Facts
	Rules = fencing.Rules
	// Fence is what is read of a NodeFence.
	Fence = fencing.Fence
	// NodeFacts, LeaseFacts, RunFacts and RemainingFacts are what live reads found.
	NodeFacts      = fencing.NodeFacts
	LeaseFacts     = fencing.LeaseFacts
	RunFacts       = fencing.RunFacts
	RemainingFacts = fencing.RemainingFacts
	// Machine tells machines apart that have the name of one node.
	Machine = fencing.Machine
	// Run is one run of one agent, and RunState how far it is.
	Run      = fencing.Run
	RunState = fencing.RunState
	// Sight is since when a process has seen what of a fence.
	Sight = fencing.Sight
	// Decision is the next step, Action its kind, and Reason why.
	Decision = fencing.Decision
	Action   = fencing.Action
	Reason   = fencing.Reason
	// Tracker is what a process remembers besides its watch cache.
	Tracker = fencing.Tracker
	// Session is the work on one NodeFence, and Progress how far it is.
	Session  = fencing.Session
	Progress = session.Progress
	// Ask is a call that a Session waits for, Reply the answer to it, Outcome how it ended, and Read a live read.
	Ask     = fencing.Ask
	Reply   = fencing.Reply
	Outcome = session.Outcome
	Read    = session.Read
	// FenceFacts is what a fence shows about a pod, and PodNode what is read of the Node for that.
	FenceFacts = podhold.FenceFacts
	PodNode    = podhold.NodeFacts
	// Volume is what a fence may cover.
	Volume = objects.Volume
	// PolicyFacts is all that is known for one FencePolicy, NodeView what the watches show of one node, and
	// PolicyDecision what the policy does.
	PolicyFacts    = fencing.PolicyFacts
	NodeView       = fencing.NodeView
	PolicyDecision = fencing.PolicyDecision
)

// The steps.
const (
	Wait            = fencing.Wait
	ReadFence       = fencing.ReadFence
	ReadNode        = fencing.ReadNode
	ReadLease       = fencing.ReadLease
	ReadRun         = fencing.ReadRun
	ListRemaining   = fencing.ListRemaining
	AddFinalizer    = fencing.AddFinalizer
	RemoveFinalizer = fencing.RemoveFinalizer
	DeleteFence     = fencing.DeleteFence
	WriteStatus     = fencing.WriteStatus
	StartRun        = fencing.StartRun
	StopRun         = fencing.StopRun
	AddTaint        = fencing.AddTaint
	RemoveTaint     = fencing.RemoveTaint
)

// How far a run is.
const (
	RunUnknown   = fencing.RunUnknown
	RunAbsent    = fencing.RunAbsent
	Running      = fencing.Running
	RunStopping  = fencing.RunStopping
	RunSucceeded = fencing.RunSucceeded
	RunFailed    = fencing.RunFailed
)

// How a call ended.
const (
	Unanswered = session.Unanswered
	Succeeded  = session.Succeeded
	Conflict   = session.Conflict
	Gone       = session.Gone
)

// The ends and the beginnings of a session.
const (
	NotEnded     = session.NotEnded
	Waiting      = session.Waiting
	RequeueNever = session.RequeueNever
	RequeueSoon  = session.RequeueSoon
	RequeueRetry = session.RequeueRetry
	RequeueAfter = session.RequeueAfter
)

// ReasonNodeDeleted: the Node of a fence was deleted, and an agent has something to undo.
const ReasonNodeDeleted = fencing.ReasonNodeDeleted

// ReadyUnknown: the condition Ready of a Node is Unknown.
const ReadyUnknown = podhold.ReadyUnknown

// NewTracker returns a Tracker without records.
func NewTracker() *Tracker { return fencing.NewTracker() }

// Begin returns a session on these facts, up to its first Ask or its End.
func Begin(t *Tracker, f Facts, now time.Time) Session { return fencing.Begin(t, f, now) }

// Decide returns what to do next about one NodeFence.
func Decide(f Facts, now time.Time) Decision { return fencing.Decide(f, now) }

// DecidePolicy returns what a policy does about each of its nodes, and which one it fences next.
func DecidePolicy(f PolicyFacts, now time.Time) PolicyDecision { return fencing.DecidePolicy(f, now) }

// Evidence returns what a fence shows about a pod.
func Evidence(f Fence, pod types.UID) FenceFacts { return nodefence.FactsOf(f, pod) }
