package provision

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// gate counts the work in hand, and lets nobody in once it is closed. The library does not wait for
// its workers, so Run waits here. It is safe for concurrent use.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside int
	// turns are the claims that a worker of the library has in hand.
	turns map[types.UID]bool
	empty chan struct{}
}

func newGate() *gate { return &gate{turns: map[types.UID]bool{}, empty: make(chan struct{})} }

// enter reports whether the caller may begin; who may calls leave in the end.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out()
}

// out counts one less inside. g.mu is held.
func (g *gate) out() {
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
}

// beginTurn reports whether a worker of the library may begin with a claim. What it does before and
// after it calls Provision counts too, until endTurn.
func (g *gate) beginTurn(claim types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	if !g.turns[claim] {
		g.turns[claim] = true
		g.inside++
	}
	return true
}

// endTurn ends what beginTurn began, if it did.
func (g *gate) endTurn(claim types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.turns[claim] {
		delete(g.turns, claim)
		g.out()
	}
}

// open reports whether somebody who is inside may begin with something new.
func (g *gate) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.closed
}

// close lets nobody in any more.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed && g.inside == 0 {
		close(g.empty)
	}
	g.closed = true
}

// wait waits until everybody has left a closed gate.
func (g *gate) wait() { <-g.empty }

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}
