package statefulset

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/statefulset"
)

// watches calls do with each change that the watches of a replica have not shown yet.
func (c *transition) watches(i int, do func(show func())) {
	l := &c.lines[i]
	for name := range c.names() {
		if !c.sameSets(&l.seen, name) {
			do(func() { c.showSet(i, name) })
		}
		for n := range c.Ordinals {
			if l.seen.pods[name][n] != c.pods[name][n] {
				do(func() { c.showPod(i, name, n) })
			}
		}
	}
	for n := range c.Ordinals {
		if l.seen.claims[n] != c.claims[n] {
			do(func() { c.showClaim(i, n) })
		}
	}
}

// guard makes the moves of one replica of volume-guard, and of its calls.
func (k *worker) guard(s *state, i int) {
	l := &s.lines[i]
	if !l.up {
		k.Can(true, move{processStarts, i, 0}, func(c *transition) { c.start(i) })
		return
	}
	k.Breaks(true, &s.left.Crash, move{processEnds, i, 0}, func(c *transition) { c.lines[i] = line{} })
	for name := range k.names() {
		k.watchSets(s, i, name)
	}
	for n := range k.Ordinals {
		k.Can(l.seen.claims[n] != s.claims[n], move{watchShowsClaim, i, n}, func(c *transition) { c.showClaim(i, n) })
		if l.sessions[n].on {
			k.calls(s, i, n)
		} else {
			k.Can(l.woken[n] && l.seen.claims[n].uid > 0, move{workerBegins, i, n}, func(c *transition) { c.begin(i, n) })
		}
		k.Can(l.timed[n] && l.sights[n].condemned == young, move{graceEnds, i, n}, func(c *transition) {
			c.history[n].grace = true
			c.lines[i].sights[n].condemned = old
			c.lines[i].timed[n] = false
			c.wakeIf(i, n, true)
		})
	}
}

// watchSets makes the moves of the watches of the sets of a name and their pods, and of the work on the set.
func (k *worker) watchSets(s *state, i, name int) {
	l := &s.lines[i]
	c := k.transition(s)
	k.Can(!c.sameSets(&l.seen, name), move{watchShowsSet, i, name}, func(c *transition) { c.showSet(i, name) })
	for n := range k.Ordinals {
		k.Can(l.seen.pods[name][n] != s.pods[name][n], move{watchShowsPod, i, name*maxOrdinals + n},
			func(c *transition) { c.showPod(i, name, n) })
	}
	k.Can(l.setWoken[name], move{workerBeginsSet, i, name}, func(c *transition) { c.workOnSet(i, name, true) })
	k.Breaks(l.setWoken[name], &s.left.API, move{setCallFails, i, name},
		func(c *transition) { c.workOnSet(i, name, false) })
	busy := s.manager.woken[name] || s.manager.retries[name] && k.helps(s, name)
	k.Can(l.setTimed[name] && l.quiet[name] == young && !busy, move{quietEnds, i, name}, func(c *transition) {
		now := &c.lines[i]
		now.quiet[name] = old
		c.decideSet(i, name)
	})
}

// start starts a replica with a list of the objects in the API server.
func (c *transition) start(i int) {
	l := &c.lines[i]
	*l = line{up: true, seen: c.objects}
	for name := range c.names() {
		if slot := c.named(&l.seen, name); slot >= 0 {
			if c.matters(l.seen.sets[slot]) {
				c.decideSet(i, name)
			}
		}
	}
	for n := range c.Ordinals {
		c.wakeIf(i, n, c.concerned(l, n))
	}
}

// wakeIf enqueues a claim. Work without any Ask is done at once, because only a change can lead to an Ask, and a change
// enqueues the claim again.
func (c *transition) wakeIf(i, n int, concerned bool) {
	l := &c.lines[i]
	if !concerned || l.seen.claims[n].uid == 0 || l.sessions[n].on {
		l.woken[n] = l.woken[n] || concerned && l.sessions[n].on
		return
	}
	c.begin(i, n)
	if l.sessions[n].on {
		l.sessions[n], l.woken[n] = work{}, true
	}
}

