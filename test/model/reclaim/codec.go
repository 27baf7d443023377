package reclaim

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/reclaim"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

// words are all strings that occur in a model: each is written as its number.
type words struct {
	list   []string
	number map[string]byte
}

func newWords(list []string) *words {
	w := &words{list: append([]string{""}, list...), number: map[string]byte{}}
	for i, word := range w.list {
		w.number[word] = byte(i)
	}
	return w
}

// codec writes a replica to bytes, and fills in a fresh one from them. What it passes over has no effect on what
// follows: it is the same in all replicas, or is read anew before it is used.
type codec struct {
	memory.Archive
	*words
}

func word[S ~string](c *codec, s *S) {
	var n byte
	if !c.Reads {
		var found bool
		if n, found = c.number[string(*s)]; !found {
			panic(fmt.Sprintf("%q is no word of the model", *s))
		}
	}
	if memory.Number(&c.Archive, &n); c.Reads {
		*s = S(c.list[n])
	}
}

func wordList[S ~string](c *codec, list *[]S) {
	memory.List(&c.Archive, list, func(s *S) { word(c, s) })
}

func (c *codec) pv(pv *volume.PV) {
	word(c, &pv.Name)
	word(c, &pv.UID)
	word(c, &pv.ResourceVersion)
	word(c, &pv.Driver)
	word(c, &pv.Handle)
	word(c, &pv.ProvisionedBy)
	c.claim(&pv.Claim)
	memory.Pair(&c.Archive, &pv.Policy, &pv.Phase)
	c.Flags(&pv.Terminating, &pv.HasFinalizer, &pv.HasCompanionFinalizer, &pv.WasAttached, &pv.Held)
}

func (c *codec) claim(claim *volume.ClaimRef) {
	word(c, &claim.Namespace)
	word(c, &claim.Name)
	word(c, &claim.UID)
}

// replica visits a replica. The index of handles follows from the cache.
func (c *codec) replica(p *replica) {
	e := p.engine
	c.Flags(&e.Leading, &e.Tracker.Contested, &p.expired)
	for i, name := range p.names {
		shown, busy, protecting := p.cache[i] != nil, p.busy(i), p.protections[i] != nil
		c.Flags(&shown, &p.queued[i], &p.unprotected[i], &p.later[i], &busy, &protecting)
		attached := e.Attached[name]
		if memory.Number(&c.Archive, &attached); attached > 0 {
			e.Attached[name] = attached
		}
		if shown {
			c.pv(memory.Made(&p.cache[i]))
		}
		if shown && c.Reads {
			e.Place(p.cache[i])
		}
		if busy {
			c.worker(p, i)
		}
		if protecting {
			a := memory.Made(&p.protections[i])
			c.ask(a)
			c.pv(&a.PV)
		}
	}
	memory.Map(&c.Archive, e.Tracker.Records, func(uid *types.UID, record **reclaim.Record) {
		word(c, uid)
		c.record(memory.Made(record))
		if ended := (*record).Activity.Tombstone; ended != nil && c.Reads {
			name := ended.PV.Name
			e.Tracker.Tombstones[name] = append(e.Tracker.Tombstones[name], *uid)
		}
	})
}

// record visits what is known of a PV. One without activity is one that did nothing yet.
func (c *codec) record(m *reclaim.Record) {
	past, h := memory.Made(&m.Activity), &m.History
	adding, removing, over := past.Adding != nil, past.Removing != nil, past.Tombstone != nil
	justEnded, contested := past.ClaimEndedAt.Equal(clock.Now), !past.ContestedAt.IsZero()
	c.Flags(&h.SeenAlive, &h.SeenReleased, &h.SeenProtected, &h.Stripped)
	c.Flags(&past.Done.VolumeDeleted, &past.Done.PVDeleted, &past.Done.Finalized, &adding, &removing, &over, &justEnded,
		&contested)
	c.claim(&past.Done.Claim)
	word(c, &past.ClaimEnded)
	if adding {
		c.expectation(memory.Made(&past.Adding))
	}
	if removing {
		c.expectation(memory.Made(&past.Removing))
	}
	memory.List(&c.Archive, &past.Removals, func(at *time.Time) { *at = clock.Now })
	if over {
		tombstone := memory.Made(&past.Tombstone)
		c.pv(&tombstone.PV)
		c.Flags(&tombstone.End.Gone, &tombstone.End.Final, &tombstone.End.Shared)
	}
	if !c.Reads {
		return
	}
	switch {
	case justEnded:
		past.ClaimEndedAt = clock.Now
	case past.ClaimEnded != "":
		past.ClaimEndedAt = clock.Old.Time()
	}
	if contested {
		past.ContestedAt = clock.Now
	}
}

func (c *codec) expectation(own *reclaim.Expectation) {
	word(c, &own.Version)
	word(c, &own.ProtectedAt)
}

// ask is written without the facts that it was made of.
func (c *codec) ask(a *reclaim.Ask) {
	memory.Number(&c.Archive, &a.Action)
	c.Flags(&a.Bound)
	wordList(c, &a.Add)
	wordList(c, &a.Remove)
}

// worker is written without what is looked up anew after each answer. The number of steps is
// not bounded in a model.
func (c *codec) worker(p *replica, i int) {
	h := &p.workers[i]
	s := memory.Made(&h.session)
	f, a := &s.Facts, &s.Ask
	taken, listed := s.Deleting != "", s.Listed != nil
	c.ask(a)
	c.pv(&f.PV)
	c.Flags(&f.End.Gone, &f.End.Final, &f.End.Shared, &f.AttachmentsCurrent, &f.SecretsRead, &taken, &listed,
		&f.Claim.Found)
	reads := [...]*session.Read{&a.Read, &f.PVRead, &f.SiblingsRead, &f.PVsListed, &f.ClaimRead}
	for _, read := range reads {
		c.Read(read)
	}
	c.claim(&f.Claim.Of)
	word(c, &f.Claim.UID)
	word(c, &f.Claim.VolumeName)
	memory.List(&c.Archive, &f.Siblings, c.pv)
	word(c, &f.SiblingNeeded)
	wordList(c, &s.Absent)
	if listed {
		c.counts(&s.Listed)
	}
	memory.List(&c.Archive, &h.left, func(item *reclaim.Item) {
		item.Name = p.names[i]
		word(c, &item.Gone)
	})
	if !c.Reads {
		return
	}
	f.Rules, a.PV = p.engine.Rules, f.PV
	if taken {
		s.Deleting = volume.HandleKey(f.PV.Handle)
		p.engine.Deleting[s.Deleting] = struct{}{}
	}
	if a.Action == reclaim.ReadSiblings {
		a.Siblings = f.Siblings
	}
	for _, read := range reads {
		s.Reads = max(s.Reads, read.Order)
	}
}

// counts visits the counts of attachments, by the names of PVs.
func (c *codec) counts(counts *map[string]int) {
	if c.Reads {
		*counts = map[string]int{}
	}
	memory.Map(&c.Archive, *counts, func(name *string, n *int) {
		word(c, name)
		memory.Number(&c.Archive, n)
	})
}
