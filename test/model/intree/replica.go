package intree

import (
	"slices"
	"strconv"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
)

// replica is one process as a value: what it has seen, remembers and works on. All of it is the code that ships, but
// for its queue, its cache and the API server.
type replica struct {
	*machine
	tracker *intree.Tracker
	leads   bool
	seen    []view
	// reached is, for each name, the version that the watch has reached.
	reached []uint8
	// woken are the slots that are in the queue, again those that come back to it by the clock.
	woken, again []bool
	// sessions are those under way, by slot; busy says where there is one.
	sessions []intree.Session
	busy     []bool
}

// fresh returns a process that has just been started.
func (m *machine) fresh() *replica {
	if n := len(m.idle); n > 0 {
		r := m.idle[n-1]
		m.idle = m.idle[:n-1]
		return r
	}
	n := len(m.slots)
	return &replica{
		machine: m, tracker: intree.NewTracker(), seen: make([]view, n), reached: make([]uint8, n),
		woken: make([]bool, n), again: make([]bool, n), sessions: make([]intree.Session, n), busy: make([]bool, n),
	}
}

// Release takes a replica back that is not used any more.
func (m *machine) Release(r *replica) {
	clear(r.seen)
	clear(r.reached)
	clear(r.woken)
	clear(r.again)
	clear(r.sessions)
	clear(r.busy)
	r.leads = false
	t := r.tracker
	clear(t.Volumes)
	clear(t.Foreign)
	clear(t.Tombstones)
	clear(t.Failures)
	clear(t.YieldedSince)
	clear(t.ForeignTwin)
	clear(t.DeletionAccepted)
	clear(t.Expectations)
	m.idle = append(m.idle, r)
}

// enqueue is the queue. A process that waits to lead has none.
func (r *replica) enqueue(name string) {
	if r.leads {
		r.woken[r.slotOf(name)] = true
	}
}

// take enqueues what follows from an event.
func (r *replica) take(wake intree.Wake) {
	if wake.OtherChanged {
		r.enqueueAll()
	}
	for _, name := range wake.PVs {
		r.enqueue(name)
	}
}

func (r *replica) enqueueAll() {
	for slot, view := range r.seen {
		if pv, found := r.record(slot, view); found && pv.Decided() {
			r.enqueue(pv.Name)
		}
	}
}

// cache is the watch cache.
type cache struct{ r *replica }

// Get returns the PV of a name.
func (c cache) Get(name string) (*intree.PV, bool) {
	slot := slices.Index(c.r.slots, name)
	if slot < 0 {
		return nil, false
	}
	return c.r.record(slot, c.r.seen[slot])
}

// Reached reports whether the watch has reached a version: it shows all PVs in their order.
func (c cache) Reached(version string) bool {
	v, _ := strconv.Atoi(version)
	return int(c.r.reached[v>>8]) >= v&255
}

// lead makes the process the one that acts.
func (r *replica) lead() {
	r.leads = true
	r.enqueueAll()
}

// see has the watch show what has become of a PV.
func (r *replica) see(slot int, now view) {
	before, existed := r.record(slot, r.seen[slot])
	r.seen[slot], r.reached[slot] = now, now.Version
	is, _ := r.record(slot, now)
	if existed {
		r.take(r.tracker.Updated(before, is, cache{r}))
		return
	}
	r.take(r.tracker.Added(is, cache{r}))
}

// lose has the watch show a PV's end, and its last state.
func (r *replica) lose(slot int, last view) {
	r.seen[slot], r.reached[slot] = view{}, last.Version
	was, _ := r.record(slot, last)
	r.take(r.tracker.Deleted(was, true, cache{r}))
}

// asks returns the call that the session of a slot waits for.
func (r *replica) asks(slot int) ask { return r.askOf(&r.sessions[slot]) }

// begin has a worker take a name. It continues until something is asked.
func (r *replica) begin(slot int) {
	r.woken[slot], r.again[slot] = false, false
	if facts, found := r.tracker.Observe(r.slots[slot], cache{r}, clock.Now); found {
		r.sessions[slot], r.busy[slot] = intree.Begin(facts, r.rules, clock.Now), true
		r.ended(slot)
	}
}

// answer continues with the session of a slot.
func (r *replica) answer(slot int, to ask, answer reply) {
	r.sessions[slot].Answer(r.tracker, cache{r}, r.replyOf(to, answer), clock.Now, clock.Now)
	r.ended(slot)
}

// ended puts away a session that has ended.
func (r *replica) ended(slot int) {
	s := &r.sessions[slot]
	s.Steps = 0 // its bound is for clocks that run
	if s.End == session.NotEnded {
		return
	}
	r.again[slot] = s.Requeue() != session.RequeueNever
	r.sessions[slot], r.busy[slot] = intree.Session{}, false
}

// age makes the live reads of a session too old.
func (r *replica) age(slot int) {
	for _, read := range liveReads(&r.sessions[slot]) {
		if read.Order > 0 {
			read.Sent = clock.Old.Time()
		}
	}
}

// liveReads returns the live reads of a session.
func liveReads(s *intree.Session) []*session.Read {
	f := &s.Facts
	return []*session.Read{&f.PVRead, &f.ClaimRead, &f.AttachmentsRead, &f.OriginalRead, &f.SiblingsRead,
		&s.SiblingsRead}
}

// waits reports whether a delay is in force for a PV.
func (r *replica) waits(slot int) bool {
	uid := uidOf(slot, 1)
	return r.tracker.Failures[uid].Until.After(clock.Now) || clock.AgeOf(r.tracker.YieldedSince[uid]) == clock.Young
}

// passTime ends the delays of a PV.
func (r *replica) passTime(slot int) {
	t, uid := r.tracker, uidOf(slot, 1)
	if f, failed := t.Failures[uid]; failed {
		f.Until = clock.Now
		t.Failures[uid] = f
	}
	if _, yielded := t.YieldedSince[uid]; yielded {
		t.YieldedSince[uid] = clock.Old.Time()
	}
}
