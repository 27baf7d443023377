package provision

import "sync"

// gate counts the work in hand, and lets nobody in once it is closed. The library does not wait for
// its workers, so Run waits here. It is safe for concurrent use.
type gate struct {
	mu     sync.Mutex
	closed bool
	inside int
	empty  chan struct{}
}

func newGate() *gate { return &gate{empty: make(chan struct{})} }

// enter tells whether the caller may begin; who may calls leave in the end.
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
	g.inside--
	if g.closed && g.inside == 0 {
		close(g.empty)
	}
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
