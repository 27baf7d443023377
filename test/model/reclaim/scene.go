package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/search"
)

// scene is a state that a move is changing.
type scene struct {
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
func (c *scene) Break() { c.faulted = true }

// replica opens what a replica knows.
func (c *scene) replica(i int) *replica { return c.opened.Open(c.machine, &c.knows, i) }

// Settle puts what the opened replicas know back into the state, and returns the promise that the move broke.
func (c *scene) Settle() (to *state, wrong string) {
	c.close()
	return &c.state, c.Wrong
}

func (c *scene) close() {
	c.judgeReports()
	c.opened.Close(c.machine, &c.knows, 64)
}

// room reports whether the watches can fall behind by one change more.
func (s *state) room(w *World) bool {
	for i := range w.Replicas {
		if l := &s.lines[i]; w.Lag > 0 && l.up && max(int(l.nChanges), int(l.nAttachments), int(l.nClaims)) >= w.Lag {
			return false
		}
	}
	return true
}

// write changes a PV at the API server. A PV that is terminating goes with its last finalizer.
func (c *scene) write(by who, slot int, edit func(*pv)) {
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

// remove asks the API server for a PV's deletion.
func (c *scene) remove(by who, slot int) {
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
func (c *scene) tell(what change) {
	for i := range c.Replicas {
		l := &c.lines[i]
		switch {
		case !l.up:
		case c.Lag == 0:
			c.show(i, what)
		default:
			l.changes[l.nChanges] = what
			l.nChanges++
		}
	}
}

// show has a replica see a change.
func (c *scene) show(i int, what change) {
	slot := int(what.slot)
	api := c.toAPI(slot, what.pv)
	if what.gone {
		c.replica(i).RemovePV(slot, &api)
		return
	}
	c.replica(i).ShowPV(slot, &api)
}

// attach makes or takes away the VolumeAttachment of a PV.
func (c *scene) attach(slot int, on bool) {
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
			l.attachments[l.nAttachments] = what
			l.nAttachments++
		}
	}
}

func (c *scene) showAttachment(i int, what attachmentChange) {
	c.replica(i).ShowAttachment(int(what.slot), what.came)
}

// setClaim creates, changes or deletes the claim of a PV.
func (c *scene) setClaim(slot int, now claim) {
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
			l.claims[l.nClaims] = what
			l.nClaims++
		}
	}
}

// showClaim has a replica see a change of a claim. One that names no PV concerns none.
func (c *scene) showClaim(i int, what claimChange) {
	slot := int(what.slot)
	if what.claim.bound {
		c.lines[i].ends[slot] = what.gone
	}
	switch {
	case !what.claim.bound:
	case what.gone:
		c.replica(i).EndClaim(slot, claimUID(c.PVs[slot], what.claim.gen))
	default:
		c.replica(i).ShowClaim(slot)
	}
}

// start has a replica begin with lists of what the API server has. What was done before, it
// cannot know.
func (c *scene) start(i int) {
	c.lines[i] = line{up: true}
	r := c.machine.Fresh()
	c.opened[i] = r
	for slot := range c.PVs {
		if p := c.pvs[slot]; p.exists() {
			api := c.toAPI(slot, p)
			r.ShowPV(slot, &api)
		}
		if c.attachments[slot] {
			r.ShowAttachment(slot, true)
		}
		if c.WatchClaims && c.claims[slot].bound {
			r.ShowClaim(slot)
		}
	}
}

// first is the state in which a world begins.
func (w *World) first(m *machine) state {
	c := scene{World: w, machine: m}
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
	c.replica(0).Lead()
	c.close()
	return c.state
}