// matters and concerned report whether work may be needed, by the rules of the controller (pkg/statefulset).
func (c *transition) matters(s set) bool { return !s.says().keeps() || s.woken }

func (c *transition) concerned(l *line, n int) bool {
	at := l.seen.claims[n]
	if at.uid == 0 {
		return false
	}
	for _, s := range l.seen.sets {
		if s.exists && !s.says().keeps() {
			return true
		}
	}
	return at.mark.set > 0
}

// changed records a change of the set of a name, its pods or its claims.
func (c *transition) changed(i, name int) {
	l := &c.lines[i]
	if slot := c.named(&l.seen, name); slot >= 0 && c.matters(l.seen.sets[slot]) {
		c.changedSet(i, name)
	}
}

func (c *transition) changedSet(i, name int) {
	l := &c.lines[i]
	if slot := c.named(&l.seen, name); slot >= 0 {
		f := c.setFacts(i, name, slot)
		c.withSet(i, name, slot, func(t *statefulset.Tracker) { t.SetChanged(f, c.machine.now) })
		c.decideSet(i, name)
	}
}

// showSet delivers the state of the sets of a name to the watch of a replica.
func (c *transition) showSet(i, name int) {
	l := &c.lines[i]
	before := c.named(&l.seen, name)
	mattered := before >= 0 && c.matters(l.seen.sets[before])
	concerned := [maxOrdinals]bool{}
	for n := range c.Ordinals {
		concerned[n] = c.concerned(l, n)
	}
	c.showSets(&l.seen, name)
	slot := c.named(&l.seen, name)
	if slot != before || slot < 0 {
		l.quiet[name], l.setTimed[name] = never, false
	}
	if slot >= 0 && (mattered || c.matters(l.seen.sets[slot])) {
		c.changedSet(i, name)
	}
	for n := range c.Ordinals {
		c.wakeIf(i, n, concerned[n] || c.concerned(l, n))
	}
	for other := range c.names() {
		if other != name {
			c.changed(i, other)
		}
	}
}

// showPod delivers the state of a pod to the watch of a replica.
func (c *transition) showPod(i, name, n int) {
	l := &c.lines[i]
	l.seen.pods[name][n] = c.pods[name][n]
	c.wakeIf(i, n, c.concerned(l, n))
	c.changed(i, name)
}

// showClaim delivers the state of a claim to the watch of a replica.
func (c *transition) showClaim(i, n int) {
	l := &c.lines[i]
	if l.seen.claims[n].uid != c.claims[n].uid {
		l.sights[n], l.timed[n], l.woken[n] = sight{}, false, false
	}
	l.seen.claims[n] = c.claims[n]
	c.wakeIf(i, n, c.concerned(l, n))
	for name := range c.names() {
		c.changed(i, name)
	}
}

// begin lets a worker take a claim, and continues until the first Ask.
func (c *transition) begin(i, n int) {
	l := &c.lines[i]
	l.woken[n], l.timed[n] = false, false
	s := work{on: true, claim: l.seen.claims[n], shared: c.shared(&l.seen)}
	found := -1
	if s.claim.mark.set > 0 {
		s.name = uint8(c.name(int(s.claim.mark.set - 1)))
		found = c.named(&l.seen, int(s.name))
	}
	for name := 0; found < 0 && name < c.names(); name++ {
		if found = c.named(&l.seen, name); found >= 0 {
			s.name = uint8(name)
		}
	}
	if found >= 0 || s.claim.mark.set > 0 {
		s.setSeen = seenIf(found >= 0)
		s.set = uint8(found + 1)
	}
	if found >= 0 {
		s.as = l.seen.sets[found]
		s.as.woken = false
		s.pod = l.seen.pods[s.name][n]
		s.podSeen = seenIf(s.pod.uid > 0)
		s.otherPod = c.Collide && l.seen.pods[1-s.name][n].uid > 0
	}
	l.sessions[n] = s
	c.with(i, n, func(t *statefulset.Tracker) {
		s := statefulset.Begin(t, c.facts(n, &l.sessions[n]), c.machine.now)
		c.continues(i, n, &s, false)
	})
}

