package fencing

import "fmt"

// scene is a state that a move is changing.
type scene struct {
	*World
	machine *machine
	state
	// wrong is the promise that the move broke, in words.
	wrong string
	// reason is that of the session that has ended last.
	reason string
}

func (c *scene) violates(format string, args ...any) {
	if c.wrong == "" {
		c.wrong = fmt.Sprintf(format, args...)
	}
}

// Break marks that a fault has happened.
func (c *scene) Break() {}

// Settle does what happens at once after each move.
func (c *scene) Settle() (to *state, wrong string) {
	c.settle()
	return &c.state, c.wrong
}

// writeFence changes the NodeFence at the API server. One that is terminating goes with its finalizer, and the objects
// of its agents go with it.
func (c *scene) writeFence(edit func(*fence)) {
	was := c.fence
	edit(&c.fence)
	if c.fence.terminating && !c.fence.finalized {
		c.judgeGone()
		c.fence = fence{}
		c.runs, c.undos = [maxAttempts + 1]run{}, [maxAttempts + 1]run{}
		c.lied = [maxAttempts]bool{}
	}
	if c.fence == was {
		return
	}
	for i := range c.Replicas {
		c.lines[i].session.changed = c.lines[i].session.on
		if !c.Lag {
			c.showFence(i)
		}
	}
}

// showFence has the watch of a replica show the NodeFence as it is.
func (c *scene) showFence(i int) {
	l := &c.lines[i]
	if !l.up || l.fence == c.fence {
		return
	}
	if l.fence.uid != c.fence.uid {
		l.sight, l.timed = sight{}, false
	}
	l.fence = c.fence
	l.woken = l.work()
}

// work reports whether the watches of a replica show something to work on: a NodeFence, or what is left of one.
func (l *line) work() bool { return l.fence.uid != 0 || l.tainted }

// writeNode changes the Node at the API server.
func (c *scene) writeNode(edit func(*node)) {
	was := c.node
	edit(&c.node)
	if c.node == was {
		return
	}
	for i := range c.Replicas {
		l := &c.lines[i]
		l.session.nodeChanged = l.session.on
		if !c.Lag {
			c.showNode(i)
		}
	}
}

// showNode has the watch of a replica show the Node as it is.
func (c *scene) showNode(i int) {
	l := &c.lines[i]
	if !l.up || l.tainted == c.node.tainted {
		return
	}
	l.tainted = c.node.tainted
	l.woken = l.woken || l.work()
}

// settle does what is so after each move: what the judge has to know, and the numbers of what only is the same or not.
func (c *scene) settle() {
	for i := range c.Replicas {
		s := &c.lines[i].session
		s.wasNotReady = s.on && (s.wasNotReady || !c.node.ready || !c.node.there)
	}
	for slot := range c.pods {
		if !c.pods[slot].terminating {
			c.pods[slot].evidence, c.pods[slot].fencedOff = evidence{}, false
		}
	}
	c.judgeVolumes()
	c.renumber(func(f *fence, refer func(*uint8)) { refer(&f.proofAt) }, func(refer func(*uint8)) {
		refer(&c.node.lease)
		for i := range c.lines {
			refer(&c.lines[i].sight.lease)
			refer(&c.lines[i].session.lease)
			refer(&c.lines[i].session.sight.lease)
		}
	})
	c.renumber(func(f *fence, refer func(*uint8)) {
		refer(&f.proofBoot)
		for i := range f.attempts {
			refer(&f.attempts[i].boot)
		}
	}, func(refer func(*uint8)) {
		refer(&c.node.boot)
		refer(&c.node.shown)
		refer(&c.node.lateStatus)
		for slot := range c.pods {
			refer(&c.pods[slot].evidence.boot)
		}
		for i := range c.lines {
			refer(&c.lines[i].session.nodeBoot)
		}
	})
}

// renumber gives names that are only equal or not the numbers of their order, so that there are no more states than
// differ. of refers to the names in a NodeFence, and all to the others.
func (c *scene) renumber(of func(*fence, func(*uint8)), all func(refer func(*uint8))) {
	var names [32]uint8
	next := uint8(1)
	refer := func(n *uint8) {
		if *n == 0 {
			return
		}
		if names[*n] == 0 {
			names[*n], next = next, next+1
		}
		*n = names[*n]
	}
	all(refer)
	of(&c.fence, refer)
	for i := range c.lines {
		of(&c.lines[i].fence, refer)
		of(&c.lines[i].session.fence, refer)
	}
}

// unused returns a version, or a boot ID, that nothing has.
const unused = 31

// first is the state in which a world begins: pods that run on the node.
func (w *World) first(m *machine) state {
	c := scene{World: w, machine: m}
	c.left = w.Budget
	c.node = node{boot: 1, shown: 1, there: true, ready: true, lease: 1}
	for slot := range w.Pods {
		c.pods[slot] = pod{exists: true, attached: true, runs: true, known: true, unwritten: w.cutsOff()}
	}
	for i := range w.Replicas {
		c.lines[i].up = true
	}
	c.settle()
	return c.state
}
