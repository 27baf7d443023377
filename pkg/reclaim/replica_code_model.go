//go:build model

package reclaim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"k8s.io/apimachinery/pkg/types"
)

// words are all strings that occur in a model: each is written as its number.
type words struct {
	list   []string
	number map[string]byte
}

func newWords(list []string) words {
	w := words{list: append([]string{""}, list...), number: map[string]byte{}}
	for i, word := range w.list {
		w.number[word] = byte(i)
	}
	return w
}

// writer appends a Replica to bytes, reader takes it off again. What is not written, a
// Replica has no say in: it is the same in all, or is looked up anew before it is used.
type writer struct {
	words
	b []byte
}

func (w *writer) byte(v int) { w.b = append(w.b, byte(v)) }
func (w *writer) word(s string) {
	n, found := w.number[s]
	if !found {
		panic(fmt.Sprintf("%q is no word of the model", s))
	}
	w.b = append(w.b, n)
}

func (w *writer) flags(flags ...bool) {
	var b byte
	for i, set := range flags {
		if set {
			b |= 1 << i
		}
	}
	w.b = append(w.b, b)
}

func (w *writer) pv(pv *volume.PV) {
	if pv == nil {
		w.byte(0)
		return
	}
	w.word(pv.Name)
	w.word(string(pv.UID))
	w.word(pv.ResourceVersion)
	w.word(pv.Driver)
	w.word(pv.Handle)
	w.word(pv.ProvisionedBy)
	w.claim(pv.Claim)
	w.byte(int(pv.Policy)<<4 | int(pv.Phase))
	w.flags(pv.Terminating, pv.HasFinalizer, pv.HasCompanionFinalizer, pv.WasAttached, pv.Held)
}

func (w *writer) pvs(pvs []volume.PV) {
	w.byte(len(pvs))
	for i := range pvs {
		w.pv(&pvs[i])
	}
}

func (w *writer) claim(c volume.ClaimRef) {
	w.word(c.Namespace)
	w.word(c.Name)
	w.word(string(c.UID))
}

// read is written as its number and whether it is fresh.
func (w *writer) read(r Read, now time.Time) {
	v := r.Order << 1
	if r.fresh(now) {
		v |= 1
	}
	w.byte(v)
}

type reader struct {
	words
	b []byte
}

func (r *reader) byte() int {
	v := r.b[0]
	r.b = r.b[1:]
	return int(v)
}

func (r *reader) word() string { return r.list[r.byte()] }

func (r *reader) flags(flags ...*bool) {
	b := r.byte()
	for i, flag := range flags {
		*flag = b&(1<<i) != 0
	}
}

func (r *reader) pv() *volume.PV {
	name := r.word()
	if name == "" {
		return nil
	}
	pv := &volume.PV{Name: name, UID: types.UID(r.word()), ResourceVersion: r.word(), Driver: r.word(), Handle: r.word(), ProvisionedBy: r.word(), Claim: r.claim()}
	kind := r.byte()
	pv.Policy, pv.Phase = volume.Policy(kind>>4), volume.Phase(kind&15)
	r.flags(&pv.Terminating, &pv.HasFinalizer, &pv.HasCompanionFinalizer, &pv.WasAttached, &pv.Held)
	return pv
}

func (r *reader) pvs() []volume.PV {
	n := r.byte()
	if n == 0 {
		return nil
	}
	pvs := make([]volume.PV, n)
	for i := range pvs {
		pvs[i] = *r.pv()
	}
	return pvs
}

func (r *reader) claim() volume.ClaimRef {
	return volume.ClaimRef{Namespace: r.word(), Name: r.word(), UID: types.UID(r.word())}
}

func (r *reader) read(now time.Time) Read {
	v := r.byte()
	switch {
	case v == 0:
		return Read{}
	case v&1 == 0:
		now = now.Add(-2 * liveFor)
	}
	return Read{Sent: now, Order: v >> 1}
}