func seenIf(found bool) statefulset.Seen {
	if found {
		return statefulset.Found
	}
	return statefulset.Absent
}

// continues records the changes of a session by an answer, or ends the session.
func (c *transition) continues(i, n int, s *statefulset.Session, asked bool) {
	l := &c.lines[i]
	if s.End == session.NotEnded {
		now, f := &l.sessions[n], &s.Facts
		now.claimRead, now.podRead, now.setRead = uint8(f.ClaimRead.Order), uint8(f.PodRead.Order), uint8(f.SetRead.Order)
		now.reads, now.sight = uint8(s.ReadCount), c.machine.sightOf(f.Sight)
		return
	}
	l.sessions[n] = work{}
	woken := l.woken[n]
	l.woken[n] = false
	switch s.Requeue() {
	case session.RequeueSoon, session.RequeueRetry:
		woken = true
	case session.RequeueAfter:
		l.timed[n] = true
	case session.RequeueNever:
	}
	if asked {
		c.wakeIf(i, n, woken)
	}
}

// calls makes the possible outcomes of a call.
func (k *worker) calls(s *state, i, n int) {
	c := k.transition(s)
	at := c.session(n, &s.lines[i].sessions[n])
	action := at.Ask().Action
	k.Can(true, move{callAnswered[action], i, n}, func(c *transition) { c.answer(i, n, true, true) })
	k.Breaks(true, &s.left.API, move{callFails[action], i, n}, func(c *transition) { c.answer(i, n, false, false) })
	if action.Kind() == session.Reads {
		return
	}
	k.Breaks(true, &s.left.API, move{answerLost[action], i, n}, func(c *transition) { c.answer(i, n, true, false) })
	k.Breaks(s.late == late{}, &s.left.Late, move{callIsLate[action], i, n}, func(c *transition) {
		c.late = late{on: uint8(n), session: c.lines[i].sessions[n]}
		c.lines[i] = line{}
	})
}

// lateCalls makes the moves of the writes of ended processes.
func (k *worker) lateCalls(s *state) {
	n := int(s.late.on)
	k.Can(s.late.session.on, move{lateCallArrives, 0, n}, func(c *transition) {
		at := c.late.session
		c.late = late{}
		e := c.session(n, &at)
		c.carryOut(n, &at, &e)
	})
	k.Can(s.late.session.on, move{lateCallIsLost, 0, n}, func(c *transition) { c.late = late{} })
}

// answer continues a session. done says whether its call is carried out, and answered whether it is answered.
func (c *transition) answer(i, n int, done, answered bool) {
	l := &c.lines[i]
	s := c.session(n, &l.sessions[n])
	var reply statefulset.Reply
	if done {
		reply = c.carryOut(n, &l.sessions[n], &s)
	}
	if !answered {
		reply = statefulset.Reply{}
	}
	c.with(i, n, func(t *statefulset.Tracker) { s.Answer(t, reply, c.machine.now, c.machine.now) })
	c.continues(i, n, &s, true)
}

// carryOut plays the API server for a call, and answers.
func (c *transition) carryOut(n int, at *work, s *statefulset.Session) statefulset.Reply {
	ask := s.Ask()
	switch ask.Action {
	case statefulset.PatchClaim, statefulset.DeleteClaim:
		return statefulset.Reply{Outcome: c.writeClaim(n, at, ask)}
	case statefulset.DeletePod:
		p := c.pods[at.name][n]
		if p.uid == 0 || ask.UID != "" && ask.UID != podUID(int(at.name), n, p.uid) {
			return statefulset.Reply{Outcome: session.Gone}
		}
		c.checkPodDeletion(n, at)
		c.deletePod(int(at.name), n)
		return statefulset.Reply{Outcome: session.Succeeded}
	default:
		return c.read(n, at, ask.Action)
	}
}

