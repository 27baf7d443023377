package intree

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
)

// mayGo reports whether a PV says that its volume is to be deleted, and that by way of a twin.
func mayGo(p pv) bool {
	return p.exists() && p.Terminating && p.deletes() && p.released() && p.Claim > 0 && !p.Held && !p.Migrated &&
		(p.Writer == intree.WriterSelf || p.Writer == intree.WriterNone && p.External)
}

// checkTwin checks a call that is about to be sent and creates a twin or sets its policy to Delete.
func (c *transition) checkTwin(i, slot int, ask ask) {
	p := c.lines[i].proofs[slot]
	if !p.claim || !p.detached || !p.pv {
		c.Violates("P2: %v is sent for PV %s although no reads that still count showed that its claim is gone (%v), it is "+
			"not attached (%v), and last that its volume may go (%v)",
			ask.Action, c.say(slot), p.claim, p.detached, p.pv)
	}
	for other := 0; other < 2*len(c.PVs); other += 2 {
		if o := c.pvs[other]; other != original(slot) && c.disk(other) == c.disk(slot) && o.exists() && o.Claim > 0 &&
			!p.sibling {
			c.Violates("P2: %v is sent for PV %s although no read that still counts showed that the claim of PV %s is gone",
				ask.Action, c.say(slot), c.say(other))
		}
	}
	if ask.New.Policy == volume.PolicyDelete {
		c.Violates("P2: the twin of PV %s is made so that nothing has to be read again", c.say(slot))
	}
}

// checkWrite checks what the API server is about to carry out for volume-guard.
func (c *transition) checkWrite(ask ask) {
	slot := int(ask.Slot)
	now, other := c.pvs[slot], c.pvs[twin(slot)]
	switch {
	case ask.Action == intree.SetTwinDelete && now.Phase != volume.PhaseReleased:
		c.Violates("P2: PV %s is set to Delete, and the PV controller has not seen that its claim is gone", c.say(slot))
	case ask.Action == intree.DeleteTwin && now.deletes():
		c.Violates("P1: PV %s is deleted while it is set to Delete, and its end will be taken for that of its volume",
			c.say(slot))
	case ask.Action == intree.DeleteTwin && now.Phase == volume.PhaseBound:
		c.Violates("P2: PV %s is deleted, which a claim has", c.say(slot))
	case ask.Action == intree.RemoveFinalizer && now.Policy == volume.PolicyRetain && other.exists() &&
		other.TwinOf == now.UID && other.deletes() && !other.Terminating:
		c.Violates("P2: PV %s loses its finalizer to keep its volume, and its twin is set to Delete", c.say(slot))
	}
}

// checkDeletion checks a deletion by the plugin. What is deleted by way of a PV itself is the PV
// controller's own doing. What came when a deletion had begun is too late.
func (c *transition) checkDeletion(slot int) {
	if !isTwin(slot) || c.pvs[slot].TwinOf == 0 || !c.disks[c.disk(slot)] || c.tooLate[slot/2] {
		return
	}
	if c.attached {
		c.Violates("P2: the volume of PV %s is deleted, which is attached", c.say(slot))
	}
	for i := range c.PVs {
		other := 2 * i
		if c.disk(other) == c.disk(slot) {
			c.checkNeed(slot, other)
		}
	}
}

// checkNeed checks the deletion of the volume of slot by the need of another PV of the volume, or of the PV itself.
func (c *transition) checkNeed(slot, other int) {
	p := c.pvs[other]
	switch {
	case c.lives(other), c.lives(twin(other)):
		c.Violates("P2: the volume of PV %s is deleted, and a claim that lives has it", c.say(other))
	case other == original(slot) && (!mayGo(p) || p.Claim != c.pvs[slot].Claim):
		c.Violates("P2: the volume of PV %s is deleted, which is not to be deleted", c.say(other))
	case p.exists() && (!p.deletes() || !p.released() || p.Claim == 0 || p.Held):
		c.Violates("P2: the volume of PV %s is deleted, and PV %s needs it", c.say(slot), c.say(other))
	case other != original(slot) && p.exists() && c.restored(&c.state, other):
		c.Violates("P2: the volume of PV %s is deleted, and a claim that was restored names PV %s", c.say(slot),
			c.say(other))
	}
}

// checkEnd checks the end of a PV.
func (c *transition) checkEnd(slot int, last pv) {
	if !isTwin(slot) && c.provisioned(slot) && last.deletes() && c.disks[c.disk(slot)] && !c.excused[slot/2] {
		c.Violates("P1: PV %s is gone, its policy is Delete, and its volume is left behind", c.say(slot))
	}
}

