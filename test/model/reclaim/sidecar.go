package reclaim

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/pvclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

// sidecar are the moves of one replica, and of what its calls meet.
func (k *worker) sidecar(s *state, i int) {
	l := &s.lines[i]
	if !l.up {
		k.Can(true, move{processStarts, i, 0}, func(n *transition) { n.start(i) })
		return
	}
	k.watches(s, i)
	r := k.look(s, i)
	if !r.engine.Leading {
		k.Can(s.leaders() == 0, move{processLeads, i, 0}, func(n *transition) { n.replica(i).engine.Lead(true) })
		return
	}
	k.overlap(s, i)
	for slot := range k.PVs {
		switch {
		case r.busy(slot):
			k.reclaims(s, i, slot, r.asks(slot))
		case r.queued[slot]:
			k.Can(true, move{workerBegins, i, slot}, func(n *transition) { n.begin(i, slot) })
		case r.later[slot]:
			k.Can(true, move{clockWakes, i, slot}, func(n *transition) { n.begin(i, slot) })
		}
		switch {
		case r.protections[slot] != nil:
			k.protects(s, i, slot, *r.protections[slot])
		case r.unprotected[slot]:
			k.Can(true, move{protectionBegins, i, slot}, func(n *transition) {
				n.replica(i).beginProtect(slot)
				if n.replica(i).protections[slot] != nil {
					n.checkLease(i, slot, *n.replica(i).protections[slot])
				}
			})
		}
	}
}

// watches are what a replica's watches tell, each in its own time.
func (k *worker) watches(s *state, i int) {
	l := &s.lines[i]
	k.Can(l.changes.Len() > 0, move{watchDelivers, i, int(l.changes.Next().slot)},
		func(n *transition) { n.show(i, n.lines[i].changes.Take()) })
	k.Can(l.attachments.Len() > 0, move{watchDeliversAttachment, i, int(l.attachments.Next().slot)},
		func(n *transition) { n.showAttachment(i, n.lines[i].attachments.Take()) })
	k.Can(l.claims.Len() > 0, move{watchDeliversClaim, i, int(l.claims.Next().slot)},
		func(n *transition) { n.showClaim(i, n.lines[i].claims.Take()) })
	for slot := range k.PVs {
		k.Breaks(l.ends[slot], &s.left.Slow, move{claimEndAges, i, slot}, func(n *transition) { n.ageEnd(i, slot) })
	}
	k.Breaks(l.claims.Len() > 0, &s.left.Relist, move{claimWatchStartsAnew, i, 0},
		func(n *transition) { n.relistClaims(i) })
	k.Breaks(l.changes.Len() > 0, &s.left.Relist, move{watchStartsAnew, i, 0}, func(n *transition) { n.relist(i) })
}

// relist has a watch of PVs that was cut find what is there now, and miss what was between.
func (c *transition) relist(i int) {
	c.lines[i].changes = memory.Queue[change]{}
	r := c.replica(i)
	for slot := range c.PVs {
		if p := c.pvs[slot]; p.exists() {
			r.showPV(slot, c.toAPI(slot, p))
		} else if r.cache[slot] != nil {
			r.removePV(slot, nil)
		}
	}
}

// relistClaims does the same for a watch of claims: of one that is gone nothing is shown.
func (c *transition) relistClaims(i int) {
	c.lines[i].claims = memory.Queue[claimChange]{}
	for slot := range c.PVs {
		if c.claims[slot].bound {
			c.lines[i].ends[slot] = false
			c.replica(i).engine.ClaimShown(c.PVs[slot].Name)
		}
	}
}

// ageEnd has the time pass for which the end of a claim counts that the watch has shown.
func (c *transition) ageEnd(i, slot int) {
	c.lines[i].ends[slot] = false
	c.replica(i).ageEnd(slot)
}

