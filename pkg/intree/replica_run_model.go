//go:build model

package intree

import (
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
)

// Replica is one process as a value: what it has seen, remembers and has in hand. All of it is the
// code that ships, but for its queue, its cache and the API server.
type Replica struct {
	*Machine
	c     Controller
	leads bool
	seen  []PVView
	// reached is, for each name, the version up to which the watch has told.
	reached []uint8
	// Woken are the slots that wait in the loop, Again those that come back to it by the clock.
	Woken, Again []bool
	hands        []hand
	answers      answers
}

// hand is the run that a worker has in hand for one name. Its step is begun anew with each answer.
type hand struct {
	w     *run
	d     Decision
	given []Reply
	ask   Ask
}

// Fresh returns a process that has just been started.
func (m *Machine) Fresh() *Replica {
	if n := len(m.idle); n > 0 {
		r := m.idle[n-1]
		m.idle = m.idle[:n-1]
		return r
	}
	n := len(m.slots)
	r := &Replica{
		Machine: m, seen: make([]PVView, n), reached: make([]uint8, n), Woken: make([]bool, n), Again: make([]bool, n), hands: make([]hand, n),
	}
	r.c.cfg, r.c.reports, r.c.metrics, r.c.cluster = m.parts.cfg, m.parts.reports, m.parts.metrics, r
	r.c.observer = newObserver(r.wake, func(types.UID) {})
	r.c.observer.pvs, r.c.observer.log = seenPVs{r}, klog.Logger{} // says nothing
	return r
}

// Release gives a Replica back that is not looked at any more.
func (m *Machine) Release(r *Replica) {
	clear(r.seen)
	clear(r.reached)
	clear(r.Woken)
	clear(r.Again)
	clear(r.hands)
	r.leads = false
	n := r.c.observer.notes
	clear(n.sources.pvs)
	clear(n.done)
	clear(n.failed)
	clear(n.leftSince)
	clear(n.managedTwin)
	clear(n.goes)
	clear(n.wrote)
	clear(n.others)
	m.idle = append(m.idle, r)
}

// wake is the loop's queue. A process that waits to lead has none.
func (r *Replica) wake(name string) {
	if r.leads {
		r.Woken[r.slotOf(name)] = true
	}
}

// seenPVs is the watch cache.
type seenPVs struct{ r *Replica }

func (s seenPVs) Get(name string) (*PV, bool) {
	slot := slices.Index(s.r.slots, name)
	if slot < 0 {
		return nil, false
	}
	return s.r.record(slot, s.r.seen[slot])
}

func (s seenPVs) Each(visit func(*PV)) {
	for slot, view := range s.r.seen {
		if pv, found := s.r.record(slot, view); found {
			visit(pv)
		}
	}
}

// Reached tells of a version whether the watch has got that far: it tells of all PVs in their order.
func (s seenPVs) Reached(version string) bool {
	v, _ := strconv.Atoi(version)
	return int(s.r.reached[v>>8]) >= v&255
}

// Lead makes the process the one that acts.
func (r *Replica) Lead() {
	r.leads = true
	for _, name := range r.c.observer.names() {
		r.wake(name)
	}
}

// Leads tells whether it acts.
func (r *Replica) Leads() bool { return r.leads }

// Reach has a process begin its watch at a version of a name.
func (r *Replica) Reach(slot int, version uint8) { r.reached[slot] = version }

// See has the watch show what has become of a PV.
func (r *Replica) See(slot int, now PVView) {
	before, existed := r.record(slot, r.seen[slot])
	r.seen[slot], r.reached[slot] = now, now.Version
	is, _ := r.record(slot, now)
	if existed {
		changes{r.c.observer}.Updated(before, is)
		return
	}
	changes{r.c.observer}.Added(is)
}

// Lose has the watch tell of a PV's end, and its last state.
func (r *Replica) Lose(slot int, last PVView) {
	r.seen[slot], r.reached[slot] = PVView{}, last.Version
	was, _ := r.record(slot, last)
	changes{r.c.observer}.Deleted(was, true)
}

