package provision

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/csidriver/errclass"
)

// arrives are the ways in which a call of a replica can be answered.
func (k *worker) arrives(s *state, i, n int) {
	now := s.lines[i].calls[n]
	with := func(do func(c *transition, now *call)) func(*transition) {
		return func(c *transition) { do(c, &c.lines[i].calls[n]) }
	}
	switch provision.Action(now.action) {
	case provision.CreateVolume:
		k.driverAnswers(s, i, n)
	case provision.DeleteVolume:
		k.Can(true, moveTo(arrives, i, n, now.action), with(func(c *transition, now *call) { c.deleteArrives(now, i, n) }))
	case provision.StorePV, provision.StoreApart:
		k.Can(true, moveTo(arrives, i, n, now.action), with(func(c *transition, now *call) { c.pvArrives(now, i, n) }))
		k.Breaks(true, &s.left.API, moveTo(fails, i, n, now.action), with(func(c *transition, now *call) {
			now.stage, now.class = answered, uint8(errclass.Refused)
		}))
	case provision.OpenEntry, provision.NoteVersion, provision.MarkDiscarding, provision.CloseEntry:
		k.Can(true, moveTo(arrives, i, n, now.action), with(func(c *transition, now *call) { c.logWriteArrives(now, i, n) }))
	default:
	}
}

// driverAnswers are the driver's answers to CreateVolume.
func (k *worker) driverAnswers(s *state, i, n int) {
	now := s.lines[i].calls[n]
	v := s.volumes[k.place(i)][n]
	m := move{"", i, n, now.request.content}
	is := func(v verb) move { m.verb = v; return m }
	reply := func(class errclass.Class) func(*transition) {
		return func(c *transition) {
			now := &c.lines[i].calls[n]
			now.stage, now.class, now.changed = answered, uint8(class), now.request.noted != now.version
		}
	}
	if k.rejects(now.request, now.version) {
		k.Can(true, is(driverRejects), reply(errclass.Unfit))
		return
	}
	k.Can(now.bare, is(driverWantsSecret), reply(errclass.Unfit))
	if k.Full {
		k.Can(true, is(driverIsFull), reply(errclass.Exhausted))
		return
	}
	k.Can(k.accepts(v, now.request), is(driverMakes),
		func(c *transition) { c.createArrives(&c.lines[i].calls[n], i, n, false) })
	k.Can(!k.accepts(v, now.request), is(driverHasAnother), reply(errclass.Refused))
	k.Breaks(!v.there, &s.left.Spoil, is(driverMakesUnfit),
		func(c *transition) { c.createArrives(&c.lines[i].calls[n], i, n, true) })
	k.Breaks(!v.there || !v.by.isSentAs(now.request) || v.maker != now.version, &s.left.Unfit, is(driverCannot),
		reply(errclass.Unfit))
	k.Breaks(true, &s.left.Refuse, is(driverRefuses), reply(errclass.Refused))
	k.Breaks(true, &s.left.Refuse, is(driverIsFull), reply(errclass.Exhausted))
	k.Breaks(true, &s.left.RPC, is(driverFails), reply(errclass.Uncertain))
	k.User(k.atWork(s, k.place(i), n), nil, is(driverIsAtWork), reply(errclass.InProgress))
}

// accepts reports whether a request is not in the way of the volume that is there.
func (w *World) accepts(v volume, r request) bool {
	return !v.there || v.by.isSentAs(r) || w.Compatible && v.by.content != othersContent
}

// rejects reports whether a version of the driver accepts no request that was composed with another one.
func (w *World) rejects(r request, version uint8) bool { return w.Rejects && r.version != version }

// atWork reports whether the driver may be at work on a call that nobody waits for.
func (w *World) atWork(s *state, place, name int) bool {
	for j := range s.late {
		if o := &s.late[j]; o.stage != idle && (provision.Action(o.action) == provision.CreateVolume ||
			provision.Action(o.action) == provision.DeleteVolume) && w.place(int(o.replica)) == place && int(o.name) == name {
			return true
		}
	}
	return false
}

func (c *transition) createArrives(now *call, i, n int, unfit bool) {
	v := &c.volumes[c.place(i)][n]
	if !v.there {
		v.there, v.unfit, v.by = true, unfit, now.request
		v.maker, v.by.version, v.by.noted = now.version, 0, 0
		switch {
		case v.generation == 0 || !c.Unique:
			v.generation = 1
		default:
			v.generation = v.generation%7 + 1
		}
	}
	now.stage, now.class, now.got, now.unfit = answered, uint8(errclass.Done), v.generation, v.unfit
}

func (c *transition) deleteArrives(now *call, i, n int) {
	if v := &c.volumes[c.place(i)][n]; v.there && v.generation == now.generation {
		c.loseVolume(c.place(i), n)
	}
	now.stage, now.class = answered, uint8(errclass.Done)
}

func (c *transition) loseVolume(place, n int) {
	c.checkLoss(place, n)
	v := &c.volumes[place][n]
	*v = volume{generation: v.generation}
}

// pvArrives is the CREATE of a PersistentVolume.
func (c *transition) pvArrives(now *call, i, n int) {
	slot := n
	if provision.Action(now.action) == provision.StoreApart {
		slot = maxNames + i
	}
	now.stage, now.class = answered, uint8(errclass.Done)
	if p := c.pvs[slot]; p.exists() {
		now.class, now.found = uint8(errclass.Refused), c.viewOf(p, i, int(now.claim)-1)
		now.found.read = recently
		return
	}
	c.checkPV(now, i, n)
	c.pvs[slot] = pv{claim: now.claim, generation: now.generation, place: uint8(c.place(i))}
}

// end has a claim go that is terminating and has no finalizer.
func (c *transition) end(claimed int) {
	if now := &c.claims[claimed]; now.terminating && !now.guarded {
		*now = claim{}
	}
}

// abandon leaves a call to itself.
func (c *transition) abandon(now call, i, n int) {
	if now.stage != onItsWay || isLogWrite(now.action) && !now.current {
		return
	}
	now.first, now.quiet, now.bare = false, false, false
	for j := range c.late {
		if c.late[j].stage == idle {
			c.late[j] = late{call: now, replica: uint8(i), name: uint8(n)}
			return
		}
	}
	panic("too many calls without a waiter")
}

// lateCalls are the moves of calls that nobody waits for.
func (k *worker) lateCalls(s *state) {
	for j := range s.late {
		o := s.late[j]
		if o.stage == idle {
			continue
		}
		i, n := int(o.replica), int(o.name)
		arrive := func(unfit bool) func(*transition) {
			return func(c *transition) {
				c.late[j] = late{}
				if o.overdue {
					c.excuse(k.place(i), n)
				}
				c.lateArrives(o, i, n, unfit)
			}
		}
		k.Can(true, moveTo(lateArrives, i, n, o.action), arrive(false))
		k.Can(true, moveTo(lateLost, i, n, o.action), func(c *transition) { c.late[j] = late{} })
	}
}

func (c *transition) lateArrives(o late, i, n int, unfit bool) {
	switch provision.Action(o.action) {
	case provision.CreateVolume:
		if c.accepts(c.volumes[c.place(i)][n], o.request) && !c.rejects(o.request, o.version) {
			c.createArrives(&o.call, i, n, unfit)
		}
	case provision.DeleteVolume:
		c.deleteArrives(&o.call, i, n)
	case provision.StorePV, provision.StoreApart:
		c.pvArrives(&o.call, i, n)
	default:
		c.logWriteArrives(&o.call, i, n)
	}
}
