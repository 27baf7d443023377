// Package podsafetytest drives the decisions of pod safety without input and output, as net/http/httptest does for
// handlers: for model checkers, and for tests of programs that embed package podsafety.
//
// A [Tracker] records what was seen of pods, and a [Session] asks for one call after the other, to which the caller
// answers. All state is plain, so that it can be copied and encoded.
package podsafetytest

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/podhold"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/nodefence"
)

// Facts, Tracker, Session and the rest are those that the controller works with.
type (
	// Facts is all that is known about one pod.
	Facts = podhold.Facts
	// Pod is what is read of a Pod.
	Pod = objects.Pod
	// Rules are the settings.
	Rules = podhold.Rules
	// Read is a live read.
	Read = session.Read
	// Sight is since when a process has seen what of a pod.
	Sight = podhold.Sight
	// NodeSeen is what the watch shows of a node, NodeFacts what a live read finds.
	NodeSeen  = podhold.NodeSeen
	NodeFacts = podhold.NodeFacts
	// Ready is the condition Ready of a node.
	Ready = podhold.Ready
	// LeaseFacts and FenceFacts are what live reads found of the node's Lease and fence.
	LeaseFacts = podhold.LeaseFacts
	FenceFacts = podhold.FenceFacts
	// Storage is what the watch has shown of whether a node reaches its volumes.
	Storage = podhold.Storage
	// Coverage is what a fence proves.
	Coverage = podhold.Coverage
	// Decision is the next step.
	Decision = podhold.Decision
	// Action is a step.
	Action = podhold.Action
	// Reason says why.
	Reason = podhold.Reason
	// Tracker is what a process remembers besides its watch cache.
	Tracker = podhold.Tracker
	// Session is the work on one pod.
	Session  = podhold.Session
	Progress = session.Progress
	// Ask is a call that a Session waits for, and Call its kind.
	Ask  = podhold.Ask
	Call = podhold.Call
	// Reply is the answer to an Ask, and Outcome how the call ended.
	Reply   = podhold.Reply
	Outcome = session.Outcome
	// LockFacts and LockAction are what is known and done about the lock of a volume.
	LockFacts  = podhold.LockFacts
	LockAction = podhold.LockAction
)

// What the watch shows of a node.
const (
	NodeUnseen   = podhold.NodeUnseen
	NodeReady    = podhold.NodeReady
	NodeNotReady = podhold.NodeNotReady
	NodeTainted  = podhold.NodeTainted
	// NodeTaintedReady is that of a node that is Ready.
	NodeTaintedReady = podhold.NodeTaintedReady
	NodeAbsent       = podhold.NodeAbsent
)

// The condition Ready of a node.
const (
	ReadyMissing = podhold.ReadyMissing
	ReadyTrue    = podhold.ReadyTrue
	ReadyUnknown = podhold.ReadyUnknown
)

// What a fence covers.
const (
	CoversUntilUnfenced = podhold.CoversUntilUnfenced
	CoversReboot        = podhold.CoversReboot
	CoversVolumes       = podhold.CoversVolumes
)

// The calls, and the step that removes the finalizer.
const (
	NoCall          = podhold.NoCall
	GetPod          = podhold.GetPod
	GetNode         = podhold.GetNode
	GetLease        = podhold.GetLease
	GetFence        = podhold.GetFence
	PatchFinalizers = podhold.PatchFinalizers
	DeletePod       = podhold.DeletePod

	RemoveFinalizer = podhold.RemoveFinalizer
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

// Evidence.
const (
	ReasonFinished     = podhold.ReasonFinished
	ReasonNeverBound   = podhold.ReasonNeverBound
	ReasonNodeGone     = podhold.ReasonNodeGone
	ReasonNodeFenced   = podhold.ReasonNodeFenced
	ReasonOutOfService = podhold.ReasonOutOfService
	ReasonConfirmed    = podhold.ReasonConfirmed
)

// What is done about a lock.
const (
	KeepLock   = podhold.KeepLock
	CreateLock = podhold.CreateLock
	ReadHolder = podhold.ReadHolder
	RemoveLock = podhold.RemoveLock
)

// ModeEnforce is the mode of a namespace whose pods are held.
const ModeEnforce = podhold.ModeEnforce

// Names on the objects.
const (
	Finalizer         = objects.RunningFinalizer
	ConfirmAnnotation = objects.ConfirmAnnotation
)

// Reasons returns every reason there is.
func Reasons() []Reason { return podhold.Reasons() }

// NewTracker returns a Tracker without records.
func NewTracker() *Tracker { return podhold.NewTracker() }

// PodOf reads what is needed of a Pod.
func PodOf(o *v1.Pod) Pod { return objects.PodOf(o) }

// NodeOf reads what is needed of a Node.
func NodeOf(o *v1.Node) NodeFacts { return podhold.NodeOf(o) }

// OwnTaintValue is the value of the taint that this project adds to a node that it has fenced.
const OwnTaintValue = podhold.OwnTaintValue

// Decide returns what to do next about one pod.
func Decide(f Facts, now time.Time) Decision { return podhold.Decide(f, now) }

// DecideLock returns what to do next about the lock of one volume.
func DecideLock(f LockFacts, now time.Time) LockAction { return podhold.DecideLock(f, now) }

// Begin returns a session on these facts, up to its first Ask or its End.
func Begin(t *Tracker, f Facts, now time.Time) Session { return podhold.Begin(t, f, now) }

// FenceOf returns what a NodeFence shows about a pod.
func FenceOf(o *v1alpha1.NodeFence, pod types.UID) FenceFacts { return nodefence.Facts(o, pod) }

// KeepsVolumes reports whether a NodeFence may keep its node from volumes.
func KeepsVolumes(o *v1alpha1.NodeFence) bool { return fencing.FenceOf(o).MayKeepVolumes() }
