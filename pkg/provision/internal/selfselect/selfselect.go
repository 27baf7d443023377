// Package selfselect decides when a node selects itself for a claim that binds immediately. If each node provisions for
// itself, no scheduler selects a node for such a claim. Each node waits for a delay of its own and then selects itself,
// in a write that only the first node can make.
package selfselect

import (
	"math/rand/v2"
	"sync"
	"time"

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
	// count is the number of times that the node has selected itself.
	count int
}

// NewTurns returns Turns without any claim.
func NewTurns() *Turns {
	return &Turns{draw: rand.Float64, of: map[types.UID]turn{}}
}

// Due returns the time of the node's turn, and draws it if necessary. The first delay is random up to first, so that
// the nodes do not write simultaneously. A node that had its turn, and perhaps no room, lets others go first: its delay
// doubles each time up to most, and is at least half of that.
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
	it.due = now.Add(delay)
	b.of[uid] = it
	return it.due
}

// Selected records that the node had its turn.
func (b *Turns) Selected(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of[uid] = turn{count: b.of[uid].count + 1}
}

// Forget drops a claim.
func (b *Turns) Forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, uid)
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