// overlap are the ends of a leader: at once, or after another has taken over. Calls that it
// has sent may still arrive.
func (k *worker) overlap(s *state, i int) {
	l := &s.lines[i]
	k.Breaks(!l.deposed, &s.left.Crash, move{processEnds, i, 0}, func(n *transition) { n.end(i) })
	k.Can(l.deposed, move{processNotices, i, 0}, func(n *transition) { n.end(i) })
	other := 1 - i
	if k.Replicas > 1 && s.lines[other].up && !s.lines[other].deposed && !l.deposed && !k.look(s, other).engine.Leading {
		k.Breaks(true, &s.left.Overlap, move{leaseMoves, other, 0}, func(n *transition) {
			n.lines[i].deposed = true
			n.replica(other).engine.Lead(true)
		})
		// It continues at any moment: with a call under way, or on its way, and with all that it remembers.
		k.Breaks(true, &s.left.Pause, move{leaseExpires, other, 0}, func(n *transition) {
			n.lines[i].deposed = true
			n.replica(i).expired = true
			n.replica(other).engine.Lead(true)
		})
	}
}

func (c *transition) end(i int) {
	r := c.replica(i)
	for slot := range c.PVs {
		if r.busy(slot) && !c.lines[i].calls[slot].done && !c.late.pending {
			if ask := r.asks(slot); ask.Action == reclaim.DeleteVolume || ask.Action == reclaim.RemoveFinalizer ||
				ask.Action == reclaim.FinalizePV {
				c.late = late{ask.Action, uint8(slot), fromAPI(ask.PV), true}
			}
		}
	}
	c.machine.Release(r)
	c.lines[i] = line{}
	c.knows[i], c.opened[i] = nil, nil
}

func (s *state) leaders() (n int) {
	for i := range s.lines {
		if s.lines[i].up && !s.lines[i].deposed && s.knows[i][0]&1 != 0 {
			n++
		}
	}
	return n
}

// begin has a worker take a key.
func (c *transition) begin(i, slot int) {
	c.lines[i].proof[slot] = proof{}
	if p := c.replica(i).cache[slot]; p != nil && p.WasAttached {
		c.lines[i].proof[slot].attachedBefore = c.attachments[slot]
	}
	c.replica(i).begin(slot)
	c.asked(i, slot)
}

// asked follows what a worker asks next. A Secret is never named, so that this step has no
// answer but one.
func (c *transition) asked(i, slot int) {
	r := c.replica(i)
	for r.busy(slot) && r.asks(slot).Action == reclaim.ReadSecrets {
		r.answer(slot, reclaim.Reply{Outcome: reclaim.OK})
	}
	c.lines[i].calls[slot] = sent{}
	if r.busy(slot) {
		c.checkLease(i, slot, r.asks(slot))
	}
	if !r.busy(slot) {
		c.lines[i].proof[slot] = proof{}
		return
	}
	if ask := r.asks(slot); ask.Action == reclaim.DeleteVolume {
		c.checkDeletion(i, slot, ask, r.workers[slot].session.Facts.End.Gone)
	}
}

// isRead reports whether an action reads from the API server.
func isRead(action reclaim.Action) bool {
	switch action {
	case reclaim.ReadClaim, reclaim.ReadPV, reclaim.ReadSiblings, reclaim.ListPVs, reclaim.ListAttachments:
		return true
	default:
		return false
	}
}

