package statefulset

import (
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// transition is a copy of a state, under change by a move.
type transition struct {
	*World
	machine *machine
	state
	// atRest reports that the state before the move was at rest.
	atRest bool
	search.Verdict
}

func (c *transition) createPod(slot, n int) {
	name := c.name(slot)
	c.podUIDs[name][n]++
	c.pods[name][n] = pod{uid: c.podUIDs[name][n], owner: uint8(slot + 1)}
}

// deletePod deletes a pod gracefully. A pod without a node is gone at once.
func (c *transition) deletePod(name, n int) {
	if p := &c.pods[name][n]; p.bound {
		p.terminating = true
	} else {
		*p = pod{}
	}
}

func (c *transition) createClaim(n int) {
	c.claimUIDs[n]++
	c.claims[n] = claim{uid: c.claimUIDs[n]}
	c.history[n] = history{}
}

// removeClaim removes a claim, and leaves a backup if users restore claims.
func (c *transition) removeClaim(n int) {
	if was := c.claims[n]; c.left.Restore > 0 {
		c.backups[n] = backup{there: true, hold: was.hold, mark: was.mark}
	}
	c.claims[n] = claim{}
}

// restoreClaim applies a claim from a backup, or from the output of kubectl get. Its annotations come back, but not its
// owners and its UID. An existing claim of the name gets the annotations.
func (c *transition) restoreClaim(n int) {
	if c.claims[n].uid == 0 {
		c.createClaim(n)
	}
	at, was := &c.claims[n], c.backups[n]
	at.hold, at.mark = at.hold || was.hold, was.mark
	c.history[n].mustScale, c.history[n].mustDelete = [maxSets]bool{}, [maxSets]bool{}
}

// createSet creates the set with this number.
func (c *transition) createSet(slot int) {
	s := set{exists: true, start: c.Start, replicas: c.Size}
	switch {
	case c.gate && c.Policy == none:
		s.field = retain
	case c.gate:
		s.field = c.Policy
	default:
		s.annotation = c.Policy
	}
	if c.Both {
		s.annotation = both
	}
	c.sets[slot], c.ends[slot] = s, end{}
}

// removeSet removes a set that waits for no dependents.
func (c *transition) removeSet(slot int, how cascade) {
	c.ends[slot].how, c.ends[slot].says = how, c.sets[slot].says()
	c.sets[slot] = set{}
}

// Settle makes the changes that follow a move at once, and returns the promise that the move broke.
func (c *transition) Settle() (to *state, wrong string) {
	c.settle()
	if !c.Counts {
		c.number()
	}
	return &c.state, c.Wrong
}

// settle follows each move: watches without a lag deliver the state, and the invariants get their records.
func (c *transition) settle() {
	c.notes()
	if !c.ManagerLag {
		c.watchesOfManager(func(show func()) { show() })
	}
	if c.Lag {
		return
	}
	for i := range c.Replicas {
		if c.lines[i].up {
			c.watches(i, func(show func()) { show() })
		}
	}
}

// notes records the facts that the promises depend on.
func (c *transition) notes() {
	for n := range c.Ordinals {
		h := &c.history[n]
		if c.claims[n].uid == 0 {
			*h = history{}
			continue
		}
		for slot, s := range c.sets {
			if !s.exists {
				continue
			}
			says := s.says()
			h.mustScale[slot] = h.mustScale[slot] && says.scaled()
			h.mustDelete[slot] = h.mustDelete[slot] && says.deleted() && !c.claims[n].hold
			has := c.hasPod(n, slot)
			h.had[slot] = h.had[slot] || has
			h.scaled[slot] = h.scaled[slot] || has && says.scaled()
			h.deleted[slot] = h.deleted[slot] || h.had[slot] && says.deleted()
		}
	}
}

// hasPod reports whether a pod of a set and an ordinal exists, or volume-guard has not seen its end yet.
func (c *transition) hasPod(n, slot int) bool {
	name, owner := c.name(slot), uint8(slot+1)
	has := c.pods[name][n].owner == owner
	for i := range c.Replicas {
		l := &c.lines[i]
		s := &l.sessions[n]
		has = has || l.seen.pods[name][n].owner == owner || s.on && int(s.name) == name && s.pod.owner == owner
	}
	return has
}

// rests records the state at rest, before a user changes it. Everything that a set says at that time has had its
// effect.
func (c *transition) rests() {
	c.atRest = true
	for n := range c.Ordinals {
		h := &c.history[n]
		h.held = c.claims[n].hold
		for slot, s := range c.sets {
			if !s.exists || c.claims[n].uid == 0 || c.shared(&c.objects) {
				continue
			}
			p := c.pods[c.name(slot)][n]
			has := p.uid > 0 && int(p.owner) == slot+1 && !p.terminating
			says := s.says()
			h.mustScale[slot] = has && says.scaled() || h.mustScale[slot]
			h.mustDelete[slot] = has && says.deleted() && !h.held || h.mustDelete[slot]
			h.scaled[slot] = h.scaled[slot] && says.scaled()
			h.deleted[slot] = h.deleted[slot] && says.deleted()
		}
	}
}

// first returns the initial state of a world: a set with all its pods.
func (w *World) first(m *machine) state {
	c := transition{World: w, machine: m}
	c.left, c.gate, c.managerGate = w.Budget, w.Gate, w.Gate || w.Skew
	for slot := range w.names() {
		c.createSet(slot)
		for n := range c.Ordinals {
			if c.claims[n].uid == 0 && (c.sets[slot].inRange(n) || w.Unused) {
				c.createClaim(n)
				c.claims[n].foreign = w.Foreign
			}
			if c.sets[slot].inRange(n) && !w.Unborn {
				c.createPod(slot, n)
				c.pods[c.name(slot)][n].bound, c.pods[c.name(slot)][n].ready = true, true
			}
		}
	}
	c.managerStarts()
	for i := range w.Replicas {
		c.start(i)
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
	// atRest means that the state whose moves are offered is at rest. It is false for the moves of the cluster.
	atRest bool
}

func newWorker(w *World) *worker {
	k := &worker{World: w, machine: newMachine(w)}
	k.Plain = search.Plain[state, move, *transition]{
		Begins: k.begins, Copy: k.copied, Offer: k.moves, Describe: w.describe,
		Rests: func(s *state) (wrong string, rests bool) {
			if !k.atRest {
				return "", false
			}
			return k.unsettled(s), true
		},
	}
	return k
}

// transition returns a copy of a state for a change.
func (k *worker) transition(s *state) *transition {
	return &transition{World: k.World, machine: k.machine, state: *s}
}

// copied returns a copy of a state for a move, with notes for the invariants if it is at rest.
func (k *worker) copied(s *state) *transition {
	c := k.transition(s)
	if k.atRest {
		c.rests()
	}
	return c
}

// begins returns the initial state of the world, which in a settled world is at rest.
func (k *worker) begins() state {
	s := k.first(k.machine)
	for goesOn := k.Settled; goesOn; {
		goesOn = false
		for o := range k.List(&s) {
			if o.Step && *o.To != s {
				s, goesOn = *o.To, true
				break
			}
		}
	}
	return s
}

// moves makes every possible move of a state. People come last, because the state at rest before their moves counts.
func (k *worker) moves(s *state) {
	k.atRest = false
	k.Cluster(func() {
		k.cluster(s)
		k.managing(s)
		k.lateCalls(s)
		for i := range k.Replicas {
			k.guard(s, i)
		}
	})
	k.atRest = !k.Busy && k.idle(s)
	k.people(s)
}
