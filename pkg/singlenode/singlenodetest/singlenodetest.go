// Package singlenodetest drives the decisions of single-node without input and output, as net/http/httptest does for
// handlers: for model checkers, and for tests of programs that embed package singlenode.
//
// A [Session] is the work on one gated pod, a [LockSession] that on the lock of one claim. Each asks for one call after
// the other, to which the caller answers. All state is plain, so that it can be copied and encoded.
package singlenodetest

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/podhold"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/singlenode"
)

// Facts, Tracker, Session and the rest are those that the controller works with.
type (
	// Facts is all that is known about one gated pod, and ClaimFacts about a claim of it.
	Facts      = singlenode.Facts
	ClaimFacts = singlenode.ClaimFacts
	// LockFacts is all that is known about the lock of one claim.
	LockFacts = singlenode.LockFacts
	// Pod, Claim and Lock are what is read of the objects, and Asking of those that ask for a lock.
	Pod    = singlenode.Pod
	Claim  = singlenode.Claim
	Lock   = singlenode.Lock
	Asking = singlenode.Asking
	// User is a pod that may use a claim, and NodeSeen what the watch shows of its node.
	User     = singlenode.User
	NodeSeen = podhold.NodeSeen
	// FenceFacts and NodeFacts are what live reads of a fence and of a Node found.
	FenceFacts = podhold.FenceFacts
	NodeFacts  = podhold.NodeFacts
	// Rules are the settings, and Mode what a namespace asks for.
	Rules = singlenode.Rules
	Mode  = singlenode.Mode
	// Read is a live read.
	Read = session.Read
	// Decision is the next step: an Action, and the Reason for it.
	Decision = singlenode.Decision
	Action   = singlenode.Action
	Reason   = singlenode.Reason
	// Tracker is what a process remembers besides its watch cache.
	Tracker = singlenode.Tracker
	// Session is the work on one gated pod, LockSession on the lock of one claim, and Progress how far one is.
	Session     = singlenode.Session
	LockSession = singlenode.LockSession
	Progress    = session.Progress
	Requeue     = session.Requeue
	// Ask is a call that a session waits for, Call its kind, Reply the answer, and Outcome how the call ended.
	Ask     = singlenode.Ask
	Call    = singlenode.Call
	Reply   = singlenode.Reply
	Outcome = session.Outcome
)

// What a namespace asks for.
const (
	ModeOff      = singlenode.ModeOff
	ModeSelected = singlenode.ModeSelected
	ModeAll      = singlenode.ModeAll
)

// What the watch shows of a node.
const (
	NodeReady    = podhold.NodeReady
	NodeNotReady = podhold.NodeNotReady
)

// CoversVolumes: a fence keeps a node from volumes, and its processes run.
const CoversVolumes = podhold.CoversVolumes

// The calls.
const (
	NoCall       = singlenode.NoCall
	GetNamespace = singlenode.GetNamespace
	GetClaim     = singlenode.GetClaim
	GetPod       = singlenode.GetPod
	GetFence     = singlenode.GetFence
	GetNode      = singlenode.GetNode
	ListUsers    = singlenode.ListUsers
	PatchClaim   = singlenode.PatchClaim
	PatchGate    = singlenode.PatchGate
)

// The steps that write.
const (
	TakeLock   = singlenode.TakeLock
	FreeLock   = singlenode.FreeLock
	RemoveGate = singlenode.RemoveGate
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
	RequeueNever = session.RequeueNever
	RequeueSoon  = session.RequeueSoon
	RequeueRetry = session.RequeueRetry
	RequeueAfter = session.RequeueAfter
)

// Reasons to remove a gate, to leave it, and to free a lock.
const (
	ReasonAcquired         = singlenode.ReasonAcquired
	ReasonNotAsked         = singlenode.ReasonNotAsked
	ReasonUninstalled      = singlenode.ReasonUninstalled
	ReasonClaimInUse       = singlenode.ReasonClaimInUse
	ReasonUsedWithoutLock  = singlenode.ReasonUsedWithoutLock
	ReasonClaimMissing     = singlenode.ReasonClaimMissing
	ReasonClaimTerminating = singlenode.ReasonClaimTerminating
	ReasonClaimOfOther     = singlenode.ReasonClaimOfOther
	ReasonNotHeld          = singlenode.ReasonNotHeld
	ReasonOtherGates       = singlenode.ReasonOtherGates
	ReasonHolderGone       = singlenode.ReasonHolderGone
	ReasonHolderCompleted  = singlenode.ReasonHolderCompleted
	ReasonVolumeFenced     = singlenode.ReasonVolumeFenced
)

// Names on the objects.
const (
	Label          = singlenode.Label
	SelectValue    = singlenode.SelectValue
	Gate           = singlenode.Gate
	LockAnnotation = singlenode.LockAnnotation
	Finalizer      = singlenode.Finalizer
	HoldFinalizer  = objects.RunningFinalizer
)

// Reasons returns every reason there is.
func Reasons() []Reason { return singlenode.Reasons() }

// NewTracker returns a Tracker without records.
func NewTracker() *Tracker { return singlenode.NewTracker() }

// PodOf reads what is needed of a Pod.
func PodOf(o *v1.Pod) Pod { return objects.PodOf(o) }

// ClaimOf reads what is needed of a claim itself.
func ClaimOf(o metav1.Object) Claim { return singlenode.ClaimOf(o) }

// Decide returns what to do next about one gated pod, and DecideLock about the lock of one claim.
func Decide(f Facts, now time.Time) Decision         { return singlenode.Decide(f, now) }
func DecideLock(f LockFacts, now time.Time) Decision { return singlenode.DecideLock(f, now) }

// Begin returns a session about a gated pod, and BeginLock about a lock, up to its first Ask or its End.
func Begin(f Facts, now time.Time) Session             { return singlenode.Begin(f, now) }
func BeginLock(f LockFacts, now time.Time) LockSession { return singlenode.BeginLock(f, now) }