// Busy tells whether a worker has the name in hand.
func (r *Replica) Busy(slot int) bool { return r.hands[slot].w != nil }

// Asks returns what is asked for the name in hand, and why.
func (r *Replica) Asks(slot int) (Ask, Reason) { return r.hands[slot].ask, r.hands[slot].d.Reason }

// Begin has a worker take a name. It goes on until something is asked.
func (r *Replica) Begin(slot int) {
	r.Woken[slot], r.Again[slot] = false, false
	if w, found := r.c.begin(r.slots[slot]); found {
		r.decide(slot, w)
	}
}

// Answer goes on with the name in hand.
func (r *Replica) Answer(slot int, reply Reply) {
	r.hands[slot].given = append(r.hands[slot].given, reply)
	r.carryOn(slot)
}

// decide takes a run's next step, as carryOut does.
func (r *Replica) decide(slot int, w *run) {
	d := Decide(w.facts, r.c.cfg.Clock.Now())
	r.hands[slot] = hand{w: w, d: d}
	if d.Action == Wait {
		r.end(slot, nil)
		return
	}
	r.carryOn(slot)
}

// carryOn carries out the step in hand as far as there are answers.
func (r *Replica) carryOn(slot int) {
	h := &r.hands[slot]
	over, err := r.attempt(h)
	switch {
	case !over:
	case err != nil:
		r.end(slot, err)
	default:
		r.decide(slot, h.w)
	}
}

// attempt carries out a step, or finds what it asks: then all is as before the step.
func (r *Replica) attempt(h *hand) (over bool, err error) {
	before := *h.w
	r.answers = answers{given: h.given}
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case unanswered{}:
			*h.w = before
			h.ask, over = r.answers.asked, false
		default:
			panic(cause)
		}
	}()
	return true, h.w.take(r.ctx, h.d)
}

func (r *Replica) end(slot int, err error) {
	h := r.hands[slot]
	r.hands[slot] = hand{}
	r.Again[slot] = h.w.ended(r.ctx, h.d, err).Backoff.Max != 0
}

// Age makes the live reads of the run in hand too old.
func (r *Replica) Age(slot int) {
	f := &r.hands[slot].w.facts
	old := r.c.cfg.Clock.Now().Add(-2 * liveFor)
	for _, read := range []*Read{&f.PVRead, &f.Claim.Read, &f.Attachments.Read, &f.Original.Read, &f.SiblingsRead} {
		if read.Order > 0 {
			read.Sent = old
		}
	}
}

// Waits tells whether a delay is in force for a PV.
func (r *Replica) Waits(slot int) bool {
	n, uid, now := r.c.observer.notes, uidOf(slot, 1), r.c.cfg.Clock.Now()
	since, left := n.leftSince[uid]
	return n.failed[uid].Until.After(now) || left && now.Sub(since) < patience
}

// PassTime has the delays be over.
func (r *Replica) PassTime(slot int) {
	n, uid, now := r.c.observer.notes, uidOf(slot, 1), r.c.cfg.Clock.Now()
	if f, failed := n.failed[uid]; failed {
		f.Until = now
		n.failed[uid] = f
	}
	if _, left := n.leftSince[uid]; left {
		n.leftSince[uid] = now.Add(-patience)
	}
}

// storedFor returns the PV that a run has read, if it has read one.
func (m *Machine) storedFor(slot int, facts *Snapshot) *v1.PersistentVolume {
	if facts.PVRead.Order == 0 {
		return nil
	}
	return m.object(slot, m.viewOf(facts.PV))
}

func (m *Machine) readAt(order uint8, fresh bool) Read {
	switch {
	case order == 0:
		return Read{}
	case fresh:
		return Read{m.parts.cfg.Clock.Now(), int(order)}
	}
	return Read{m.parts.cfg.Clock.Now().Add(-2 * liveFor), int(order)}
}

func (m *Machine) past(is, over bool, long time.Duration) time.Time {
	switch {
	case !is:
		return time.Time{}
	case over:
		return m.parts.cfg.Clock.Now().Add(-long)
	}
	return m.parts.cfg.Clock.Now()
}
