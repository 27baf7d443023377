package provision

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// Reply is the outcome of a step, as far as the next decision depends on it.
type Reply struct {
	// Class is the outcome of a call. Done: it did what it was for. Uncertain: it was not answered.
	Class errclass.Class
	// Handle names the volume that CreateVolume answered, and Unfit reports that it is not what was requested.
	Handle string
	Unfit  bool
	// PV is what ReadPV found. StorePV and StoreApart have it, read live, where a PersistentVolume of the name exists.
	PV PV
	// Claim is what ReadClaim found.
	Claim Claim
	// Log is what the in-flight log has under the name where OpenEntry or MarkDiscarding did not succeed.
	Log Log
	// Request is what OpenEntry wrote.
	Request Request
	// Comparable: a refusal judges the request as it was sent before. No other version of the driver was called with it,
	// and it had its Secret.
	Comparable bool
}

// Learn adds the outcome of a step to the facts. began and now are when its call began and when it ended, and
// first is what [Record.Sending] returned before a CreateVolume.
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
	case MarkDiscarding, NoteVersion:
		f.noted(done, reply)
	case CreateVolume:
		f.Record.Answered(reply, first, began, now, quiet)
	case StorePV:
		f.PV = f.storedAs(reply, now)
	case StoreApart:
		f.Apart = f.storedAs(reply, now)
	case DeleteVolume:
		if ok {
			f.Record.Deleted(began, quiet)
		} else {
			f.Record.Unheard(now)
		}
	case CloseEntry:
		f.Log, f.Record = LogChanging, Record{}
	}
}

// noted takes the outcome of a note in the open entry.
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

// read adds what a live read has found.
func (f *Facts) read(done Action, reply Reply) {
	switch {
	case reply.Class != errclass.Done:
	case done == ReadPV:
		f.PV = reply.PV
	default:
		f.Claim = reply.Claim
	}
}

// opened takes the outcome of OpenEntry.
func (f *Facts) opened(reply Reply) {
	switch {
	case reply.Class != errclass.Done && f.Log == LogOpen && reply.Log == LogFull:
		f.SecondFailed = true
	case reply.Class != errclass.Done:
		f.Log = reply.Log
	case f.Log == LogOpen:
		f.Record.Add(reply.Request)
	default:
		f.Log, f.Record = LogOpen, Opened(f.Claim.UID, reply.Request)
	}
}

// storedAs returns what is known about a PersistentVolume after its CREATE. One that was not answered may still
// arrive.
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