// reclaims are what can become of a call.
func (k *worker) reclaims(s *state, i, slot int, ask reclaim.Ask) {
	call := s.lines[i].calls[slot]
	if proven := s.lines[i].proof[slot]; proven != (proof{attachedBefore: proven.attachedBefore}) {
		k.Breaks(true, &s.left.Slow, move{processStalls, i, slot}, func(n *transition) {
			n.lines[i].proof[slot] = proof{attachedBefore: proven.attachedBefore}
			n.replica(i).age(slot)
			n.ageEnd(i, slot)
		})
	}
	unanswered := func(n *transition) {
		n.replica(i).answer(slot, reclaim.Reply{Outcome: reclaim.Unanswered})
		n.asked(i, slot)
	}
	if isRead(ask.Action) {
		k.Can(true, move{callAnswered[ask.Action], i, slot}, func(n *transition) {
			n.replica(i).answer(slot, n.readFor(i, slot, ask))
			n.asked(i, slot)
		})
		k.Breaks(true, &s.left.API, move{callFails[ask.Action], i, slot}, unanswered)
		return
	}
	left := &s.left.API
	if ask.Action == reclaim.DeleteVolume {
		left = &s.left.RPC
	}
	if !call.done {
		if s.room(k.World) {
			k.Can(true, move{callArrives[ask.Action], i, slot}, func(n *transition) {
				n.lines[i].calls[slot] = n.carryOut(theSidecar, ask.Action, slot, fromAPI(ask.PV), ask)
			})
		}
		k.Breaks(true, left, move{callFails[ask.Action], i, slot}, unanswered)
		return
	}
	k.Can(true, move{callAnswered[ask.Action], i, slot}, func(n *transition) {
		if ask.Action == reclaim.DeleteVolume {
			n.lines[i].succeeded[slot] |= 1 << fromAPI(ask.PV).gen
		}
		n.replica(i).answer(slot, call.reply())
		n.asked(i, slot)
	})
	k.Breaks(call.outcome == reclaim.OK, left, move{answerLost[ask.Action], i, slot}, unanswered)
}

func (s sent) reply() reclaim.Reply {
	return reclaim.Reply{Outcome: s.outcome, Version: number(s.version)}
}

// readFor answers a live read with what there is, and notes what it proves.
func (c *transition) readFor(i, slot int, ask reclaim.Ask) (reply reclaim.Reply) {
	reply.Outcome = reclaim.OK
	proof := &c.lines[i].proof[slot]
	// Nothing comes between the last read of the PV and the driver's call.
	proof.pv = false
	switch ask.Action {
	case reclaim.ReadClaim:
		reply.Claim = c.readClaim(slot)
		read := fromAPI(ask.PV)
		proof.claim = !read.belongs(c.claims[slot].gen) && !c.claims[slot].names(read)
	case reclaim.ReadPV:
		if p := c.pvs[slot]; p.exists() {
			reply.Found, reply.PV = true, c.toAPI(slot, p)
		}
		proof.pv = c.mayGo(slot, ask.PV)
	case reclaim.ReadSiblings:
		proof.siblings = c.readSiblings(ask, &reply)
	case reclaim.ListPVs:
		proof.family = true
		for other := range c.PVs {
			if p := c.pvs[other]; p.exists() {
				reply.PVs = append(reply.PVs, c.toAPI(other, p))
				proof.family = proof.family && c.volume(other) != c.volume(slot)
			}
		}
	case reclaim.ListAttachments:
		reply.Attached = map[string]int{}
		for other := range c.PVs {
			if c.attachments[other] {
				reply.Attached[c.PVs[other].Name] = 1
			}
		}
	default:
	}
	return reply
}

// readSiblings reads the siblings, and their claims, into the reply. It reports whether no claim of theirs needs the
// volume. Of a PV that has taken the name of a sibling, no claim was read.
func (c *transition) readSiblings(ask reclaim.Ask, reply *reclaim.Reply) (unneeded bool) {
	unneeded, reply.Claims = true, map[types.UID]pvclaim.Result{}
	for _, sibling := range ask.Siblings {
		other := c.slotOf(sibling.Name)
		p, live := c.pvs[other], c.claims[other]
		if !p.exists() {
			continue
		}
		read, claim := c.toAPI(other, p), c.readClaim(other)
		claim.Of = sibling.Claim
		reply.PVs = append(reply.PVs, read)
		if read.UID == sibling.UID {
			reply.Claims[read.UID] = claim
		}
		if p.deletable() && (read.UID != sibling.UID || p.belongs(live.gen) || live.names(p)) {
			unneeded = false
		}
	}
	return unneeded
}

