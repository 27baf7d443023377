// Package intreetest drives the decisions of package intree without input and output, as net/http/httptest does for
// handlers: for model checkers, and for tests of programs that embed package intree.
//
// A [Tracker] takes the events of a watch and observes [Facts], and a [Session] asks for one call after the other, to
// which the caller answers. All state is plain, so that it can be copied and encoded.
package intreetest

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/twins"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Facts, Tracker, Session and the rest are those that a Controller works with.
type (
	// Facts is all that is known about one PV and its twin.
	Facts = twins.Facts
	// PV is what is read of a PersistentVolume.
	PV = twins.PV
	// PVs is the watch cache.
	PVs = twins.PVs
	// Source identifies the volume of a PV.
	Source = twins.Source
	// Writer says who added the finalizer to a PV.
	Writer = twins.Writer
	// Other says whether another program manages the finalizer.
	Other = twins.Other
	// Read is a live read.
	Read = session.Read
	// ClaimFacts, AttachmentFacts and OriginalFacts are what live reads found.
	ClaimFacts      = twins.ClaimFacts
	AttachmentFacts = twins.AttachmentFacts
	OriginalFacts   = twins.OriginalFacts
	// Tombstone and Failure are what became of tries to delete a volume, and Failures counts the tries too.
	Tombstone = twins.Tombstone
	Failure   = twins.Failure
	Failures  = twins.Failures
	// Decision is the next step.
	Decision = twins.Decision
	// Action is a step.
	Action = twins.Action
	// Reason says why.
	Reason = twins.Reason
	// Tracker is what a process remembers besides its watch cache.
	Tracker = twins.Tracker
	// Wake is what follows from an event of the watch.
	Wake = twins.Wake
	// Session is the work on one PV.
	Session = twins.Session
	// Rules are the settings that a Session follows.
	Rules = twins.Rules
	// Ask is a call that a Session waits for.
	Ask = twins.Ask
	// Call is its kind.
	Call = twins.Call
	// Reply is the answer to an Ask.
	Reply = twins.Reply
	// Outcome is how a call ended.
	Outcome = session.Outcome
)

// Who added the finalizer to a PV.
const (
	WriterUnknown = twins.WriterUnknown
	WriterNone    = twins.WriterNone
	WriterSelf    = twins.WriterSelf
	WriterOther   = twins.WriterOther
)

// The steps.
const (
	Wait                 = twins.Wait
	AddFinalizer         = twins.AddFinalizer
	RemoveFinalizer      = twins.RemoveFinalizer
	ReadClaim            = twins.ReadClaim
	ReadAttachments      = twins.ReadAttachments
	ReadSiblings         = twins.ReadSiblings
	ReadPV               = twins.ReadPV
	ReadOriginal         = twins.ReadOriginal
	ReadTwin             = twins.ReadTwin
	CreateTwin           = twins.CreateTwin
	SetTwinDelete        = twins.SetTwinDelete
	SetTwinRetain        = twins.SetTwinRetain
	DeleteTwin           = twins.DeleteTwin
	RemoveTwinFinalizer  = twins.RemoveTwinFinalizer
	RemoveFinalizerByUID = twins.RemoveFinalizerByUID
)

// The calls.
const (
	GetPV           = twins.GetPV
	GetClaim        = twins.GetClaim
	ListAttachments = twins.ListAttachments
	CreatePV        = twins.CreatePV
	PatchFinalizers = twins.PatchFinalizers
	PatchPolicy     = twins.PatchPolicy
	DeletePV        = twins.DeletePV
)

// How a call ended.
const (
	Unanswered = session.Unanswered
	Succeeded  = session.Succeeded
	Conflict   = session.Conflict
	Gone       = session.Gone
)

// The ends and the beginning of a session.
const (
	// NotEnded: the session waits for the answer to its Ask.
	NotEnded = session.NotEnded
	// RequeueNever: an event begins the next session.
	RequeueNever = session.RequeueNever
)

// Bounds of time.
const (
	// LiveFor is how long a live read counts.
	LiveFor = session.LiveFor
	// IdleAfter is how long another program may take to do its part for one PV.
	IdleAfter = twins.IdleAfter
)

// Finalizer holds an in-tree PV until its volume is deleted, and FieldManager is the name under which it is added.
const (
	Finalizer    = twins.Finalizer
	FieldManager = twins.FieldManager
)

// NewTracker returns a Tracker that remembers nothing.
func NewTracker() *Tracker { return twins.NewTracker() }

// Begin returns a session on these facts, up to its first Ask or its End.
func Begin(f Facts, rules Rules, now time.Time) Session { return twins.Begin(f, rules, now) }

// Decide returns the next step.
func Decide(f Facts, now time.Time) Decision { return twins.Decide(f, now) }

// Of reads what is needed of a PersistentVolume.
func Of(o *v1.PersistentVolume) PV { return twins.Of(o) }

// NewTwin returns the twin of a PV as it is created.
func NewTwin(o *v1.PersistentVolume) *v1.PersistentVolume { return twins.NewTwin(o) }

// TwinName returns the name of the twin of the PV with this name.
func TwinName(pv string) string { return volume.TwinName(pv) }

// Reasons returns every reason there is.
func Reasons() []Reason { return twins.Reasons() }
