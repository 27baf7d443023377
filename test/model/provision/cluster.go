package provision

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
)

// users are the moves of people, each as often as the budget says.
func (k *worker) users(s *state) {
	for i := range k.Claims {
		k.claimUsers(s, i)
	}
	for slot, p := range s.pvs {
		k.User(p.exists() && !p.terminating, &s.left.DeletePV, move{userDeletesPV, 0, slot, 0}, func(c *transition) {
			c.pvs[slot].terminating = true
			c.endPV(slot)
		})
		k.User(p.exists() && p.claim != foreign && !p.retain, &s.left.Retain, move{userRetains, 0, slot, 0},
			func(c *transition) { c.pvs[slot].retain = true })
	}
	for n := range k.names() {
		k.User(!s.pvs[n].exists(), &s.left.TakeName, move{userTakesName, 0, n, 0},
			func(c *transition) { c.pvs[n] = pv{claim: foreign, stripped: true} })
	}
	k.User(s.class != 0, &s.left.DeleteClass, move{userDeletesClass, 0, 0, 0}, func(c *transition) { c.class = 0 })
	k.User(s.class == 0, &s.left.CreateClass, move{userCreatesClass, 0, 0, 0}, func(c *transition) { c.class = 2 })
	toggle := func(is bool, left *uint8, off, on verb, do func(*transition)) {
		if is {
			off = on
		}
		k.User(true, left, move{off, 0, 0, 0}, do)
	}
	toggle(!s.zone, &s.left.Zone, nodeGoes, nodeReturns, func(c *transition) { c.zone = !c.zone })
	toggle(s.gone, &s.left.Leave, nodeALeaves, nodeAReturns, func(c *transition) { c.gone = !c.gone })
	toggle(s.noSecret, &s.left.Secret, userDeletesSecret, userCreatesSecret,
		func(c *transition) { c.noSecret = !c.noSecret })
	toggle(s.version > 0, &s.left.Replace, driverIsReplaced, driverComesBack,
		func(c *transition) { c.version = 1 - c.version })
	k.Breaks(!s.full, &s.left.LogFull, move{logFills, 0, 0, 0}, func(c *transition) { c.full = true })
	k.User(s.full, nil, move{logHasRoom, 0, 0, 0}, func(c *transition) { c.full = false })
}

func (k *worker) claimUsers(s *state, i int) {
	now := s.claims[i]
	k.User(now.exists && !now.terminating, &s.left.DeleteClaim, move{userDeletesClaim, 0, i, 0}, func(c *transition) {
		c.claims[i].terminating = true
		c.end(i)
	})
	k.User(!s.born[i] && (k.Claims[i] != k.Claims[0] || !s.claims[0].exists), &s.left.CreateClaim,
		move{userCreatesClaim, 0, i, 0}, func(c *transition) {
			c.born[i], c.claims[i] = true, claim{exists: true, guarded: k.Guarded}
			if k.Late || k.Local {
				c.claims[i].node = 1
			}
		})
	k.User(now.needy(), &s.left.BindElsewhere, move{userBindsElsewhere, 0, i, 0},
		func(c *transition) { c.claims[i].bound = boundElsewhere })
	for node := range uint8(3) {
		k.User((k.Late || k.Local) && now.needy() && now.node != node, &s.left.Node, move{nodeIsSelected, 0, i, node},
			func(c *transition) { c.claims[i].node = node })
	}
}

// admins are the moves of people that the documentation names as an excuse.
func (k *worker) admins(s *state) {
	for slot, p := range s.pvs {
		n, place := nameOf(slot), int(p.place)
		open := p.exists() && p.claim != foreign && s.shards[place][n].entry.claim != 0
		k.User(open && !p.stripped, &s.left.Strip, move{adminStrips, 0, slot, 0}, func(c *transition) {
			c.pvs[slot].stripped = true
			c.excuse(place, n)
			c.endPV(slot)
		})
		k.User(open && k.over(s, slot), &s.left.Peer, move{peerReclaims, 0, slot, 0}, func(c *transition) {
			c.excuse(place, n)
			c.loseVolume(place, n)
			c.pvs[slot] = pv{}
		})
	}
	for n := range k.names() {
		for place := range k.places() {
			store := s.shards[place][n]
			k.User(store.entry.claim != 0, &s.left.SettleEntry, move{adminSettlesEntry, place, n, 0}, func(c *transition) {
				c.excuse(place, n)
				c.commit(place, n, c.shards[place][n].entry).settled = true
			})
			k.User(store.entry.claim != 0, &s.left.DeleteLog, move{adminDeletesLog, place, n, 0}, func(c *transition) {
				c.commit(place, n, entry{})
				c.shards[place][n].deleted = true
				c.excuseLostLog(place, n)
			})
		}
	}
}

// excuse notes that what happens to this volume from now on is excused.
func (c *transition) excuse(place, n int) { c.excused[place][n] = !c.strict }

// excuseLostLog notes that a log is lost: it was deleted while no process remembers it.
func (c *transition) excuseLostLog(place, n int) {
	if c.shards[place][n].deleted && !c.remembered(&c.state, place, n) {
		c.shards[place][n].deleted = false
		c.excuse(place, n)
	}
}

func (w *World) places() int {
	if w.Local {
		return maxPlaces
	}
	return 1
}

