package singlenode

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
)

// people makes the moves of users and administrators, each within the budget.
func (k *worker) people(s *state) {
	for slot := range k.Pods {
		if s.pods[slot].exists {
			k.users(s, slot)
		}
		next := k.Workload == Beside && !s.born[slot] && s.born[slot-1]
		k.User(next, nil, move{userCreatesPod, 0, slot}, func(c *transition) { c.create(slot) })
		n := nodeOf(slot)
		k.User(next, &s.left.Preset, move{userPresetsNode, n, slot}, func(c *transition) {
			c.create(slot)
			c.processes[slot].node = uint8(n + 1)
			c.writePod(slot, func(p *pod) { p.gated, p.queued, p.node = false, false, uint8(n+1) })
			c.forgive(slot)
		})
	}
	for n := range k.Claims {
		k.claimUsers(s, n)
	}
	k.administrators(s)
}

// users makes the moves of users of one pod.
func (k *worker) users(s *state, slot int) {
	p := s.pods[slot]
	k.User(!p.terminating, &s.left.Delete, move{userDeletesPod, 0, slot},
		editPod(slot, func(p *pod) { p.terminating = true }))
	k.User(!p.terminating, &s.left.Foreground, move{userDeletesInForeground, 0, slot},
		editPod(slot, func(p *pod) { p.terminating, p.foreground = true, true }))
	k.User(true, &s.left.Force, move{userForces, 0, slot}, func(c *transition) {
		c.writePod(slot, func(p *pod) {
			p.terminating = true
			if !p.held {
				*p = pod{}
			}
		})
	})
	k.User(!p.confirmed, &s.left.Confirm, move{userConfirms, 0, slot}, editPod(slot, func(p *pod) { p.confirmed = true }))
	k.User(p.gated, &s.left.Ungate, move{userRemovesGate, 0, slot}, func(c *transition) {
		c.writePod(slot, func(p *pod) { p.gated = false })
		c.forgive(slot)
	})
	k.User(p.queued, &s.left.Admit, move{queueAdmits, 0, slot}, editPod(slot, func(p *pod) { p.queued = false }))
}

// claimUsers makes the moves of users of one claim.
func (k *worker) claimUsers(s *state, n int) {
	at := s.claims[n]
	k.User(at.uid > 0 && !at.terminating, &s.left.DeleteClaim, move{userDeletesClaim, 0, n},
		editClaim(n, func(at *claim) { at.terminating = true }))
	again := func(uid uint8) func(*transition) {
		return func(c *transition) {
			c.made++
			c.writeClaim(n, func(at *claim) { *at = claim{uid: uid, bound: !c.Unbound} })
		}
	}
	k.User(at.uid == 0 && !k.Ephemeral, &s.left.Recreate, move{userCreatesClaim, 0, n}, again(firstUID+2*maxClaims+s.made))
	k.User(at.uid == 0 && !k.Ephemeral && k.Claims > 1, &s.left.Recreate, move{userCreatesClaimFirst, 0, n},
		again(firstUID-1-s.made))
	k.User(at.uid > 0 && !at.labelled, &s.left.Label, move{userLabelsClaim, 0, n},
		func(c *transition) { c.beginsToAsk(func() { c.writeClaim(n, func(at *claim) { at.labelled = true }) }) })
	strip := func(edit func(*claim)) func(*transition) {
		return func(c *transition) {
			c.stripped = true
			if holder := int(at.lock) - 1; holder >= 0 && holder < c.Pods && c.relies(holder, n) {
				c.excused[holder] = true
			}
			c.writeClaim(n, edit)
		}
	}
	k.User(at.lock > 0, &s.left.Strip, move{userRemovesLock, 0, n}, strip(func(at *claim) { at.lock = 0 }))
	k.User(at.lock > 0 && at.lock != damaged, &s.left.Strip, move{userDamagesLock, 0, n},
		strip(func(at *claim) { at.lock = damaged }))
	k.User(at.kept, &s.left.Strip, move{userRemovesFinalizer, 0, n}, strip(func(at *claim) { at.kept = false }))
}

// administrators makes the moves of administrators of the namespace.
func (k *worker) administrators(s *state) {
	turn := func(to mode) func(*transition) {
		return func(c *transition) {
			c.beginsToAsk(func() {
				c.mode = to
				if !c.Lag {
					for i := range c.Replicas {
						c.showMode(i)
					}
				}
			})
		}
	}
	k.User(s.mode == singlenode.ModeOff, &s.left.Turn, move{userOptsIn, 0, 0}, turn(singlenode.ModeAll))
	k.User(s.mode != singlenode.ModeOff, &s.left.Turn, move{userOptsOut, 0, 0}, turn(singlenode.ModeOff))
	k.User(!s.removing, &s.left.Remove, move{guardIsUninstalled, 0, 0}, func(c *transition) {
		c.removing, c.mode = true, singlenode.ModeOff
		for i := range c.Replicas {
			c.lines[i] = line{}
		}
	})
}

// beginsToAsk makes a change after which locks may be required. Pods without a gate at that moment can meet.
func (c *transition) beginsToAsk(do func()) {
	do()
	for slot := range c.Pods {
		if c.pods[slot].exists && !c.pods[slot].gated {
			c.forgive(slot)
		}
	}
}

// forgive makes a person answer for a pod that has lost its gate, or never had one, together with pods that have passed
// their list by now. Pods that list later find it.
func (c *transition) forgive(slot int) {
	for other := range c.Pods {
		if other != slot && c.pods[other].exists && (!c.pods[other].gated || c.past(other)) {
			c.forgiven[slot][other], c.forgiven[other][slot] = true, true
		}
	}
}

// past reports whether the gate of a pod may go without another list.
func (c *transition) past(slot int) bool {
	if c.late.on && c.late.action == singlenode.RemoveGate && int(c.late.slot) == slot {
		return true
	}
	for i := range c.Replicas {
		if c.lines[i].work[slot].past {
			return true
		}
	}
	return false
}

// relies reports whether the gate of a pod may go without another read of its lock. A pod that has lost its gate is in
// the list of any other pod.
func (c *transition) relies(slot, n int) bool {
	read := false
	for i := range c.Replicas {
		read = read || c.lines[i].work[slot].on && c.lines[i].work[slot].claimReads[n] > 0
	}
	return c.pods[slot].gated && (read || c.past(slot))
}
