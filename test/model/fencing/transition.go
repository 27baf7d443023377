package fencing

import (
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// transition is a copy of a state, under change by a move.
type transition struct {
	*World
	machine *machine
	state
	search.Verdict
	// reason is the reason of the last session that has ended.
	reason string
}

// Settle makes the changes that follow a move at once, and returns the promise that the move broke.
func (c *transition) Settle() (to *state, wrong string) {
	c.settle()
	return &c.state, c.Wrong
}

// writeFence changes the NodeFence at the API server. A terminating NodeFence goes with its finalizer, together with
// the objects of its agents.
func (c *transition) writeFence(edit func(*fence)) {
	was := c.fence
	edit(&c.fence)
	if c.fence.terminating && !c.fence.finalized {
		c.checkGone()
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

// showFence delivers the state of the NodeFence to the watch of a replica.
func (c *transition) showFence(i int) {
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

// work reports whether the watches of a replica show work: a NodeFence, or the taint of a former one.
func (l *line) work() bool { return l.fence.uid != 0 || l.marked }

// writeNode changes the Node at the API server.
func (c *transition) writeNode(edit func(*node)) {
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

// showNode delivers the state of the Node to the watch of a replica.
func (c *transition) showNode(i int) {
	l := &c.lines[i]
	if !l.up || l.marked == c.node.marked() {
		return
	}
	l.marked = c.node.marked()
	l.woken = l.woken || l.work()
}

// settle updates the facts for the invariants after each move, and renumbers names of which only the identity matters.
func (c *transition) settle() {
	for i := range c.Replicas {
		s := &c.lines[i].session
		s.wasAway = s.on && (s.wasAway || c.node.away())
	}
	for slot := range c.pods {
		if !c.pods[slot].terminating {
			c.pods[slot].evidence, c.pods[slot].fencedOff = evidence{}, false
		}
	}
	c.checkVolumes()
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
			refer(&c.lines[i].session.basis.boot)
		}
	})
}

// renumber gives names of which only the identity matters the numbers of their order, so that equivalent states are
// equal. of visits the names in a NodeFence, and all the other names.
func (c *transition) renumber(of func(*fence, func(*uint8)), all func(refer func(*uint8))) {
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

// unused is a version, or a boot ID, of no object.
const unused = 31

// first returns the initial state of a world, with pods that run on the node.
func (w *World) first(m *machine) state {
	c := transition{World: w, machine: m}
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

// Player returns a Player of the world.
func (w *World) Player() search.Player { return newWorker(w) }

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	search.Plain[state, move, *transition]
	machine *machine
}

func newWorker(w *World) *worker {
	k := &worker{World: w, machine: newMachine(w)}
	k.Plain = search.Plain[state, move, *transition]{
		Begins: func() state { return w.first(k.machine) },
		Copy:   func(s *state) *transition { return &transition{World: w, machine: k.machine, state: *s} },
		Offer:  k.moves, Rests: k.rests, Describe: w.describe,
	}
	return k
}

// moves makes every possible move of a state.
func (k *worker) moves(s *state) {
	k.people(s)
	k.always(s)
	k.Cluster(func() {
		k.nodes(s)
		k.kubelets(s)
		k.agents(s)
		for i := range k.Replicas {
			k.guard(s, i)
		}
	})
}

// rests returns the broken promise when no component of the cluster can act, empty for none. The state is not at rest
// while volume-guard has work, or would have work after a pause.
func (k *worker) rests(s *state) (wrong string, rests bool) {
	if k.Busy || !k.idle(s) {
		return "", false
	}
	reason, rests := k.polled(s)
	if !rests {
		return "", false
	}
	return k.unsettled(s, reason), true
}