// Encode appends the process to b.
func (p *Replica) Encode(b []byte) []byte {
	w := &writer{p.words, b}
	w.flags(p.Leads(), p.r.observer.notes.contested, p.Expired)
	for i := range p.names {
		w.pv(p.seen[i])
		w.byte(p.r.observer.attached.count[p.names[i]])
		w.flags(p.Woken[i], p.Unprotected[i], p.Again[i], p.Busy(i), p.Protecting(i))
	}
	w.memories(p.r.observer.notes.known)
	for i := range p.names {
		if p.Busy(i) {
			w.hand(&p.hands[i], p.r.cfg.Clock.Now())
		}
		if p.Protecting(i) {
			w.call(p.protects[i])
			w.pv(&p.protects[i].pv)
		}
	}
	return w.b
}

// Decode takes a process off b and returns the rest.
func (m *Machine) Decode(b []byte) (*Replica, []byte) {
	p, r := m.Fresh(), &reader{m.words, b}
	o := p.r.observer
	var leads bool
	r.flags(&leads, &o.notes.contested, &p.Expired)
	o.leading.Store(leads)
	busy, protecting := make([]bool, len(m.names)), make([]bool, len(m.names))
	for i, name := range m.names {
		p.seen[i] = r.pv()
		if n := r.byte(); n > 0 {
			o.attached.count[name] = n
		}
		r.flags(&p.Woken[i], &p.Unprotected[i], &p.Again[i], &busy[i], &protecting[i])
		if pv := p.seen[i]; pv != nil && o.handle(pv) != "" {
			o.handles.add(o.handle(pv), name)
		}
	}
	r.memories(o.notes)
	for i := range m.names {
		if busy[i] {
			r.hand(p, i)
		}
		if protecting[i] {
			c := r.call()
			c.pv = *r.pv()
			p.protects[i] = &c
		}
	}
	return p, r.b
}

func (w *writer) memories(known map[types.UID]*memory) {
	uids := make([]types.UID, 0, 4)
	for uid := range known {
		uids = append(uids, uid)
	}
	slices.SortFunc(uids, func(a, b types.UID) int { return cmp.Compare(a, b) })
	w.byte(len(uids))
	for _, uid := range uids {
		m := known[uid]
		w.word(string(uid))
		w.history(m.history)
		past := m.past()
		w.flags(past.done.VolumeDeleted, past.done.PVDeleted, past.done.Released, past.put != nil, past.took != nil)
		w.claim(past.done.Claim)
		for _, own := range []*ownWrite{past.put, past.took} {
			if own != nil {
				w.word(own.version)
				w.word(own.protectedAt)
			}
		}
		w.byte(len(past.strips))
		w.flags(past.over != nil, !past.contestedAt.IsZero())
		if past.over != nil {
			w.pv(&past.over.pv)
			w.flags(past.over.end.Gone, past.over.end.Final, past.over.end.Shared)
		}
	}
}

func (r *reader) memories(n *notes) {
	for range r.byte() {
		past, uid := &acts{}, types.UID(r.word())
		m := &memory{acts: past}
		n.known[uid] = m
		m.history = r.history()
		var put, took bool
		r.flags(&past.done.VolumeDeleted, &past.done.PVDeleted, &past.done.Released, &put, &took)
		past.done.Claim = r.claim()
		if put {
			past.put = &ownWrite{version: r.word(), protectedAt: r.word()}
		}
		if took {
			past.took = &ownWrite{version: r.word(), protectedAt: r.word()}
		}
		for range r.byte() {
			past.strips = append(past.strips, time.Unix(1e9, 0))
		}
		var over, contested bool
		r.flags(&over, &contested)
		if contested {
			past.contestedAt = time.Unix(1e9, 0)
		}
		if over {
			past.over = &ending{pv: *r.pv()}
			r.flags(&past.over.end.Gone, &past.over.end.Final, &past.over.end.Shared)
			n.ended[past.over.pv.Name] = append(n.ended[past.over.pv.Name], uid)
		}
	}
}

func (w *writer) history(h History) {
	w.flags(h.SeenAlive, h.SeenReleased, h.SeenProtected, h.LetGo)
}

