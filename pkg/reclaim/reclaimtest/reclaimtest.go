// Package reclaimtest drives the decisions of package reclaim without input and output, as net/http/httptest does for
// handlers: for model checkers, and for tests of programs that embed package reclaim.
package reclaimtest

import (
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/reclaiming"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/session"
)

// The types are those that a Controller decides from.
type (
	// Rules are the settings that decisions depend on.
	Rules = reclaiming.Rules
	// Engine is all that one process has seen and remembers.
	Engine = reclaiming.Engine
	// Record is what it remembers about one PV, Activity what happened to that besides being seen.
	Record = reclaiming.Record
	// Activity is part of a Record.
	Activity = reclaiming.Activity
	// Tombstone is the end of a PV whose volume may be left.
	Tombstone = reclaiming.Tombstone
	// Expectation is a write of the process to a PV's finalizers.
	Expectation = reclaiming.Expectation
	// Session is the work on one PV.
	Session = reclaiming.Session
	// Item is one thing to decide on under a name.
	Item = reclaiming.Item
	// Ask is what one step asks.
	Ask = reclaiming.Ask
	// Reply is the answer to an Ask.
	Reply = reclaiming.Reply
	// Outcome is how a step ended.
	Outcome = reclaiming.Outcome
	// Step is what follows from a decision or an answer.
	Step = reclaiming.Step
	// Decision is the next step, and why.
	Decision = reclaiming.Decision
	// Action is a step.
	Action = reclaiming.Action
	// Reason says why.
	Reason = reclaiming.Reason
	// Read is a live read.
	Read = session.Read
	// ClaimFacts is what a live read of a claim found.
	ClaimFacts = reclaiming.ClaimFacts
	// History is what a process has seen of a PV.
	History = reclaiming.History
)

// The steps.
const (
	Wait            = reclaiming.Wait
	AddFinalizer    = reclaiming.AddFinalizer
	AdoptPV         = reclaiming.AdoptPV
	RemoveFinalizer = reclaiming.RemoveFinalizer
	ListAttachments = reclaiming.ListAttachments
	ReadSecrets     = reclaiming.ReadSecrets
	ReadClaim       = reclaiming.ReadClaim
	ReadSiblings    = reclaiming.ReadSiblings
	ListPVs         = reclaiming.ListPVs
	ReadPV          = reclaiming.ReadPV
	DeleteVolume    = reclaiming.DeleteVolume
	DeletePV        = reclaiming.DeletePV
	FinalizePV      = reclaiming.FinalizePV
)

// How a step ended.
const (
	Unanswered = reclaiming.Unanswered
	OK         = reclaiming.OK
	Changed    = reclaiming.Changed
	Gone       = reclaiming.Gone
)

// LiveFor is how long a live read counts.
const LiveFor = session.LiveFor
