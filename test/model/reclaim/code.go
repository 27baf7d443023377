package reclaim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
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

// writer appends a replica to bytes, reader reads it again. What is not written has no effect on what follows: it
// is the same in all replicas, or is read anew before it is used.
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
func (w *writer) read(r session.Read, now time.Time) {
	v := r.Order << 1
	if r.Fresh(now) {
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
	pv := &volume.PV{Name: name, UID: types.UID(r.word()), ResourceVersion: r.word(), Driver: r.word(), Handle: r.word(),
		ProvisionedBy: r.word(), Claim: r.claim()}
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

func (r *reader) read(now time.Time) session.Read {
	v := r.byte()
	switch {
	case v == 0:
		return session.Read{}
	case v&1 == 0:
		now = now.Add(-2 * session.LiveFor)
	}
	return session.Read{Sent: now, Order: v >> 1}
}

func (w *writer) replica(p *Process) {
	e := p.Engine
	w.flags(e.Leading, e.Tracker.Contested, p.Expired)
	for i := range p.Names {
		w.pv(p.Cache[i])
		w.byte(e.Attached[p.Names[i]])
		w.flags(p.Queued[i], p.Unprotected[i], p.Later[i], p.Busy(i), p.Protecting(i))
	}
	w.records(e.Tracker.Records)
	for i := range p.Names {
		if p.Busy(i) {
			w.worker(&p.Workers[i], p.Now)
		}
		if p.Protecting(i) {
			w.ask(p.Protections[i])
			w.pv(&p.Protections[i].PV)
		}
	}
}

// replica fills in a fresh process. The index of handles follows from the cache.
func (r *reader) replica(p *Process) {
	e := p.Engine
	r.flags(&e.Leading, &e.Tracker.Contested, &p.Expired)
	busy, protecting := make([]bool, len(p.Names)), make([]bool, len(p.Names))
	for i, name := range p.Names {
		p.Cache[i] = r.pv()
		if n := r.byte(); n > 0 {
			e.Attached[name] = n
		}
		r.flags(&p.Queued[i], &p.Unprotected[i], &p.Later[i], &busy[i], &protecting[i])
		if pv := p.Cache[i]; pv != nil {
			e.Place(pv)
		}
	}
	r.records(e)
	for i := range p.Names {
		if busy[i] {
			r.worker(p, i)
		}
		if protecting[i] {
			a := r.ask()
			a.PV = *r.pv()
			p.Protections[i] = &a
		}
	}
}

func (w *writer) records(known map[types.UID]*reclaim.Record) {
	uids := make([]types.UID, 0, 4)
	for uid := range known {
		uids = append(uids, uid)
	}
	slices.SortFunc(uids, func(a, b types.UID) int { return cmp.Compare(a, b) })
	w.byte(len(uids))
	for _, uid := range uids {
		m := known[uid]
		w.word(string(uid))
		w.history(m.History)
		var past reclaim.Activity
		if m.Activity != nil {
			past = *m.Activity
		}
		w.flags(past.Done.VolumeDeleted, past.Done.PVDeleted, past.Done.Finalized, past.Adding != nil, past.Removing != nil,
			past.ClaimEndedAt.Equal(now()))
		w.claim(past.Done.Claim)
		w.word(string(past.ClaimEnded))
		for _, own := range []*reclaim.Expectation{past.Adding, past.Removing} {
			if own != nil {
				w.word(own.Version)
				w.word(own.ProtectedAt)
			}
		}
		w.byte(len(past.Removals))
		w.flags(past.Tombstone != nil, !past.ContestedAt.IsZero())
		if past.Tombstone != nil {
			w.pv(&past.Tombstone.PV)
			w.flags(past.Tombstone.End.Gone, past.Tombstone.End.Final, past.Tombstone.End.Shared)
		}
	}
}

func (r *reader) records(e *reclaim.Engine) {
	for range r.byte() {
		past, uid := &reclaim.Activity{}, types.UID(r.word())
		m := &reclaim.Record{Activity: past}
		e.Tracker.Records[uid] = m
		m.History = r.history()
		var put, took, justEnded bool
		r.flags(&past.Done.VolumeDeleted, &past.Done.PVDeleted, &past.Done.Finalized, &put, &took, &justEnded)
		past.Done.Claim, past.ClaimEnded = r.claim(), types.UID(r.word())
		switch {
		case justEnded:
			past.ClaimEndedAt = now()
		case past.ClaimEnded != "":
			past.ClaimEndedAt = now().Add(-2 * session.LiveFor)
		}
		if put {
			past.Adding = &reclaim.Expectation{Version: r.word(), ProtectedAt: r.word()}
		}
		if took {
			past.Removing = &reclaim.Expectation{Version: r.word(), ProtectedAt: r.word()}
		}
		for range r.byte() {
			past.Removals = append(past.Removals, now())
		}
		var over, contested bool
		r.flags(&over, &contested)
		if contested {
			past.ContestedAt = now()
		}
		if over {
			past.Tombstone = &reclaim.Tombstone{PV: *r.pv()}
			r.flags(&past.Tombstone.End.Gone, &past.Tombstone.End.Final, &past.Tombstone.End.Shared)
			name := past.Tombstone.PV.Name
			e.Tracker.Tombstones[name] = append(e.Tracker.Tombstones[name], uid)
		}
	}
}

func (w *writer) history(h reclaim.History) {
	w.flags(h.SeenAlive, h.SeenReleased, h.SeenProtected, h.Stripped)
}

func (r *reader) history() (h reclaim.History) {
	r.flags(&h.SeenAlive, &h.SeenReleased, &h.SeenProtected, &h.Stripped)
	return h
}

// ask is written without the facts that it was made of.
func (w *writer) ask(a *reclaim.Ask) {
	w.byte(int(a.Action))
	has := slices.Contains[[]string]
	w.flags(a.Bound, has(a.Add, volume.Finalizer), has(a.Add, volume.CompanionFinalizer),
		has(a.Remove, volume.Finalizer), has(a.Remove, volume.CompanionFinalizer))
}

func (r *reader) ask() (a reclaim.Ask) {
	a.Action = reclaim.Action(r.byte())
	var add, addCompanions, drop, dropCompanions bool
	r.flags(&a.Bound, &add, &addCompanions, &drop, &dropCompanions)
	a.Add = finalizersOf(add, addCompanions)
	a.Remove = finalizersOf(drop, dropCompanions)
	return a
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

// worker is written without what is looked up anew after each answer. The number of steps is
// not bounded in a model.
func (w *writer) worker(h *Worker, now time.Time) {
	s := h.Session
	f := &s.Facts
	w.ask(&s.Ask)
	w.pv(&f.PV)
	w.flags(f.End.Gone, f.End.Final, f.End.Shared, f.AttachmentsCurrent, f.SecretsRead, s.Deleting != "",
		s.Listed != nil, f.Claim.Found)
	w.read(s.Ask.Read, now)
	w.read(f.PVRead, now)
	w.read(f.SiblingsRead, now)
	w.read(f.PVsListed, now)
	w.read(f.Claim.Read, now)
	w.claim(f.Claim.Of)
	w.word(string(f.Claim.UID))
	w.word(f.Claim.VolumeName)
	w.pvs(f.Siblings)
	w.word(f.SiblingNeeded)
	w.byte(len(s.Absent))
	for _, uid := range s.Absent {
		w.word(string(uid))
	}
	w.byte(len(s.Listed))
	for _, name := range w.list {
		if n := s.Listed[name]; n > 0 {
			w.word(name)
			w.byte(n)
		}
	}
	w.byte(len(h.Left))
	for _, m := range h.Left {
		w.word(string(m.Gone))
	}
}

func (r *reader) worker(p *Process, i int) {
	now := p.Now
	s := &reclaim.Session{Ask: r.ask()}
	f, a := &s.Facts, &s.Ask
	f.Rules, f.PV = p.Engine.Rules, *r.pv()
	var taken, listed bool
	r.flags(&f.End.Gone, &f.End.Final, &f.End.Shared, &f.AttachmentsCurrent, &f.SecretsRead, &taken, &listed,
		&f.Claim.Found)
	a.PV = f.PV
	if taken {
		s.Deleting = volume.HandleKey(f.PV.Handle)
		p.Engine.Deleting[s.Deleting] = struct{}{}
	}
	a.Read = r.read(now)
	f.PVRead, f.SiblingsRead, f.PVsListed, f.Claim.Read = r.read(now), r.read(now), r.read(now), r.read(now)
	s.Reads = max(a.Read.Order, f.PVRead.Order, f.SiblingsRead.Order, f.PVsListed.Order, f.Claim.Read.Order)
	f.Claim.Of, f.Claim.UID, f.Claim.VolumeName = r.claim(), types.UID(r.word()), r.word()
	f.Siblings, f.SiblingNeeded = r.pvs(), r.word()
	for range r.byte() {
		s.Absent = append(s.Absent, types.UID(r.word()))
	}
	if listed {
		s.Listed = map[string]int{}
	}
	for range r.byte() {
		name := r.word()
		s.Listed[name] = r.byte()
	}
	var left []reclaim.Item
	for range r.byte() {
		left = append(left, reclaim.Item{Name: p.Names[i], Gone: types.UID(r.word())})
	}
	if a.Action == reclaim.ReadSiblings {
		a.Siblings = f.Siblings
	}
	p.Workers[i] = Worker{Session: s, Left: left}
}
