package podsafety

import (
	"maps"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Storage reports whether a node can unmount volumes, as the watches of Nodes and NodeFences show. The zero value means
// that no obstacle was observed.
type Storage struct {
	// Fenced reports that a fence may keep the node from volumes, whatever their driver, so that an unmount may not end.
	Fenced bool
	// Away reports that the node is not Ready. The watch cache may show its return a moment earlier.
	Away bool
	// Since is the time at which this process saw the last obstacle begin or go, or zero if it saw none. The first sight
	// of a node, and another machine or boot under its name, count as obstacles.
	Since time.Time
	// Machine and BootID are the machine and its boot that the Node has shown since then. A virtual machine that is
	// started a second time, beside the first, differs in its boot alone.
	Machine objects.Machine
	BootID  string
	// absent reports that the Node does not exist.
	absent bool
}

// Storages maps the names of nodes to their Storage. It is not safe for concurrent use.
type Storages map[string]Storage

// Saw records whether a fence may keep a node from volumes.
func (s Storages) Saw(node string, fenced bool, now time.Time) {
	one := s[node]
	if one.Fenced == fenced {
		return
	}
	if one.Fenced = fenced; !fenced {
		one.Since = now
	}
	s[node] = one
}

// SawNode records a change of a node. Every change must be recorded, because an outage can end before anything asks.
func (s Storages) SawNode(node string, before, after objects.WatchedNode, now time.Time) {
	s.sawState(node, before.State(), after.State(), now)
	s.sawMachine(node, after.Machine, after.BootID, now)
}

func (s Storages) sawMachine(node string, m objects.Machine, bootID string, now time.Time) {
	if one := s[node]; one.Machine != m || one.BootID != bootID {
		one.Machine, one.BootID, one.Since = m, bootID, now
		s[node] = one
	}
}

// remembered is longer than any wait for an unmount. Nodes that are gone, and whose names are not used again, would
// otherwise be kept for ever. The record of a node that is away lasts as long as its Node.
const remembered = 7 * 24 * time.Hour

func (s Storages) sawState(node string, before, after objects.NodeSeen, now time.Time) {
	if !before.Ready() || !after.Ready() {
		s[node] = Storage{Fenced: s[node].Fenced, Away: !after.Ready(), Since: now, absent: after == objects.NodeAbsent}
	}
	if after == objects.NodeAbsent {
		maps.DeleteFunc(s, func(_ string, one Storage) bool {
			return !one.Fenced && (one.absent || !one.Away) && now.Sub(one.Since) > remembered
		})
	}
}