// readClaim is what a read shows of the claim of a PV.
func (c *transition) readClaim(slot int) (claim pvclaim.Result) {
	if live := c.claims[slot]; live.gen != 0 {
		claim.Found, claim.UID = true, claimUID(c.PVs[slot], live.gen)
		if live.bound {
			claim.VolumeName = c.PVs[slot].Name
		}
	}
	return claim
}

// carryOut is what the API server or the driver does with a call.
func (c *transition) carryOut(by who, action reclaim.Action, slot int, read pv, ask reclaim.Ask) sent {
	now := c.pvs[slot]
	switch {
	case action == reclaim.DeleteVolume:
		c.volumes[c.volume(slot)] = false
		return sent{done: true, outcome: reclaim.OK}
	case !now.exists() || now.gen != read.gen:
		return sent{done: true, outcome: reclaim.Gone}
	case action == reclaim.DeletePV:
		if c.volumes[c.volume(slot)] {
			c.Violates("PV %s is deleted before its volume: it could not be rescued any more", c.PVs[slot].Name)
		}
		c.remove(by, slot)
		return sent{done: true, outcome: reclaim.OK}
	case ask.Bound && now.version != read.version:
		return sent{done: true, outcome: reclaim.Changed}
	case len(ask.Add) > 0 && now.is(terminating):
		return sent{done: true, outcome: reclaim.Changed}
	}
	c.write(by, slot, func(p *pv) {
		for _, f := range ask.Remove {
			p.clear(flagOf(f))
		}
		for _, f := range ask.Add {
			p.set(flagOf(f))
		}
	})
	return sent{done: true, outcome: reclaim.OK, version: c.versions[slot]}
}

func flagOf(finalizer string) flags {
	if finalizer == volume.Finalizer {
		return ours
	}
	return companions
}

// arrivesLate is a call of a process that has ended meanwhile.
func (k *worker) arrivesLate(s *state) {
	if !s.late.pending {
		return
	}
	k.Can(true, move{lateCallLost, 0, int(s.late.slot)}, func(n *transition) { n.late = late{} })
	if !s.room(k.World) {
		return
	}
	k.Can(true, move{lateCallArrives, 0, int(s.late.slot)}, func(n *transition) {
		l := n.late
		n.late = late{}
		ask := reclaim.Ask{Bound: l.action == reclaim.RemoveFinalizer,
			Remove: []string{volume.Finalizer, volume.CompanionFinalizer}}
		n.carryOut(theSidecar, l.action, int(l.slot), l.pv, ask)
	})
}

// protects are what can become of a first-time protection.
func (k *worker) protects(s *state, i, slot int, ask reclaim.Ask) {
	call := s.lines[i].protects[slot]
	if !call.done {
		if s.room(k.World) {
			k.Can(true, move{callArrives[ask.Action], i, slot}, func(n *transition) {
				n.lines[i].protects[slot] = n.carryOut(theSidecar, ask.Action, slot, fromAPI(ask.PV), ask)
			})
		}
		k.Breaks(true, &s.left.API, move{callFails[ask.Action], i, slot},
			func(n *transition) { n.replica(i).answerProtect(slot, reclaim.Reply{Outcome: reclaim.Unanswered}) })
		return
	}
	k.Can(true, move{callAnswered[ask.Action], i, slot}, func(n *transition) {
		n.lines[i].protects[slot] = sent{}
		n.replica(i).answerProtect(slot, call.reply())
	})
	k.Breaks(call.outcome == reclaim.OK, &s.left.API, move{answerLost[ask.Action], i, slot}, func(n *transition) {
		n.lines[i].protects[slot] = sent{}
		n.replica(i).answerProtect(slot, reclaim.Reply{Outcome: reclaim.Unanswered})
	})
}
