// Package selfselect decides when a node selects itself for a claim that binds immediately. If each node provisions for
// itself, no scheduler selects a node for such a claim. Each node waits for a delay of its own and then selects itself,
// in a write that only the first node can make. A claim that no node can hold would move from node to node, and each
// move is sent to all nodes, so the nodes also wait after each move.
package selfselect

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Facts describe a claim that may need this node. The zero value of every field leaves the claim to other nodes.
type Facts struct {
	// Enabled means that this node takes part at all.
	Enabled bool
	// Free means that the claim is this driver's, not being deleted, and has no PV.
	Free bool
	// Node compares the claim's selected node with the node of this process.
	Node provision.NodeSelection
	// Immediate means that the claim's class exists and binds immediately, and Allowed that the class allows this node's
	// topology.
	Immediate, Allowed bool
	// Due is the time of this node's turn, zero if it is not drawn yet.
	Due time.Time
}

// Decide reports whether this node selects itself now.
func Decide(b Facts, now time.Time) provision.Decision {
	switch {
	case !b.Enabled || !b.Free || b.Node != provision.NodeNone || !b.Immediate || !b.Allowed:
		return provision.Decision{Reason: provision.ReasonOtherNode, Done: true}
	case b.Due.IsZero() || now.Before(b.Due):
		return provision.Decision{Reason: provision.ReasonNodeSelection, Timed: true}
	}
	return provision.Decision{Action: provision.SelectNode, Reason: provision.ReasonNodeSelection}
}

// Turns holds the times at which this node selects itself, by claim, and is safe for concurrent use.
type Turns struct {
	draw func() float64

	mu sync.Mutex
	of map[types.UID]turn
}

type turn struct {
	due time.Time
	// count is the number of turns that the node had.
	count int
	// rounds is the number of withdrawn selections of any node, and withdrawn the time of the last one.
	rounds    int
	withdrawn time.Time
}

// pause is the delay of all nodes after a selection was withdrawn. It bounds the moves of a claim, however many nodes
// there are.
var pause = controller.Backoff{First: 100 * time.Millisecond, Max: 10 * time.Second}

// NewTurns returns Turns without any claim.
func NewTurns() *Turns {
	return &Turns{draw: rand.Float64, of: map[types.UID]turn{}}
}

// Due returns the time of the node's turn, and draws it if necessary. The first delay is random up to first, so that
// the nodes do not write simultaneously. A node that had its turn, and perhaps no room, lets others go first: its delay
// doubles each time up to most, and is at least half of that. After a withdrawn selection the delay begins when the
// pause ends.
func (b *Turns) Due(uid types.UID, now time.Time, first, most time.Duration) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	it := b.of[uid]
	if !it.due.IsZero() {
		return it.due
	}
	delay := time.Duration(b.draw() * float64(first))
	if it.count > 0 {
		whole := controller.Backoff{First: first, Max: most}.Delay(it.count)
		delay = whole/2 + time.Duration(b.draw()*float64(whole/2))
	}
	begin := now
	if it.rounds > 0 {
		if end := it.withdrawn.Add(pause.Delay(it.rounds - 1)); end.After(now) {
			begin = end
		}
	}
	it.due = begin.Add(delay)
	b.of[uid] = it
	return it.due
}

// Taken records that the node had its turn: it selects itself, or has no room.
func (b *Turns) Taken(uid types.UID) {
	b.change(uid, func(it *turn) { it.count++ })
}

// Withdrawn records that the selection of any node was withdrawn.
func (b *Turns) Withdrawn(uid types.UID, now time.Time) {
	b.change(uid, func(it *turn) { it.rounds, it.withdrawn = it.rounds+1, now })
}

// Over ends a turn that another node was faster in. The delay is drawn again if the claim needs a node again.
func (b *Turns) Over(uid types.UID) { b.change(uid, func(*turn) {}) }

// change changes the record of a claim, whose next delay has to be drawn again.
func (b *Turns) change(uid types.UID, change func(*turn)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	it := b.of[uid]
	it.due = time.Time{}
	change(&it)
	if b.of[uid] = it; it == (turn{}) {
		delete(b.of, uid)
	}
}

// Forget drops a claim that needs no node any more.
func (b *Turns) Forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, uid)
}

// Full reports whether a driver's answer means that it has no room for a volume of this size. Negative values, which
// the CSI specification does not allow, mean nothing.
func Full(answer *csi.GetCapacityResponse, size int64) bool {
	below := func(room int64) bool { return room >= 0 && room < size }
	largest := answer.GetMaximumVolumeSize()
	return below(answer.GetAvailableCapacity()) || largest != nil && below(largest.GetValue())
}

// Allowed reports whether a class allows volumes on the node.
func Allowed(class *storagev1.StorageClass, node volume.Node) bool {
	if len(class.AllowedTopologies) == 0 {
		return true
	}
	here := topology.NodeAt(node.Name, node.Segments)
	_, err := topology.Require(topology.Facts{Allowed: class.AllowedTopologies, Selected: &here, Strict: true})
	return err == nil
}
