package intree

import (
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// writer appends a replica to bytes, reader takes it from them again. What is not written does not influence a replica:
// it follows from what it has seen, or is only reported.
type writer struct{ b []byte }

func (w *writer) byte(v uint8) { w.b = append(w.b, v) }

func (w *writer) flags(flags ...bool) {
	var b byte
	for i, set := range flags {
		if set {
			b |= 1 << i
		}
	}
	w.b = append(w.b, b)
}

func (w *writer) view(v view) {
	w.byte(v.Version)
	if v.Version == 0 {
		return
	}
	w.byte(v.UID<<4 | v.TwinOf)
	w.byte(uint8(v.Policy)<<4 | uint8(v.Phase))
	w.byte(v.Claim<<4 | uint8(v.Writer))
	w.flags(v.Terminating, v.External, v.Migrated, v.Held)
}

func (w *writer) read(r session.Read, now time.Time) {
	w.byte(uint8(r.Order))
	w.flags(r.Fresh(now))
}

type reader struct{ b []byte }

func (r *reader) byte() uint8 {
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) flags(flags ...*bool) {
	b := r.byte()
	for i, flag := range flags {
		*flag = b&(1<<i) != 0
	}
}

func (r *reader) view() (v view) {
	if v.Version = r.byte(); v.Version == 0 {
		return v
	}
	names, state, marks := r.byte(), r.byte(), r.byte()
	v.UID, v.TwinOf = names>>4, names&15
	v.Policy, v.Phase = volume.Policy(state>>4), volume.Phase(state&15)
	v.Claim, v.Writer = marks>>4, intree.Writer(marks&15)
	r.flags(&v.Terminating, &v.External, &v.Migrated, &v.Held)
	return v
}

func (r *reader) read(m *machine) session.Read {
	order, fresh := r.byte(), false
	r.flags(&fresh)
	return m.readAt(order, fresh)
}

// Encode appends the process to b.
func (r *replica) Encode(b []byte) []byte {
	w, t := &writer{b}, r.tracker
	w.flags(r.leads)
	for slot, name := range r.slots {
		expected, found := t.Expectations[name]
		w.flags(r.woken[slot], r.again[slot], r.busy[slot], found)
		w.byte(r.reached[slot])
		w.view(r.seen[slot])
		if found {
			w.view(r.viewOf(expected))
		}
		w.byte(r.accepted(slot))
		uid := uidOf(slot, 1)
		tombstone, deleted := t.Tombstones[uid]
		failures, failed := t.Failures[uid]
		since, yielded := t.YieldedSince[uid]
		_, foreign := t.ForeignTwin[uid]
		w.flags(deleted, failed, failures.Until.After(r.now), yielded, yielded && r.now.Sub(since) >= intree.IdleAfter,
			foreign)
		if deleted {
			w.byte(last(tombstone.Claim.UID))
		}
		if r.busy[slot] {
			w.session(r, &r.sessions[slot])
		}
	}
	return w.b
}

// accepted are the UIDs under a name whose deletion was accepted, as bits.
func (r *replica) accepted(slot int) (bits uint8) {
	for uid := range r.tracker.DeletionAccepted {
		if int(uid[0]-'0') == slot {
			bits |= 1 << last(uid)
		}
	}
	return bits
}

// Decode takes a process from b and returns the rest.
func (m *machine) Decode(b []byte) (*replica, []byte) {
	p, r := m.fresh(), &reader{b}
	t := p.tracker
	r.flags(&p.leads)
	for slot, name := range m.slots {
		var expected, deleted, failed, waits, yielded, idle, foreign bool
		r.flags(&p.woken[slot], &p.again[slot], &p.busy[slot], &expected)
		p.reached[slot], p.seen[slot] = r.byte(), r.view()
		if seen, found := m.record(slot, p.seen[slot]); found {
			p.recall(seen)
		}
		if expected {
			wrote, _ := m.record(slot, r.view())
			t.Expectations[name] = *wrote
		}
		accepted := r.byte()
		for uid := range uint8(8) {
			if accepted&(1<<uid) != 0 {
				t.DeletionAccepted[uidOf(slot, uid)] = struct{}{}
			}
		}
		uid := uidOf(slot, 1)
		r.flags(&deleted, &failed, &waits, &yielded, &idle, &foreign)
		if deleted {
			t.Tombstones[uid] = intree.Tombstone{VolumeDeleted: true, Claim: m.claimOf(slot, r.byte())}
		}
		if failed {
			t.Failures[uid] = intree.Failures{Failure: m.failure(waits), Tries: 1}
		}
		if yielded {
			t.YieldedSince[uid] = m.past(true, idle, intree.IdleAfter)
		}
		if foreign {
			t.ForeignTwin[uid] = struct{}{}
		}
		if p.busy[slot] {
			p.sessions[slot] = r.session(p, slot)
		}
	}
	return p, r.b
}

// recall has the tracker know what follows from a PV that the watch shows.
func (r *replica) recall(pv *intree.PV) {
	t := r.tracker
	if t.Volumes[pv.Source] == nil {
		t.Volumes[pv.Source] = map[string]struct{}{}
	}
	t.Volumes[pv.Source][pv.Name] = struct{}{}
	if pv.Writer == intree.WriterOther {
		t.Foreign[pv.Name] = struct{}{}
	}
}

// failure is what is known of tries that failed: how many there were only matters for how long the delay is.
func (m *machine) failure(waits bool) intree.Failure {
	if waits {
		return intree.Failure{Until: m.now.Add(time.Second)}
	}
	return intree.Failure{Until: m.now}
}

// session is written without what is looked up anew before the next decision.
func (w *writer) session(r *replica, s *intree.Session) {
	f, now := &s.Facts, r.now
	idle := !f.YieldedSince.IsZero() && now.Sub(f.YieldedSince) >= intree.IdleAfter
	w.byte(uint8(s.Decision.Action))
	w.byte(uint8(slices.Index(intree.Reasons(), s.Decision.Reason)))
	w.byte(uint8(f.Other)<<4 | uint8(s.ReadCount))
	w.flags(f.PV.UID != "", f.TwinFound, f.Claim.Found, f.Attachments.Count > 0, f.Original.Gone,
		f.Tombstone.VolumeDeleted, f.TwinConflict, s.ClaimUnread)
	w.flags(!f.Failure.Until.IsZero(), f.Failure.Until.After(now), !f.YieldedSince.IsZero(), idle)
	if f.PV.UID != "" {
		w.view(r.viewOf(f.PV))
	}
	if f.TwinFound {
		w.view(r.viewOf(f.Twin))
	}
	for _, read := range liveReads(s) {
		w.read(*read, now)
	}
	w.byte(last(f.Claim.Of.UID)<<4 | last(f.Claim.UID))
	w.byte(uint8(slices.Index(r.slots, f.Claim.VolumeName) + 1))
	w.byte(last(f.Tombstone.Claim.UID)<<4 | uint8(s.Unread))
	w.pvs(r, f.Siblings)
	w.pvs(r, s.Siblings)
	w.byte(uint8(slices.Index(r.slots, f.SiblingNeeded)+1)<<4 | uint8(slices.Index(r.slots, s.SiblingNeeded)+1))
}

func (w *writer) pvs(r *replica, pvs []intree.PV) {
	w.byte(uint8(len(pvs)))
	for _, pv := range pvs {
		w.byte(uint8(r.slotOf(pv.Name)))
		w.view(r.viewOf(pv))
	}
}

func (r *reader) pvs(p *replica) (pvs []intree.PV) {
	for range r.byte() {
		slot := int(r.byte())
		pv, _ := p.record(slot, r.view())
		pvs = append(pvs, *pv)
	}
	return pvs
}

func (r *reader) session(p *replica, slot int) intree.Session {
	s := intree.Session{Rules: p.rules}
	f := &s.Facts
	s.Decision = intree.Decision{Action: intree.Action(r.byte()), Reason: intree.Reasons()[r.byte()]}
	state := r.byte()
	f.Other, s.ReadCount = intree.Other(state>>4), int(state&15)
	var there, attached, failed, waits, yielded, idle bool
	r.flags(&there, &f.TwinFound, &f.Claim.Found, &attached, &f.Original.Gone, &f.Tombstone.VolumeDeleted,
		&f.TwinConflict, &s.ClaimUnread)
	r.flags(&failed, &waits, &yielded, &idle)
	if attached {
		f.Attachments.Count = 1
	}
	if failed {
		f.Failure = p.failure(waits)
	}
	f.YieldedSince = p.past(yielded, idle, intree.IdleAfter)
	if there {
		pv, _ := p.record(slot, r.view())
		f.PV = *pv
	}
	if f.TwinFound {
		pv, _ := p.record(twin(slot), r.view())
		f.Twin = *pv
	}
	for _, read := range liveReads(&s) {
		*read = r.read(p.machine)
	}
	claims, names := r.byte(), r.byte()
	if f.Claim.Read.Order > 0 {
		f.Claim.Of = p.claimOf(slot, claims>>4)
	}
	if f.Claim.Found {
		f.Claim.UID = uidOf(0, claims&15)
	}
	if names > 0 {
		f.Claim.VolumeName = p.slots[names-1]
	}
	others := r.byte()
	if f.Tombstone.VolumeDeleted {
		f.Tombstone.Claim = p.claimOf(slot, others>>4)
	}
	s.Unread = int(others & 15)
	f.Siblings, s.Siblings = r.pvs(p), r.pvs(p)
	needed := r.byte()
	if n := needed >> 4; n > 0 {
		f.SiblingNeeded = p.slots[n-1]
	}
	if n := needed & 15; n > 0 {
		s.SiblingNeeded = p.slots[n-1]
	}
	return s
}
