//go:build model

package reclaim

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	testclock "k8s.io/utils/clock/testing"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/controller"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/events"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/internal/kube"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// Machine makes Replicas for the model checker. It is not safe for concurrent use: each
// worker has its own.
type Machine struct {
	rules Rules
	// names are those of the PVs; a PV is known by its index.
	names []string
	words words
	ctx   context.Context
	// parts are shared by all Replicas, and hold nothing that is decided from.
	parts Reclaimer
	// idle are Replicas to use again: there are millions, each for microseconds.
	idle []*Replica
}

// Replica is one process as a value: what it has seen, remembers and has in hand. All of it
// is the code that ships, but for the queues, the caches' machinery and those who answer.
type Replica struct {
	*Machine
	r    Reclaimer
	seen []*volume.PV
	// Woken and Unprotected are the keys that wait in the two loops, Again those that come
	// back by the clock.
	Woken, Unprotected, Again []bool
	hands                     []hand
	protects                  []*call
	// Expired: its lease ran out, and it goes on.
	Expired bool
	// Reports are the reasons of the Events that it recorded since it was opened.
	Reports []Reason
}

// Left is what is left of its lease.
func (p *Replica) Left() time.Duration {
	if p.Expired {
		return 0
	}
	return time.Hour
}

// hand is the work that a worker has in hand for one key.
type hand struct {
	run  *run
	call call
	left []matter
}

// Ask is what a step asks.
type Ask struct {
	Action    Action
	PV        volume.PV
	Add, Drop []string
	Bound     bool
	Siblings  []volume.PV
	// Ended: the PV is gone, and the volume deleted without one.
	Ended bool
}

// Outcome is how a call ended. The zero value: the answer is as hoped for.
type Outcome uint8

const (
	// OK is the answer that was hoped for.
	OK Outcome = iota
	// Changed: the API server refused a write, for the object is not as it was read.
	Changed
	// Gone: there is no object of that UID.
	Gone
	// Broken: no answer came, whatever was done.
	Broken
)

// Reply is the answer to an Ask.
type Reply struct {
	Outcome Outcome
	PV      volume.PV
	Found   bool
	Claim   ClaimFacts
	PVs     []volume.PV
	// Claims are the claims of PVs, by the UID of the PV.
	Claims map[types.UID]ClaimFacts
	// Attached counts the VolumeAttachments by the PVs' names.
	Attached map[string]int
	Version  string
}

// NewMachine returns a Machine for PVs of these names. vocabulary holds every other string
// that occurs, resourceVersions included.
func NewMachine(rules Rules, names, vocabulary []string) *Machine {
	m := &Machine{rules: rules, names: names, words: newWords(append(vocabulary, names...))}
	m.ctx = klog.NewContext(context.Background(), klog.Logger{}) // says nothing
	clock := testclock.NewFakeClock(time.Unix(1e9, 0))
	cfg := Config{Role: rules.Role, Mode: rules.Mode, Clock: clock}.withDefaults()
	m.parts = Reclaimer{
		cfg: cfg, driver: rules.Driver, metrics: newMetrics(rules.Driver), brake: newBrake(cfg.Brake, clock),
	}
	return m
}

// Release gives a Replica back that is not looked at any more.
func (m *Machine) Release(p *Replica) {
	o := p.r.observer
	clear(p.seen)
	clear(p.Woken)
	clear(p.Unprotected)
	clear(p.Again)
	clear(p.hands)
	clear(p.protects)
	clear(p.r.deleting.handles)
	clear(o.notes.known)
	clear(o.notes.ended)
	clear(o.handles.first)
	clear(o.handles.more)
	clear(o.attached.count)
	o.notes.contested = false
	o.leading.Store(false)
	p.Expired, p.Reports = false, p.Reports[:0]
	p.r.reports.Board = events.Board[Reason]{}
	m.idle = append(m.idle, p)
}

// Fresh returns a process that has just been started.
func (m *Machine) Fresh() *Replica {
	if n := len(m.idle); n > 0 {
		p := m.idle[n-1]
		m.idle = m.idle[:n-1]
		return p
	}
	n := len(m.names)
	p := &Replica{
		Machine: m, seen: make([]*volume.PV, n), hands: make([]hand, n), protects: make([]*call, n),
		Woken: make([]bool, n), Unprotected: make([]bool, n), Again: make([]bool, n),
	}
	p.r.cfg, p.r.driver, p.r.metrics, p.r.brake = m.parts.cfg, m.parts.driver, m.parts.metrics, m.parts.brake
	p.r.cfg.Lease = p
	p.r.reports = newReports(events.NoEvents{}, func(reason Reason) { p.Reports = append(p.Reports, reason) })
	p.r.reports.lease = p
	p.r.deleting = newInFlight()
	p.r.protectSoon = func(pv string) { p.Unprotected[m.indexOf(pv)] = true }
	wake := func(pv string) { p.Woken[m.indexOf(pv)] = true }
	p.r.observer = newObserver(m.rules, m.parts.brake, m.parts.cfg.Clock, wake, func(types.UID) {})
	p.r.observer.pvs, p.r.observer.attachments, p.r.observer.lease = p, p, p
	return p
}

func (m *Machine) indexOf(pv string) int {
	for i, name := range m.names {
		if name == pv {
			return i
		}
	}
	panic("no PV of the model: " + pv)
}

// Get, Each and Reached are what is asked of the watches.
func (p *Replica) Get(name string) (*volume.PV, bool) {
	pv := p.seen[p.indexOf(name)]
	return pv, pv != nil
}

