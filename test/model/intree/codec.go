package intree

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/intree"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/volume"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

// codec writes a replica to bytes, and fills in a fresh one from them. What it passes over does not influence a
// replica: it follows from what it has seen, or is only reported.
type codec struct {
	memory.Archive
	*replica
}

// Encode appends the process to b.
func (r *replica) Encode(b []byte) []byte {
	c := codec{memory.Archive{Bytes: b}, r}
	c.all()
	return c.Bytes
}

// Decode takes a process from b and returns the rest.
func (m *machine) Decode(b []byte) (*replica, []byte) {
	c := codec{memory.Archive{Bytes: b, Reads: true}, m.fresh()}
	c.all()
	return c.replica, c.Bytes
}

func (c *codec) all() {
	c.Flags(&c.leads)
	for slot := range c.slots {
		c.slot(slot)
	}
}

// slot visits what is known of a name.
func (c *codec) slot(slot int) {
	t, name, uid := c.tracker, c.slots[slot], uidOf(slot, 1)
	_, expected := t.Expectations[name]
	_, deleted := t.Tombstones[uid]
	_, failed := t.Failures[uid]
	_, yielded := t.YieldedSince[uid]
	_, foreign := t.ForeignTwin[uid]
	c.Flags(&c.woken[slot], &c.again[slot], &c.busy[slot], &expected, &deleted, &failed, &yielded, &foreign)
	memory.Number(&c.Archive, &c.reached[slot])
	c.view(&c.seen[slot])
	if c.Reads && c.seen[slot].Version != 0 {
		c.recall(slot)
	}
	c.accepted(slot)
	entry(c, expected, t.Expectations, name, func(pv *intree.PV) { c.pv(slot, pv) })
	entry(c, deleted, t.Tombstones, uid, func(t *intree.Tombstone) {
		t.VolumeDeleted = true
		c.claim(slot, &t.Claim)
	})
	entry(c, failed, t.Failures, uid, func(f *intree.Failures) {
		f.Tries = 1
		c.failure(&f.Failure)
	})
	entry(c, yielded, t.YieldedSince, uid, c.since)
	entry(c, foreign, t.ForeignTwin, uid, func(*struct{}) {})
	if c.busy[slot] {
		c.session(slot, &c.sessions[slot])
	}
}

// entry visits the value of a key that a map has.
func entry[K comparable, V any](c *codec, there bool, m map[K]V, key K, visit func(*V)) {
	if !there {
		return
	}
	value := m[key]
	if visit(&value); c.Reads {
		m[key] = value
	}
}

// accepted visits the UIDs under a name whose deletion was accepted, as bits.
func (c *codec) accepted(slot int) {
	var bits uint8
	for uid := range c.tracker.DeletionAccepted {
		if int(uid[0]-'0') == slot {
			bits |= 1 << last(uid)
		}
	}
	memory.Number(&c.Archive, &bits)
	for uid := range uint8(8) {
		if c.Reads && bits&(1<<uid) != 0 {
			c.tracker.DeletionAccepted[uidOf(slot, uid)] = struct{}{}
		}
	}
}

// recall has the tracker know what follows from a PV that the watch shows.
func (c *codec) recall(slot int) {
	t := c.tracker
	pv, _ := c.record(slot, c.seen[slot])
	if t.Volumes[pv.Source] == nil {
		t.Volumes[pv.Source] = map[string]struct{}{}
	}
	t.Volumes[pv.Source][pv.Name] = struct{}{}
	if pv.Writer == intree.WriterOther {
		t.Foreign[pv.Name] = struct{}{}
	}
}

func (c *codec) view(v *view) {
	if memory.Number(&c.Archive, &v.Version); v.Version == 0 {
		return
	}
	memory.Pair(&c.Archive, &v.UID, &v.TwinOf)
	memory.Pair(&c.Archive, &v.Policy, &v.Phase)
	memory.Pair(&c.Archive, &v.Claim, &v.Writer)
	c.Flags(&v.Terminating, &v.External, &v.Migrated, &v.Held)
}

