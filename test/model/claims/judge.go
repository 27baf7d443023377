//go:build model

package claims

import "github.com/csi-reclaimer/csi-reclaimer/pkg/provision"

// judgeDeletion judges a DeleteVolume that is about to be sent.
func (c *scene) judgeDeletion(i, claim int, ask provision.Ask) {
	name := c.name(claim)
	switch {
	case !c.lines[i].absent[claim]:
		c.violates("P2: DeleteVolume is sent for claim %s although no read that still counts showed that its volume has no PV", c.say(claim))
	case c.lives(claim) && !c.volumes[name].spoiled && c.volumes[name].there:
		c.violates("P2: DeleteVolume is sent (%s) for claim %s, which lives", ask.Reason, c.say(claim))
	}
}

// judgeLoss judges a DeleteVolume that is carried out.
func (c *scene) judgeLoss(name int) {
	if p := c.pvs[name]; p.exists() && !p.foreign() && c.volumes[name].there && c.lives(int(p.claim)-1) {
		c.violates("P2: the volume is deleted that the PV of claim %s names, which lives", c.say(int(p.claim)-1))
	}
}

// judgePV judges a PV that is about to be there. One of a claim that is being deleted is reclaimed
// with it, whatever became of the volume.
func (c *scene) judgePV(claim int) {
	v := c.volumes[c.name(claim)]
	if c.lives(claim) && (!v.there || v.spoiled) {
		c.violates("P2: a PV is stored for claim %s, which lives, and its volume is deleted or not what was asked for", c.say(claim))
	}
}

// rests tells whether nothing is under way any more. Only then is it asked whether all is as it
// should be.
func (k *worker) rests(s *state) bool {
	if s.late.on || k.Busy || k.leaders(s) != 1 {
		return false
	}
	for i := range k.Replicas {
		l := &s.lines[i]
		if !l.up || l.deposed || l.nClaims+l.nPVs+l.nClasses > 0 {
			return false
		}
		r := k.look(s, i)
		for claim := range k.Claims {
			if r.Leads() && (r.Busy(claim) || r.Syncing(claim) || r.Woken[claim] || r.Asked[claim]) {
				return false
			}
		}
	}
	return true
}

// comesBack tells whether something is tried again by the clock.
func (k *worker) comesBack(s *state) bool {
	for i := range k.Replicas {
		r := k.look(s, i)
		for claim := range k.Claims {
			if r.Leads() && (r.Again[claim] || r.AskedAgain[claim]) {
				return true
			}
		}
	}
	return false
}

// unsettled says what is not as it should be in a state that rests, empty if all is.
func (k *worker) unsettled(s *state) string {
	for claim := range k.Claims {
		if wrong := k.unsettledClaim(s, claim); wrong != "" && s.there(claim) {
			return "P5: claim " + k.say(claim) + " " + wrong
		}
		if name := k.name(claim); s.volumes[name].there && (!s.pvs[name].exists() || s.pvs[name].foreign()) && !k.answersFor(s, name) {
			return "P1: the volume of claim " + k.say(claim) + " is left behind"
		}
	}
	return ""
}

func (k *worker) unsettledClaim(s *state, claim int) string {
	c, p := s.claims[claim], s.pvs[k.name(claim)]
	has := p.belongs(claim)
	// That nothing is known of the outcome takes a fault, and a class or a PV that is gone.
	unknown := s.faulted && !has && (!s.class || c.Bound == provision.BoundOwn)
	switch {
	case c.Protected && unknown:
	case c.Terminating:
		return "is being deleted, and held for ever"
	case has && p.terminating:
		// Its PV was deleted before it was bound, or was seen to be. Both wait for the claim's own
		// deletion, which is told, and lets go of it.
	case p.foreign():
		// It waits for its name, held or not, which is told.
	case c.Protected && (has || c.Bound != provision.Unbound):
		return "has its PV, and is held"
	case c.Protected:
		return "is held without a reason"
	case p.exists() && !has || c.Bound == provision.BoundElsewhere:
		// It waits for its name, which is told, or needs no volume.
	case s.class && !has:
		return "gets no volume"
	case has && !s.volumes[k.name(claim)].there:
		return "has a PV without a volume"
	}
	return ""
}

// answersFor tells whether somebody answers for a volume that has no PV: a claim that is held as
// nothing is known of the outcome, those who were told so, or whoever took the finalizer off or does
// without.
func (k *worker) answersFor(s *state, name int) bool {
	if s.stripped[name] || s.faulted && (k.NoFinalizer || s.told[name]) {
		return true
	}
	for claim := range k.Claims {
		if k.name(claim) == name && s.claims[claim].Protected {
			return true
		}
	}
	return false
}
