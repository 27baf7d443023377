// Package statefulsettest drives the decisions about the claims of StatefulSets without input and output, as
// net/http/httptest does for handlers: for model checkers, and for tests of programs that embed package statefulset.
//
// A [Tracker] records what was seen of claims and sets, and a [Session] asks for one call after the other, to which the
// caller answers. All state is plain, so that it can be copied and encoded.
package statefulsettest

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/retention"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/session"
)

// Facts, Tracker, Session and the rest are those that the controller works with.
type (
	// Facts is all that is known of one claim.
	Facts = retention.Facts
	// Rules are the settings.
	Rules = retention.Rules
	// Seen is what is known of an object, and Read a live read of it.
	Seen = retention.Seen
	Read = session.Read
	// Set, Pod and Claim are what is read of the objects, and Mark is the annotation of a claim.
	Set   = retention.Set
	Pod   = retention.Pod
	Claim = retention.Claim
	Mark  = retention.Mark
	// Sight is since when a process has seen what of a claim, and SetSight of a set.
	Sight    = retention.Sight
	SetSight = retention.SetSight
	// Decision is the next step for a claim, Action what it does, and Reason why.
	Decision = retention.Decision
	Action   = retention.Action
	Reason   = retention.Reason
	// Tracker is what a process remembers besides its watch cache.
	Tracker = retention.Tracker
	// Session is the work on one claim, and Progress how far it is.
	Session  = retention.Session
	Progress = session.Progress
	// Ask is a call that a Session waits for.
	Ask = retention.Ask
	// Reply is the answer to an Ask, and Outcome how the call ended.
	Reply   = retention.Reply
	Outcome = session.Outcome
	// SetFacts is all that is known of one set, SetDecision the next step for it, and SetAction its kind.
	SetFacts    = retention.SetFacts
	SetDecision = retention.SetDecision
	SetAction   = retention.SetAction
	// Gap is what a set lacks, and Replica one of its ordinals.
	Gap     = retention.Gap
	Replica = retention.Replica
	// Retention is one half of a policy: whether claims are kept.
	Retention = retention.Retention
)

// What is known of an object.
const (
	Unknown = retention.Unknown
	Found   = retention.Found
	Absent  = retention.Absent
)

// What becomes of claims.
const (
	Retain = retention.Retain
	Delete = retention.Delete
)

// The steps for a claim.
const (
	Wait        = retention.Wait
	ReadClaim   = retention.ReadClaim
	ReadPod     = retention.ReadPod
	ReadSet     = retention.ReadSet
	PatchClaim  = retention.PatchClaim
	DeleteClaim = retention.DeleteClaim
	DeletePod   = retention.DeletePod
)

// The steps for a set.
const (
	SetWait = retention.SetWait
	Wake    = retention.Wake
	EndWake = retention.EndWake
)

// Reads is the kind of the steps that change nothing.
const Reads = session.Reads

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

// Names on the objects.
const (
	MarkAnnotation   = retention.MarkAnnotation
	PolicyAnnotation = retention.PolicyAnnotation
	WokenAnnotation  = retention.WokenAnnotation
	HoldAnnotation   = retention.HoldAnnotation
)

// NewTracker returns a Tracker without records.
func NewTracker() *Tracker { return retention.NewTracker() }

// ReplicaOf returns what is known of an ordinal of a set.
func ReplicaOf(s Set, ordinal int, pod Pod, claim func(name string) Claim) Replica {
	return retention.ReplicaOf(s, ordinal, pod, claim)
}

// SetOf reads what is needed of a StatefulSet.
func SetOf(o *appsv1.StatefulSet) Set { return retention.SetOf(o) }

// PodOf reads what is needed of a pod.
func PodOf(o *v1.Pod) Pod { return retention.PodOf(o) }

// ClaimOf reads what is needed of a claim.
func ClaimOf(o *v1.PersistentVolumeClaim) Claim { return retention.ClaimOf(o) }

// Decide returns what to do next about one claim.
func Decide(f Facts, now time.Time) Decision { return retention.Decide(f, now) }

// DecideSet returns what to do about one set, and what to report about it.
func DecideSet(f SetFacts, now time.Time) SetDecision { return retention.DecideSet(f, now) }

// FindGap returns what a set lacks; replica returns what is known of an ordinal in range.
func FindGap(s Set, replica func(ordinal int) Replica) Gap { return retention.FindGap(s, replica) }

// Begin returns a session on these facts, up to its first Ask or its End.
func Begin(t *Tracker, f Facts, now time.Time) Session { return retention.Begin(t, f, now) }
