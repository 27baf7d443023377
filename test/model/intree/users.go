package intree

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// users are the moves of people, each as often as the budget says.
func (k *worker) users(s *state) {
	for i := range k.Claims {
		c := s.claims[i]
		k.User(c.there, &s.left.DeleteClaim, move{userDeletesClaim, 0, i},
			func(n *transition) { n.setClaim(i, claim{born: true}) })
		k.User(!c.born && k.named(&s.claims, k.Claims[i]) == 0, &s.left.CreateClaim, move{userCreatesClaim, 0, i},
			func(n *transition) { n.setClaim(i, claim{there: true, born: true}) })
		k.User(!c.born && k.named(&s.claims, k.Claims[i]) == 0, &s.left.RestoreClaim, move{userRestoresClaim, 0, i},
			func(n *transition) { n.restoreClaim(i) })
	}
	for i := range k.PVs {
		if slot := 2 * i; s.pvs[slot].exists() {
			k.rescuers(s, slot)
			k.meddlers(s, slot)
		}
		t := s.pvs[twin(2*i)]
		k.User(t.Claim > 0, &s.left.TakeTwin, move{userTakesBack, 0, twin(2 * i)}, func(n *transition) {
			n.rescue(2 * i)
			n.write(twin(2*i), others, func(p *pv) { p.Claim = 0 })
		})
		k.User(t.exists() && !t.Terminating, &s.left.DeleteTwin, move{userDeletesTwin, 0, twin(2 * i)}, func(n *transition) {
			// its end looks like that of one whose volume is deleted
			n.excused[i] = n.excused[i] || t.deletes() && t.Phase == volume.PhaseReleased
			n.write(twin(2*i), others, func(p *pv) { p.Terminating = true })
		})
	}
	k.User(true, &s.left.Upgrade, move{controllerIsReplaced, 0, 0}, func(n *transition) {
		n.modern = !n.modern
		n.operations = [maxSlots]operation{}
	})
}

// restoreClaim has a claim come back from a backup, with another UID: it names the PV of the claim whose name it has.
func (c *transition) restoreClaim(i int) {
	for slot := 0; slot < 2*len(c.PVs); slot += 2 {
		if c.PVs[slot/2].Claim == c.Claims[i] {
			for j := range c.PVs {
				// What another PV of the volume has read of this claim is read once.
				if 2*j != slot && c.disk(2*j) == c.disk(slot) && c.begunFor(2*j) {
					c.tooLate[j] = true
				}
			}
			c.setClaim(i, claim{there: true, born: true, volume: uint8(slot + 1)})
			return
		}
	}
}

// rescuers do something to keep a volume, or take that back.
func (k *worker) rescuers(s *state, slot int) {
	p := s.pvs[slot]
	rescue := func(possible bool, left *uint8, v verb, edit func(*pv)) {
		k.User(possible, left, move{v, 0, slot}, func(n *transition) {
			n.rescue(slot)
			n.write(slot, others, edit)
		})
	}
	rescue(p.deletes(), &s.left.Retain, userTurnsToRetain, func(p *pv) { p.Policy = volume.PolicyRetain })
	rescue(p.Claim > 0 && p.released(), &s.left.TakeBack, userTakesBack, func(p *pv) { p.Claim = 0 })
	rescue(!p.Held, &s.left.Hold, userHolds, func(p *pv) { p.Held = true })
	rescue(p.Writer != intree.WriterNone, &s.left.Strip, userStrips, func(p *pv) { p.Writer = intree.WriterNone })
	rescue(true, &s.left.Migrate, migrationIsSwitched, func(p *pv) { p.Migrated = !p.Migrated })
}

// meddlers do what brings a volume nearer to its end, or leaves it as it is.
func (k *worker) meddlers(s *state, slot int) {
	p := s.pvs[slot]
	k.User(!p.Terminating, &s.left.DeletePV, move{userDeletesPV, 0, slot},
		written(slot, func(p *pv) { p.Terminating = true }))
	k.User(!p.deletes(), &s.left.Delete, move{userTurnsToDelete, 0, slot},
		written(slot, func(p *pv) { p.Policy = volume.PolicyDelete }))
	k.User(p.Held, &s.left.Hold, move{userLetsGo, 0, slot}, written(slot, func(p *pv) { p.Held = false }))
	k.User(!p.Terminating && k.PVs[slot/2].Static, &s.left.Foreign, move{strangerProtects, 0, slot},
		written(slot, func(p *pv) { p.Writer = intree.WriterOther }))
}

// rescue notes whether what is to keep a volume comes after its deletion has begun: what is read before
// a twin is set to Delete is read once.
func (c *transition) rescue(slot int) {
	for i := range c.PVs {
		if c.disk(2*i) == c.disk(slot) && c.begunFor(2*i) {
			c.tooLate[i] = true
		}
	}
}

// forgiveNoMore ends what was too late, once nothing that had begun is left.
func (c *transition) forgiveNoMore() {
	for i := range c.PVs {
		if c.tooLate[i] && !c.begunFor(2*i) {
			c.tooLate[i] = false
		}
	}
}

// begunFor reports whether a volume's deletion has begun, from a PV and its twin: the other PVs of the volume
// were read, the twin is set to Delete or about to be, or the PV controller is at work.
func (c *transition) begunFor(slot int) bool {
	t := c.pvs[twin(slot)]
	if t.exists() && t.TwinOf > 0 && t.deletes() || c.operations[slot] != noOperation ||
		c.operations[twin(slot)] != noOperation ||
		c.late.on && c.arms(c.late.ask, slot) {
		return true
	}
	for i := range c.Replicas {
		if !c.lines[i].up {
			continue
		}
		if c.lines[i].proofs[slot].others {
			return true
		}
		if r := c.replica(i); r.busy[slot] {
			if ask := r.asks(slot); c.arms(ask, slot) {
				return true
			}
		}
	}
	return false
}

func (*transition) arms(ask ask, slot int) bool {
	return ask.Action == intree.SetTwinDelete && int(ask.Slot) == twin(slot)
}
