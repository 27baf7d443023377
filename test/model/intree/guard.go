package intree

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// guard are the moves of one replica of volume-guard, and of what its calls meet.
func (k *worker) guard(s *state, i int) {
	l := &s.lines[i]
	if !l.up {
		k.Can(true, move{processStarts, i, 0}, func(n *transition) { n.start(i) })
		return
	}
	k.Can(l.changes.Len() > 0, move{watchDelivers, i, int(l.changes.Next().slot)},
		func(n *transition) { n.show(i, n.lines[i].changes.Take()) })
	r := k.look(s, i)
	if !r.leads {
		k.Can(k.leaders(s) == 0, move{processLeads, i, 0}, func(n *transition) { n.replica(i).lead() })
		return
	}
	k.overlap(s, i)
	for slot := range 2 * len(k.PVs) {
		begin := func(n *transition) {
			n.lines[i].proofs[slot] = proof{}
			n.replica(i).begin(slot)
			n.asked(i, slot)
		}
		if r.busy[slot] {
			k.calls(s, i, slot)
		} else {
			k.Can(r.woken[slot], move{workerBegins, i, slot}, begin)
			k.Can(r.again[slot] && !r.woken[slot], move{clockWakes, i, slot}, begin)
		}
		k.Can(r.waits(slot), move{delayEnds, i, slot}, func(n *transition) { n.replica(i).passTime(slot) })
	}
}

// overlap are the ends of a leader: at once, or after another has taken over. Calls that it has sent
// may still arrive.
func (k *worker) overlap(s *state, i int) {
	l := &s.lines[i]
	k.Breaks(!l.deposed, &s.left.Crash, move{processEnds, i, 0}, func(n *transition) { n.end(i) })
	k.Can(l.deposed, move{processNotices, i, 0}, func(n *transition) { n.end(i) })
	other := 1 - i
	if k.Replicas > 1 && s.lines[other].up && !s.lines[other].deposed && !l.deposed && !k.look(s, other).leads {
		k.Breaks(true, &s.left.Overlap, move{leaseMoves, other, 0}, func(n *transition) {
			n.lines[i].deposed = true
			n.replica(other).lead()
		})
	}
}

func (c *transition) end(i int) {
	r := c.replica(i)
	for slot := range 2 * len(c.PVs) {
		if !r.busy[slot] || c.lines[i].calls[slot].done || c.late.on {
			continue
		}
		if ask := r.asks(slot); !reads(ask) {
			c.late = late{ask, true}
		}
	}
	c.machine.Release(r)
	c.lines[i] = line{}
	c.knows[i], c.opened[i] = nil, nil
}

func (k *worker) leaders(s *state) (n int) {
	for i := range k.Replicas {
		if s.lines[i].up && !s.lines[i].deposed && k.look(s, i).leads {
			n++
		}
	}
	return n
}

// asked follows what a worker asks next.
func (c *transition) asked(i, slot int) {
	l, r := &c.lines[i], c.replica(i)
	l.calls[slot] = sent{}
	if !r.busy[slot] {
		l.proofs[slot] = proof{}
		return
	}
	if ask := r.asks(slot); ask.Action == intree.CreateTwin || ask.Action == intree.SetTwinDelete {
		c.checkTwin(i, slot, ask)
	}
}

func reads(ask ask) bool {
	switch ask.Action {
	case intree.ReadPV, intree.ReadClaim, intree.ReadAttachments:
		return true
	default:
		return false
	}
}

// calls are what can become of a call.
func (k *worker) calls(s *state, i, slot int) {
	call := s.lines[i].calls[slot]
	ask := k.look(s, i).asks(slot)
	answer := func(n *transition, reply reply) {
		n.lines[i].proofs[slot].learn(slot, ask, reply)
		n.replica(i).answer(slot, ask, reply)
		n.asked(i, slot)
	}
	broken := func(v verb) {
		k.Breaks(true, &s.left.API, move{v, i, slot}, func(n *transition) { answer(n, reply{Outcome: session.Unanswered}) })
	}
	k.Breaks(s.lines[i].proofs[slot] != proof{}, &s.left.Slow, move{processStalls, i, slot}, func(n *transition) {
		n.lines[i].proofs[slot] = proof{}
		n.replica(i).age(slot)
	})
	switch {
	case call.done:
		k.Can(true, move{callAnswered[ask.Action], i, slot}, func(n *transition) { answer(n, call.reply) })
		if call.reply.Outcome == session.Succeeded {
			broken(answerLost[ask.Action])
		}
		return
	case reads(ask):
		k.Can(true, move{callAnswered[ask.Action], i, slot}, func(n *transition) { answer(n, n.read(ask)) })
	case s.room(k.World):
		k.Can(true, move{callArrives[ask.Action], i, slot}, func(n *transition) {
			n.lines[i].calls[slot] = sent{done: true, reply: n.carryOut(ask)}
		})
	}
	broken(callFails[ask.Action])
}