// endPV has a PersistentVolume go that is terminating and has no finalizer.
func (c *transition) endPV(slot int) {
	p := &c.pvs[slot]
	if p.terminating && p.stripped {
		*p = pv{}
	}
}

// isGone reports whether a node is gone.
func (s *state) isGone(node uint8) bool { return node == 1 && s.gone }

// over reports whether the claim of a PersistentVolume is gone, or has another one.
func (w *World) over(s *state, slot int) bool {
	p := s.pvs[slot]
	if !p.exists() || p.claim == foreign {
		return false
	}
	c := s.claims[p.claim-1]
	return !c.exists || c.bound == boundElsewhere || slot >= maxNames && c.bound == boundOwn
}

// cluster are the moves of Kubernetes' own controllers, and of whoever reclaims: it deletes the volume of a
// PersistentVolume whose claim is gone or has another one, and then removes the finalizer of the PersistentVolume.
// With policy Retain only the latter. What else it reads is what the worlds of test/model are about.
func (k *worker) cluster(s *state) {
	for i := range k.Claims {
		now := s.claims[i]
		k.Can(now.guarded && now.terminating, move{protectionEnds, 0, i, 0}, func(c *transition) {
			c.claims[i].guarded = false
			c.end(i)
		})
		p := s.pvs[k.name(i)]
		k.Can(p.belongs(i) && !p.terminating && now.exists && now.bound == unbound, move{controllerBinds, 0, i, 0},
			func(c *transition) {
				c.claims[i].bound = boundOwn
			})
		for node := uint8(1); node <= 2; node++ {
			k.Can(k.Scheduled && now.needy() && now.node == 0 && !s.isGone(node), move{schedulerSelects, 0, i, node},
				func(c *transition) { c.claims[i].node = node })
		}
	}
	for slot, p := range s.pvs {
		if p.exists() && p.claim != foreign {
			k.reclaim(s, slot, p)
		}
	}
}

func (k *worker) reclaim(s *state, slot int, p pv) {
	n, place := nameOf(slot), int(p.place)
	may := k.mayReclaim(s, place, n)
	v := s.volumes[place][n]
	has := v.there && v.generation == p.generation
	if p.retain {
		k.retain(s, slot, p, may, has)
		return
	}
	over := k.over(s, slot)
	k.Can(k.Gap && over && has && may && !p.going, move{reclaimBegins, 0, slot, 0},
		func(c *transition) { c.pvs[slot].going = true })
	k.Can((over && may && !k.Gap || p.going) && has, move{reclaimDeletesVolume, 0, slot, 0}, func(c *transition) {
		c.loseVolume(place, n)
	})
	k.Can((over && may || p.going) && !has, move{reclaimEnds, 0, slot, 0}, func(c *transition) { c.pvs[slot] = pv{} })
}

// retain is the end of a PV with policy Retain; has: its volume is there.
func (k *worker) retain(s *state, slot int, p pv, may, has bool) {
	claim := s.claims[p.claim-1]
	free := k.over(s, slot) || claim.bound == unbound
	k.Can(p.terminating && free && may, move{retainedPVGoes, 0, slot, 0}, func(c *transition) {
		kept := &c.volumes[p.place][nameOf(slot)].kept
		switch {
		case !has:
			*kept = notKept
		case claim.needy():
			*kept = keptForClaim
		default:
			*kept = keptStrictly
		}
		c.pvs[slot] = pv{}
	})
}

// mayReclaim reports whether the leader finds no entry in its log.
func (w *World) mayReclaim(s *state, place, n int) bool {
	for i := range w.Replicas {
		l := &s.lines[i]
		if w.place(i) == place && l.up && l.mayAct && provision.Log(l.names[n].log) == provision.LogAbsent &&
			!isLogWrite(l.calls[n].action) {
			return true
		}
	}
	return false
}

// lifetimes are how processes begin, lead and end.
func (k *worker) lifetimes(s *state) {
	leader := -1
	for i := range k.Replicas {
		if s.lines[i].mayAct {
			leader = i
		}
	}
	for i := range k.Replicas {
		l := &s.lines[i]
		k.Can(!l.up, move{processStarts, i, 0, 0}, func(c *transition) {
			k.start(&c.state, i)
			c.lines[i].mayAct = k.Local
		})
		k.Breaks(l.up, &s.left.Crash, move{processEnds, i, 0, 0}, func(c *transition) { c.ends(i) })
		k.Can(l.up && leader < 0 && !l.superseded(), move{processLeads, i, 0, 0},
			func(c *transition) { c.lines[i].mayAct = true })
		k.Can(l.up && !l.mayAct && l.superseded(), move{processNotices, i, 0, 0}, func(c *transition) {
			c.ends(i)
			k.start(&c.state, i)
		})
		k.Breaks(l.up && leader >= 0 && leader != i && !l.superseded(), &s.left.Overlap, move{leaseMoves, i, 0, 0},
			func(c *transition) { c.lines[leader].mayAct, c.lines[i].mayAct = false, true })
	}
}

// superseded reports whether a replica that may not act any more remembers or waits for something.
func (l *line) superseded() bool {
	return !l.mayAct && (l.names != [maxNames]memory{} || l.calls != [maxNames]call{})
}

// ends has a process end. Its calls go on without it.
func (c *transition) ends(i int) {
	for n, now := range c.lines[i].calls {
		c.abandon(now, i, n)
	}
	c.lines[i] = line{}
	for n := range maxNames {
		c.excuseLostLog(c.place(i), n)
	}
}
