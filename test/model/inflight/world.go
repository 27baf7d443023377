package inflight

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

const (
	entries      = 2
	maxProcesses = 3
	maxTries     = 5
	maxLate      = 3
)

// values are the stored forms of the two entries, 0 for an entry that is not stored.
type values [entries]uint8

// lease is a Lease of the shard.
type lease struct {
	exists bool
	// split means that a young Lease lets the old one count.
	split bool
	// owner is the process whose epoch it has, from 1.
	owner uint8
	has   values
}

// write is a write of a Lease that may arrive. The zero value is none.
type write struct {
	sent, toOld bool
	// current means that the Lease still has the resourceVersion that the write is based on.
	current bool
	content lease
}

// Activities of a process, between two of its calls.
const (
	absent uint8 = iota
	takesOver
	takesOld
	idle
	opens
	opened
	writesOld
	writesYoung
	reads
	readsOld
	stops
	ended
	// blocked is a former release that cannot read the shard.
	blocked
)

// seen is a Lease as a process has read or written it last.
type seen struct {
	lease
	// current means that it has not changed since.
	current bool
}

// process is a process of the sidecar.
type process struct {
	does uint8
	// young and old are the shard as it was observed last. old does not exist if it does not count.
	young, old seen
	want       values
	// confirmed entries were answered to their callers, removing ones may still be stored.
	confirmed, removing [entries]bool
	// tries are the contents of writes whose outcome is unknown.
	tries [maxTries]values
	tried uint8
	// oldMayLand means that such a write of the old Lease was sent, and oldBase that it is still based on its
	// resourceVersion.
	oldMayLand, oldBase bool
	// whole is the content of the write under way, sent its current request, and opening the old Lease before it.
	whole   values
	sent    write
	opening seen
	// part is the young Lease of a read under way, and same means that its resourceVersion is the observed one.
	part seen
	same bool
	// inherited is what the process found when it took over, and of later means that it holds since.
	inherited values
}

// state is the whole state, as plain data that can be compared and copied.
type state struct {
	young, old lease
	processes  [maxProcesses]process
	late       [maxLate]write
	// leader is the process that took over last, from 1, and wanted has a bit for each value that an entry may have.
	leader uint8
	wanted [entries]uint8
	// next is the next value of an entry.
	next values
	// lost means that the entry was in an old Lease that was deleted, and is not stored as allowed since.
	lost [entries]bool
	left Budget
}

// World names bounds: the processes, and how often each event happens.
type World struct {
	search.Purpose
	// Releases has a letter for each process, in the order of their starts: n for this release, f for a former one.
	Releases string
	Budget   Budget

	// For tests. replacedFirst drops replaced entries from the old Lease with the write of their replacement. careless
	// does not remember that a write of the old Lease may land. unchecked does not read the young Lease again before
	// the old one counts. youngAlone takes over the young Lease alone. leftovers keeps the content of an old Lease that
	// did not count. youngFirst writes removals to the young Lease alone. eager moves
	// entries while a write may land.
	replacedFirst, careless, unchecked, youngAlone, leftovers, youngFirst, eager bool
}

// Budget is how often each event may happen in one history.
type Budget struct {
	// Put stores or replaces an entry, Remove removes one, Move moves entries to the old Lease, Stop ends the leader
	// cleanly, and DeleteOld deletes the old Lease.
	Put, Remove, Move, Stop, DeleteOld uint8
	// Crash ends the leader, Overlap lets another process lead while it goes on, and Lose takes the answer of a write.
	Crash, Overlap, Lose uint8
}

const (
	oneProcess = "one process: worlds with a take-over are others"
	oneRelease = "one release: a former one has worlds of its own"
)

// Worlds are the bounds that are explored.
func Worlds() []World { return slices.Clone(table) }

// table has the explored worlds.
var table = []World{
	{Purpose: search.About("old entries", "entries move, are replaced and removed, and writes are not answered",
		oneProcess),
		Releases: "n", Budget: Budget{Put: 2, Remove: 2, Move: 2, Lose: 2}},
	{Purpose: search.About("old entries, restart", "the same, with a process that ends, and one that takes over",
		oneRelease),
		Releases: "nn", Budget: Budget{Put: 2, Remove: 1, Move: 2, Crash: 1, Lose: 2}},
	{Purpose: search.About("old entries, two leaders", "a process that goes on while another one takes over", oneRelease),
		Releases: "nn", Budget: Budget{Put: 2, Remove: 1, Move: 2, Overlap: 1, Lose: 1}},
	{Purpose: search.About("old entries, stop",
		"a clean stop, which stores all entries in the young Lease, and a next start", oneRelease),
		Releases: "nn", Budget: Budget{Put: 2, Remove: 1, Move: 2, Stop: 1, Lose: 2}},
	{Purpose: search.About("old entries, former release",
		"a former release leads for a while after a clean stop or a crash",
		"no two leaders: a former release is superseded like this one"),
		Releases: "nfn", Budget: Budget{Put: 2, Remove: 2, Move: 2, Stop: 2, Crash: 1, Lose: 1}},
	{Purpose: search.About("old entries, upgrade", "this release takes over from a former one that goes on for a moment",
		"no write without an answer: a former release has no old Lease to write"),
		Releases: "fn", Budget: Budget{Put: 2, Remove: 2, Move: 1, Overlap: 1}},
	{Purpose: search.About("old entries, Lease deleted", "an administrator deletes the old Lease while it counts",
		"an entry that counted there is lost unless the leader stores it again: docs name that"),
		Releases: "nn", Budget: Budget{Put: 1, Remove: 1, Move: 2, Crash: 1, DeleteOld: 1, Lose: 1}},
}

// first is the state in which a world begins: the first process leads, and the first entry is stored.
func (w *World) first() state {
	s := state{left: w.Budget, leader: 1, next: values{2, 1}, wanted: [entries]uint8{1 << 1, 1 << 0}}
	s.young = lease{exists: true, owner: 1, has: values{1, 0}}
	s.processes[0] = process{does: idle, young: seen{s.young, true}, want: s.young.has, inherited: s.young.has,
		confirmed: [entries]bool{true, false}}
	return s
}

// whole returns what counts in two Leases.
func whole(young, old lease) values {
	for n := range young.has {
		if young.split && young.has[n] == 0 {
			young.has[n] = old.has[n]
		}
	}
	return young.has
}
