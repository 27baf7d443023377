package reclaim

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
)

// proof is what the live reads of a run were shown, judged by what was true when they were
// answered.
type proof struct {
	// pv: the PV said that its volume is to go. claim: its claim was gone. siblings: the other
	// PVs of the volume were read, and those of them that are to go had no claim that keeps it. family: there
	// were none.
	pv, claim, siblings, family bool
	// attachedBefore: an attachment that is still there was there when the run began, of a PV
	// that shows that it was attached.
	attachedBefore bool
}

// owed is what is known of a volume whose PV is gone while the volume was to be deleted.
type owed uint8

const (
	notOwed owed = iota
	// unprotected: nothing held the PV. It is for the sidecar to delete the volume where it
	// saw enough.
	unprotected
)

// mayGo reports whether at this moment the PV of that UID is one whose volume is to be deleted
// (the reclaim contract, P2).
func (c *transition) mayGo(slot int, asked volume.PV) bool {
	p := c.pvs[slot]
	finalizer := ours | companions
	if c.Role == volume.RoleCompanion {
		finalizer = companions
	}
	return p.exists() && c.uid(slot, p) == asked.UID && p.deletable() && !p.is(held) && !p.belongs(c.claims[slot].gen) &&
		(p.is(finalizer) || !p.is(terminating))
}

// checkDeletion checks a DeleteVolume that is about to be sent (P2, P2b, P3).
func (c *transition) checkDeletion(i, slot int, ask reclaim.Ask, ended bool) {
	asked := fromAPI(ask.PV)
	c.checkProof(i, slot, asked.gen, ended)
	for other := range c.PVs {
		if c.volume(other) == c.volume(slot) {
			c.checkNeed(i, slot, other, asked.gen, ended)
		}
	}
}

// checkProof checks a DeleteVolume by what the reads before it proved.
func (c *transition) checkProof(i, slot int, asked uint8, ended bool) {
	l := &c.lines[i]
	proof := l.proof[slot]
	switch {
	case l.succeeded[slot]&(1<<asked) != 0:
		c.Violates("P3: DeleteVolume is sent once more for %s", c.PVs[slot].Name)
	case !ended && !proof.pv:
		c.Violates("P2: DeleteVolume is sent for PV %s although the last read of it did not say so", c.PVs[slot].Name)
	case !ended && !proof.claim && !c.claimSeenGone(i, slot):
		c.Violates("P2: DeleteVolume is sent for PV %s although neither a read that still counts nor the watch showed that "+
			"its claim is gone", c.PVs[slot].Name)
	case ended && (!proof.claim || !proof.family):
		c.Violates("P2: DeleteVolume is sent for a PV %s that is gone, although claim %v and other PVs %v were not proven "+
			"gone", c.PVs[slot].Name, proof.claim, proof.family)
	case ended && c.stripped[slot]:
		c.Violates("P2: DeleteVolume is sent for PV %s, which is gone after another program removed the finalizer",
			c.PVs[slot].Name)
	case proof.attachedBefore:
		c.Violates("P2b: DeleteVolume is sent for PV %s, which was attached before and still is", c.PVs[slot].Name)
	}
}

// claimSeenGone reports whether the watch of claims may stand for a read: it has just shown the claim's end, the claim
// is gone, and no other that names the PV was delivered.
func (c *transition) claimSeenGone(i, slot int) bool {
	p, live := c.pvs[slot], c.claims[slot]
	return c.lines[i].ends[slot] && !p.belongs(live.gen) && (!live.names(p) || c.lines[i].behindClaim(slot))
}

// checkNeed checks a DeleteVolume by the need of another PV of the volume, or of the PV itself.
func (c *transition) checkNeed(i, slot, other int, asked uint8, ended bool) {
	l, p := &c.lines[i], c.pvs[other]
	if other != slot && !ended && !l.proof[slot].siblings && c.replica(i).cache[other] != nil {
		c.Violates("P2b: DeleteVolume is sent for PV %s, and PV %s, which names the volume too, was not read, or a claim "+
			"needs it", c.PVs[slot].Name, c.PVs[other].Name)
	}
	if p.exists() && (other != slot || p.gen != asked) && p.keeps() && !l.behindPV(other) {
		c.Violates("P2b: DeleteVolume is sent for PV %s although PV %s needs the volume", c.PVs[slot].Name,
			c.PVs[other].Name)
	}
	// The attacher keeps a PV that it has attached: what names a PV that is gone is no
	// attachment yet.
	if c.attachments[other] && (p.exists() || other == slot) && !l.behindAttachment(other) {
		c.Violates("P2b: DeleteVolume is sent for PV %s although PV %s is attached", c.PVs[slot].Name, c.PVs[other].Name)
	}
}

// checkLease checks a call that is about to be sent: a leader whose lease ran out begins nothing.
func (c *transition) checkLease(i, slot int, ask reclaim.Ask) {
	if c.replica(i).expired {
		c.Violates("P2: a leader whose lease ran out begins %v for PV %s, while another leads", ask.Action, c.PVs[slot].Name)
	}
}

// checkReports checks what the replicas recorded as Events in this move: a leader whose lease ran out does not know
// what another has done since.
func (c *transition) checkReports() {
	for _, r := range c.opened {
		if r != nil && r.expired && len(r.reports) > 0 {
			c.Violates("P4: a leader whose lease ran out reports %v, while another leads", r.reports[0])
		}
	}
}

// behindPV reports whether the watch lags behind a change of a PV.
func (l *line) behindPV(slot int) bool {
	return l.changes.Has(func(c change) bool { return int(c.slot) == slot })
}

