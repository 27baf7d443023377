package reclaim

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

// replica is one process as a value: the engine, and in place of watches, queues and workers what they hold. PVs are
// known by the index of their name. It is not safe for concurrent use.
type replica struct {
	*machine
	engine *reclaim.Engine
	// cache is what the watch shows of each PV, nil for none.
	cache []*volume.PV
	// queued, unprotected and later are the keys that wait for the loop of deletions, for that of first-time
	// protection, and for the clock.
	queued, unprotected, later []bool
	// workers is the work under way for each key, protections the first-time protection that is under way.
	workers     []work
	protections []*reclaim.Ask
	// expired: its lease ran out, and it does not know.
	expired bool
	// reports are the reasons of the Events since it was opened.
	reports []reclaim.Reason
}

// work is that under way for one key.
type work struct {
	// session waits for an answer, nil for no work under way.
	session *reclaim.Session
	// left are the items that are left to decide on.
	left []reclaim.Item
}

// machine makes replicas of what they know, and takes them back. It is not safe for concurrent use: each worker has its
// own.
type machine struct {
	rules reclaim.Rules
	names []string
	words *words
	// idle are replicas to use again: there are millions, each for microseconds.
	idle []*replica
}

// newMachine returns a machine for PVs of these names. vocabulary holds every other string that occurs,
// resourceVersions included.
func newMachine(rules reclaim.Rules, names, vocabulary []string) *machine {
	return &machine{rules: rules, names: names, words: newWords(append(vocabulary, names...))}
}

// fresh returns a process that has just started.
func (m *machine) fresh() *replica {
	if n := len(m.idle); n > 0 {
		p := m.idle[n-1]
		m.idle = m.idle[:n-1]
		return p
	}
	n := len(m.names)
	p := &replica{
		machine: m, cache: make([]*volume.PV, n), workers: make([]work, n), protections: make([]*reclaim.Ask, n),
		queued: make([]bool, n), unprotected: make([]bool, n), later: make([]bool, n),
	}
	p.engine = reclaim.New(m.rules, reclaim.NewBreaker(0, 0), p)
	return p
}

// Release takes a replica back.
func (m *machine) Release(p *replica) {
	clear(p.cache)
	clear(p.queued)
	clear(p.unprotected)
	clear(p.later)
	clear(p.workers)
	clear(p.protections)
	e := p.engine
	clear(e.Deleting)
	clear(e.Tracker.Records)
	clear(e.Tracker.Tombstones)
	clear(e.Handles.First)
	clear(e.Handles.More)
	clear(e.Attached)
	e.Tracker.Contested, e.Leading = false, false
	p.expired, p.reports = false, p.reports[:0]
	m.idle = append(m.idle, p)
}

// Encode appends the process to b.
func (p *replica) Encode(b []byte) []byte {
	c := codec{memory.Archive{Bytes: b}, p.words}
	c.replica(p)
	return c.Bytes
}

// Decode takes a process off b and returns the rest.
func (m *machine) Decode(b []byte) (*replica, []byte) {
	p, c := m.fresh(), codec{memory.Archive{Bytes: b, Reads: true}, m.words}
	c.replica(p)
	return p, c.Bytes
}

// Get and Each are what the engine reads of the watch.
func (p *replica) Get(name string) (*volume.PV, bool) {
	pv := p.cache[p.index(name)]
	return pv, pv != nil
}

func (p *replica) Each(visit func(*volume.PV)) {
	for _, pv := range p.cache {
		if pv != nil {
			visit(pv)
		}
	}
}

func (p *replica) index(pv string) int {
	i := slices.Index(p.names, pv)
	if i < 0 {
		panic("no such PV: " + pv)
	}
	return i
}

func (p *replica) moment() reclaim.Moment { return reclaim.Moment{Now: clock.Now, Leading: !p.expired} }

func (p *replica) apply(fx reclaim.Effects) {
	for _, key := range fx.Keys {
		p.queued[p.index(key)] = true
	}
}

// showPV has the watch show a PV.
func (p *replica) showPV(i int, pv volume.PV) {
	before := p.cache[i]
	p.cache[i] = &pv
	if before == nil {
		p.apply(p.engine.PVAdded(&pv, clock.Now))
	} else {
		p.apply(p.engine.PVUpdated(before, &pv, clock.Now))
	}
}

