//go:build model

package claims

import "github.com/csi-reclaimer/csi-reclaimer/pkg/provision"

// sidecar are the moves of one replica, and of what its calls meet.
func (k *worker) sidecar(s *state, i int) {
	if !s.lines[i].up {
		k.Can(true, move{processStarts, i, 0}, func(n *scene) { n.start(i) })
		return
	}
	k.watches(s, i)
	r := k.look(s, i)
	if !r.Leads() {
		k.Can(k.leaders(s) == 0, move{processLeads, i, 0}, func(n *scene) { n.replica(i).Lead() })
		return
	}
	k.overlap(s, i)
	for claim := range k.Claims {
		if r.Busy(claim) {
			k.calls(s, i, claim, r.Asks(claim))
		} else {
			k.begins(r, i, claim)
		}
		k.Can(r.AskedAgain[claim], move{clockAsks, i, claim}, func(n *scene) {
			n.replica(i).AskedAgain[claim], n.replica(i).Asked[claim] = false, true
		})
		k.Can(r.Waits(claim), move{delayEnds, i, claim}, func(n *scene) { n.replica(i).PassTime(claim) })
	}
}

// begins are the ways in which a claim comes into hand.
func (k *worker) begins(r *provision.Replica, i, claim int) {
	begin := func(possible bool, v verb, do func(*provision.Replica, int)) {
		k.Can(possible, move{v, i, claim}, func(n *scene) {
			n.lines[i].absent[claim] = false
			do(n.replica(i), claim)
			n.asked(i, claim)
		})
	}
	begin(r.Woken[claim], workerBegins, (*provision.Replica).Begin)
	begin(r.Again[claim] && !r.Woken[claim], clockWakes, (*provision.Replica).Begin)
	begin(r.Asked[claim] && !r.Syncing(claim), librarySyncs, (*provision.Replica).Sync)
	begin(r.Qualified(claim), libraryProvisions, (*provision.Replica).Provision)
}

// watches are what a replica's watches tell, each in its own time.
func (k *worker) watches(s *state, i int) {
	l := &s.lines[i]
	k.Can(l.nClaims > 0, move{watchTellsClaim, i, int(l.claims[0].claim)}, func(n *scene) {
		l := &n.lines[i]
		what := l.claims[0]
		copy(l.claims[:], l.claims[1:])
		l.nClaims--
		l.claims[l.nClaims] = claimChange{}
		n.showClaim(i, what)
	})
	k.Can(l.nPVs > 0, move{watchTellsPV, i, int(l.pvs[0].name)}, func(n *scene) {
		l := &n.lines[i]
		what := l.pvs[0]
		copy(l.pvs[:], l.pvs[1:])
		l.nPVs--
		l.pvs[l.nPVs] = pvChange{}
		n.replica(i).SeePV(int(what.name), what.now.view())
	})
	k.Can(l.nClasses > 0, move{watchTellsClass, i, 0}, func(n *scene) {
		l := &n.lines[i]
		there := l.classes[0]
		copy(l.classes[:], l.classes[1:])
		l.nClasses--
		l.classes[l.nClasses] = false
		n.replica(i).SeeClass(there)
	})
}

// overlap are the ends of a leader: at once, or after another has taken over. Calls that it has sent
// may still arrive.
func (k *worker) overlap(s *state, i int) {
	l := &s.lines[i]
	k.Breaks(!l.deposed, s.left.Crash, move{processEnds, i, 0}, func(n *scene) {
		n.left.Crash--
		n.end(i)
	})
	k.Can(l.deposed, move{processNotices, i, 0}, func(n *scene) { n.end(i) })
	other := 1 - i
	if k.Replicas > 1 && s.lines[other].up && !s.lines[other].deposed && !l.deposed && !k.look(s, other).Leads() {
		k.Breaks(true, s.left.Overlap, move{leaseMoves, other, 0}, func(n *scene) {
			n.left.Overlap--
			n.lines[i].deposed = true
			n.replica(other).Lead()
		})
	}
}

func (c *scene) end(i int) {
	r := c.replica(i)
	for claim := range c.Claims {
		call := c.lines[i].calls[claim]
		if !r.Busy(claim) || call.done || call.cut || c.late.on {
			continue
		}
		if ask := r.Asks(claim); ask.Action != provision.ReadPV {
			c.late = late{ask.Action, ask.Version, uint8(claim), true}
		}
	}
	c.machine.Release(r)
	c.lines[i] = line{}
	c.knows[i], c.opened[i] = nil, nil
}

func (k *worker) leaders(s *state) (n int) {
	for i := range k.Replicas {
		if s.lines[i].up && !s.lines[i].deposed && k.look(s, i).Leads() {
			n++
		}
	}
	return n
}

// asked follows what a worker asks next.
func (c *scene) asked(i, claim int) {
	l, r := &c.lines[i], c.replica(i)
	l.calls[claim] = sent{}
	if r.ToldUnknown(claim) {
		c.told[c.name(claim)] = true
	}
	if !r.Busy(claim) {
		l.absent[claim] = false
		return
	}
	ask := r.Asks(claim)
	l.calls[claim].cut = l.deposed && ofDriver(ask)
	if ask.Action == provision.DeleteVolume {
		c.judgeDeletion(i, claim, ask)
	}
}

func ofDriver(ask provision.Ask) bool {
	return ask.Action == provision.CreateVolume || ask.Action == provision.DeleteVolume
}