// idle reports whether volume-guard has nothing under way any more. Only then is it asked whether all is
// as it should be.
func (k *worker) idle(s *state) bool {
	if s.late.on || k.leaders(s) != 1 {
		return false
	}
	for i := range k.Replicas {
		l := &s.lines[i]
		if !l.up || l.deposed || l.changes.Len() > 0 {
			return false
		}
		r := k.look(s, i)
		for slot := range 2 * len(k.PVs) {
			if r.leads && (r.busy[slot] || r.woken[slot]) {
				return false
			}
		}
	}
	return true
}

// comesBack reports whether something is tried again by the clock.
func (k *worker) comesBack(s *state) bool {
	for i := range k.Replicas {
		r := k.look(s, i)
		for slot := range 2 * len(k.PVs) {
			if r.leads && r.again[slot] {
				return true
			}
		}
	}
	return false
}

// unsettled says what is not as it should be while volume-guard is idle, empty if all is. All but
// one thing is asked only when the cluster rests too: it can be long until the PV controller tries again
// what failed, and what comes meanwhile would be too late.
func (k *worker) unsettled(s *state) string {
	for i := range k.PVs {
		slot := 2 * i
		p, t := s.pvs[slot], s.pvs[twin(slot)]
		if t.exists() && t.TwinOf > 0 && t.Phase == volume.PhaseFailed && t.deletes() && !t.Terminating {
			return "P2: the twin of PV " + k.say(slot) +
				" has failed and stays set to Delete, so that its volume can go at any time"
		}
		if k.Busy {
			continue
		}
		// One that is bound is in use: a person took it.
		if t.exists() && t.TwinOf > 0 && t.Phase != volume.PhaseBound && !k.shared(s, slot) {
			return "P5: the twin of PV " + k.say(slot) + " is left"
		}
		if wrong := k.unsettledPV(s, slot); wrong != "" && p.exists() && k.provisioned(slot) {
			return "P5: PV " + k.say(slot) + " " + wrong
		}
	}
	return ""
}

func (k *worker) unsettledPV(s *state, slot int) string {
	p := s.pvs[slot]
	switch {
	case !p.Terminating && p.deletes() && !p.Migrated && p.Writer == intree.WriterNone:
		return "is not protected"
	case !p.Terminating && (!p.deletes() || p.Migrated) && p.Writer == intree.WriterSelf:
		return "has a finalizer that has no business there"
	case !p.Terminating, k.keptFor(s, slot):
		return ""
	}
	return "is being deleted, and stays"
}

// keptFor reports whether there is a reported reason to keep a PV that is being deleted.
func (k *worker) keptFor(s *state, slot int) bool {
	p, t := s.pvs[slot], s.pvs[twin(slot)]
	switch {
	case k.waitsForClaim(s, slot), p.deletes() && k.restored(s, slot), p.Writer == intree.WriterOther && !s.modern:
		return true
	case !p.deletes():
		return false
	}
	// From 1.31 on the PV controller does nothing for one to which it cannot add the finalizer any more.
	return s.modern && p.unheld() || p.Held || p.Claim == 0 || p.Migrated && !p.External || t.exists() &&
		(t.TwinOf == 0 || t.Phase == volume.PhaseBound) || k.shared(s, slot)
}

// waitsForClaim reports whether the claim of a PV exists. If the claim waits for the PV, too, an Event has to say so.
func (k *worker) waitsForClaim(s *state, slot int) bool {
	p := s.pvs[slot]
	if p.Claim == 0 || k.named(&s.claims, k.claimName(slot, p)) != p.Claim {
		return false
	}
	unbound := p.Phase != volume.PhaseBound && !p.released()
	return !unbound || p.Writer != intree.WriterSelf || k.told(s, slot)
}

// told reports whether the leader records an Event for its decision on a PV.
func (k *worker) told(s *state, slot int) bool {
	for i := range k.Replicas {
		if r := k.look(s, i); r.leads {
			facts, _ := r.tracker.Observe(r.slots[slot], cache{r}, clock.Now)
			return intree.Decide(facts, clock.Now).Reason.EventType() != ""
		}
	}
	return false
}

// shared reports whether another PV needs the volume of this one.
func (k *worker) shared(s *state, slot int) bool {
	for i := range k.PVs {
		p := s.pvs[2*i]
		if 2*i != slot && k.disk(2*i) == k.disk(slot) && p.exists() && (!p.deletes() || !p.released() || p.Claim == 0 ||
			p.Held || k.restored(s, 2*i)) {
			return true
		}
	}
	return false
}
