package fencing

import (
	"slices"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
)

// slotOf returns the index of the objects of a run and of its undo. A remediation has one object, with the name of the
// node, an agent of volumes has one for all attempts, and each other agent has one for each attempt.
func (c *transition) slotOf(run fencing.Run) (slot int, kind Agent) {
	kind = c.kindOf(agentNumber(run.Agent))
	switch kind {
	case Remediation:
		return maxAttempts, kind
	case Volumes:
		return c.firstOf(agentNumber(run.Agent)), kind
	case Power, Reboot, Person:
	}
	return int(run.Attempt) - 1, kind
}

// firstOf returns the first attempt of an agent, from 0.
func (c *transition) firstOf(agent uint8) int {
	return slices.IndexFunc(c.fence.attempts[:], func(a attempt) bool { return a.agent == agent })
}

// object returns the object of a run. A remediation is undone by the end of its object, and an agent of volumes by
// another request in the same object.
func (c *transition) object(of fencing.Run) *run {
	slot, kind := c.slotOf(of)
	if of.Undo && kind != Remediation {
		return &c.undos[slot]
	}
	return &c.runs[slot]
}

// readRun returns the state of a run, as the packages of agents read it.
func (c *transition) readRun(of fencing.Run) (runState, age) {
	o, kind := c.object(of), c.kindOf(agentNumber(of.Agent))
	switch {
	case kind != Remediation && of.Undo && o.try != uint8(of.Try):
		return noRun, young
	case kind != Remediation || !of.Undo:
		return o.state, o.since
	}
	switch o.state {
	case noRun:
		return succeeded, young
	case stopping:
		return stopping, young
	default:
		return noRun, young
	}
}

// startRun creates the object of a run, and succeeds if it exists. The object of an earlier try is dropped, because it
// has no further effect.
func (c *transition) startRun(of fencing.Run) {
	if of.Undo && c.kindOf(agentNumber(of.Agent)) == Remediation {
		c.stopRun(of)
		return
	}
	if o := c.object(of); o.state == noRun || o.try != uint8(of.Try) {
		*o = run{state: running, try: uint8(of.Try)}
	}
	if slot, kind := c.slotOf(of); of.Undo && kind == Volumes { // it is another wish in the same object
		c.runs[slot] = run{}
	}
}

// stopRun deletes the object of a run. An agent at work ends before its object is gone.
func (c *transition) stopRun(of fencing.Run) {
	switch o := c.object(of); o.state {
	case running:
		o.state, o.hung = stopping, false
	case succeeded, failed:
		*o = run{}
	case noRun, stopping:
	}
}

// agents makes the moves of the agents.
func (k *worker) agents(s *state) {
	for slot := range s.runs {
		if s.runs[slot].state != noRun {
			k.agent(s, slot, false)
		}
		if s.undos[slot].state != noRun {
			k.agent(s, slot, true)
		}
	}
	k.times(s)
}

// agent makes the moves of one agent.
func (k *worker) agent(s *state, slot int, undoes bool) {
	objects := func(s *state) *run {
		if undoes {
			return &s.undos[slot]
		}
		return &s.runs[slot]
	}
	o, by := *objects(s), 0
	if undoes {
		by = 1
	}
	works := o.state == running && !o.hung
	k.Can((works || o.state == stopping && !s.over(slot)) && !o.acted, move{agentActs, by, slot}, func(c *transition) {
		objects(&c.state).acted = true
		c.act(slot, undoes)
	})
	k.Can(works && o.acted, move{agentSucceeds, by, slot}, func(c *transition) {
		objects(&c.state).state = succeeded
	})
	k.Breaks(works, &s.left.Fail, move{agentFails, by, slot},
		func(c *transition) { objects(&c.state).state, objects(&c.state).since = failed, young })
	k.Breaks(works && !o.acted && !undoes, &s.left.Lie, move{agentLies, by, slot}, func(c *transition) {
		c.lies(slot)
		objects(&c.state).state = succeeded
	})
	k.Breaks(works, &s.left.Hang, move{agentHangs, by, slot}, func(c *transition) { objects(&c.state).hung = true })
	k.Can(o.state == stopping && !o.hung, move{agentEnds, by, slot}, func(c *transition) { *objects(&c.state) = run{} })
	k.Breaks(o.state == stopping && !o.hung, &s.left.Endless, move{agentIsEndless, by, slot},
		func(c *transition) { objects(&c.state).hung = true })
	k.Breaks(true, &s.left.Vanish, move{objectVanishes, by, slot}, func(c *transition) { *objects(&c.state) = run{} })
	k.Can(o.state == failed && o.since == young && undoes, move{retryPauseEnds, by, slot}, func(c *transition) {
		objects(&c.state).since = old
	})
}

