package provision

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
)

// replica are the moves of one replica.
func (k *worker) replica(s *state, i int) {
	l := &s.lines[i]
	if !l.up {
		return
	}
	k.watches(s, i)
	for c := range k.Claims {
		if s.born[c] {
			k.works(s, i, c)
		}
	}
	for n := range k.names() {
		k.answers(s, i, n)
		k.passes(s, i, n)
	}
}

// names returns how many volume names there are.
func (w *World) names() int {
	if w.Short {
		return 1
	}
	return len(w.Claims)
}

// watches are the moves of the replica's watches. Each object's lags on its own, by any number of changes.
func (k *worker) watches(s *state, i int) {
	l := &s.lines[i]
	if k.Lag > 1 {
		k.receives(s, i)
	}
	for c := range k.Claims {
		k.Can(l.claimComes[c] || l.claims[c] != s.claims[c], move{watchShowsClaim, i, c, 0}, func(n *transition) {
			to := &n.lines[i]
			shown := n.claims[c]
			if to.claimComes[c] {
				shown = to.comingClaims[c]
			}
			to.claims[c], to.comingClaims[c], to.claimComes[c] = shown, claim{}, false
		})
	}
	for slot := range s.pvs {
		k.Can(l.pvComes[slot] || l.pvs[slot] != s.pvs[slot], move{watchShowsPV, i, slot, 0}, func(n *transition) {
			to := &n.lines[i]
			shown := n.pvs[slot]
			if to.pvComes[slot] {
				shown = to.comingPVs[slot]
			}
			to.pvs[slot], to.comingPVs[slot], to.pvComes[slot] = shown, pv{}, false
		})
	}
}

// receives has watches receive what they show later. That something is gone they need not receive: nothing comes
// after it but what is there then.
func (k *worker) receives(s *state, i int) {
	l := &s.lines[i]
	for c := range k.Claims {
		now := s.claims[c]
		k.Can(now.exists && !l.claimComes[c] && l.claims[c] != now, move{watchReceivesClaim, i, c, 0}, func(n *transition) {
			n.lines[i].comingClaims[c], n.lines[i].claimComes[c] = now, true
		})
	}
	for slot, now := range s.pvs {
		k.Can(now.exists() && !l.pvComes[slot] && l.pvs[slot] != now, move{watchReceivesPV, i, slot, 0}, func(n *transition) {
			n.lines[i].comingPVs[slot], n.lines[i].pvComes[slot] = now, true
		})
	}
}

// decide returns the next step, and the request that was composed and prepared for it. A read of a log that has not
// changed shows nothing, and is left out.
func (w *World) decide(s *state, i, c int) (provision.Decision, provision.Facts, request) {
	f := w.facts(s, i, c)
	m := &s.lines[i].names[w.name(c)]
	d := provision.Decide(f, clock.Now, quiet)
	if d.Action == provision.ConfirmEntry && (m.current && !m.settled || w.hasty && m.record.made) {
		f.Confirmed = true
		d = provision.Decide(f, clock.Now, quiet)
	}
	if d.Action != provision.BuildRequest || s.class == 0 {
		return d, f, request{}
	}
	node := s.lines[i].claims[c].node
	class := errclass.Refused
	if f.Composed = !s.isGone(node); f.Composed && !s.noSecret {
		class = errclass.Done
	}
	f.Learn(provision.Prepare, provision.Reply{Class: class}, false, clock.Now, clock.Now, quiet)
	return provision.Decide(f, clock.Now, quiet), f, w.compose(s, node)
}

// waits reports whether a replica does nothing for a claim now.
func (w *World) waits(s *state, i, c int, d provision.Decision) bool {
	m := &s.lines[i].names[w.name(c)]
	switch d.Action {
	case provision.Wait, provision.BuildRequest, provision.Prepare:
		return true
	case provision.OpenEntry, provision.ConfirmEntry:
		return m.backsOff
	case provision.CreateVolume, provision.NoteVersion:
		// Without its Secret, a request that may have been sent is repeated only when the claim is gone.
		return m.backsOff || s.noSecret && m.isSent() && s.claims[c].exists
	case provision.ReadPV, provision.ReadClaim:
		if provision.Log(m.log) == provision.LogOpen {
			return d.Action == provision.ReadPV && w.waitsToRepeat(s, m, c)
		}
		return m.backsOff && provision.Log(m.log) == provision.LogAbsent
	default:
		return false
	}
}

// waitsToRepeat reports whether a read before a repeated CreateVolume waits as that call does, which it does not if it
// ends the entry.
func (w *World) waitsToRepeat(s *state, m *memory, c int) bool {
	return !m.record.made && (m.backsOff || s.noSecret && s.claims[c].exists && !s.pvs[w.name(c)].belongs(c))
}

// isSent reports whether a request of the entry may have been sent.
func (m *memory) isSent() bool { return m.record.sent != [2]bool{} }

