package provision

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
)

// commit writes the log. Whatever else is based on the version before is not current any more.
func (c *transition) commit(place, name int, e entry) *shard {
	to := &c.shards[place][name]
	to.entry, to.deleted, to.settled = e, false, false
	c.outdate(place, name)
	return to
}

// outdate makes all that is based on an earlier version of the log fail.
func (c *transition) outdate(place, name int) {
	for i := range c.Replicas {
		if c.place(i) == place {
			c.lines[i].names[name].current, c.lines[i].calls[name].current = false, false
		}
	}
	for j := range c.late {
		if o := &c.late[j]; int(o.name) == name && c.place(int(o.replica)) == place && isLogWrite(o.action) {
			*o = late{}
		}
	}
}

// takeOver is what a new leader does first: it reads the log and writes its epoch, without the entry that was settled.
func (c *transition) takeOver(i, n int) {
	place := c.place(i)
	stored := c.shards[place][n].entry
	if c.shards[place][n].settled {
		stored = entry{}
	}
	to := c.commit(place, n, stored)
	to.owner = uint8(i + 1)
	m := &c.lines[i].names[n]
	*m = memory{log: uint8(provision.LogAbsent), current: true}
	for cl := range c.Claims {
		m.again = m.again || c.name(cl) == n && c.born[cl]
	}
	if to.entry.claim == 0 {
		return
	}
	f := provision.Facts{Log: provision.LogOpen}
	var requests []provision.Request
	for q := range to.entry.count {
		requests = append(requests, c.requestOf(to.entry.requests[q]))
	}
	f.Record = provision.Inherited(uids[to.entry.claim-1], requests, clock.Now)
	m.remember(f)
	m.log, m.entry = uint8(provision.LogOpen), to.entry
}

// logWriteArrives is a compare-and-swap.
func (c *transition) logWriteArrives(now *call, i, n int) {
	if !now.current {
		now.stage, now.class = answered, uint8(errclass.Refused)
		return
	}
	written := *now
	c.commit(c.place(i), n, written.entry)
	now.stage, now.class, now.current = answered, uint8(errclass.Done), true
}

// reread reads the log after a write that was not answered, or that failed.
func (c *transition) reread(i, n int) {
	l := &c.lines[i]
	now, m := &l.calls[n], &l.names[n]
	store := c.shards[c.place(i)][n]
	switch {
	case int(store.owner) != i+1:
		// Another leader has taken over.
		*now, *m = call{}, memory{}
	case store.settled && store.entry == now.entry:
		*now = call{}
		c.drop(i, n)
	case store.entry == now.entry && !store.deleted:
		now.class, now.current, m.current = uint8(errclass.Done), true, true
		c.learn(i, n)
	default:
		now.stage, now.class, now.current, m.current = onItsWay, 0, true, true
	}
}

// outdated reports whether the log was written by others since a replica has read or written it.
func (m *memory) outdated() bool { return provision.Log(m.log) != provision.LogUnknown && !m.current }

// readLog has a replica take in the changes of others that a read of the log shows. There is no watch of the log.
func (c *transition) readLog(i, n int) {
	m := &c.lines[i].names[n]
	place := c.place(i)
	store := &c.shards[place][n]
	switch {
	case int(store.owner) != i+1:
		*m = memory{}
	case store.deleted:
		c.commit(place, n, m.entry)
		m.current = true
	case store.settled && store.entry == m.entry:
		c.commit(place, n, entry{})
		m.current, m.settled = true, true
	default:
		m.current = true
	}
}

// drop removes the entry from the log and from memory: an operator settled it.
func (c *transition) drop(i, n int) {
	c.commit(c.place(i), n, entry{})
	c.lines[i].names[n] = memory{log: uint8(provision.LogAbsent), current: true, again: true}
}
