package inflight

import (
	"maps"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/inflight"
)

// keys are the names of the entries.
var keys = [entries]string{"a", "b"}

// stored returns the entries of values by their keys.
func stored(v values) map[string]uint8 {
	all := map[string]uint8{}
	for n, value := range v {
		if value != 0 {
			all[keys[n]] = value
		}
	}
	return all
}

func valuesOf(all map[string]uint8) (v values) {
	for n := range v {
		v[n] = all[keys[n]]
	}
	return v
}

// former reports whether a process is of a release that knows no old Lease.
func (w *World) former(i int) bool { return w.Releases[i] == 'f' }

// process makes the moves of a process by itself.
func (k *worker) process(s *state, i int) {
	p := &s.processes[i]
	is := func(v verb) move { return move{verb: v, process: i} }
	switch p.does {
	case takesOver:
		k.Can(true, is(takesYoung), func(c *transition) { c.takeYoung(i) })
	case takesOld:
		k.Can(true, is(takesOldLease), func(c *transition) { c.takeOld(i) })
	case idle:
		k.Can(p.due(), is(writeBegins), func(c *transition) { c.write(i, 0) })
		k.move(s, i)
	case opens:
		k.Can(true, is(oldIsOpened), func(c *transition) { c.open(i) })
	case opened:
		k.Can(true, is(youngIsChecked), func(c *transition) { c.check(i) })
	case writesOld, writesYoung, stops:
		m := is(youngIsWritten)
		if p.sent.toOld {
			m = is(oldIsWritten)
		}
		k.Can(true, m, func(c *transition) { c.arrive(i) })
		k.Breaks(true, &s.left.Lose, is(answerIsLost), func(c *transition) { c.lose(i) })
	case reads:
		k.Can(true, is(youngIsRead), func(c *transition) { c.read(i) })
	case readsOld:
		k.Can(true, is(oldIsRead), func(c *transition) { c.readOld(i) })
	}
}

// due reports whether a process has to write.
func (p *process) due() bool {
	due, counts := p.tried > 0, whole(p.young.lease, p.old.lease)
	for n := range entries {
		due = due || p.removing[n] || p.want[n] != 0 && p.want[n] != counts[n]
	}
	return due
}

// move offers to move entries that the young Lease has as wanted.
func (k *worker) move(s *state, i int) {
	p := &s.processes[i]
	movable := 0
	for n := range entries {
		if p.want[n] != 0 && p.young.has[n] == p.want[n] && (p.tried == 0 || k.eager) {
			movable |= 1 << n
		}
	}
	for mask := 1; mask < 1<<entries; mask++ {
		k.User(mask&^movable == 0 && !k.former(i), &s.left.Move, move{entriesMove, i, mask},
			func(c *transition) { c.write(i, mask) })
	}
}

// takeYoung writes the epoch of a process to the young Lease.
func (c *transition) takeYoung(i int) {
	p := &c.processes[i]
	if c.former(i) && c.young.split {
		c.end(i, blocked)
		return
	}
	taken := c.young
	taken.owner = uint8(i + 1)
	c.commit(false, taken)
	p.young = seen{taken, true}
	if p.does = takesOld; !taken.split {
		c.begin(i)
	}
}

// takeOld does so to the old Lease, if that counts.
func (c *transition) takeOld(i int) {
	if taken := c.old; taken.exists {
		if !c.youngAlone {
			taken.owner = uint8(i + 1)
			c.commit(true, taken)
		}
		c.processes[i].old = seen{taken, true}
	}
	c.begin(i)
}

// begin ends a take-over.
func (c *transition) begin(i int) {
	p := &c.processes[i]
	p.does, p.want = idle, whole(p.young.lease, p.old.lease)
	p.inherited = p.want
	c.leader = uint8(i + 1)
	for n := range entries {
		p.confirmed[n] = p.want[n] != 0
		if !c.lost[n] && !c.allows(n, p.want[n]) {
			c.Violates("L1: process %d finds entry %s as %d", i+1, keys[n], p.want[n])
		}
		c.wanted[n], c.lost[n] = 1<<p.want[n], false
	}
}

// write begins a write of the wanted entries, of which the ones in mask move.
func (c *transition) write(i, mask int) {
	p := &c.processes[i]
	var moving []string
	for n := range entries {
		if mask&(1<<n) != 0 {
			moving = append(moving, keys[n])
		}
	}
	p.whole = p.want
	has := stored(p.old.has)
	next, first := inflight.Split(has, stored(p.want), moving)
	switch {
	case c.youngFirst && mask == 0:
		next, first = has, false
	case c.replacedFirst:
		maps.DeleteFunc(next, func(key string, value uint8) bool {
			replaced := value != stored(p.want)[key]
			first = first || replaced
			return replaced
		})
	}
	to := lease{exists: true, owner: uint8(i + 1), has: valuesOf(next)}
	p.sent = write{sent: true, toOld: true, content: to, current: p.old.current}
	switch {
	case !first && !p.oldMayLand:
		p.opening = p.old
		c.writeYoung(i)
	case p.old.exists:
		p.does = writesOld
	default:
		p.does = opens
	}
}