// looked reports whether a run remembers what it has read, or that a second request found no room.
func (m *memory) looked() bool {
	return m.pv != view{} || m.apart != view{} || m.of != 0 || m.secondFailed || m.confirmed
}

// deselects reports whether the selected node of a claim is to be taken back: the engine asked for it, or no request
// can be composed as the node is gone.
func (w *World) deselects(s *state, i, c int) bool {
	l := &s.lines[i]
	if !w.Scheduled || !l.mayAct || !l.claims[c].needy() || l.claims[c].node == 0 {
		return false
	}
	d, f, _ := w.decide(s, i, c)
	return l.names[w.name(c)].leaves || d.Action == provision.BuildRequest && !f.Composed && s.class != 0
}

// works is a replica's look at a claim. What it decides to call is sent.
func (k *worker) works(s *state, i, c int) {
	name := k.name(c)
	l := &s.lines[i]
	if l.calls[name].stage != idle {
		return
	}
	d, f, composed := k.decide(s, i, c)
	m := &l.names[name]
	k.Can(k.deselects(s, i, c), move{nodeIsDeselected, i, c, 0}, func(n *transition) {
		// A write that another one came before is refused.
		if n.claims[c] == n.lines[i].claims[c] {
			n.claims[c].node = 0
		}
		n.lines[i].names[name].leaves = false
	})
	if k.waits(s, i, c, d) {
		k.Can(m.looked(), move{runEnds, i, c, 0}, func(n *transition) {
			m := &n.lines[i].names[name]
			m.pv, m.apart, m.claim, m.of, m.read = view{}, view{}, claim{}, 0, never
			m.secondFailed, m.confirmed = false, false
		})
		return
	}
	k.Can(true, moveTo(sends, i, c, uint8(d.Action)), func(n *transition) {
		if f.Log == provision.LogOpen {
			m := &n.lines[i].names[name]
			m.confirmed = m.confirmed || m.current && !m.settled
			n.checkSettled(i, c, d.Action)
		}
		if d.Action == provision.ConfirmEntry {
			n.confirm(i, c)
		} else {
			n.send(i, c, d.Action, f, composed)
		}
	})
}

// confirm reads the log, which may show that the entry is settled.
func (c *transition) confirm(i, cl int) {
	n := c.name(cl)
	if c.readLog(i, n); c.lines[i].names[n].settled {
		c.lines[i].names[n] = memory{log: uint8(provision.LogAbsent), current: true, again: true}
	}
	if l := &c.lines[i]; provision.Log(l.names[n].log) == provision.LogOpen {
		l.calls[n] = call{action: uint8(provision.ConfirmEntry), stage: answered, claim: uint8(cl + 1),
			class: uint8(errclass.Done)}
	}
}

// send sends what a replica has decided.
func (c *transition) send(i, cl int, action provision.Action, f provision.Facts, composed request) {
	n := c.name(cl)
	m := &c.lines[i].names[n]
	sent := call{action: uint8(action), stage: onItsWay, claim: uint8(cl + 1), generation: m.record.generation,
		request: composed}
	switch action {
	case provision.ReadPV:
		sent.stage, sent.class = answered, uint8(errclass.Done)
		sent.found = c.viewOf(c.pvs[n], i, cl)
		sent.found.read = recently
	case provision.ReadClaim:
		sent.stage, sent.class, sent.claimFound = answered, uint8(errclass.Done), c.claims[cl]
	case provision.OpenEntry:
		sent.current, sent.entry = m.current, c.opened(m, f, composed)
		if c.full {
			sent = call{action: sent.action, stage: answered, claim: sent.claim, class: uint8(errclass.Exhausted)}
		}
	case provision.NoteVersion:
		sent.current, sent.entry = m.current, m.entry
		if asked := &sent.entry.requests[m.record.next]; m.record.sent[m.record.next] {
			asked.noted = several
		} else {
			asked.noted = c.version
		}
	case provision.MarkDiscarding:
		sent.current, sent.entry = m.current, m.entry
		sent.entry.discarding = true
	case provision.CloseEntry:
		sent.current = m.current
	case provision.CreateVolume:
		c.checkRepeat(i, cl)
		sent.request, sent.bare = m.entry.requests[m.record.next], c.noSecret && m.isSent()
		sent.version = c.version
		if c.anew && c.class != 0 {
			sent.request = c.compose(&c.state, c.seenClaim(&c.lines[i], cl).node)
		}
		sent.quiet = f.Record.Quiet(clock.Now, quiet)
		sent.first = f.Record.Sending()
		m.remember(f)
	case provision.DeleteVolume:
		c.checkDiscard(i, cl)
	default:
	}
	c.lines[i].calls[n] = sent
}

// opened returns the entry that OpenEntry writes.
func (c *transition) opened(m *memory, f provision.Facts, composed request) entry {
	if f.Log != provision.LogOpen {
		return entry{
			claim: uint8(indexOf(f.Claim.UID) + 1), count: 1, requests: [2]request{composed},
		}
	}
	e := m.entry
	e.requests[f.Record.Add(c.requestOf(composed))] = composed
	e.count = uint8(f.Record.Count)
	return e
}

