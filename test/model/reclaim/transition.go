package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
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

// who is the author of a write.
type who uint8

const (
	aUser who = iota
	aController
	thePeer
	theSidecar
)

// Break records that a fault has happened.
func (c *transition) Break() { c.faulted = true }

// replica opens what a replica knows.
func (c *transition) replica(i int) *replica { return c.opened.Open(c.machine, &c.knows, i) }

// Settle puts what the opened replicas know back into the state, and returns the promise that the move broke.
func (c *transition) Settle() (to *state, wrong string) {
	c.close()
	return &c.state, c.Wrong
}

func (c *transition) close() {
	c.checkReports()
	c.opened.Close(c.machine, &c.knows, 64)
}

// room reports whether the watches can fall behind by one change more.
func (s *state) room(w *World) bool {
	for i := range w.Replicas {
		if l := &s.lines[i]; w.Lag > 0 && l.up && max(l.changes.Len(), l.attachments.Len(), l.claims.Len()) >= w.Lag {
			return false
		}
	}
	return true
}

// write changes a PV at the API server. A PV that is terminating goes with its last finalizer.
func (c *transition) write(by who, slot int, edit func(*pv)) {
	before := c.pvs[slot]
	after := before
	edit(&after)
	if after == before {
		return
	}
	c.versions[slot]++
	after.version = c.versions[slot]
	if after.is(terminating) && !after.finalized() {
		before.version = after.version
		c.pvs[slot] = pv{}
		c.departed(by, slot, before)
		c.tell(change{before, uint8(slot), true})
		return
	}
	c.pvs[slot] = after
	c.tell(change{after, uint8(slot), false})
}

// written returns a write of a PV.
func written(by who, slot int, edit func(*pv)) func(*transition) {
	return func(n *transition) { n.write(by, slot, edit) }
}

// remove asks the API server for a PV's deletion.
func (c *transition) remove(by who, slot int) {
	p := c.pvs[slot]
	if p.finalized() {
		c.write(by, slot, func(p *pv) { p.set(terminating) })
		return
	}
	c.versions[slot]++
	p.version = c.versions[slot]
	c.pvs[slot] = pv{}
	c.departed(by, slot, p)
	c.tell(change{p, uint8(slot), true})
}

// tell has the watches of all replicas know of a change, now or later.
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

// show has a replica see a change.
func (c *transition) show(i int, what change) {
	slot := int(what.slot)
	api := c.toAPI(slot, what.pv)
	if what.gone {
		c.replica(i).removePV(slot, &api)
	} else {
		c.replica(i).showPV(slot, api)
	}
}

// attach makes or takes away the VolumeAttachment of a PV.
func (c *transition) attach(slot int, on bool) {
	c.attachments[slot] = on
	for i := range c.Replicas {
		l := &c.lines[i]
		if !on {
			l.proof[slot].attachedBefore = false
		}
		what := attachmentChange{uint8(slot), on}
		switch {
		case !l.up:
		case c.Lag == 0:
			c.showAttachment(i, what)
		default:
			l.attachments.Add(what)
		}
	}
}

func (c *transition) showAttachment(i int, what attachmentChange) {
	c.replica(i).showAttachment(int(what.slot), what.came)
}

// setClaim creates, changes or deletes the claim of a PV.
func (c *transition) setClaim(slot int, now claim) {
	what := claimChange{now, uint8(slot), now.gen == 0}
	if what.gone {
		what.claim = c.claims[slot]
	}
	c.claims[slot] = now
	for i := range c.Replicas {
		l := &c.lines[i]
		switch {
		case !l.up || !c.WatchClaims:
		case c.Lag == 0:
			c.showClaim(i, what)
		default:
			l.claims.Add(what)
		}
	}
}

// showClaim has a replica see a change of a claim. One that names no PV concerns none.
func (c *transition) showClaim(i int, what claimChange) {
	slot := int(what.slot)
	if what.claim.bound {
		c.lines[i].ends[slot] = what.gone
	}
	switch {
	case !what.claim.bound:
	case what.gone:
		c.replica(i).endClaim(slot, claimUID(c.PVs[slot], what.claim.gen))
	default:
		c.replica(i).engine.ClaimShown(c.PVs[slot].Name)
	}
}

// start has a replica begin with lists of what the API server has. What was done before, it
// cannot know.
func (c *transition) start(i int) {
	c.lines[i] = line{up: true}
	r := c.machine.fresh()
	c.opened[i] = r
	for slot := range c.PVs {
		if p := c.pvs[slot]; p.exists() {
			r.showPV(slot, c.toAPI(slot, p))
		}
		if c.attachments[slot] {
			r.showAttachment(slot, true)
		}
		if c.WatchClaims && c.claims[slot].bound {
			r.engine.ClaimShown(c.PVs[slot].Name)
		}
	}
}

// first is the state in which a world begins.
func (w *World) first(m *machine) state {
	c := transition{World: w, machine: m}
	c.left = w.Budget
	for slot, def := range w.PVs {
		c.volumes[w.volume(slot)] = true
		if def.Late {
			continue
		}
		p := pv{gen: 1, version: 1, policy: def.Policy, phase: volume.PhaseBound, claim: 1, flags: protected}
		switch {
		case def.Unprotected:
		case w.Role == volume.RoleCompanion:
			p.set(companions)
		default:
			p.set(ours)
		}
		c.pvs[slot], c.gens[slot], c.versions[slot] = p, 1, 1
		c.claims[slot] = claim{1, true}
		c.cached[slot] = c.claims[slot]
	}
	for i := range w.Replicas {
		c.start(i)
	}
	c.replica(0).engine.Lead(true)
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
	k := &worker{World: w, machine: w.newMachine()}
	k.Plain = search.Plain[state, move, *transition]{
		Begins: func() state { return w.first(k.machine) },
		Copy:   func(s *state) *transition { return &transition{World: w, machine: k.machine, state: *s} },
		Offer:  k.moves, Rests: k.rests, Describe: w.describe, Write: encode, Read: decode,
	}
	return k
}

func (w *World) newMachine() *machine {
	names := make([]string, 0, maxPVs)
	for _, def := range w.PVs {
		names = append(names, def.Name)
	}
	return newMachine(reclaim.Rules{Driver: driver, Role: w.Role, ReclaimUnprotected: true}, names, w.vocabulary())
}

// look returns what a replica knows, to look at only.
func (k *worker) look(s *state, i int) *replica { return k.looked.Open(k.machine, &s.knows, i) }

// rests returns the broken promise if nothing is under way any more, empty for none. A state in which a try is repeated
// by the clock is not at rest unless all is as it should be.
func (k *worker) rests(s *state) (wrong string, rests bool) {
	if !k.idle(s) {
		return "", false
	}
	wrong = k.unsettled(s)
	return wrong, wrong == "" || !k.comesBack(s)
}

// moves makes every move that is possible in a state.
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
		k.sidecar(s, i)
	}
	k.arrivesLate(s)
}

func encode(b []byte, s *state) []byte { return memory.Encode(b, &s.world, &s.knows) }

func decode(b []byte) (s state) {
	s.knows = memory.Decode(b, &s.world)
	return s
}