// read answers a live read.
func (c *transition) read(n int, at *work, action statefulset.Action) statefulset.Reply {
	reply := statefulset.Reply{Outcome: session.Succeeded}
	switch action {
	case statefulset.ReadClaim:
		at.claim, at.claimPermits = c.claims[n], c.goesByPolicy(n)
		reply.Found, reply.Claim = at.claim.uid > 0, c.machine.claim(n, at.claim)
	case statefulset.ReadPod:
		at.pod = c.pods[at.name][n]
		at.podSeen, at.podPermits = seenIf(at.pod.uid > 0), c.permitsByPod(n, at)
		reply.Found, reply.Pod = at.pod.uid > 0, c.machine.pod(int(at.name), n, at.pod)
	default:
		slot := c.named(&c.objects, int(at.name))
		at.setSeen, at.set, at.as = seenIf(slot >= 0), uint8(slot+1), set{}
		if slot >= 0 {
			at.as = c.sets[slot]
			at.as.woken = false // the session of a claim does not depend on it, and it changes often
			reply.Found, reply.Set = true, c.machine.set(slot, at.as)
		}
		at.setPermits = c.permitsBySet(n, at)
	}
	return reply
}

// writeClaim carries out a write that is bound to the state of a claim when it was read.
func (c *transition) writeClaim(n int, at *work, ask statefulset.Ask) session.Outcome {
	live := &c.claims[n]
	switch {
	case live.uid == 0 || ask.UID != "" && ask.UID != claimUID(n, live.uid):
		return session.Gone
	case ask.ResourceVersion != "" && *live != at.claim:
		return session.Conflict
	case ask.Action == statefulset.PatchClaim:
		patched := live.patched(ask.Mark, ask.Owners)
		c.checkPatch(n, at, patched)
		*live = patched
	default:
		c.checkDeletion(n, at)
		live.terminating = true
		c.history[n].byPolicy = true
	}
	return session.Succeeded
}

// setFacts returns the facts of a replica about a set.
func (c *transition) setFacts(i, name, slot int) statefulset.SetFacts {
	l, m := &c.lines[i], c.machine
	f := statefulset.SetFacts{Rules: statefulset.Rules{Removing: c.removing}, Set: m.set(slot, l.seen.sets[slot]),
		Shared: c.shared(&l.seen)}
	if f.Set.Policy.WhenScaled == statefulset.Delete {
		f.Gap = statefulset.FindGap(f.Set, func(n int) statefulset.Replica {
			return statefulset.ReplicaOf(f.Set, n, m.pod(name, n, l.seen.pods[name][n]), func(string) statefulset.Claim {
				return m.claim(n, l.seen.claims[n])
			})
		})
	}
	return f
}

// decideSet decides about a set whose name is in the queue, and keeps it there if a write is needed.
func (c *transition) decideSet(i, name int) (statefulset.SetFacts, statefulset.SetDecision) {
	l := &c.lines[i]
	l.setWoken[name], l.setTimed[name] = false, false
	slot := c.named(&l.seen, name)
	if slot < 0 {
		return statefulset.SetFacts{}, statefulset.SetDecision{}
	}
	f := c.setFacts(i, name, slot)
	c.withSet(i, name, slot, func(t *statefulset.Tracker) { f.Sight = t.SetSeen(f, c.machine.now) })
	d := statefulset.DecideSet(f, c.machine.now)
	l.setTimed[name], l.setWoken[name] = d.After > 0, d.Action != statefulset.SetWait
	return f, d
}

// workOnSet carries out the next step for a set, or lets it fail.
func (c *transition) workOnSet(i, name int, done bool) {
	f, d := c.decideSet(i, name)
	if !done || d.Action == statefulset.SetWait {
		return
	}
	c.lines[i].setWoken[name] = false
	slot := c.named(&c.lines[i].seen, name)
	at := &c.sets[slot]
	switch {
	case !at.exists:
	case d.Action == statefulset.Wake:
		at.woken, c.manager.woken[name] = true, true // the annotation is the time, so that each write is an event
		c.withSet(i, name, slot, func(t *statefulset.Tracker) { t.Woke(f, c.machine.now) })
		for other := range c.Replicas {
			if c.lines[other].up {
				c.changedSet(other, name)
			}
		}
	default:
		at.woken = false
	}
}
