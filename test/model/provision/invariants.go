package provision

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/provision"
)

// remembered reports whether a process that may act has an open entry in its memory.
func (w *World) remembered(s *state, place, n int) bool {
	for i := range w.Replicas {
		l := &s.lines[i]
		if w.place(i) == place && l.up && l.mayAct && provision.Log(l.names[n].log) == provision.LogOpen {
			return true
		}
	}
	return false
}

// checkLeak checks each state: a volume has a PersistentVolume or an open entry, whoever ends now.
func (c *transition) checkLeak() {
	for place := range c.places() {
		for n := range c.names() {
			if c.leaks(&c.state, place, n) && !c.excused[place][n] {
				c.Violates("P1: the volume of %s has no PersistentVolume, and the log has no entry", c.say(n))
			}
		}
	}
}

func (w *World) leaks(s *state, place, n int) bool {
	v, store := &s.volumes[place][n], &s.shards[place][n]
	switch {
	case !v.there || v.kept != notKept || v.by.content == othersContent || store.entry.claim != 0:
		return false
	case store.deleted:
		// Written anew from memory, or lost, which is an excuse.
		return false
	}
	for slot, p := range s.pvs {
		if nameOf(slot) == n && p.names(place, v.generation) {
			return false
		}
	}
	return true
}

func (p pv) names(place int, generation uint8) bool {
	return p.exists() && p.claim != foreign && int(p.place) == place && p.generation == generation
}

// checkSettled checks a step with an open entry that is about to be sent. An entry that was settled before the run is
// dropped.
func (c *transition) checkSettled(i, claimed int, action provision.Action) {
	n := c.name(claimed)
	switch action {
	case provision.CreateVolume, provision.StorePV, provision.StoreApart, provision.MarkDiscarding,
		provision.DeleteVolume:
		if c.shards[c.place(i)][n].settled && !c.lines[i].names[n].confirmed {
			c.Violates("P2: %v is sent for %s, whose entry an operator has settled", action, c.say(claimed))
		}
	default:
	}
}

// checkRepeat checks a CreateVolume of the engine that is about to be sent again. The claim's PersistentVolume may come
// after a live read that has not shown it.
func (c *transition) checkRepeat(i, claimed int) {
	n, place := c.name(claimed), c.place(i)
	m, v, p := &c.lines[i].names[n], &c.volumes[place][n], c.pvs[n]
	shown := m.pv.exists && m.pv.ofClaim && m.pv.ofDriver && !m.pv.elsewhere
	came := m.pv.read == recently && !shown
	if m.record.sent[m.record.next] && m.entry.count == 1 && !m.entry.discarding && v.there &&
		p.belongs(claimed) && p.names(place, v.generation) && !came {
		c.Violates("P2: CreateVolume is repeated for %s, whose PersistentVolume has the volume", c.say(claimed))
	}
}

// checkDiscard checks a DeleteVolume of the engine that is about to be sent.
func (c *transition) checkDiscard(i, claimed int) {
	n := c.name(claimed)
	m := &c.lines[i].names[n]
	switch {
	case !m.record.made || !m.record.unfit:
		c.Violates("P2: DeleteVolume is sent for %s, whose volume is as requested or not known", c.say(claimed))
	case m.pv.read != recently:
		c.Violates("P2: DeleteVolume is sent for %s without a live read that still counts", c.say(claimed))
	case c.Short:
		c.Violates("P2: DeleteVolume is sent for %s, which shares its volume name", c.say(claimed))
	}
}

// checkLoss checks the deletion of a volume that is there, by whomever.
func (c *transition) checkLoss(place, n int) {
	v := c.volumes[place][n]
	if v.kept == keptStrictly {
		c.Violates("P2: the volume of %s is deleted, which an administrator kept", c.say(n))
	}
	if v.by.content == othersContent {
		c.Violates("P2: the volume under the name of %s is deleted, which is not ours", c.say(n))
	}
	for claimed := range c.Claims {
		now := c.claims[claimed]
		if c.name(claimed) != n || !now.exists || now.bound == boundElsewhere || c.excused[place][n] {
			continue
		}
		if p := c.pvs[n]; p.belongs(claimed) && p.names(place, v.generation) {
			c.Violates("P2: the volume is deleted that the PersistentVolume of claim %s names, which exists", c.say(claimed))
		}
		if now.needy() && c.isNamedFor(place, n, claimed) {
			c.Violates("P2: the volume is deleted that claim %s is to get", c.say(claimed))
		}
	}
}

// isNamedFor reports whether the driver has named the volume as what a claim is to get.
func (c *transition) isNamedFor(place, n, claimed int) bool {
	for i := range c.Replicas {
		l := &c.lines[i]
		m, now := &l.names[n], &l.calls[n]
		if c.place(i) != place || !l.up || !l.mayAct || int(m.entry.claim) != claimed+1 {
			continue
		}
		if m.record.made && !m.record.unfit || provision.Action(now.action) == provision.CreateVolume && now.got != 0 &&
			!now.unfit {
			return true
		}
	}
	return false
}

// checkPV checks a PersistentVolume that is about to be stored.
func (c *transition) checkPV(now *call, i, n int) {
	place := c.place(i)
	v := &c.volumes[place][n]
	switch {
	case c.excused[place][n]:
	case !v.there || v.generation != now.generation:
		c.Violates("P2: a PersistentVolume is stored for claim %s, and its volume is deleted", c.say(int(now.claim)-1))
	case v.unfit:
		c.Violates("P2: a PersistentVolume is stored for claim %s, and its volume is not what was asked for",
			c.say(int(now.claim)-1))
	case v.kept == keptForClaim:
		v.kept = notKept
	}
}