func (l *line) behindClaim(slot int) bool {
	return l.claims.Has(func(c claimChange) bool { return int(c.slot) == slot })
}

func (l *line) behindAttachment(slot int) bool {
	return l.attachments.Has(func(c attachmentChange) bool { return int(c.slot) == slot })
}

// departed checks a PV's end (P1).
func (c *transition) departed(by who, slot int, last pv) {
	volume := c.volume(slot)
	if !c.volumes[volume] || !last.deletable() || c.neededBy(slot) {
		return
	}
	switch {
	case c.stripped[slot]:
		// Whoever removes the finalizer manually answers for the volume.
	case by == theSidecar && last.guarded():
		c.Violates("P1: PV %s is released, and its volume is there", c.PVs[slot].Name)
	default:
		c.owed[volume] = unprotected
	}
}

// neededBy reports whether another PV names the volume of this one.
func (c *transition) neededBy(slot int) bool {
	for other := range c.PVs {
		if other != slot && c.pvs[other].exists() && c.volume(other) == c.volume(slot) {
			return true
		}
	}
	return false
}

// idle reports whether nothing is under way any more. Only then is it asked whether all is as
// it should be.
func (k *worker) idle(s *state) bool {
	if s.late.pending || s.leaders() != 1 {
		return false
	}
	for i := range k.Replicas {
		l := &s.lines[i]
		if !l.up || l.deposed || l.changes.Len() > 0 || l.attachments.Len() > 0 || l.claims.Len() > 0 {
			return false
		}
		r := k.look(s, i)
		for slot := range k.PVs {
			if r.engine.Leading && (r.busy(slot) || r.protections[slot] != nil || r.queued[slot] || r.unprotected[slot]) {
				return false
			}
		}
	}
	return !k.Busy
}

// comesBack reports whether something is tried again by the clock.
func (k *worker) comesBack(s *state) bool {
	for i := range k.Replicas {
		if r := k.look(s, i); r.engine.Leading && slices.Contains(r.later, true) {
			return true
		}
	}
	return false
}

// unsettled says what is not as it should be in a state that rests, empty if all is (P1, P4,
// P5).
func (k *worker) unsettled(s *state) string {
	for slot, def := range k.PVs {
		if wrong := k.unsettledPV(s, slot); wrong != "" {
			return "P5: PV " + def.Name + " " + wrong
		}
		// Without a fault the sidecar has seen all that rule 6 asks for. While the claim lives
		// the volume is its own.
		id := k.volume(slot)
		left := s.owed[id] == unprotected && s.volumes[id] && k.unneeded(s, id) && s.claims[slot].gen == 0
		if left && !s.faulted && k.Role == volume.RoleOwner {
			return "P1: the volume of PV " + def.Name + " is left behind"
		}
	}
	return ""
}

func (k *worker) unneeded(s *state, volume int) bool {
	for slot := range k.PVs {
		if s.pvs[slot].exists() && k.volume(slot) == volume {
			return false
		}
	}
	return true
}

func (k *worker) unsettledPV(s *state, slot int) string {
	p := s.pvs[slot]
	switch {
	case !p.exists() || p.is(held), k.neverBound(s, slot):
	case p.released() && s.claims[slot].names(p):
		// The claim keeps the volume.
	case p.deletable() && !s.attachments[slot] && !k.shared(s, slot):
		if p.is(terminating) || k.Role == volume.RoleOwner {
			return "is to be deleted, and stays"
		}
	case p.is(terminating) && !p.bound() && !p.deletable():
		return "is terminating and no longer needed, and stays"
	case p.is(terminating):
	default:
		return k.unsettledGuard(s, slot)
	}
	return ""
}

// neverBound reports whether a PV that is terminating waits for its claim, which waits for it, and an Event says so.
func (k *worker) neverBound(s *state, slot int) bool {
	p := s.pvs[slot]
	return p.is(terminating) && !p.bound() && !p.released() && p.belongs(s.claims[slot].gen) && k.told(s, slot)
}

// told reports whether the leader records an Event for its decision on a PV.
func (k *worker) told(s *state, slot int) bool {
	for i := range k.Replicas {
		if r := k.look(s, i); r.engine.Leading {
			facts, _ := r.engine.Facts(reclaim.Item{Name: k.PVs[slot].Name}, r.moment())
			return reclaim.Decide(facts, clock.Now).Reason.EventType() != ""
		}
	}
	return false
}

// unsettledGuard says what is wrong with the finalizer of a PV that is not terminating, empty if nothing is.
func (k *worker) unsettledGuard(s *state, slot int) string {
	p := s.pvs[slot]
	guard := ours
	if k.Role == volume.RoleCompanion {
		guard = companions
	}
	contested := s.strips[slot] >= contestAfter
	switch {
	case contested && p.is(guard) && !s.faulted:
		return "was stripped again and again, and the finalizer is added all the same"
	case contested:
	case p.policy == volume.PolicyDelete && p.claimed() && (p.bound() || p.released()) && !p.is(guard):
		return "is not protected"
	case p.policy != volume.PolicyDelete && p.claimed() && p.guarded():
		return "keeps its volume, and the finalizer stays"
	}
	return ""
}

// contestAfter strips the finalizer is not asked for any more, on that PV (the contract, "Contested"). No time
// passes in a world. Of two PVs the driver is not contested.
const contestAfter = 3

// shared reports whether another PV still needs the volume.
func (k *worker) shared(s *state, slot int) bool {
	for other := range k.PVs {
		p, claim := s.pvs[other], s.claims[other]
		needs := p.keeps() || p.belongs(claim.gen) || claim.names(p)
		if other != slot && p.exists() && k.volume(other) == k.volume(slot) && needs {
			return true
		}
	}
	return false
}
