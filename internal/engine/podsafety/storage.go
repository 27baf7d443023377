package podsafety

import "time"

// Storage is whether fences keep a node from volumes, as the watch of NodeFences has shown it. The zero value: none
// has.
type Storage struct {
	// Fenced: a fence may keep the node from volumes, whatever their driver. An unmount may not end for that.
	Fenced bool
	// Since is when this process saw that none does any more, zero for never.
	Since time.Time
}

// Storages has the Storage of each node by name. It is not safe for concurrent use.
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
