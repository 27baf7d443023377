package provision

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/engine/provisioning"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
)

// Where each node makes its own volumes, nobody selects a node for a claim that binds immediately. So the
// nodes bid: each waits for a time of its own and then selects itself, in a write that only the first
// of them can make.

// Bid is what is known of a claim for which this node may select itself. The zero value of every
// field speaks for leaving it to others.
type selfSelection struct {
	// Enabled: this node takes part at all.
	Enabled bool
	// Free: the claim is this driver's, is there and not being deleted, and has no PV.
	Free bool
	// Node is what its selected node is to this process.
	Node provisioning.NodeSelection
	// Immediate: its class is there, and binds immediately. Allowed: it lets volumes be here.
	Immediate, Allowed bool
	// Due is when this node's turn comes. Zero: it has not drawn yet.
	Due time.Time
}

// decideSelfSelection says whether this node selects itself now.
func decideSelfSelection(b selfSelection, now time.Time) provisioning.Decision {
	switch {
	case !b.Enabled || !b.Free || b.Node != provisioning.NodeNone || !b.Immediate || !b.Allowed:
		return provisioning.Decision{Reason: provisioning.ReasonOtherNode, Done: true}
	case b.Due.IsZero() || now.Before(b.Due):
		return provisioning.Decision{Reason: provisioning.ReasonNodeSelection, Timed: true}
	}
	return provisioning.Decision{Action: provisioning.SelectNode, Reason: provisioning.ReasonNodeSelection}
}

// bids are when this node bids for which claim. It is safe for concurrent use.
type selections struct {
	draw func() float64

	mu sync.Mutex
	of map[types.UID]selection
}

type selection struct {
	due time.Time
	// count is how often it has bid.
	count int
}

func newSelections() *selections {
	return &selections{draw: rand.Float64, of: map[types.UID]selection{}}
}

// due returns when the node's turn comes, and draws it if it was not drawn. The first time it is any
// moment up to first, so that the nodes do not all write at once. A node that had its turn, and maybe no
// room, waits for at least half of twice as long, so that others come before it.
func (b *selections) due(uid types.UID, now time.Time, first, most time.Duration) time.Time {
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

// had notes that the node had its turn.
func (b *selections) selected(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of[uid] = selection{count: b.of[uid].count + 1}
}

func (b *selections) forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.of, uid)
}

// selectionFacts returns what is known of a claim that a node may be selected for.
func (p *Provisioner) selectionFacts(claim *v1.PersistentVolumeClaim) selfSelection {
	local := p.cfg.Local
	if local == nil || claim == nil {
		return selfSelection{}
	}
	b := selfSelection{Enabled: local.Immediate, Node: p.at(claim)}
	b.Free = p.ours(claim) && claim.DeletionTimestamp == nil && claim.Spec.VolumeName == ""
	if class := p.classOf(claim); class != nil {
		b.Immediate, b.Allowed = !late(class), allowed(class, local.Node)
	}
	return b
}

// bid works on one claim that no node may be selected for.
func (p *Provisioner) selectSelf(ctx context.Context, k key) controller.Result {
	claim, now := p.claims.of(k), p.cfg.Clock.Now()
	facts := p.selectionFacts(claim)
	if !decideSelfSelection(facts, now).Done {
		facts.Due = p.selections.due(k.uid, now, p.cfg.Local.BaseDelay, p.cfg.Local.MaxDelay)
	}
	d := decideSelfSelection(facts, now)
	switch {
	case d.Done:
		if facts.Node != provisioning.NodeHere { // its own turn counts until the claim has its volume
			p.selections.forget(k.uid)
		}
		return controller.Done()
	case d.Action != provisioning.SelectNode:
		return controller.After(facts.Due.Sub(now))
	}
	p.selections.selected(k.uid)
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	switch err := p.cluster.selectNode(ctx, claim, p.cfg.Local.Node.Name); {
	case err == nil:
		klog.FromContext(ctx).V(2).Info("This node makes the volume of a claim that binds immediately", "claim",
			klog.KObj(claim))
	case errors.Is(err, kube.ErrChanged), errors.Is(err, kube.ErrGone):
		// Most likely another node was faster. The claim's own update tells; if not, it is bid again.
		return p.retries().Retry()
	default:
		klog.FromContext(ctx).Info("A claim that binds immediately was not given this node; it is tried again", "claim",
			klog.KObj(claim), "err", err)
		return p.retries().Retry()
	}
	return controller.Done()
}