// idle reports whether nothing is under way any more. Only then is it asked whether all is as it should be.
func (k *worker) idle(s *state) bool {
	leaders := 0
	for j := range s.late {
		if s.late[j].stage != idle {
			return false
		}
	}
	for i := range k.Replicas {
		l := &s.lines[i]
		if !l.up || l.superseded() || l.claims != s.claims || l.pvs != s.pvs ||
			l.claimComes != ([maxClaims]bool{}) || l.pvComes != ([maxPVs]bool{}) {
			return false
		}
		if l.mayAct {
			leaders++
			if !k.leaderIsIdle(s, i) {
				return false
			}
		}
	}
	return !k.Busy && leaders > 0
}

func (k *worker) leaderIsIdle(s *state, i int) bool {
	for n := range k.names() {
		m := &s.lines[i].names[n]
		if s.lines[i].calls[n].stage != idle || m.log == uint8(provision.LogUnknown) || m.record.unanswered == recently ||
			m.looked() || provision.Log(m.log) == provision.LogOpen && !m.current {
			return false // the next run reads the log; without an entry, only the next write does
		}
	}
	for c := range k.Claims {
		if !s.born[c] {
			continue
		}
		if d, _, _ := k.decide(s, i, c); !k.waits(s, i, c, d) || k.deselects(s, i, c) {
			return false
		}
	}
	return true
}

// comesBack reports whether a call that failed is going to be repeated.
func (k *worker) comesBack(s *state) bool {
	for i := range k.Replicas {
		for n := range k.names() {
			if s.lines[i].names[n].backsOff {
				return true
			}
		}
	}
	return false
}

// unsettled returns what is not as it should be in a state that rests, empty if all is.
func (k *worker) unsettled(s *state) string {
	for c := range k.Claims {
		if wrong := k.unsettledClaim(s, c); wrong != "" {
			return "P5: claim " + k.say(c) + " " + wrong
		}
	}
	for place := range k.places() {
		for n := range k.names() {
			e := s.shards[place][n].entry
			p := s.pvs[n]
			hasAnother := p.exists() && (p.claim == foreign || p.claim != e.claim || p.terminating)
			lacksSecret := e.claim != 0 && s.noSecret && s.claims[e.claim-1].exists
			isReported := hasAnother || lacksSecret || k.isKeptUnfit(s, place, n)
			if e.claim != 0 && !isReported && !k.refusesForEver(s, place, n) {
				return "P5: the entry of " + k.say(n) + " stays open"
			}
		}
	}
	return ""
}

func (k *worker) unsettledClaim(s *state, i int) string {
	c := s.claims[i]
	switch {
	case !c.exists:
	case c.terminating:
		return "is terminating for ever"
	default:
		return k.unsettledVolume(s, i)
	}
	return ""
}

// unsettledVolume says what is wrong with the volume of a claim that is there to stay, empty if all is well.
func (k *worker) unsettledVolume(s *state, i int) string {
	c, n := s.claims[i], k.name(i)
	p := s.pvs[n]
	v := s.volumes[p.place][n]
	isMade := v.there && v.generation == p.generation && !v.unfit || s.excused[0][n] || s.excused[1][n]
	switch {
	case c.bound == boundElsewhere:
	case c.bound == boundOwn && p.exists() && !isMade:
		return "has a PersistentVolume without its volume"
	case c.bound == boundOwn || p.exists():
		// Another PersistentVolume has its name, which the claim's Events say.
	case k.lacksRoom(s, n), k.lacksRequest(s, c), k.cannotBeMade(s, k.place2(c), n):
	default:
		return "gets no volume"
	}
	return ""
}

// lacksRoom reports whether the log has no room for the entry of a name.
func (k *worker) lacksRoom(s *state, n int) bool { return s.full && s.shards[0][n].entry.claim == 0 }

// lacksRequest reports whether a claim lacks what its request is made from: its class, its Secret or the selected node.
func (k *worker) lacksRequest(s *state, c claim) bool {
	return s.class == 0 || s.noSecret || (k.Late || k.Local) && c.node == 0
}

// cannotBeMade reports whether the driver has no volume for the name, whatever is tried.
func (k *worker) cannotBeMade(s *state, place, n int) bool {
	return place >= 0 && (k.refusesForEver(s, place, n) || k.isKeptUnfit(s, place, n))
}

// place2 returns where a claim's volume is to be.
func (k *worker) place2(c claim) int {
	if k.Local {
		return int(c.node) - 1
	}
	return 0
}

// isKeptUnfit reports whether a volume is not what was asked for, and may be another claim's.
func (k *worker) isKeptUnfit(s *state, place, n int) bool {
	return k.Short && s.volumes[place][n].unfit
}

// refusesForEver reports whether the driver answers OK to no request of the entry: the volume of that name was made by
// another one, it has no room, or it is another version. The entry stays open then, which is reported, and nothing else
// waits for it.
func (k *worker) refusesForEver(s *state, place, n int) bool {
	v, e := s.volumes[place][n], s.shards[place][n].entry
	switch {
	case k.Full:
		return !k.strict
	case e.count == 0:
		return v.there
	}
	for i := range e.count {
		if k.accepts(v, e.requests[i]) && !k.rejects(e.requests[i], s.version) {
			return false
		}
	}
	return true
}
