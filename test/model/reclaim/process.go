package reclaim

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Process is one process as a value: the engine, and in place of watches, queues and workers what they hold. All of it
// is plain, so that a model checker can copy and encode it. PVs are known by the index of their name. It is not safe
// for concurrent use.
type Process struct {
	Engine *reclaim.Engine
	// Names are those of the PVs that there can be.
	Names []string
	// Now is the time, which stands still.
	Now time.Time
	// Cache is what the watch shows of each PV, nil for none.
	Cache []*volume.PV
	// Queued, Unprotected and Later are the keys that wait for the loop of deletions, for that of first-time
	// protection, and for the clock.
	Queued, Unprotected, Later []bool
	// Workers is the work under way for each key, Protections the first-time protection that is under way.
	Workers     []Worker
	Protections []*reclaim.Ask
	// Expired: its lease ran out, and it does not know.
	Expired bool
	// Reports are the reasons of the Events since the last Reset.
	Reports []reclaim.Reason
}

// Worker is the work under way for one key.
type Worker struct {
	// Session waits for an answer, nil for no work under way.
	Session *reclaim.Session
	// Left are the items that are left to decide on.
	Left []reclaim.Item
}

// NewProcess returns a process that has just started.
func NewProcess(rules reclaim.Rules, names []string, now time.Time) *Process {
	n := len(names)
	p := &Process{
		Names: names, Now: now, Cache: make([]*volume.PV, n), Workers: make([]Worker, n),
		Protections: make([]*reclaim.Ask, n),
		Queued:      make([]bool, n), Unprotected: make([]bool, n), Later: make([]bool, n),
	}
	p.Engine = reclaim.New(rules, reclaim.NewBreaker(0, 0), cache{p})
	return p
}

// Reset makes it a process that has just started.
func (p *Process) Reset() {
	clear(p.Cache)
	clear(p.Queued)
	clear(p.Unprotected)
	clear(p.Later)
	clear(p.Workers)
	clear(p.Protections)
	e := p.Engine
	clear(e.Deleting)
	clear(e.Tracker.Records)
	clear(e.Tracker.Tombstones)
	clear(e.Handles.First)
	clear(e.Handles.More)
	clear(e.Attached)
	e.Tracker.Contested, e.Leading = false, false
	p.Expired, p.Reports = false, p.Reports[:0]
}

// cache is what the engine reads of the watch.
type cache struct{ of *Process }

func (c cache) Get(name string) (*volume.PV, bool) {
	pv := c.of.Cache[c.of.index(name)]
	return pv, pv != nil
}

func (c cache) Each(visit func(*volume.PV)) {
	for _, pv := range c.of.Cache {
		if pv != nil {
			visit(pv)
		}
	}
}

func (p *Process) index(pv string) int {
	for i, name := range p.Names {
		if name == pv {
			return i
		}
	}
	panic("no such PV: " + pv)
}

func (p *Process) moment() reclaim.Moment {
	return reclaim.Moment{Now: p.Now, Leading: !p.Expired}
}

// Lead makes the process the one that acts.
func (p *Process) Lead() { p.Engine.Lead(true) }

// Leads reports whether it acts.
func (p *Process) Leads() bool { return p.Engine.Leading }

func (p *Process) apply(fx reclaim.Effects) {
	for _, key := range fx.Keys {
		p.Queued[p.index(key)] = true
	}
}

// ShowPV has the watch show a PV.
func (p *Process) ShowPV(i int, now *volume.PV) {
	before := p.Cache[i]
	p.Cache[i] = now
	if before == nil {
		p.apply(p.Engine.PVAdded(now, p.Now))
	} else {
		p.apply(p.Engine.PVUpdated(before, now, p.Now))
	}
}

// RemovePV has the watch show a PV's end: its last state, or the end without that (nil).
func (p *Process) RemovePV(i int, last *volume.PV) {
	final := last != nil
	if !final {
		last = p.Cache[i]
	}
	p.Cache[i] = nil
	if last != nil {
		p.apply(p.Engine.PVDeleted(last, final, p.Now))
	}
}

// ShowAttachment has the watch show a VolumeAttachment that was added, or deleted.
func (p *Process) ShowAttachment(i int, added bool) {
	if added {
		p.Engine.AttachmentAdded(p.Names[i])
	} else {
		p.apply(p.Engine.AttachmentDeleted(p.Names[i]))
	}
}

// ShowClaim has the watch of claims show a claim that names the PV.
func (p *Process) ShowClaim(i int) { p.Engine.ClaimShown(p.Names[i]) }

// EndClaim has it show the end of a claim that named the PV.
func (p *Process) EndClaim(i int, claim types.UID) {
	p.apply(p.Engine.ClaimDeleted(claim, p.Names[i], p.Now))
}

// Begin has a worker take a key, and work until it asks.
func (p *Process) Begin(i int) {
	p.Queued[i], p.Later[i] = false, false
	p.Workers[i] = Worker{Left: p.Engine.Items(p.Names[i])}
	p.advance(i)
}

