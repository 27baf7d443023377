package podsafety

import "time"

// Storage tells whether fences keep a node from volumes, as observed in the watch of NodeFences. The zero value means
// that no such fence was observed.
type Storage struct {
	// Fenced reports that a fence may keep the node from volumes, whatever their driver, so that an unmount may not end.
	Fenced bool
	// Since is the time at which this process saw the last such fence go, or zero if it saw none.
	Since time.Time
}

// Storages maps the names of nodes to their Storage. It is not safe for concurrent use.
type Storages map[string]Storage

// Saw records whether a fence may keep a node from volumes.
func (s Storages) Saw(node string, fenced bool, now time.Time) {
	switch {
	case fenced:
		s[node] = Storage{Fenced: true}
	case s[node].Fenced:
		s[node] = Storage{Since: now}
	}
}
