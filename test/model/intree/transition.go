package intree

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// transition is a state that a move is changing.
type transition struct {
	*World
	machine *machine
	state
	// opened are the replicas that the move looked into or changed.
	opened memory.Opened[*replica]
	search.Verdict
}

// Break records that a fault has happened.
func (c *transition) Break() { c.faulted = true }

// replica opens what a replica knows.
func (c *transition) replica(i int) *replica { return c.opened.Open(c.machine, &c.knows, i) }

// Settle puts what the opened replicas know back into the state, and returns the promise that the move broke.
func (c *transition) Settle() (to *state, wrong string) {
	c.forgiveNoMore()
	c.close()
	return &c.state, c.Wrong
}

func (c *transition) close() { c.opened.Close(c.machine, &c.knows, 48) }

// room reports whether the watches can fall behind by one change more.
func (s *state) room(w *World) bool {
	for i := range w.Replicas {
		if l := &s.lines[i]; w.Lag > 0 && l.up && l.changes.Len() >= w.Lag {
			return false
		}
	}
	return true
}

// who is the author of a write.
type who bool

const (
	us     who = true
	others who = false
)

// write changes a PV at the API server. One that is terminating goes with its last finalizer.
func (c *transition) write(slot int, by who, edit func(now *pv)) {
	was := c.pvs[slot]
	now := was
	edit(&now)
	c.versions[slot]++
	now.Version = c.versions[slot]
	if by == others && now.unheld() && !was.unheld() && !isTwin(slot) {
		c.excused[slot/2] = true
	}
	gone := now.Terminating && !now.inUse && !now.held()
	if c.pvs[slot] = now; gone {
		c.pvs[slot] = pv{}
		c.checkEnd(slot, now)
	}
	c.tell(change{uint8(slot), gone, now.view})
}

// create makes a PV at the API server.
func (c *transition) create(slot int, now pv) {
	c.versions[slot]++
	c.uids[slot]++
	now.Version, now.UID, now.inUse = c.versions[slot], c.uids[slot], true
	c.pvs[slot] = now
	c.tell(change{uint8(slot), false, now.view})
}

func (c *transition) tell(what change) {
	for i := range c.Replicas {
		l := &c.lines[i]
		switch {
		case !l.up:
		case c.Lag == 0:
			c.show(i, what)
		default:
			l.changes.Add(what)
		}
	}
}

func (c *transition) show(i int, what change) {
	if what.gone {
		c.replica(i).lose(int(what.slot), what.now)
		return
	}
	c.replica(i).see(int(what.slot), what.now)
}

// setClaim changes a claim at the API server. Where its cache does not lag the PV controller knows.
func (c *transition) setClaim(i int, now claim) {
	c.claims[i] = now
	if c.left.Stale == 0 {
		c.seen = c.claims
	}
}

// start has a replica begin with a list of what the API server has. What was done before, it cannot
// know.
func (c *transition) start(i int) {
	c.lines[i] = line{up: true}
	r := c.machine.fresh()
	c.opened[i] = r
	for slot := range 2 * len(c.PVs) {
		r.reached[slot] = c.versions[slot]
		if c.pvs[slot].exists() {
			r.see(slot, c.pvs[slot].view)
		}
	}
}

// first is the state in which a world begins: each PV is bound to a claim of its own, and protected.
func (w *World) first(m *machine) state {
	c := transition{World: w, machine: m}
	c.left, c.modern, c.attached = w.Budget, w.Modern, w.Attached
	for i, spec := range w.PVs {
		p := pv{view: view{Policy: volume.PolicyDelete, Phase: volume.PhaseBound, Claim: uint8(i + 1),
			Writer: intree.WriterNone}}
		switch {
		case spec.Static || w.Unprotected:
		case w.Modern:
			p.Writer = intree.WriterOther
		default:
			p.Writer = intree.WriterSelf
		}
		c.create(2*i, p)
		c.claims[i] = claim{there: true, born: true, volume: uint8(2*i + 1)}
		c.disks[spec.Disk] = true
	}
	c.seen = c.claims
	for i := range w.Replicas {
		c.start(i)
	}
	c.replica(0).lead()
	c.close()
	return c.state
}

// Player returns a Player of the world.
func (w *World) Player() search.Player { return newWorker(w) }

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	search.Plain[state, move, *transition]
	machine *machine
	looked  memory.Opened[*replica]
}

func newWorker(w *World) *worker {
	k := &worker{World: w, machine: newMachine(w.PVs, w.Claims)}
	k.Plain = search.Plain[state, move, *transition]{
		Begins: func() state { return w.first(k.machine) },
		Copy:   func(s *state) *transition { return &transition{World: w, machine: k.machine, state: *s} },
		Offer:  k.moves, Rests: k.rests, Describe: w.describe, Write: encode, Read: decode,
	}
	return k
}

// look returns what a replica knows, to look at only.
func (k *worker) look(s *state, i int) *replica { return k.looked.Open(k.machine, &s.knows, i) }

// moves makes every possible move of a state.
func (k *worker) moves(s *state) {
	k.looked.Release(k.machine)
	room := s.room(k.World)
	if room {
		k.users(s)
	}
	k.Busy = !room
	if room {
		k.Cluster(func() { k.cluster(s) })
	}
	for i := range k.Replicas {
		k.guard(s, i)
	}
	k.arrivesLate(s)
}

// rests returns the broken promise when volume-guard has nothing under way, empty for none. Some promises also hold
// while the cluster can act. A state in which a try is repeated by the clock is not at rest unless all is as it should
// be.
func (k *worker) rests(s *state) (wrong string, rests bool) {
	if !k.idle(s) {
		return "", false
	}
	if wrong = k.unsettled(s); wrong == "" {
		return "", !k.Busy
	}
	return wrong, !k.comesBack(s)
}
