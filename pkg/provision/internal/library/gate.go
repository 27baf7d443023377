package library

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Gate counts the work in progress, and admits none once it is closed. The library does not wait for
// its workers, so Run waits here. It is safe for concurrent use.
type Gate struct {
	mu     sync.Mutex
	closed bool
	inside int
	// turns are the claims that a worker of the library works on.
	turns map[types.UID]bool
	empty chan struct{}
}

// NewGate returns an open gate.
func NewGate() *Gate { return &Gate{turns: map[types.UID]bool{}, empty: make(chan struct{})} }

// Enter reports whether the caller may begin; who may calls Leave in the end.
func (g *Gate) Enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

// Leave ends what Enter began.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out()
}

// out counts one less inside. g.mu is held.
func (g *Gate) out() {
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
}

// BeginTurn reports whether a worker of the library may begin with a claim. What it does before and
// after it calls Provision counts too, until EndTurn.
func (g *Gate) BeginTurn(claim types.UID) bool {
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

// EndTurn ends what BeginTurn began, if it did.
func (g *Gate) EndTurn(claim types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.turns[claim] {
		delete(g.turns, claim)
		g.out()
	}
}

// Open reports whether somebody who is inside may begin with something new.
func (g *Gate) Open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.closed
}

// Close admits no more work.
func (g *Gate) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed && g.inside == 0 {
		close(g.empty)
	}
	g.closed = true
}

// Wait waits until everybody has left a closed gate.
func (g *Gate) Wait() { <-g.empty }

// Count returns how much work is in progress.
func (g *Gate) Count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inside
}