// over reports whether the attempt of the agent with this object has ended. A stopped agent has had its time to end
// then, and has no further effect.
func (s *state) over(slot int) bool {
	at := min(slot, max(int(s.fence.count), 1)-1)
	return s.fence.attempts[at].result != 0
}

// act carries out the purpose of the agent of an attempt, or its undo.
func (c *transition) act(slot int, undoes bool) {
	switch kind := c.kindAt(slot); {
	case kind == Volumes:
		c.node.storage |= bit(c.fence.attempts[slot].agent)
		if undoes {
			c.node.storage &^= bit(c.fence.attempts[slot].agent)
		}
	case kind == Power && undoes:
		c.node.agent = false
	case kind == Power:
		c.node.agent = true
		c.stop()
	default:
		c.stop()
	}
}

// kindAt returns the kind of the agent with this object.
func (c *transition) kindAt(slot int) Agent {
	if slot == maxAttempts {
		return Remediation
	}
	return c.kindOf(c.fence.attempts[slot].agent)
}

// lies marks a false proof.
func (c *transition) lies(slot int) {
	if slot < maxAttempts {
		c.lied[slot] = true
		return
	}
	for i := range c.lied {
		c.lied[i] = true
	}
}

// times ends time limits and pauses.
func (k *worker) times(s *state) {
	f := s.fence
	k.Can(f.returned == isTrue && f.sinceReturned == young && k.settled(s), move{keptLongEnough, 0, 0},
		func(c *transition) { c.passes(func(f *fence) { f.sinceReturned = old }) })
	for i, a := range f.attempts[:f.count] {
		o := s.undos[i]
		if a.agent != byWord && k.kindOf(a.agent) == Remediation {
			o = s.runs[maxAttempts]
		}
		lasts := o.hung || o.state == failed && o.since == old // the next try follows both its end and its record
		k.Can(a.tries > 0 && !a.undone && a.sinceTry == young && lasts, move{undoTimeEnds, 0, i},
			func(c *transition) { c.passes(func(f *fence) { f.attempts[i].sinceTry = old }) })
	}
	if f.count == 0 {
		return
	}
	last := f.attempts[f.count-1]
	pass := func(c *transition) { c.passes(func(f *fence) { f.attempts[f.count-1].since++ }) }
	switch {
	case last.result != 0:
		k.Breaks(last.since == young, &s.left.Again, move{chainPauseEnds, 0, 0}, pass)
		return
	case last.since == older:
		return
	}
	late := k.hangs(s) || last.since == old
	k.Can(late, move{timeLimitEnds, 0, 0}, pass)
	k.Breaks(!late, &s.left.Slow, move{timeLimitEnds, 0, 0}, pass)
}

// hangs reports whether the attempt never gets a result.
func (k *worker) hangs(s *state) bool {
	f := s.fence
	c := transition{World: k.World, machine: k.machine, state: *s}
	of := fencing.Run{Attempt: int32(f.count), Agent: agentName(f.attempts[f.count-1].agent)}
	if c.kindOf(f.attempts[f.count-1].agent) == Person {
		return false
	}
	return c.object(of).hung
}

// passes lets a time pass that the NodeFence measures. A session in progress has decided by the time before.
func (c *transition) passes(edit func(*fence)) {
	was := c.fence
	edit(&c.fence)
	for i := range c.Replicas {
		l := &c.lines[i]
		if l.fence == was {
			l.fence = c.fence
		}
	}
}

// settled reports whether no replica is at work, and all watches are up to date.
func (k *worker) settled(s *state) bool {
	for i := range k.Replicas {
		l := &s.lines[i]
		if !l.up || l.session.on || l.fence != s.fence || l.marked != s.node.marked() {
			return false
		}
	}
	return true
}