// advance begins with what is left to do for a key, until a session asks.
func (p *Process) advance(i int) {
	w := &p.Workers[i]
	for w.Session == nil && len(w.Left) > 0 {
		facts, found := p.Engine.Facts(w.Left[0], p.moment())
		w.Left = w.Left[1:]
		if found {
			s, step := p.Engine.Begin(facts, p.moment())
			p.took(i, s, step)
		}
	}
}

func (p *Process) took(i int, s *reclaim.Session, step reclaim.Step) {
	p.report(step.Besides)
	for range step.TooLate {
		p.report(reclaim.Report{Kind: reclaim.Besides, Reason: reclaim.ReasonTooLateToKeep})
	}
	if step.Result == reclaim.Asks {
		p.Workers[i].Session = s
		return
	}
	p.Engine.Abandon(s)
	p.Workers[i].Session = nil
	p.report(step.Report)
	p.Unprotected[i] = p.Unprotected[i] || step.Protect
	p.Later[i] = p.Later[i] || step.Result != reclaim.Idle
}

func (p *Process) report(r reclaim.Report) {
	if r.Kind != reclaim.None && r.Reason.EventType() != "" {
		p.Reports = append(p.Reports, r.Reason)
	}
}

// Busy reports whether a worker works on the key.
func (p *Process) Busy(i int) bool { return p.Workers[i].Session != nil }

// Asks returns what it asks.
func (p *Process) Asks(i int) reclaim.Ask { return p.Workers[i].Session.Ask }

// Answer answers it.
func (p *Process) Answer(i int, reply reclaim.Reply) {
	s := p.Workers[i].Session
	p.took(i, s, p.Engine.Answer(s, reply, p.moment()))
	p.advance(i)
}

// Protecting reports whether a first-time protection is under way.
func (p *Process) Protecting(i int) bool { return p.Protections[i] != nil }

// BeginProtect has the other loop take a key.
func (p *Process) BeginProtect(i int) {
	p.Unprotected[i] = false
	if ask, needed := p.Engine.BeginProtect(p.Names[i], p.moment()); needed {
		p.Protections[i] = &ask
	}
}

// AnswerProtect answers what it asks.
func (p *Process) AnswerProtect(i int, reply reclaim.Reply) {
	ask := *p.Protections[i]
	p.Protections[i] = nil
	step := p.Engine.AnswerProtect(ask, reply, p.moment())
	p.report(step.Report)
	p.Unprotected[i] = p.Unprotected[i] || step.Result != reclaim.Idle
}

// replica is a process of a world.
type replica struct {
	*Process
	of *machine
}

// Encode appends the process to b.
func (p *replica) Encode(b []byte) []byte {
	w := &writer{p.of.words, b}
	w.replica(p.Process)
	return w.b
}

// machine makes replicas of what they know, and takes them back. It is not safe for concurrent use: each worker has its
// own.
type machine struct {
	rules reclaim.Rules
	names []string
	words words
	// idle are replicas to use again: there are millions, each for microseconds.
	idle []*replica
}

// now is the time, which stands still in a model.
func now() time.Time { return time.Unix(1e9, 0) }

// newMachine returns a machine for PVs of these names. vocabulary holds every other string that occurs,
// resourceVersions included.
func newMachine(rules reclaim.Rules, names, vocabulary []string) *machine {
	return &machine{rules: rules, names: names, words: newWords(append(vocabulary, names...))}
}

// Fresh returns a process that has just started.
func (m *machine) Fresh() *replica {
	if n := len(m.idle); n > 0 {
		p := m.idle[n-1]
		m.idle = m.idle[:n-1]
		return p
	}
	return &replica{NewProcess(m.rules, m.names, now()), m}
}

// Release takes a replica back.
func (m *machine) Release(p *replica) {
	p.Reset()
	m.idle = append(m.idle, p)
}

// Decode takes a process off b and returns the rest.
func (m *machine) Decode(b []byte) (*replica, []byte) {
	p, r := m.Fresh(), &reader{m.words, b}
	r.replica(p.Process)
	return p, r.b
}

// ageEnd makes the end of a claim of the PV that the watch has shown too old.
func ageEnd(p *replica, i int) {
	if p.Cache[i] == nil {
		return
	}
	if r := p.Engine.Tracker.Records[p.Cache[i].UID]; r != nil && r.Activity != nil && !r.Activity.ClaimEndedAt.IsZero() {
		r.Activity.ClaimEndedAt = p.Now.Add(-2 * session.LiveFor)
	}
}

// age makes the live reads of the key being worked on too old.
func age(p *replica, i int) {
	f := &p.Workers[i].Session.Facts
	old := p.Now.Add(-2 * session.LiveFor)
	for _, read := range []*session.Read{&f.PVRead, &f.Claim.Read, &f.SiblingsRead, &f.PVsListed} {
		if read.Order > 0 && read.Sent.After(old) {
			read.Sent = old
		}
	}
}
