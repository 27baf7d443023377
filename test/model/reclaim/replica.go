package reclaim

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
)

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
