// Package selfselect decides when a node selects itself for a claim that binds immediately. Where each node makes its
// own volumes nobody else selects one: each node waits for a time of its own and then selects itself, in a write that
// only the first of them can make.
package selfselect

import (
	"math/rand/v2"
	"sync"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/provision/topology"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Facts are what is known of a claim for which this node may select itself. The zero value of every
// field speaks for leaving it to others.
type Facts struct {
	// Enabled: this node takes part at all.
	Enabled bool
	// Free: the claim is this driver's, is there and not being deleted, and has no PV.
	Free bool
	// Node is what its selected node is to this process.
	Node provision.NodeSelection
	// Immediate: its class is there, and binds immediately. Allowed: it lets volumes be here.
	Immediate, Allowed bool
	// Due is when this node's turn comes. Zero: it has not drawn yet.
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

// Turns are when this node selects itself for which claim. It is safe for concurrent use.
type Turns struct {
	draw func() float64

	mu sync.Mutex
	of map[types.UID]turn
}

type turn struct {
	due time.Time
	// count is how often it has bid.
	count int
}

// NewTurns returns none.
func NewTurns() *Turns {
	return &Turns{draw: rand.Float64, of: map[types.UID]turn{}}
}

// Due returns when the node's turn comes, and draws it if it was not drawn. The first time it is any
// moment up to first, so that the nodes do not all write at once. A node that had its turn, and maybe no
// room, waits for at least half of twice as long, so that others come before it.
func (b *Turns) Due(uid types.UID, now time.Time, first, most time.Duration) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	it := b.of[uid]
	if !it.due.IsZero() {
		return it.due
	}
	delay := time.Duration(b.draw() * float64(first))
	if it.count > 0 {
		whole := first
		for range it.count {
			whole = min(2*whole, most)
		}
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

// Forget ends what is known of a claim.
func (b *Turns) Forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, uid)
}

// Allowed reports whether a class lets volumes be where the node is.
func Allowed(class *storagev1.StorageClass, node volume.Node) bool {
	if len(class.AllowedTopologies) == 0 {
		return true
	}
	here := topology.NodeAt(node.Name, node.Segments)
	_, err := topology.Require(topology.Facts{Allowed: class.AllowedTopologies, Selected: &here, Strict: true})
	return err == nil
}
