package statefulset

import "fmt"

// scene is a state that a move is changing.
type scene struct {
	*World
	machine *machine
	state
	// atRest: the state before the move was at rest.
	atRest bool
	// wrong is the promise that the move broke, in words.
	wrong string
}

func (c *scene) violates(format string, args ...any) {
	if c.wrong == "" {
		c.wrong = fmt.Sprintf(format, args...)
	}
}

// Break marks that a fault has happened.
func (c *scene) Break() {}

// createPod creates a pod of a set.
func (c *scene) createPod(slot, n int) {
	name := c.name(slot)
	c.podUIDs[name][n]++
	c.pods[name][n] = pod{uid: c.podUIDs[name][n], owner: uint8(slot + 1)}
}

// deletePod deletes a pod gracefully: one without a node is gone at once.
func (c *scene) deletePod(name, n int) {
	if p := &c.pods[name][n]; p.bound {
		p.terminating = true
	} else {
		*p = pod{}
	}
}

// createClaim creates a claim of an ordinal.
func (c *scene) createClaim(n int) {
	c.claimUIDs[n]++
	c.claims[n] = claim{uid: c.claimUIDs[n]}
	c.history[n] = history{}
}

// removeClaim ends a claim, of which a backup is left where users restore them.
func (c *scene) removeClaim(n int) {
	if was := c.claims[n]; c.left.Restore > 0 {
		c.backups[n] = backup{there: true, hold: was.hold, mark: was.mark}
	}
	c.claims[n] = claim{}
}

// restoreClaim applies a claim as a backup has it, or what kubectl get has shown: the annotations come back, and the
// owners and the UID do not. A claim of the name that is there gets the annotations.
func (c *scene) restoreClaim(n int) {
	if c.claims[n].uid == 0 {
		c.createClaim(n)
	}
	at, was := &c.claims[n], c.backups[n]
	at.hold, at.mark = at.hold || was.hold, was.mark
	c.history[n].mustScale, c.history[n].mustDelete = [maxSets]bool{}, [maxSets]bool{}
}

// createSet creates a set from the number of the set on.
func (c *scene) createSet(slot int) {
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

// removeSet ends a set that has no dependents that it waits for.
func (c *scene) removeSet(slot int, how cascade) {
	c.ends[slot].how, c.ends[slot].says = how, c.sets[slot].says()
	c.sets[slot] = set{}
}

// settle does what happens at once after each move: watches that do not lag show what is, and the judge takes notes.
func (c *scene) settle() {
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

// notes keeps what the promises depend on.
func (c *scene) notes() {
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

// hasPod reports whether there is a pod of a set and an ordinal, or volume-guard has not seen yet that it is gone.
func (c *scene) hasPod(n, slot int) bool {
	name, owner := c.name(slot), uint8(slot+1)
	has := c.pods[name][n].owner == owner
	for i := range c.Replicas {
		l := &c.lines[i]
		s := &l.sessions[n]
		has = has || l.seen.pods[name][n].owner == owner || s.on && int(s.name) == name && s.pod.owner == owner
	}
	return has
}

// rests keeps what was so when all was at rest, before somebody changes it: what a set says then has had its effect.
func (c *scene) rests() {
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

// first is the state in which a world begins: a set with all its pods.
func (w *World) first(m *machine) state {
	c := scene{World: w, machine: m}
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
