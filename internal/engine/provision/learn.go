package provision

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// Reply is the outcome of a step, as far as the next decision depends on it.
type Reply struct {
	// Class is the outcome of a call: Done if it succeeded, Uncertain if it was not answered.
	Class errclass.Class
	// Handle names the volume that CreateVolume answered, and Unfit reports that the volume differs from the request.
	Handle string
	Unfit  bool
	// InPVForm is true if Handle has the form that a PersistentVolume of the volume names.
	InPVForm bool
	// PV is the result of ReadPV, or of a live read by StorePV and StoreApart if a PersistentVolume with the name exists.
	PV    PV
	Claim Claim
	// Log is the in-flight log's state for the name if OpenEntry, MarkDiscarding or NoteVersion did not succeed.
	Log Log
	// Request is the request that OpenEntry wrote to the log.
	Request Request
	// Comparable is true if a refusal judges the request as it was sent before: with its Secret, and to no other version
	// of the driver.
	Comparable bool
}

// Learn adds the outcome of a step to the facts. began and now are when its call began and ended, and first is the
// result of [Record.Sending] before a CreateVolume.
func (f *Facts) Learn(done Action, reply Reply, first bool, began, now time.Time, quiet time.Duration) {
	ok := reply.Class == errclass.Done
	switch done {
	case Wait, SelectNode:
	case BuildRequest, Prepare:
		f.SecondFailed = f.Log == LogOpen && !ok
		f.Prepared = done == Prepare && ok
	case ReadPV, ReadClaim:
		f.read(done, reply)
	case OpenEntry:
		f.opened(reply)
	case ConfirmEntry:
		f.Confirmed = ok
	case MarkDiscarding, NoteVersion:
		f.noted(done, reply)
	case CreateVolume:
		f.Record.Answered(reply, first, began, now, quiet)
	case StorePV:
		f.PV = f.storedAs(reply, now)
	case StoreApart:
		f.Apart = f.storedAs(reply, now)
	case DeleteVolume:
		f.Confirmed = false // CreateVolume may be repeated now
		if ok {
			f.Record.Deleted(began, quiet)
		} else {
			f.Record.Unheard(now)
		}
	case CloseEntry:
		f.Log, f.Record, f.Confirmed = LogChanging, Record{}, false
	}
}

func (f *Facts) noted(done Action, reply Reply) {
	ok := reply.Class == errclass.Done
	if done == NoteVersion {
		f.VersionNoted = ok
	} else {
		f.Record.Discarding = f.Record.Discarding || ok
	}
	if !ok {
		f.Log = reply.Log
	}
}

// read adds the result of a live read.
func (f *Facts) read(done Action, reply Reply) {
	switch {
	case reply.Class != errclass.Done:
	case done == ReadPV:
		f.PV = reply.PV
	default:
		f.Claim = reply.Claim
	}
}

func (f *Facts) opened(reply Reply) {
	switch {
	case reply.Class != errclass.Done && f.Log == LogOpen && reply.Log == LogFull:
		f.SecondFailed = true
	case reply.Class != errclass.Done:
		f.Log = reply.Log
	case f.Log == LogOpen:
		f.Record.Add(reply.Request)
	default:
		f.Log, f.Record, f.Confirmed = LogOpen, Opened(f.Claim.UID, reply.Request), true
	}
}

// storedAs returns the knowledge about a PersistentVolume after its CREATE, which may still arrive if it was not
// answered.
func (f *Facts) storedAs(reply Reply, now time.Time) PV {
	switch reply.Class {
	case errclass.Done:
		return PV{Known: true, Exists: true, OfClaim: true, OfDriver: true, Handle: f.Record.Handle, Read: now}
	case errclass.Uncertain:
		f.Record.Unheard(now)
	default:
	}
	return reply.PV
}
