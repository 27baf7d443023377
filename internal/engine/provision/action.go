package provision

import "github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"

// Action is one step; the zero value does nothing.
type Action uint8

const (
	// Wait does nothing now.
	Wait Action = iota
	BuildRequest
	// Prepare reads the request's Secret and protects its source, because an entry is opened only for a request that can
	// be sent.
	Prepare
	ReadPV
	ReadClaim
	// OpenEntry writes the entry to the in-flight log, or adds a request to the open entry.
	OpenEntry
	// ConfirmEntry reads the in-flight log live, because an operator may have settled the open entry.
	ConfirmEntry
	// NoteVersion writes to the open entry the version of the driver that receives its request.
	NoteVersion
	// CreateVolume sends the open entry's request to the driver.
	CreateVolume
	StorePV
	// StoreApart creates the PersistentVolume with a name other than the volume's: see Facts.Apart.
	StoreApart
	// MarkDiscarding writes to the open entry that its volume is about to be deleted.
	MarkDiscarding
	// DeleteVolume deletes a volume that no process would create a PersistentVolume for.
	DeleteVolume
	CloseEntry
	SelectNode
)

var actionNames = []string{
	Wait: "Wait", BuildRequest: "BuildRequest", Prepare: "Prepare", ReadPV: "ReadPV", ReadClaim: "ReadClaim",
	OpenEntry: "OpenEntry", ConfirmEntry: "ConfirmEntry", NoteVersion: "NoteVersion", CreateVolume: "CreateVolume",
	StorePV: "StorePV", StoreApart: "StoreApart", MarkDiscarding: "MarkDiscarding", DeleteVolume: "DeleteVolume",
	CloseEntry: "CloseEntry", SelectNode: "SelectNode",
}

// String returns the action as used in logs.
func (a Action) String() string { return session.Name(a, actionNames) }

// Decision is the next step for one volume and its reason.
type Decision struct {
	Action Action
	Reason Reason
	// Timed is true if no event is sure to end this wait, so that the clock ends it.
	Timed bool
	// Done is true if no work is left for this volume.
	Done bool
}

// Waits reports whether the step is to wait.
func (d Decision) Waits() bool { return d.Action == Wait }

// Words returns the action and its reason, for the log.
func (d Decision) Words() (action, reason string) { return d.Action.String(), string(d.Reason) }

func wait(why Reason) Decision           { return Decision{Action: Wait, Reason: why} }
func timed(why Reason) Decision          { return Decision{Action: Wait, Reason: why, Timed: true} }
func done(why Reason) Decision           { return Decision{Action: Wait, Reason: why, Done: true} }
func step(a Action, why Reason) Decision { return Decision{Action: a, Reason: why} }
