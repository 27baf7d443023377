//go:build model

package provision

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"strconv"
)

// writer appends a Replica to bytes, reader takes it off again. What is not written, a Replica has
// no say in: it is the same in all, or is looked up anew before it is used.
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

func (w *writer) claim(c ClaimView) {
	w.byte(c.Version)
	if c.Version != 0 {
		w.flags(c.Protected, c.Terminating, c.Bound == BoundOwn, c.Bound == BoundElsewhere)
	}
}

func (w *writer) pv(p PVView) {
	w.byte(p.Claim)
	if p.Claim != 0 {
		w.flags(p.Terminating)
	}
}

func (w *writer) version(text string) {
	version, _ := strconv.Atoi(text)
	w.byte(uint8(version))
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

func (r *reader) claim() (c ClaimView) {
	if c.Version = r.byte(); c.Version != 0 {
		var own, elsewhere bool
		r.flags(&c.Protected, &c.Terminating, &own, &elsewhere)
		switch {
		case own:
			c.Bound = BoundOwn
		case elsewhere:
			c.Bound = BoundElsewhere
		}
	}
	return c
}

func (r *reader) pv() (p PVView) {
	if p.Claim = r.byte(); p.Claim != 0 {
		r.flags(&p.Terminating)
	}
	return p
}

func (r *reader) version() string {
	if v := r.byte(); v != 0 {
		return strconv.Itoa(int(v))
	}
	return ""
}

// Encode appends the process to b.
func (r *Replica) Encode(b []byte) []byte {
	w := &writer{b}
	w.flags(r.leads, r.class)
	for i := range r.names {
		uid := r.uid(i)
		last, ended := r.p.ended.Load(r.key(i))
		it := r.p.lives.of[uid]
		again, failed := r.p.lives.again[uid]
		w.flags(r.Woken[i], r.Again[i], r.Asked[i], r.AskedAgain[i], r.Busy(i), ended, it != nil, failed)
		w.claim(r.seen[i])
		w.pv(r.pv[i])
		w.claim(r.inProgress[i])
		w.claim(r.syncing[i])
		if ended {
			claim, _ := last.(*v1.PersistentVolumeClaim)
			w.claim(r.viewOf(claim))
		}
		if it != nil {
			w.life(it)
		}
		if failed {
			w.flags(again.early, r.Waits(i))
		}
		name := r.pvName(i)
		shelved, taken := uint8(0), uint8(0)
		awaited := r.p.shelf.expected[name]
		if pv := r.p.shelf.get(name); pv != nil {
			shelved = uint8(r.claimOf(pv.Spec.ClaimRef.UID)) + 1
		}
		if by, found := r.p.hands.of[name]; found {
			taken = uint8(r.claimOf(by)) + 1
		}
		w.byte(shelved<<4 | taken)
		if w.flags(awaited.claim != "", awaited.told); awaited.claim != "" {
			w.byte(uint8(r.claimOf(awaited.claim)))
		}
		if r.Busy(i) {
			w.hand(r, &r.hands[i])
		}
	}
	return w.b
}

// Decode takes a process off b and returns the rest.
func (m *Machine) Decode(b []byte) (*Replica, []byte) {
	p, r := m.Fresh(), &reader{b}
	r.flags(&p.leads, &p.class)
	p.p.awake.Store(p.leads)
	for i := range m.names {
		uid := m.uid(i)
		var busy, ended, known, failed bool
		r.flags(&p.Woken[i], &p.Again[i], &p.Asked[i], &p.AskedAgain[i], &busy, &ended, &known, &failed)
		p.seen[i], p.pv[i], p.inProgress[i], p.syncing[i] = r.claim(), r.pv(), r.claim(), r.claim()
		if ended {
			p.p.ended.Store(m.key(i), m.claim(i, r.claim()))
		}
		if known {
			r.life(p, i)
		}
		if failed {
			again, waits := retry{not: p.p.cfg.Clock.Now()}, false
			if r.flags(&again.early, &waits); waits {
				again.not = again.not.Add(time.Second)
			}
			p.p.lives.again[uid] = again
		}
		name, marks := m.pvName(i), r.byte()
		if by := marks >> 4; by > 0 {
			p.p.shelf.put(m.storedPV(pvShown{i, PVView{Claim: by}}))
		}
		var awaited, told bool
		if r.flags(&awaited, &told); awaited {
			p.p.shelf.expected[name] = expected{m.uid(int(r.byte())), told}
		}
		if by := marks & 15; by > 0 {
			p.p.hands.of[name] = m.uid(int(by) - 1)
		}
		if busy {
			r.hand(p, i)
		}
	}
	return p, r.b
}

func (w *writer) life(it *life) {
	w.flags(it.doubt, it.tried, it.failed, it.unfit, it.order != nil, it.made != nil, it.stored != nil, it.handle != "")
	spoiled := it.made != nil && it.made.GetVolumeContext() != nil
	w.flags(spoiled, it.volume == VolumeMade, it.volume == VolumeNone)
	w.version(it.letGo)
}

func (r *reader) life(p *Replica, i int) {
	it := p.p.lives.get(p.key(i))
	var ordered, made, stored, handle, spoiled, isMade, isNone bool
	r.flags(&it.doubt, &it.tried, &it.failed, &it.unfit, &ordered, &made, &stored, &handle)
	r.flags(&spoiled, &isMade, &isNone)
	id := p.pvName(p.pvs[i])
	switch {
	case isMade:
		it.volume = VolumeMade
	case isNone:
		it.volume = VolumeNone
	}
	if ordered {
		it.order = p.orders[i]
	}
	if made {
		it.made = madeVolume(id, spoiled)
	}
	if stored {
		it.stored = p.storedPV(pvShown{p.pvs[i], PVView{Claim: uint8(i + 1)}})
	}
	if handle {
		it.handle = id
	}
	it.letGo = r.version()
}

// hand is written without what is looked up anew before the next decision.
func (w *writer) hand(r *Replica, h *hand) {
	f := &h.w.facts
	w.byte(uint8(h.d.Action)<<4 | uint8(h.from))
	w.byte(uint8(slices.Index(Reasons(), h.d.Reason)))
	w.claim(r.viewOf(h.w.claim))
	w.flags(f.Claim.Gone, f.Claim.Protected, f.Ordered, !f.PVRead.IsZero(), f.pvFresh(r.p.cfg.Clock.Now()), f.PVHandle != "", h.w.asked, f.PVHandle == foreignHandle)
	w.byte(uint8(f.PV)<<4 | uint8(len(h.given)))
	w.byte(uint8(h.ask.Action) << 4)
	w.byte(h.ask.Version)
	for _, reply := range h.given {
		w.byte(uint8(reply.Outcome))
	}
}

func (r *reader) hand(p *Replica, i int) {
	kind := r.byte()
	h := hand{d: Decision{Action: Action(kind >> 4), Reason: Reasons()[r.byte()]}, from: origin(kind & 15)}
	h.w = &run{Provisioner: &p.p, claim: p.claim(i, r.claim()), life: p.p.lives.get(p.key(i))}
	if h.from != ofLoop {
		h.w.wanted = &wanted{class: modelClass}
	}
	f := &h.w.facts
	f.Claim = p.p.claimOf(h.w.claim)
	var read, fresh, handle, foreign bool
	r.flags(&f.Claim.Gone, &f.Claim.Protected, &f.Ordered, &read, &fresh, &handle, &h.w.asked, &foreign)
	switch {
	case fresh:
		f.PVRead = p.p.cfg.Clock.Now()
	case read:
		f.PVRead = p.p.cfg.Clock.Now().Add(-2 * liveFor)
	}
	switch {
	case foreign:
		f.PVHandle = foreignHandle
	case handle:
		f.PVHandle = p.pvName(p.pvs[i])
	}
	state := r.byte()
	f.PV = PV(state >> 4)
	h.ask = Ask{Action: Action(r.byte() >> 4), Version: r.byte()}
	for range state & 15 {
		h.given = append(h.given, Reply{Outcome: Outcome(r.byte())})
	}
	p.hands[i] = h
}
