//go:build model

package intree

import (
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
)

// writer appends a Replica to bytes, reader takes it off again. What is not written, a Replica has
// no say in: it follows from what it has seen, or only people are told of it.
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

func (w *writer) view(v PVView) {
	w.byte(v.Version)
	if v.Version == 0 {
		return
	}
	w.byte(v.UID<<4 | v.TwinOf)
	w.byte(uint8(v.Policy)<<4 | uint8(v.Phase))
	w.byte(v.Claim<<4 | uint8(v.Guard))
	w.flags(v.Terminating, v.External, v.Migrated, v.Held)
}

func (w *writer) read(r Read, now time.Time) { w.byte(uint8(r.Order)); w.flags(r.fresh(now)) }

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

func (r *reader) view() (v PVView) {
	if v.Version = r.byte(); v.Version == 0 {
		return v
	}
	names, state, marks := r.byte(), r.byte(), r.byte()
	v.UID, v.TwinOf = names>>4, names&15
	v.Policy, v.Phase = volume.Policy(state>>4), volume.Phase(state&15)
	v.Claim, v.Guard = marks>>4, Writer(marks&15)
	r.flags(&v.Terminating, &v.External, &v.Migrated, &v.Held)
	return v
}

func (r *reader) read(m *Machine) Read {
	order, fresh := r.byte(), false
	r.flags(&fresh)
	return m.readAt(order, fresh)
}

// Encode appends the process to b.
func (r *Replica) Encode(b []byte) []byte {
	w, n, now := &writer{b}, r.c.observer.notes, r.c.cfg.Clock.Now()
	w.flags(r.leads)
	for slot, name := range r.slots {
		wrote, written := n.wrote[name]
		w.flags(r.Woken[slot], r.Again[slot], r.Busy(slot), written)
		w.byte(r.reached[slot])
		w.view(r.seen[slot])
		if written {
			w.view(r.viewOf(wrote))
		}
		w.byte(r.goes(slot))
		uid := uidOf(slot, 1)
		done, isDone := n.done[uid]
		failed, hasFailed := n.failed[uid]
		since, left := n.leftSince[uid]
		_, managed := n.managedTwin[uid]
		w.flags(isDone, hasFailed, failed.Until.After(now), left, left && now.Sub(since) >= patience, managed)
		if isDone {
			w.byte(last(done.Claim.UID))
		}
		if r.Busy(slot) {
			w.hand(r, &r.hands[slot])
		}
	}
	return w.b
}

// goes are the UIDs under a name whose deletion was accepted, as bits.
func (r *Replica) goes(slot int) (bits uint8) {
	for uid := range r.c.observer.notes.goes {
		if int(uid[0]-'0') == slot {
			bits |= 1 << last(uid)
		}
	}
	return bits
}

// Decode takes a process off b and returns the rest.
func (m *Machine) Decode(b []byte) (*Replica, []byte) {
	p, r := m.Fresh(), &reader{b}
	n, now := p.c.observer.notes, m.parts.cfg.Clock.Now()
	r.flags(&p.leads)
	for slot, name := range m.slots {
		var busy, written, done, failed, waits, left, idle, managed bool
		r.flags(&p.Woken[slot], &p.Again[slot], &busy, &written)
		p.reached[slot], p.seen[slot] = r.byte(), r.view()
		if seen, found := m.record(slot, p.seen[slot]); found {
			n.sources.add(seen.Source, name)
			n.managed(name, seen.Guard == WriterOther)
		}
		if written {
			wrote, _ := m.record(slot, r.view())
			n.wrote[name] = *wrote
		}
		goes := r.byte()
		for uid := range uint8(8) {
			if goes&(1<<uid) != 0 {
				n.goes[uidOf(slot, uid)] = struct{}{}
			}
		}
		uid := uidOf(slot, 1)
		r.flags(&done, &failed, &waits, &left, &idle, &managed)
		if done {
			n.done[uid] = Done{true, m.claimOf(slot, r.byte())}
		}
		if failed {
			n.failed[uid] = failedOnce(now, waits)
		}
		if left {
			n.leftSince[uid] = m.past(true, idle, patience)
		}
		if managed {
			n.managedTwin[uid] = struct{}{}
		}
		if busy {
			r.hand(p, slot)
		}
	}
	return p, r.b
}

// failedOnce is what is known of tries that failed: how many there were only tells how long the delay is.
func failedOnce(now time.Time, waits bool) failed {
	f := failed{Failure: Failure{Until: now}, tries: 1}
	if waits {
		f.Until = now.Add(time.Second)
	}
	return f
}

