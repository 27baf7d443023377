package inflight

import "github.com/csi-reclaimer/csi-reclaimer/test/model/search"

type verb = search.Verb

// Moves by their sentences; %[1]d is the process, and %[2]s the entries.
const (
	processStarts  verb = "process %[1]d starts"
	otherLeads     verb = "process %[1]d starts while the one before goes on"
	processCrashes verb = "process %[1]d crashes"
	processStops   verb = "process %[1]d stops, and stores all entries in the young Lease"
	putEntry       verb = "a caller of process %[1]d stores entry %[2]s"
	removeEntry    verb = "a caller of process %[1]d removes entry %[2]s"
	takesYoung     verb = "process %[1]d takes the young Lease over"
	takesOldLease  verb = "process %[1]d takes the old Lease over, and begins"
	writeBegins    verb = "process %[1]d begins a write"
	entriesMove    verb = "process %[1]d begins a write that moves %[2]s to the old Lease"
	oldIsOpened    verb = "process %[1]d reads the old Lease that does not count yet, or creates it"
	youngIsChecked verb = "process %[1]d reads the young Lease again"
	oldIsWritten   verb = "the write of the old Lease by process %[1]d arrives"
	youngIsWritten verb = "the write of the young Lease by process %[1]d arrives"
	answerIsLost   verb = "the write of process %[1]d is not answered"
	youngIsRead    verb = "process %[1]d reads the young Lease"
	oldIsRead      verb = "process %[1]d reads the old Lease"
	lateArrives    verb = "a write that was not answered arrives"
	lateIsLost     verb = "a write that was not answered is lost"
	oldIsDeleted   verb = "an administrator deletes the old Lease"
)

// move is one event, of a process, and an entry or a mask of entries.
type move struct {
	verb
	process, entry int
}

// describe returns the sentence of a move.
func (w *World) describe(m move) string {
	names := ""
	for n, key := range keys {
		if m.verb == entriesMove && m.entry&(1<<n) != 0 || m.verb != entriesMove && m.entry == n {
			names += key
		}
	}
	return m.Sentence(m.process+1, names)
}