// calls are what can become of a call.
func (k *worker) calls(s *state, i, claim int, ask provision.Ask) {
	call := s.lines[i].calls[claim]
	v := verb(ask.Action)
	answer := func(n *scene, reply provision.Reply) {
		if ask.Action == provision.ReadPV {
			n.lines[i].absent[claim] = reply.Outcome == provision.OK && (reply.PV.Claim == 0 || reply.PV.Claim == provision.Foreign)
		}
		n.replica(i).Answer(claim, reply)
		n.asked(i, claim)
	}
	k.Breaks(s.lines[i].absent[claim], s.left.Slow, move{processStalls, i, claim}, func(n *scene) {
		n.left.Slow--
		n.lines[i].absent[claim] = false
		n.replica(i).Age(claim)
	})
	left, spend := s.left.API, func(n *scene) { n.left.API-- }
	if ofDriver(ask) {
		left, spend = s.left.RPC, func(n *scene) { n.left.RPC-- }
	}
	if call.done {
		k.Can(true, move{callAnswered + v, i, claim}, func(n *scene) { answer(n, call.reply) })
		k.Breaks(call.reply.Outcome == provision.OK, left, move{answerLost + v, i, claim}, func(n *scene) {
			spend(n)
			answer(n, provision.Reply{Outcome: provision.Broken})
		})
		return
	}
	if call.cut {
		return // it ends with its process
	}
	k.Breaks(true, left, move{callFails + v, i, claim}, func(n *scene) {
		spend(n)
		answer(n, provision.Reply{Outcome: provision.Broken})
	})
	if ofDriver(ask) && k.atWork(s, i, k.name(claim)) {
		k.Can(true, move{driverIsAtWork + v, i, claim}, func(n *scene) { answer(n, provision.Reply{Outcome: provision.InProgress}) })
		return
	}
	if ask.Action == provision.CreateVolume {
		k.refusals(s, i, claim, answer)
	}
	switch {
	case ask.Action == provision.ReadPV:
		k.Can(true, move{callAnswered + v, i, claim}, func(n *scene) {
			answer(n, provision.Reply{PV: n.pvs[n.name(claim)].view()})
		})
	case s.room(k.World):
		k.Can(true, move{callArrives + v, i, claim}, func(n *scene) {
			n.lines[i].calls[claim] = sent{done: true, reply: n.carryOut(ask, claim)}
		})
	}
}

// refusals are the driver's other answers to CreateVolume.
func (k *worker) refusals(s *state, i, claim int, answer func(*scene, provision.Reply)) {
	there := s.volumes[k.name(claim)].there
	k.Breaks(true, s.left.Refuse, move{driverRefuses, i, claim}, func(n *scene) {
		n.left.Refuse--
		answer(n, provision.Reply{Outcome: provision.Refused})
	})
	k.Breaks(!there, s.left.Refuse, move{driverCannot, i, claim}, func(n *scene) {
		n.left.Refuse--
		answer(n, provision.Reply{Outcome: provision.Unfit})
	})
	k.Breaks(!there, s.left.Spoil, move{driverMakesAnother, i, claim}, func(n *scene) {
		n.left.Spoil--
		n.volumes[n.name(claim)] = volume{there: true, spoiled: true}
		n.lines[i].calls[claim] = sent{done: true, reply: provision.Reply{Spoiled: true}}
	})
}

// atWork tells whether a call of a process that ended, or leads no more, other than replica i is at
// work on the volume. A driver keeps the calls for one name apart, as the CSI specification has it
// (ABORTED).
func (k *worker) atWork(s *state, i, name int) bool {
	if s.late.on && ofDriver(s.late.ask()) && k.name(int(s.late.claim)) == name {
		return true
	}
	for other := range k.Replicas {
		if other == i || !s.lines[other].deposed {
			continue
		}
		r := k.look(s, other)
		for of := range k.Claims {
			call := s.lines[other].calls[of]
			if k.name(of) == name && r.Busy(of) && ofDriver(r.Asks(of)) && !call.done && !call.cut {
				return true
			}
		}
	}
	return false
}

// carryOut is what the API server or the driver does with a call.
func (c *scene) carryOut(ask provision.Ask, claim int) provision.Reply {
	name, now := c.name(claim), c.claims[claim]
	switch ask.Action {
	case provision.CreateVolume:
		c.volumes[name].there = true
		return provision.Reply{Spoiled: c.volumes[name].spoiled}
	case provision.DeleteVolume:
		c.judgeLoss(name)
		c.volumes[name] = volume{}
		return provision.Reply{}
	case provision.StorePV:
		if c.pvs[name].exists() {
			return provision.Reply{Outcome: provision.Exists}
		}
		c.judgePV(claim)
		c.setPV(name, pv{claim: uint8(claim + 1)})
		return provision.Reply{}
	default: // it writes the claim
	}
	switch {
	case now.Version == 0:
		return provision.Reply{Outcome: provision.Gone}
	case ask.Action == provision.Protect && (now.Version != ask.Version || now.Terminating):
		return provision.Reply{Outcome: provision.Changed}
	}
	protected := ask.Action == provision.Protect
	if now.Protected != protected {
		c.write(claim, func(c *provision.ClaimView) { c.Protected = protected })
		now.Version++
	}
	return provision.Reply{Version: now.Version}
}

// arrivesLate is a call of a process that has ended meanwhile.
func (k *worker) arrivesLate(s *state) {
	if !s.late.on {
		return
	}
	k.Can(true, move{lateCallLost, 0, int(s.late.claim)}, func(n *scene) { n.late = late{} })
	if !s.room(k.World) {
		return
	}
	k.Can(true, move{lateCallArrives, 0, int(s.late.claim)}, func(n *scene) {
		l := n.late
		n.late = late{}
		n.carryOut(l.ask(), int(l.claim))
	})
}
