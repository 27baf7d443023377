package fencepolicy

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// Player returns a Player of the world.
func (w *World) Player() search.Player { return newWorker(w) }

// transition is a copy of a state, under change by a move.
type transition struct {
	*World
	state
	search.Verdict
}

// Settle records facts for the invariants, and returns the promise that the move broke.
func (c *transition) Settle() (to *state, wrong string) {
	c.notice()
	return &c.state, c.Wrong
}

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	search.Plain[state, move, *transition]
	at time.Time
}

func newWorker(w *World) *worker {
	k := &worker{World: w, at: time.Unix(1e9, 0)}
	k.Plain = search.Plain[state, move, *transition]{
		Begins: func() state { return state{left: w.Budget} },
		Copy:   func(s *state) *transition { return &transition{World: w, state: *s} },
		Offer:  k.moves, Describe: w.describe,
		Rests: func(s *state) (wrong string, rests bool) { return k.unsettled(s), !k.Busy },
	}
	return k
}

// moves makes every possible move of a state.
func (k *worker) moves(s *state) {
	for i := range k.Zones {
		k.people(s, i)
		k.Cluster(func() { k.node(s, i) })
	}
	k.Cluster(func() { k.policy(s) })
}

// people makes the moves of people, and of chance.
func (k *worker) people(s *state, i int) {
	n := s.nodes[i]
	k.Breaks(!n.cut, &s.left.Cut, move{nodeIsCutOff, i}, func(c *transition) { c.nodes[i].cut = true })
	k.Breaks(n.cut, &s.left.Heal, move{nodeReturns, i},
		func(c *transition) { c.nodes[i].cut, c.nodes[i].silent, c.nodes[i].long = false, false, false })
	k.User(n.fenced == notFenced, &s.left.Hand, move{nodeIsFencedByHand, i},
		func(c *transition) { c.nodes[i].fenced = byHand })
	k.Breaks(i == 0, &s.left.Crash, move{guardEnds, 0}, func(c *transition) {
		c.session = session{}
		for i := range c.nodes {
			n := &c.nodes[i]
			n.silent, n.long, n.seen, n.seenFenced = false, false, n.unreachable, n.fenced != notFenced
		}
	})
}

// node makes the moves of the cluster with one node. A fence ends when the node has returned.
func (k *worker) node(s *state, i int) {
	n := s.nodes[i]
	k.Can(n.unreachable != n.cut, move{conditionFollows, i}, func(c *transition) { c.nodes[i].unreachable = n.cut })
	k.Can(n.fenced != notFenced && !n.cut, move{fenceEnds, i}, func(c *transition) { c.nodes[i].fenced = notFenced })
	k.Can(n.seen != n.unreachable, move{watchShowsNode, i}, func(c *transition) {
		c.nodes[i].seen = n.unreachable
		if !n.unreachable {
			c.nodes[i].silent, c.nodes[i].long = false, false
		}
	})
	k.Can(n.seenFenced != (n.fenced != notFenced), move{watchShowsFence, i},
		func(c *transition) { c.nodes[i].seenFenced = n.fenced != notFenced })
	k.Can(n.seen && n.cut && !n.silent, move{leaseIsSilent, i}, func(c *transition) { c.nodes[i].silent = true })
	// That time is longer than the lag of watches, and than a session.
	k.Can(n.silent && !n.long && s.session.of == 0 && k.shown(s), move{patienceEnds, i},
		func(c *transition) { c.nodes[i].long = true })
}

// shown reports whether the watches and the conditions are up to date.
func (k *worker) shown(s *state) bool {
	for _, n := range s.nodes {
		if n.seen != n.unreachable || n.unreachable != n.cut || n.seenFenced != (n.fenced != notFenced) {
			return false
		}
	}
	return true
}

// policy makes the moves of the work on the policy.
func (k *worker) policy(s *state) {
	switch now := s.session; {
	case now.of == 0:
		d := fencing.DecidePolicy(k.facts(s, k.at), k.at)
		k.Can(d.Fence != "", move{policyDecides, 0}, func(c *transition) {
			c.session.of = d.Fence[len(d.Fence)-1] - '0' + 1
		})
	case !now.listed:
		k.Can(true, move{fencesAreListed, 0}, func(c *transition) {
			c.session.listed = true
			for i, n := range s.nodes {
				if n.fenced != notFenced {
					c.session.fences |= 1 << i
				}
			}
		})
	case !now.read:
		k.Can(true, move{nodeIsRead, int(now.of) - 1}, func(c *transition) {
			n := s.nodes[now.of-1]
			c.session.read, c.session.unreachable = true, n.unreachable && n.cut // the Lease was not renewed
		})
	default:
		k.Can(true, move{fenceIsCreated, int(now.of) - 1}, func(c *transition) {
			if f := c.facts(&c.state, k.at); fencing.DecidePolicy(f, k.at).Fence == name(int(now.of)-1) {
				c.create(int(now.of) - 1)
			} else {
				c.nodes[now.of-1].silent = c.nodes[now.of-1].silent && now.unreachable
				c.nodes[now.of-1].long = c.nodes[now.of-1].long && now.unreachable
			}
			c.session = session{}
		})
	}
}

// create creates the NodeFence of a node, unless it exists.
func (c *transition) create(i int) {
	if c.nodes[i].fenced != notFenced {
		return
	}
	c.check(i)
	c.nodes[i].fenced = byPolicy
}
