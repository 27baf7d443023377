package statefulset

// people makes the moves of users and administrators, each within the budget.
func (k *worker) people(s *state) {
	for slot, at := range s.sets {
		if at.exists && !at.terminating {
			k.changeSet(s, slot)
		}
	}
	k.User(k.named(&s.objects, 0) < 0 && s.ends[1].how == notDeleted && !k.Collide, &s.left.Recreate,
		move{userCreatesSet, 0, 1}, func(c *transition) {
			c.createSet(1)
			c.sets[1].replicas = c.Again
		})
	for n := range k.Ordinals {
		k.usePods(s, n)
		k.editClaim(s, n)
	}
	k.User(k.Foreign != noRef && !s.foreignGone, &s.left.Foreign, move{foreignOwnerIsDeleted, 0, 0},
		func(c *transition) { c.foreignGone = true })
	k.User(true, &s.left.Gate, move{gateIsSwitched, 0, 0}, func(c *transition) { c.switchGate() })
	k.User(!s.removing, &s.left.Remove, move{userUninstalls, 0, 0}, func(c *transition) {
		c.removing = true
		for i := range c.Replicas {
			c.start(i)
		}
	})
}

// changeSet makes the changes of a set.
func (k *worker) changeSet(s *state, slot int) {
	at := s.sets[slot]
	for replicas := range k.Ordinals + 1 - int(at.start) {
		k.User(int(at.replicas) != replicas, &s.left.Scale, move{userScales, replicas, slot},
			func(c *transition) { c.sets[slot].replicas = uint8(replicas) })
	}
	k.User(at.start == 0 && int(at.replicas) < k.Ordinals, &s.left.Start, move{userMovesStart, 0, slot},
		func(c *transition) { c.sets[slot].start = 1 })
	for _, to := range k.Turns {
		inField := s.gate || at.field != none
		accepted := to != invalid && (to != none || !s.gate)
		k.User(inField && accepted && at.field != to, &s.left.Turn, move{userTurnsField, int(to), slot},
			func(c *transition) { c.sets[slot].field = to })
		k.User((!inField || k.Both) && at.annotation != to, &s.left.Turn, move{userTurnsAnnotation, int(to), slot},
			func(c *transition) { c.sets[slot].annotation = to })
	}
	for _, how := range k.Ways {
		k.User(true, &s.left.Delete, move{userDeletesSet, int(how), slot}, func(c *transition) {
			c.ends[slot].atRest = c.atRest
			if how == background {
				c.removeSet(slot, background)
				return
			}
			c.sets[slot].terminating, c.sets[slot].how = true, how
		})
	}
}

// switchGate switches the gate of the API server and of kube-controller-manager, which starts again. With the gate,
// each read fills in the field. Without it, a written field stays.
func (c *transition) switchGate() {
	c.gate = !c.gate
	c.managerGate = c.gate || c.Skew
	for slot := range c.sets {
		if s := &c.sets[slot]; c.gate && s.exists && s.field == none {
			s.field = retain
		}
	}
	c.managerStarts()
}

// usePods makes the deletions of pods.
func (k *worker) usePods(s *state, n int) {
	for name := range k.names() {
		p := s.pods[name][n]
		k.User(p.uid > 0 && !p.terminating, &s.left.Pod, move{userDeletesPod, name, n},
			func(c *transition) { c.deletePod(name, n) })
	}
}

// editClaim makes the changes of a claim.
func (k *worker) editClaim(s *state, n int) {
	at, was := s.claims[n], s.backups[n]
	k.User(was.there && !at.terminating && (at.uid == 0 || at.mark != was.mark), &s.left.Restore,
		move{userRestoresClaim, 0, n}, func(c *transition) {
			c.restoreClaim(n)
			if c.left.Restore == 0 {
				c.backups = [maxOrdinals]backup{}
			}
		})
	if at.uid == 0 || at.terminating {
		return
	}
	k.User(!at.hold, &s.left.Hold, move{userHolds, 0, n}, func(c *transition) { c.claims[n].hold = true })
	k.User(at.hold, &s.left.Unhold, move{userEndsHold, 0, n},
		func(c *transition) { c.claims[n].hold, c.history[n].held = false, false })
	k.User(true, &s.left.Claim, move{userDeletesClaim, 0, n}, func(c *transition) { c.claims[n].terminating = true })
	k.User(at.mark.set > 0, &s.left.Strip, move{userRemovesMark, 0, n}, func(c *transition) {
		c.claims[n].mark = mark{}
		c.history[n].mustScale, c.history[n].mustDelete = [maxSets]bool{}, [maxSets]bool{}
	})
	k.User(at.sets != [maxSets]ref{} || at.pods != [2]podRef{}, &s.left.Strip, move{userRemovesReferences, 0, n},
		func(c *transition) {
			c.claims[n].sets, c.claims[n].pods = [maxSets]ref{}, [2]podRef{}
			c.history[n].mustDelete = [maxSets]bool{}
		})
}