// answers are the moves of a call under way.
func (k *worker) answers(s *state, i, n int) {
	now := &s.lines[i].calls[n]
	change := func(do func(c *transition, now *call)) func(*transition) {
		return func(c *transition) { do(c, &c.lines[i].calls[n]) }
	}
	m := move{"", i, n, 0}
	is := func(v verb) move { m.verb = v; m.variant = now.action; return m }
	switch now.stage {
	case answered:
		k.Can(true, is(learns), func(c *transition) { c.learns(i, n) })
	case unsure:
		k.Can(true, is(rereads), func(c *transition) { c.reread(i, n) })
	case onItsWay:
		k.arrives(s, i, n)
		left, action := &s.left.API, provision.Action(now.action)
		if action == provision.CreateVolume || action == provision.DeleteVolume {
			left = &s.left.RPC
		}
		k.Breaks(true, left, is(timesOut), change(func(c *transition, now *call) {
			c.abandon(*now, i, n)
			now.stage, now.class, now.found = answered, uint8(errclass.Uncertain), view{}
			if isLogWrite(now.action) {
				now.stage = unsure
			}
		}))
	}
}

func isLogWrite(action uint8) bool {
	switch provision.Action(action) {
	case provision.OpenEntry, provision.NoteVersion, provision.MarkDiscarding, provision.CloseEntry:
		return true
	default:
		return false
	}
}

// learns takes the answer to a call.
func (c *transition) learns(i, n int) {
	now := &c.lines[i].calls[n]
	if !isLogWrite(now.action) {
		c.learn(i, n)
		return
	}
	switch errclass.Class(now.class) {
	case errclass.Done:
	case errclass.Exhausted:
		// There was no room for the entry, so that nothing was written.
		c.learn(i, n)
		return
	default:
		c.reread(i, n)
		return
	}
	c.lines[i].names[n].current = now.current
	c.learn(i, n)
}

// passes are what time does, and what a replica does by itself for a name.
func (k *worker) passes(s *state, i, n int) {
	l := &s.lines[i]
	m := &l.names[n]
	place := k.place(i)
	free := l.calls[n].stage == idle
	k.Can(free && m.backsOff, move{backOffEnds, i, n, 0}, func(c *transition) { c.lines[i].names[n].backsOff = false })
	k.Can(free && l.mayAct && provision.Log(m.log) == provision.LogUnknown, move{takesOver, i, n, 0},
		func(c *transition) { c.takeOver(i, n) })
	k.User(m.pv.read == recently || m.read == recently, &s.left.Slow, move{stalls, i, n, 0}, func(c *transition) {
		m := &c.lines[i].names[n]
		m.pv.read, m.read = min(m.pv.read*longAgo, longAgo), min(m.read*longAgo, longAgo)
	})
	waiting := m.record.unanswered == recently
	called, coming := k.called(s, place, n), k.coming(s, place, n)
	k.Can(waiting && !called && !coming, move{quietPasses, i, n, 0},
		func(c *transition) { c.lines[i].names[n].record.unanswered = longAgo })
	k.Breaks(waiting && !called && coming, &s.left.Overdue, move{quietPassesBefore, i, n, 0}, func(c *transition) {
		c.lines[i].names[n].record.unanswered = longAgo
		for j := range c.late {
			if o := &c.late[j]; o.stage != idle && k.place(int(o.replica)) == place && int(o.name) == n {
				o.overdue = true
			}
		}
	})
	k.User(k.mayRead(s, i, n), nil, move{logIsRead, i, n, 0}, func(c *transition) { c.readLog(i, n) })
}

// mayRead reports whether a read for another name shows a change of the log. That an operator settled the entry may be
// read during a call, other than a write of the log, whose own answer shows it.
func (w *World) mayRead(s *state, i, n int) bool {
	l, store := &s.lines[i], &s.shards[w.place(i)][n]
	now := &l.calls[n]
	free := now.stage == idle || store.settled && int(store.owner) == i+1 && !isLogWrite(now.action)
	return free && l.mayAct && l.names[n].outdated()
}

// coming reports whether a call that nobody waits for, other than a write of the log, is on its way.
func (w *World) coming(s *state, place, name int) bool {
	for j := range s.late {
		if o := &s.late[j]; o.stage != idle && !isLogWrite(o.action) && w.place(int(o.replica)) == place &&
			int(o.name) == name {
			return true
		}
	}
	return false
}

// called reports whether such a call is on its way that a replica waits for.
func (w *World) called(s *state, place, name int) bool {
	for i := range w.Replicas {
		if w.place(i) == place && s.lines[i].calls[name].stage == onItsWay && !isLogWrite(s.lines[i].calls[name].action) {
			return true
		}
	}
	return false
}