// Each visits the PVs that were seen.
func (p *Replica) Each(visit func(*volume.PV)) {
	for _, pv := range p.seen {
		if pv != nil {
			visit(pv)
		}
	}
}

// Reached is never asked: lists are complete.
func (p *Replica) Reached(string) bool { return false }

// Lead makes the process the one that acts.
func (p *Replica) Lead() { p.r.lead(true) }

// Leads tells whether it acts.
func (p *Replica) Leads() bool { return p.r.observer.leading.Load() }

// Seen returns the PV as the cache shows it, nil if it shows none.
func (p *Replica) Seen(i int) *volume.PV { return p.seen[i] }

// SeePV has the watch show a PV.
func (p *Replica) SeePV(i int, now *volume.PV) {
	before := p.seen[i]
	p.seen[i] = now
	if before == nil {
		pvChanges{p.r.observer}.Added(now)
	} else {
		pvChanges{p.r.observer}.Updated(before, now)
	}
}

// LosePV has the watch tell of a PV's end: of its last state, or without that (nil).
func (p *Replica) LosePV(i int, last *volume.PV) {
	final := last != nil
	if !final {
		last = p.seen[i]
	}
	p.seen[i] = nil
	if last != nil {
		pvChanges{p.r.observer}.Deleted(last, final)
	}
}

// SeeAttachment has the watch tell of a VolumeAttachment that came or went.
func (p *Replica) SeeAttachment(i, by int) { attachmentChanges{p.r.observer}.count(p.names[i], by) }

// Begin has a worker take a key. It goes on until a call is to be sent.
func (p *Replica) Begin(i int) {
	p.Woken[i], p.Again[i] = false, false
	p.hands[i] = hand{left: p.r.observer.matters(p.names[i])}
	p.advance(i)
}

// advance begins with what is left to do for a key, until a call is to be sent.
func (p *Replica) advance(i int) {
	h := &p.hands[i]
	for h.run == nil && len(h.left) > 0 {
		facts, found := p.r.observer.observe(h.left[0])
		h.left = h.left[1:]
		if !found {
			continue
		}
		w := &run{Reclaimer: &p.r, facts: facts}
		c, next, over := w.next(p.ctx)
		p.took(i, w, c, next, over)
	}
}

func (p *Replica) took(i int, w *run, c call, next controller.Next, over bool) {
	h := &p.hands[i]
	if over {
		w.end()
		h.run, h.call = nil, call{}
		p.Again[i] = p.Again[i] || next.Backoff.Max != 0
		return
	}
	h.run, h.call = w, c
}

// Busy tells whether a worker has the key in hand.
func (p *Replica) Busy(i int) bool { return p.hands[i].run != nil }

// Asks returns what is asked for the key in hand.
func (p *Replica) Asks(i int) Ask {
	a := askOf(p.hands[i].call)
	a.Ended = p.hands[i].run.facts.End.Gone
	return a
}

// Answer goes on with the key in hand.
func (p *Replica) Answer(i int, reply Reply) {
	h := &p.hands[i]
	w := h.run
	c, next, over := w.goOn(p.ctx, h.call, reply.answer(h.call))
	p.took(i, w, c, next, over)
	p.advance(i)
}

// Age makes the live reads of the key in hand too old.
func (p *Replica) Age(i int) (aged bool) {
	w := p.hands[i].run
	old := p.r.cfg.Clock.Now().Add(-2 * liveFor)
	for _, read := range []*Read{&w.facts.PVRead, &w.facts.Claim.Read, &w.facts.SiblingsRead, &w.facts.FamilyRead} {
		if read.Order > 0 && read.Sent.After(old) {
			read.Sent, aged = old, true
		}
	}
	return aged
}

// Protecting tells whether a first-time protection is under way.
func (p *Replica) Protecting(i int) bool { return p.protects[i] != nil }

// BeginProtect has the other loop take a key.
func (p *Replica) BeginProtect(i int) {
	p.Unprotected[i] = false
	if c, needed := p.r.beginProtect(p.names[i]); needed {
		p.protects[i] = &c
	}
}

// ProtectAsks returns what is asked for it.
func (p *Replica) ProtectAsks(i int) Ask { return askOf(*p.protects[i]) }

// ProtectAnswer ends it.
func (p *Replica) ProtectAnswer(i int, reply Reply) {
	c := *p.protects[i]
	p.protects[i] = nil
	if next := p.r.endProtect(p.ctx, c, reply.answer(c)); next.Backoff.Max != 0 {
		p.Unprotected[i] = true
	}
}

func askOf(c call) Ask {
	return Ask{Action: c.Action, PV: c.pv, Add: c.add, Drop: c.drop, Bound: c.bound, Siblings: c.siblings}
}

var errBroken = errors.New("no answer")

func (r Reply) answer(c call) answer {
	a := answer{
		pv: r.PV, found: r.Found, claim: r.Claim, version: r.Version, siblings: r.PVs,
		claims:      r.Claims,
		attachments: attachmentList{complete: true, ofPV: r.Attached}, family: pvList{complete: true, pvs: r.PVs},
	}
	a.claim.Of = c.pv.Claim
	switch r.Outcome {
	case OK:
	case Changed:
		a.err = kube.ErrChanged
	case Gone:
		a.err = kube.ErrGone
	case Broken:
		a.err = errBroken
	}
	return a
}