// writeYoung sends the young Lease, beside the old one as it is then.
func (c *transition) writeYoung(i int) {
	p := &c.processes[i]
	young := inflight.Young(stored(p.whole), stored(p.opening.has))
	p.does = writesYoung
	p.sent = write{sent: true, current: p.young.current, content: lease{
		exists: true, owner: uint8(i + 1), has: valuesOf(young), split: p.opening.has != values{},
	}}
}

// open reads the old Lease before it counts, or creates it.
func (c *transition) open(i int) {
	if !c.old.exists {
		c.commit(true, lease{exists: true, owner: uint8(i + 1)})
	}
	p := &c.processes[i]
	p.opening, p.does = seen{c.old, true}, opened
}

// check reads the young Lease again, which shows whether the process may write the old one.
func (c *transition) check(i int) {
	p := &c.processes[i]
	if !p.young.current && !c.unchecked {
		c.fail(i)
		return
	}
	p.sent.current, p.does = p.opening.current, writesOld
	for n := range entries {
		if c.leftovers && p.sent.content.has[n] == 0 {
			p.sent.content.has[n] = p.opening.has[n]
		}
	}
}

// arrive stores the write of a process, unless its Lease has changed.
func (c *transition) arrive(i int) {
	p := &c.processes[i]
	sent := p.sent
	switch {
	case !sent.current && p.does == stops:
		c.end(i, ended)
	case !sent.current:
		p.oldMayLand = (p.oldMayLand || sent.toOld) && !c.careless
		c.fail(i)
	case sent.toOld:
		c.commit(true, sent.content)
		p.opening = seen{sent.content, true}
		c.writeYoung(i)
	default:
		c.commit(false, sent.content)
		if p.does == stops {
			c.end(i, ended)
			return
		}
		old := p.opening
		old.exists = old.exists && sent.content.split
		p.sent, p.same = write{}, false
		c.observe(i, seen{sent.content, true}, old)
	}
}

// lose takes the answer of a write, which may still arrive.
func (c *transition) lose(i int) {
	p := &c.processes[i]
	sent := p.sent
	c.abandon(i)
	if p.does == stops {
		c.end(i, ended)
		return
	}
	if sent.toOld && !c.careless {
		p.oldMayLand, p.oldBase = true, sent.current
	}
	c.fail(i)
}

// fail notes a write whose outcome is unknown, which a read resolves.
func (c *transition) fail(i int) {
	p := &c.processes[i]
	if p.tried == 0 || p.tries[p.tried-1] != p.whole {
		p.tries[p.tried] = p.whole
		p.tried++
	}
	p.does, p.sent, p.opening, p.whole = reads, write{}, seen{}, values{}
}

// read reads the young Lease, and readOld the old one if it counts.
func (c *transition) read(i int) {
	p := &c.processes[i]
	p.part, p.same = seen{c.young, true}, p.young.current
	switch {
	case int(c.young.owner) != i+1:
		c.end(i, ended)
	case c.young.split:
		p.does = readsOld
	default:
		c.observe(i, p.part, seen{})
	}
}

func (c *transition) readOld(i int) {
	p := &c.processes[i]
	if int(c.old.owner) > i+1 {
		c.end(i, ended)
		return
	}
	c.observe(i, p.part, seen{c.old, true})
}

// observe takes in the shard as it was read or written. old does not exist if it does not count.
func (c *transition) observe(i int, young, old seen) {
	p := &c.processes[i]
	p.oldMayLand = p.oldMayLand && p.oldBase && old.exists
	p.oldBase = p.oldBase && p.oldMayLand
	if !p.same && !p.oldMayLand {
		p.tried, p.tries = 0, [maxTries]values{}
	}
	if !old.exists {
		old = seen{}
	}
	p.young, p.old, p.does = young, old, idle
	p.part, p.same, p.opening, p.whole = seen{}, false, seen{}, values{}
	counts := whole(young.lease, old.lease)
	for n := range entries {
		want := p.want[n]
		switch {
		case counts[n] != want || p.mayDiffer(n):
		case want != 0:
			c.confirm(i, n)
		case p.removing[n]:
			p.removing[n] = false
			c.settle(i, n)
		}
	}
}

// mayDiffer reports whether a write that may land stores an entry otherwise than as wanted.
func (p *process) mayDiffer(n int) (does bool) {
	for _, try := range p.tries[:p.tried] {
		does = does || try[n] != p.want[n]
	}
	return does
}