func (r *reader) history() (h History) {
	r.flags(&h.SeenAlive, &h.SeenReleased, &h.SeenProtected, &h.LetGo)
	return h
}

// call is written without the facts that it was made of.
func (w *writer) call(c *call) {
	w.byte(int(c.Action))
	has := slices.Contains[[]string]
	w.flags(c.bound, has(c.add, volume.Finalizer), has(c.add, volume.CompanionFinalizer), has(c.drop, volume.Finalizer), has(c.drop, volume.CompanionFinalizer))
}

func (r *reader) call() (c call) {
	c.Action = Action(r.byte())
	var add, addCompanions, drop, dropCompanions bool
	r.flags(&c.bound, &add, &addCompanions, &drop, &dropCompanions)
	c.add = finalizersOf(add, addCompanions)
	c.drop = finalizersOf(drop, dropCompanions)
	return c
}

func finalizersOf(owners, companions bool) (list []string) {
	if owners {
		list = append(list, volume.Finalizer)
	}
	if companions {
		list = append(list, volume.CompanionFinalizer)
	}
	return list
}

// hand is written without what is looked up anew after each answer. The number of steps is
// not bounded in a model.
func (w *writer) hand(h *hand, now time.Time) {
	f := &h.run.facts
	w.call(&h.call)
	w.pv(&f.PV)
	w.flags(f.End.Gone, f.End.Final, f.End.Shared, f.AttachmentsCurrent, f.SecretsRead, h.run.taken != "", h.run.listed != nil, f.Claim.Found)
	w.read(h.call.read, now)
	w.read(f.PVRead, now)
	w.read(f.SiblingsRead, now)
	w.read(f.FamilyRead, now)
	w.read(f.Claim.Read, now)
	w.claim(f.Claim.Of)
	w.word(string(f.Claim.UID))
	w.word(f.Claim.VolumeName)
	w.pvs(f.Siblings)
	w.word(f.SiblingNeeded)
	w.byte(len(h.run.gone))
	for _, uid := range h.run.gone {
		w.word(string(uid))
	}
	w.byte(len(h.run.listed))
	for _, name := range w.list {
		if n := h.run.listed[name]; n > 0 {
			w.word(name)
			w.byte(n)
		}
	}
	w.byte(len(h.left))
	for _, m := range h.left {
		w.word(string(m.ended))
	}
}

func (r *reader) hand(p *Replica, i int) {
	now := p.r.cfg.Clock.Now()
	w := &run{Reclaimer: &p.r}
	f := &w.facts
	c := r.call()
	f.Rules, f.PV = p.rules, *r.pv()
	var taken, listed bool
	r.flags(&f.End.Gone, &f.End.Final, &f.End.Shared, &f.AttachmentsCurrent, &f.SecretsRead, &taken, &listed, &f.Claim.Found)
	c.pv = f.PV
	if taken {
		w.taken = f.PV.Handle
		p.r.deleting.take(w.taken)
	}
	c.read = r.read(now)
	f.PVRead, f.SiblingsRead, f.FamilyRead, f.Claim.Read = r.read(now), r.read(now), r.read(now), r.read(now)
	w.reads = max(c.read.Order, f.PVRead.Order, f.SiblingsRead.Order, f.FamilyRead.Order, f.Claim.Read.Order)
	f.Claim.Of, f.Claim.UID, f.Claim.VolumeName = r.claim(), types.UID(r.word()), r.word()
	f.Siblings, f.SiblingNeeded = r.pvs(), r.word()
	for range r.byte() {
		w.gone = append(w.gone, types.UID(r.word()))
	}
	if listed {
		w.listed = map[string]int{}
	}
	for range r.byte() {
		name := r.word()
		w.listed[name] = r.byte()
	}
	var left []matter
	for range r.byte() {
		left = append(left, matter{p.names[i], types.UID(r.word())})
	}
	if c.Action == ReadSiblings {
		c.siblings = f.Siblings
	}
	p.hands[i] = hand{run: w, call: c, left: left}
}
