package inflight

import "github.com/csi-reclaimer/csi-reclaimer/test/model/search"

// Player returns a Player of the world.
func (w *World) Player() search.Player { return newWorker(w) }

// transition is a copy of a state, under change by a move.
type transition struct {
	*World
	state
	search.Verdict
}

// worker visits states. Each goroutine has its own.
type worker struct {
	*World
	search.Plain[state, move, *transition]
}

func newWorker(w *World) *worker {
	k := &worker{World: w}
	k.Plain = search.Plain[state, move, *transition]{
		Begins: w.first, Copy: func(s *state) *transition { return &transition{World: w, state: *s} }, Offer: k.moves,
		Describe: w.describe,
		Rests:    func(s *state) (wrong string, rests bool) { return unsettled(s), !k.Busy },
	}
	return k
}

// moves makes every possible move of a state.
func (k *worker) moves(s *state) {
	for i := range k.Releases {
		k.lifetimes(s, i)
		k.users(s, i)
		k.Cluster(func() { k.process(s, i) })
	}
	k.Cluster(func() { k.lateWrites(s) })
	k.User(s.old.exists, &s.left.DeleteOld, move{verb: oldIsDeleted}, func(c *transition) {
		for n, value := range c.old.has {
			c.lost[n] = value != 0
		}
		c.commit(true, lease{})
	})
}

// runs reports whether a process serves its callers.
func (p *process) runs() bool { return p.does >= idle && p.does <= readsOld }

// lifetimes makes the moves of a process that starts and ends.
func (k *worker) lifetimes(s *state, i int) {
	now := s.processes[i].does
	start := func(c *transition) { c.processes[i].does = takesOver }
	if i > 0 && now == absent {
		before := s.processes[i-1].does
		k.Cluster(func() { k.Can(before >= ended, move{verb: processStarts, process: i}, start) })
		k.Breaks(s.processes[i-1].runs(), &s.left.Overlap, move{verb: otherLeads, process: i}, start)
	}
	k.Breaks(now != absent && now < stops, &s.left.Crash, move{verb: processCrashes, process: i}, func(c *transition) {
		c.abandon(i)
		c.end(i, ended)
	})
	k.User(s.processes[i].runs(), &s.left.Stop, move{verb: processStops, process: i}, func(c *transition) {
		c.abandon(i)
		p := &c.processes[i]
		if !p.old.exists {
			c.end(i, ended)
			return
		}
		content := lease{exists: true, owner: uint8(i + 1), has: p.want}
		*p = process{does: stops, want: p.want, sent: write{sent: true, current: p.young.current, content: content}}
	})
}

// end ends a process, of which only the entries that it found still matter.
func (c *transition) end(i int, how uint8) {
	c.processes[i] = process{does: how, inherited: c.processes[i].inherited}
}

// abandon leaves the write of a process that is under way to itself.
func (c *transition) abandon(i int) {
	p := &c.processes[i]
	sent := p.sent
	p.sent = write{}
	if !sent.current {
		return
	}
	for j := range c.late {
		if !c.late[j].sent {
			c.late[j] = sent
			return
		}
	}
	panic("too many writes without an answer")
}

// users makes the moves of the callers of a process.
func (k *worker) users(s *state, i int) {
	p := &s.processes[i]
	for n := range entries {
		k.User(p.runs(), &s.left.Put, move{putEntry, i, n}, func(c *transition) {
			p := &c.processes[i]
			p.want[n], p.confirmed[n], p.removing[n] = c.next[n], false, false
			c.next[n]++
			c.allow(i, n)
		})
		k.User(p.runs() && p.want[n] != 0, &s.left.Remove, move{removeEntry, i, n}, func(c *transition) {
			p := &c.processes[i]
			p.want[n], p.confirmed[n], p.removing[n] = 0, false, true
			c.allow(i, n)
		})
	}
}

// lateWrites makes the moves of writes without a waiting process.
func (k *worker) lateWrites(s *state) {
	for j := range s.late {
		k.Can(s.late[j].sent, move{verb: lateArrives, entry: j}, func(c *transition) {
			o := c.late[j]
			c.late[j] = write{}
			c.commit(o.toOld, o.content)
		})
		k.Can(s.late[j].sent, move{verb: lateIsLost, entry: j}, func(c *transition) { c.late[j] = write{} })
	}
}

// commit stores a Lease. All other writes that are based on an earlier version of it are refused.
func (c *transition) commit(toOld bool, content lease) {
	if toOld {
		c.old = content
	} else {
		c.young = content
	}
	for i := range c.processes {
		p := &c.processes[i]
		p.sent.current = p.sent.current && p.sent.toOld != toOld
		if toOld {
			p.old.current, p.opening.current, p.oldBase = false, false, false
		} else {
			p.young.current, p.part.current = false, false
		}
	}
	for j := range c.late {
		if c.late[j].toOld == toOld {
			c.late[j] = write{}
		}
	}
}