// pv visits a PV, of which its view says all.
func (c *codec) pv(slot int, pv *intree.PV) {
	var v view
	if !c.Reads {
		v = c.viewOf(*pv)
	}
	if c.view(&v); c.Reads {
		read, _ := c.record(slot, v)
		*pv = *read
	}
}

func (c *codec) siblings(list *[]intree.PV) {
	memory.List(&c.Archive, list, func(pv *intree.PV) {
		slot := slices.Index(c.slots, pv.Name)
		memory.Number(&c.Archive, &slot)
		c.pv(slot, pv)
	})
}

func (c *codec) claim(slot int, claim *volume.ClaimRef) {
	uid := last(claim.UID)
	if memory.Number(&c.Archive, &uid); c.Reads {
		*claim = c.claimOf(slot, uid)
	}
}

// name visits the name of a PV, or none.
func (c *codec) name(name *string) {
	at := slices.Index(c.slots, *name) + 1
	if memory.Number(&c.Archive, &at); c.Reads && at > 0 {
		*name = c.slots[at-1]
	}
}

// failure is what is known of tries that failed: how many there were only matters for how long the delay is.
func (c *codec) failure(f *intree.Failure) {
	waits := f.Until.After(clock.Now)
	if c.Flags(&waits); !c.Reads {
		return
	}
	f.Until = clock.Now
	if waits {
		f.Until = clock.Now.Add(time.Second)
	}
}

func (c *codec) since(t *time.Time) {
	age := clock.AgeOf(*t)
	if memory.Number(&c.Archive, &age); c.Reads {
		*t = age.Time()
	}
}

// session is written without what is looked up anew before the next decision.
func (c *codec) session(slot int, s *intree.Session) {
	f := &s.Facts
	reason := slices.Index(c.reasons, s.Decision.Reason)
	there, attached := f.PV.UID != "", f.Attachments > 0
	failed, yielded := !f.Failure.Until.IsZero(), !f.YieldedSince.IsZero()
	memory.Number(&c.Archive, &s.Decision.Action)
	memory.Number(&c.Archive, &reason)
	memory.Pair(&c.Archive, &f.Other, &s.ReadCount)
	c.Flags(&there, &f.TwinFound, &f.Claim.Found, &attached, &f.OriginalGone, &f.Tombstone.VolumeDeleted,
		&f.TwinConflict, &s.ClaimUnread)
	c.Flags(&failed, &yielded)
	if failed {
		c.failure(&f.Failure)
	}
	if yielded {
		c.since(&f.YieldedSince)
	}
	if there {
		c.pv(slot, &f.PV)
	}
	if f.TwinFound {
		c.pv(twin(slot), &f.Twin)
	}
	for _, read := range liveReads(s) {
		c.Read(read)
	}
	if f.ClaimRead.Order > 0 {
		c.claim(slot, &f.Claim.Of)
	}
	if f.Claim.Found {
		c.claimUID(&f.Claim.UID)
	}
	c.name(&f.Claim.VolumeName)
	if f.Tombstone.VolumeDeleted {
		c.claim(slot, &f.Tombstone.Claim)
	}
	memory.Number(&c.Archive, &s.Unread)
	c.siblings(&f.Siblings)
	c.siblings(&s.Siblings)
	c.name(&f.SiblingNeeded)
	c.name(&s.SiblingNeeded)
	if !c.Reads {
		return
	}
	s.Rules, s.Decision.Reason = c.rules, c.reasons[reason]
	if attached {
		f.Attachments = 1
	}
}

func (c *codec) claimUID(uid *types.UID) {
	n := last(*uid)
	if memory.Number(&c.Archive, &n); c.Reads {
		*uid = uidOf(0, n)
	}
}
