package reclaim

import (
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// users are the moves of people, each as often as the budget says.
func (k *worker) users(s *state) {
	for slot := range k.PVs {
		p := s.pvs[slot]
		k.User(p.exists() && !p.is(terminating), &s.left.DeletePV, move{userDeletesPV, 0, slot},
			func(n *transition) { n.remove(aUser, slot) })
		k.usersOfClaim(s, slot)
		k.usersOfPV(s, slot)
	}
}

// usersOfClaim are the moves about the claim of a PV.
func (k *worker) usersOfClaim(s *state, slot int) {
	p, c := s.pvs[slot], s.claims[slot]
	k.User(c.gen != 0, &s.left.DeleteClaim, move{userDeletesClaim, 0, slot},
		func(n *transition) { n.setClaim(slot, claim{}) })
	k.User(c.gen == 0 && s.lastClaim(slot) < 3, &s.left.RecreateClaim, move{userRecreatesClaim, 0, slot},
		func(n *transition) { n.setClaim(slot, claim{gen: s.lastClaim(slot) + 1}) })
	k.User(c.gen == 0 && s.lastClaim(slot) < 3, &s.left.RestoreClaim, move{userRestoresClaim, 0, slot},
		func(n *transition) { n.setClaim(slot, claim{gen: s.lastClaim(slot) + 1, bound: true}) })
	k.User(p.released() && p.claimed() && c.names(p), &s.left.BindAgain, move{userBindsAgain, 0, slot},
		written(aUser, slot, func(p *pv) { p.claim = claimRef(c.gen) }))
}

// usersOfPV are the moves about a PV that is there, and the creation of one that is not.
func (k *worker) usersOfPV(s *state, slot int) {
	p, c := s.pvs[slot], s.claims[slot]
	k.User(p.exists(), &s.left.Flip, move{userTurnsPolicy, 0, slot}, func(n *transition) {
		n.write(aUser, slot, func(p *pv) {
			if p.policy == volume.PolicyDelete {
				p.policy = volume.PolicyRetain
			} else {
				p.policy = volume.PolicyDelete
			}
		})
	})
	k.User(p.guarded(), &s.left.Strip, move{userStrips, 0, slot}, func(n *transition) {
		n.stripped[slot] = true
		if !p.is(terminating) && p.claimed() && p.policy == volume.PolicyDelete {
			n.strips[slot]++
		}
		n.write(aUser, slot, func(p *pv) { p.clear(ours | companions) })
	})
	k.User(p.claimed() && !p.bound(), &s.left.TakeBack, move{userTakesBack, 0, slot},
		written(aUser, slot, func(p *pv) { p.claim = withoutUID }))
	k.User(!p.exists() && s.gens[slot] < 2, &s.left.CreatePV, move{userCreatesPV, 0, slot},
		func(n *transition) { n.createPV(slot) })
	k.User(p.bound() && c.bound && p.belongs(c.gen) && !s.attachments[slot], &s.left.Attach, move{podAttaches, 0, slot},
		func(n *transition) { n.attach(slot, true) })
	k.User(p.exists(), &s.left.Hold, move{userHolds, 0, slot}, written(aUser, slot, func(p *pv) { p.flags ^= held }))
}

// lastClaim is the highest gen that a claim of this name had, as far as anything knows.
func (s *state) lastClaim(slot int) gen {
	last := max(s.claims[slot].gen, s.cached[slot].gen)
	if p := s.pvs[slot]; p.claimed() {
		last = max(last, gen(p.claim))
	}
	return max(last, 1)
}

// createPV has an administrator bring a volume in, perhaps once more: an unclaimed static PV.
func (c *transition) createPV(slot int) {
	c.gens[slot]++
	c.versions[slot]++
	p := pv{
		gen: c.gens[slot], version: c.versions[slot], policy: volume.PolicyDelete,
		phase: volume.PhaseAvailable, claim: withoutUID, flags: protected,
	}
	c.pvs[slot] = p
	// Whoever brings a volume in answers for it from now on.
	c.owed[c.volume(slot)] = notOwed
	c.stripped[slot], c.strips[slot] = false, 0
	c.tell(change{p, uint8(slot), false})
}