func (m *Machine) claimOf(slot int, uid uint8) volume.ClaimRef {
	ref := m.claimRef(slot, uid)
	return volume.ClaimRef{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
}

// hand is written without what is looked up anew before the next decision.
func (w *writer) hand(r *Replica, h *hand) {
	f, now := &h.w.facts, r.c.cfg.Clock.Now()
	w.byte(uint8(h.d.Action))
	w.byte(uint8(slices.Index(Reasons(), h.d.Reason)))
	w.byte(uint8(f.Manages)<<4 | uint8(h.w.reads))
	w.flags(f.PV.UID != "", f.TwinFound, f.Claim.Found, f.Attachments.Count > 0, f.Original.Gone, f.Done.VolumeDeleted)
	w.flags(!f.Failure.Until.IsZero(), f.Failure.Until.After(now), !f.LeftSince.IsZero(), f.idle(now))
	if f.PV.UID != "" {
		w.view(r.viewOf(f.PV))
	}
	if f.TwinFound {
		w.view(r.viewOf(f.Twin))
	}
	for _, read := range []Read{f.PVRead, f.Claim.Read, f.Attachments.Read, f.Original.Read, f.SiblingsRead} {
		w.read(read, now)
	}
	w.byte(last(f.Claim.Of.UID)<<4 | last(f.Claim.UID))
	w.byte(uint8(slices.Index(r.slots, f.Claim.VolumeName) + 1))
	w.byte(last(f.Done.Claim.UID)<<4 | uint8(len(f.Siblings)))
	for _, other := range f.Siblings {
		w.byte(uint8(r.slotOf(other.Name)))
		w.view(r.viewOf(other))
	}
	a := h.ask
	w.byte(uint8(a.Action)<<4 | a.Slot)
	w.byte(a.UID)
	w.byte(a.Version)
	w.flags(a.Add, a.Drop, a.DropExternal, a.Action == MakeTwin)
	if a.Action == MakeTwin {
		w.made(a.New)
	}
	w.byte(uint8(len(h.given)))
	for _, reply := range h.given {
		w.byte(uint8(reply.Outcome)<<4 | reply.Claim)
		w.byte(reply.Names)
		w.flags(reply.Attached)
		w.view(reply.PV)
	}
}

// made is a PV that is to be made: it has neither version nor UID yet.
func (w *writer) made(v PVView) {
	v.Version = 1
	w.view(v)
}

func (r *reader) made() PVView {
	v := r.view()
	v.Version = 0
	return v
}

func (r *reader) hand(p *Replica, slot int) {
	h := hand{w: &run{Controller: &p.c}, d: Decision{Action: Action(r.byte()), Reason: Reasons()[r.byte()]}}
	f := &h.w.facts
	state := r.byte()
	f.Manages, h.w.reads = Manages(state>>4), int(state&15)
	var there, attached, failed, waits, left, idle bool
	r.flags(&there, &f.TwinFound, &f.Claim.Found, &attached, &f.Original.Gone, &f.Done.VolumeDeleted)
	r.flags(&failed, &waits, &left, &idle)
	if attached {
		f.Attachments.Count = 1
	}
	if failed {
		f.Failure = failedOnce(p.c.cfg.Clock.Now(), waits).Failure
	}
	f.LeftSince = p.past(left, idle, patience)
	twin := slot | 1
	if there {
		pv, _ := p.record(slot, r.view())
		f.PV = *pv
	}
	if f.TwinFound {
		pv, _ := p.record(twin, r.view())
		f.Twin = *pv
	}
	for _, read := range []*Read{&f.PVRead, &f.Claim.Read, &f.Attachments.Read, &f.Original.Read, &f.SiblingsRead} {
		*read = r.read(p.Machine)
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
	if f.Done.VolumeDeleted {
		f.Done.Claim = p.claimOf(slot, others>>4)
	}
	for range others & 15 {
		of := int(r.byte())
		other, _ := p.record(of, r.view())
		f.Siblings = append(f.Siblings, *other)
	}
	h.w.object = p.storedFor(slot, f)
	r.ask(&h)
	p.hands[slot] = h
}

func (r *reader) ask(h *hand) {
	what := r.byte()
	a := Ask{Action: Action(what >> 4), Slot: what & 15, UID: r.byte(), Version: r.byte()}
	var made bool
	r.flags(&a.Add, &a.Drop, &a.DropExternal, &made)
	if made {
		a.New = r.made()
	}
	h.ask = a
	for range r.byte() {
		state := r.byte()
		reply := Reply{Outcome: Outcome(state >> 4), Claim: state & 15, Names: r.byte()}
		r.flags(&reply.Attached)
		reply.PV = r.view()
		h.given = append(h.given, reply)
	}
}