// removePV has the watch show a PV's end: its last state, or the end without that (nil).
func (p *replica) removePV(i int, last *volume.PV) {
	final := last != nil
	if !final {
		last = p.cache[i]
	}
	p.cache[i] = nil
	if last != nil {
		p.apply(p.engine.PVDeleted(last, final, clock.Now))
	}
}

// showAttachment has the watch show a VolumeAttachment that was added, or deleted.
func (p *replica) showAttachment(i int, added bool) {
	if added {
		p.engine.AttachmentAdded(p.names[i])
	} else {
		p.apply(p.engine.AttachmentDeleted(p.names[i]))
	}
}

// endClaim has the watch of claims show the end of a claim that named the PV.
func (p *replica) endClaim(i int, claim types.UID) {
	p.apply(p.engine.ClaimDeleted(claim, p.names[i], clock.Now))
}

// begin has a worker take a key, and work until it asks.
func (p *replica) begin(i int) {
	p.queued[i], p.later[i] = false, false
	p.workers[i] = work{left: p.engine.Items(p.names[i])}
	p.advance(i)
}

// advance begins with what is left to do for a key, until a session asks.
func (p *replica) advance(i int) {
	w := &p.workers[i]
	for w.session == nil && len(w.left) > 0 {
		facts, found := p.engine.Facts(w.left[0], p.moment())
		w.left = w.left[1:]
		if found {
			s, step := p.engine.Begin(facts, p.moment())
			p.took(i, s, step)
		}
	}
}

func (p *replica) took(i int, s *reclaim.Session, step reclaim.Step) {
	p.report(step.Besides)
	for range step.TooLate {
		p.report(reclaim.Report{Kind: reclaim.Besides, Reason: reclaim.ReasonTooLateToKeep})
	}
	if step.Result == reclaim.Asks {
		p.workers[i].session = s
		return
	}
	p.engine.Abandon(s)
	p.workers[i].session = nil
	p.report(step.Report)
	p.unprotected[i] = p.unprotected[i] || step.Protect
	p.later[i] = p.later[i] || step.Result != reclaim.Idle
}

func (p *replica) report(r reclaim.Report) {
	if r.Kind != reclaim.None && r.Reason.EventType() != "" {
		p.reports = append(p.reports, r.Reason)
	}
}

// busy reports whether a worker works on the key, and asks returns what it asks.
func (p *replica) busy(i int) bool        { return p.workers[i].session != nil }
func (p *replica) asks(i int) reclaim.Ask { return p.workers[i].session.Ask }

// answer answers it.
func (p *replica) answer(i int, reply reclaim.Reply) {
	s := p.workers[i].session
	p.took(i, s, p.engine.Answer(s, reply, p.moment()))
	p.advance(i)
}

// beginProtect has the other loop take a key.
func (p *replica) beginProtect(i int) {
	p.unprotected[i] = false
	if ask, needed := p.engine.BeginProtect(p.names[i], p.moment()); needed {
		p.protections[i] = &ask
	}
}

// answerProtect answers what it asks.
func (p *replica) answerProtect(i int, reply reclaim.Reply) {
	ask := *p.protections[i]
	p.protections[i] = nil
	step := p.engine.AnswerProtect(ask, reply, p.moment())
	p.report(step.Report)
	p.unprotected[i] = p.unprotected[i] || step.Result != reclaim.Idle
}

// ageEnd makes the end of a claim of the PV that the watch has shown too old.
func (p *replica) ageEnd(i int) {
	if p.cache[i] == nil {
		return
	}
	if r := p.engine.Tracker.Records[p.cache[i].UID]; r != nil && r.Activity != nil && !r.Activity.ClaimEndedAt.IsZero() {
		r.Activity.ClaimEndedAt = clock.Old.Time()
	}
}

// age makes the live reads of the key being worked on too old.
func (p *replica) age(i int) {
	f := &p.workers[i].session.Facts
	for _, read := range []*session.Read{&f.PVRead, &f.ClaimRead, &f.SiblingsRead, &f.PVsListed} {
		if read.Order > 0 {
			read.Sent = clock.Old.Time()
		}
	}
}