// learn brings in what an answer shows. Whatever is read after the PV makes that too old.
func (p *proof) learn(slot int, ask ask, reply reply) {
	ok := reply.Outcome == session.Succeeded
	p.pv = false
	switch ask.Action {
	case intree.ReadClaim:
		p.learnClaim(slot, int(ask.Slot), ok && reply.Claim != ask.UID && (reply.Claim == 0 || reply.Names != ask.Slot+1))
	case intree.ReadAttachments:
		p.detached = ok && !reply.Attached
	case intree.ReadPV:
		p.pv = ok && int(ask.Slot) == slot && mayGo(pv{view: reply.PV})
		p.others = p.others || int(ask.Slot) != slot
	default:
	}
}

// learnClaim notes whether the claim of the PV of, a sibling's or its own, is gone.
func (p *proof) learnClaim(slot, of int, gone bool) {
	switch {
	case of == slot:
		p.claim = gone
	case !isTwin(of):
		p.sibling = gone
	}
}

// read is what the API server answers.
func (c *transition) read(ask ask) reply {
	switch ask.Action {
	case intree.ReadClaim:
		uid := c.named(&c.claims, c.Claims[max(ask.UID, 1)-1])
		if uid == 0 {
			return reply{Outcome: session.Succeeded}
		}
		return reply{Outcome: session.Succeeded, Claim: uid, Names: c.claims[uid-1].volume}
	case intree.ReadAttachments:
		return reply{Outcome: session.Succeeded, Attached: c.attached}
	default:
		return reply{Outcome: session.Succeeded, PV: c.pvs[ask.Slot].view}
	}
}

// carryOut is what the API server does with a write.
func (c *transition) carryOut(ask ask) reply {
	slot := int(ask.Slot)
	now := c.pvs[slot]
	switch {
	case ask.Action == intree.CreateTwin && now.exists():
		return reply{Outcome: session.Conflict}
	case ask.Action == intree.CreateTwin:
		made := pv{view: ask.New}
		made.Phase = volume.PhasePending
		c.create(slot, made)
		return reply{Outcome: session.Succeeded, PV: c.pvs[slot].view}
	case !now.exists() || now.UID != ask.UID:
		return reply{Outcome: session.Gone}
	case ask.Version != 0 && now.Version != ask.Version, ask.Add && now.Terminating:
		return reply{Outcome: session.Conflict}
	}
	after := now
	edit(ask, &after)
	if after == now {
		return reply{Outcome: session.Succeeded, PV: now.view}
	}
	c.checkWrite(ask)
	c.write(slot, us, func(p *pv) { *p = after })
	after.Version = c.versions[slot]
	return reply{Outcome: session.Succeeded, PV: after.view}
}

// arrivesLate is a call of a process that has ended meanwhile.
func (k *worker) arrivesLate(s *state) {
	if !s.late.on {
		return
	}
	slot := int(s.late.ask.Slot)
	k.Can(true, move{lateCallLost, 0, slot}, func(n *transition) { n.late = late{} })
	if s.room(k.World) {
		k.Can(true, move{lateCallArrives, 0, slot}, func(n *transition) {
			ask := n.late.ask
			n.late = late{}
			n.carryOut(ask)
		})
	}
}

// edit is what a write makes of a PV.
func edit(ask ask, p *pv) {
	switch ask.Action {
	case intree.SetTwinDelete:
		p.Policy = volume.PolicyDelete
	case intree.SetTwinRetain:
		p.Policy = volume.PolicyRetain
	case intree.DeleteTwin:
		p.Terminating = true
	default: // a patch of the finalizers
		if ask.Add {
			p.Writer = intree.WriterSelf
		}
		if ask.Remove {
			p.Writer = intree.WriterNone
		}
		p.External = p.External && !ask.RemoveExternal
	}
}
