// Package provisiontest drives the decisions of package provision without input and output, as net/http/httptest
// does for handlers: for model checkers, and for tests of programs that embed package provision.
package provisiontest

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/provisioning"
)

// Facts, Record and the rest are those that a Provisioner decides from.
type (
	// Facts is all that is known about one volume name.
	Facts = provisioning.Facts
	// Claim is what is known about a claim.
	Claim = provisioning.Claim
	// PV is what is known about a PersistentVolume.
	PV = provisioning.PV
	// Log is what the in-flight log has under a name.
	Log = provisioning.Log
	// NodeSelection is what the selected node of a claim is to this process.
	NodeSelection = provisioning.NodeSelection
	// Record is what a process has learned about an open entry.
	Record = provisioning.Record
	// Request is one request of an entry.
	Request = provisioning.Request
	// Reply is what became of a step.
	Reply = provisioning.Reply
	// Decision is the next step.
	Decision = provisioning.Decision
	// Action is a step.
	Action = provisioning.Action
	// Reason says why.
	Reason = provisioning.Reason
)

// What the in-flight log has under a name.
const (
	LogUnknown    = provisioning.LogUnknown
	LogAbsent     = provisioning.LogAbsent
	LogOpen       = provisioning.LogOpen
	LogChanging   = provisioning.LogChanging
	LogUnreadable = provisioning.LogUnreadable
	LogFull       = provisioning.LogFull
	LogOthers     = provisioning.LogOthers
)

// What the selected node of a claim is to this process.
const (
	NodeAny       = provisioning.NodeAny
	NodeNone      = provisioning.NodeNone
	NodeHere      = provisioning.NodeHere
	NodeElsewhere = provisioning.NodeElsewhere
)

// VolumeMade: the driver named the volume.
const VolumeMade = provisioning.VolumeMade

// The steps.
const (
	Wait           = provisioning.Wait
	BuildRequest   = provisioning.BuildRequest
	Prepare        = provisioning.Prepare
	ReadPV         = provisioning.ReadPV
	ReadClaim      = provisioning.ReadClaim
	OpenEntry      = provisioning.OpenEntry
	NoteVersion    = provisioning.NoteVersion
	CreateVolume   = provisioning.CreateVolume
	StorePV        = provisioning.StorePV
	StoreApart     = provisioning.StoreApart
	MarkDiscarding = provisioning.MarkDiscarding
	DeleteVolume   = provisioning.DeleteVolume
	CloseEntry     = provisioning.CloseEntry
)

// Decide returns the next step; see the facts for what counts.
func Decide(f Facts, now time.Time, quiet time.Duration) Decision {
	return provisioning.Decide(f, now, quiet)
}

// Inherited returns the record of an entry that an earlier process has added.
func Inherited(claim types.UID, requests []Request, now time.Time) Record {
	return provisioning.Inherited(claim, requests, now)
}
