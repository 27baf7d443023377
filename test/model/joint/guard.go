package joint

import (
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
)

// guard makes the moves of volume-guard, each of which is a whole session of one of its controllers.
func (k *worker) guard(s *state) {
	for slot, p := range s.pods {
		if !p.exists {
			continue
		}
		k.session(s, move{holdActs, slot}, func(c *transition) { c.hold(slot) })
		k.session(s, move{gateActs, slot}, func(c *transition) { c.gate(slot) })
		k.waits(s, slot)
	}
	k.session(s, move{lockActs, 0}, func(c *transition) { c.lock() })
	if !k.BuiltIn {
		k.session(s, move{protectorActs, 0}, func(c *transition) { c.protect() })
	}
	if k.Ephemeral {
		k.session(s, move{claimHoldActs, 0}, func(c *transition) { c.holdClaim() })
	}
	if k.Attached {
		k.session(s, move{volumeLockActs, 0}, func(c *transition) { c.lockVolume() })
	}
	if k.Agent != NoAgent {
		if s.ending {
			k.Can(true, move{fenceEnds, 0}, func(c *transition) { c.fence.fenced, c.ending = isFalse, false })
		} else {
			k.session(s, move{fencingActs, 0}, func(c *transition) { c.fencing() })
		}
		silent := s.silent == young && !s.node.connected()
		k.Can(silent, move{leaseIsSilent, 0}, func(c *transition) { c.silent = old })
	}
}

// session offers a session that changes the state. Other sessions recur, and end no rest.
func (k *worker) session(s *state, m move, do func(*transition)) {
	c := k.transition(s)
	do(c)
	c.Settle()
	k.Can(c.state != *s || c.Wrong != "", m, func(to *transition) { to.state, to.Wrong = c.state, c.Wrong })
}

// waits ends the waits of a pod. A kubelet unmounts in less time than the unmount grace, and a working kubelet ends a
// pod without grace in less than the duration of a Lease.
func (k *worker) waits(s *state, slot int) {
	seen, p, n := s.sights[slot], s.processes[slot], s.node
	c := k.transition(s)
	c.unmountGraceEnds(slot)
	over := !s.unmounts(slot) || k.Without == TheUnmount && s.booted()
	k.Can(c.state != *s && over, move{unmountGraceEnds, slot}, func(c *transition) { c.unmountGraceEnds(slot) })
	hangs := p.node == nodeA && n.storage && !p.runs
	ended := p.node == nodeA && !n.connected() || p.deleted && (!p.mounted || hangs)
	k.Can(seen.graceZero == young && ended, move{forceGraceEnds, slot},
		func(c *transition) { c.sights[slot].graceZero = old })
	k.Can(seen.lease == young && (ended || !s.pods[slot].graceZero), move{leaseGraceEnds, slot},
		func(c *transition) { c.sights[slot].lease = old })
}

// unmounts reports whether a kubelet is about to unmount the volume of a pod. It does not for a pod that runs on, or
// whose node is kept from the volume, and a kubelet whose Node is not Ready may not run.
func (s *state) unmounts(slot int) bool {
	p, n := s.processes[slot], s.node
	down := p.node == nodeA && n.there && !n.ready && !n.connected() && !s.pods[slot].terminating
	return p.mounted && !p.runs && (p.node == nodeB || !n.storage) && !down
}

// booted reports whether node a was rebooted since its fence was proven.
func (s *state) booted() bool {
	n, f := s.node, s.fence
	return f.proven && n.shown != f.proofBoot && n.shownMachine == f.proofMachine
}

// unmountGraceEnds lets time pass until the unmount grace of an ended pod is over, whenever it began.
func (c *transition) unmountGraceEnds(slot int) {
	seen := &c.sights[slot]
	if seen.finished == never && c.completed[slot] == never {
		return
	}
	for _, since := range []*age{&seen.finished, &seen.graceZero, &c.completed[slot]} {
		if *since == young {
			*since = old
		}
	}
	if c.pods[slot].node == nodeA && c.opened == young {
		c.opened = old
	}
}

// hold is a session of the hold about a pod. It returns the last decision.
func (c *transition) hold(slot int) podsafety.Decision {
	m, t := c.machine, c.tracker(slot)
	f := podsafety.Facts{Mode: podsafety.ModeEnforce, Pod: m.pod(slot, c.pods[slot]),
		NodeSeen: c.nodeSeen(c.pods[slot].node), FenceSeen: c.shown(c.pods[slot].node, "").InForce,
		ForceRefusedSince: old.Time(), Storage: c.storage(c.pods[slot].node)}
	s := podsafety.Begin(t, f, m.now)
	for {
		ask := s.Ask()
		reply := podsafety.Reply{Outcome: session.Succeeded}
		node := c.pods[slot].node
		switch ask.Action {
		case podsafety.Wait:
			c.keep(slot, t)
			return s.Decision
		case podsafety.ReadPod:
			reply.Found, reply.Pod = true, m.pod(slot, c.pods[slot])
		case podsafety.ReadNode:
			reply.Node = c.nodeOf(node)
		case podsafety.ReadLease:
			reply.Lease = objects.Lease{Found: c.node.there, ResourceVersion: c.leaseVersion()}
		case podsafety.ReadFence:
			reply.Fence = c.shown(node, uidOf(slot))
		case podsafety.ForceDelete:
			c.pods[slot].graceZero = true
		case podsafety.AddFinalizer:
			c.pods[slot].held = true
		case podsafety.RemoveFinalizer, podsafety.RemoveFinalizerByUID:
			c.released(slot, s.Decision.Reason)
			c.pods[slot].held = false
		}
		s.Answer(t, reply, m.now, m.now)
		c.keep(slot, t)
		c.writePod(slot, func(*pod) {}) // shows the write, or removes the pod
		if !c.pods[slot].exists {
			return s.Decision
		}
		t = c.tracker(slot)
	}
}

// nodeSeen returns the state of a node in the watch.
func (c *transition) nodeSeen(n uint8) objects.NodeSeen {
	if n == 0 {
		return objects.NodeUnseen
	}
	return c.nodeOf(n).Seen()
}

// user returns the facts of the locks about a pod.
func (c *transition) user(slot int) singlenode.User {
	p := c.pods[slot]
	read := c.machine.pod(slot, p)
	read.Held = read.Held || c.Without == TheRelease
	return singlenode.User{Pod: read, EndedSince: c.completed[slot].Time(),
		NodeSeen: c.nodeSeen(p.node), FenceSeen: c.shown(p.node, "").InForce, Storage: c.storage(p.node)}
}

// users returns the pods without a gate, or the pod with this name.
func (c *transition) users(name string) (users []singlenode.User) {
	for slot, p := range c.pods {
		if p.exists && (name == podName(slot) || name == "" && !p.gated) {
			users = append(users, c.user(slot))
		}
	}
	return users
}

// evidence returns the evidence of the fence about a pod, for the locks.
func (c *transition) evidence(ask singlenode.Ask) objects.Fence {
	return c.runOf(c.shown(c.pods[slotOf(ask.UID)].node, ask.UID))
}

// read answers a read of a session about a gate or a lock.
func (c *transition) read(ask singlenode.Ask) singlenode.Reply {
	reply := singlenode.Reply{Outcome: session.Succeeded}
	switch ask.Action {
	case singlenode.ReadNamespace:
		reply.Mode = singlenode.ModeAll
	case singlenode.ReadClaim:
		reply.Claim = c.machine.claim(c.claim).locks
	case singlenode.ReadHolder:
		reply.Users = c.users(ask.Name)
	case singlenode.ListPods:
		reply.Users = c.users("")
	case singlenode.ReadFence:
		reply.Fence = c.evidence(ask)
	case singlenode.ReadNode:
		reply.Node = c.nodeOf(nodeA)
		if ask.Name == nodeName(nodeB) {
			reply.Node = c.nodeOf(nodeB)
		}
	default:
	}
	return reply
}

// gate is a session about the gate of a pod. It returns the last decision.
func (c *transition) gate(slot int) singlenode.Decision {
	m, p := c.machine, c.pods[slot]
	known := m.claim(c.claim).locks
	if known.UID == "" {
		known = singlenode.Claim{Namespace: namespace, Name: c.claimName()}
	}
	s := singlenode.Begin(singlenode.Facts{Mode: singlenode.ModeAll, Pod: m.pod(slot, p),
		Claims: []singlenode.ClaimFacts{{Claim: known}}}, m.now)
	for {
		ask := s.Ask()
		reply := c.read(ask)
		switch ask.Action {
		case singlenode.Wait:
			return s.Decision
		case singlenode.TakeLock:
			if c.claim.terminating && !c.claim.kept {
				reply.Outcome = session.Conflict // a terminating object takes no finalizer
				break
			}
			c.claim.lock, c.claim.kept = uint8(slot+1), true
			reply.Claim = m.claim(c.claim).locks
		case singlenode.RemoveGate:
			c.ungated(slot)
			c.writePod(slot, func(p *pod) { p.gated = false })
		default:
		}
		s.Answer(reply, m.now, m.now)
	}
}

// lock is a session about the lock of the claim.
func (c *transition) lock() {
	m := c.machine
	f := singlenode.LockFacts{Claim: m.claim(c.claim).locks}
	if holder := int(c.claim.lock) - 1; holder >= 0 && c.pods[holder].exists {
		f.Holder = c.user(holder)
	}
	s := singlenode.BeginLock(f, m.now)
	for {
		ask := s.Ask()
		switch ask.Action {
		case singlenode.Wait:
			return
		case singlenode.FreeLock:
			c.freed(s.Decision.Reason)
			c.claim.lock, c.claim.kept = 0, false
		default:
		}
		s.Answer(c.read(ask), m.now, m.now)
	}
}

// fencing is a session of node fencing about node a. It returns the reason for which the fence waits, empty if it does
// not.
func (c *transition) fencing() (why fencing.Reason) {
	m, t := c.machine, fencing.NewTracker()
	if c.silent != never {
		t.Fences[fenceUID] = fencing.Sight{LeaseVersion: c.leaseVersion(), LeaseSince: c.silent.Time()}
	}
	f := fencing.Facts{TaintSeen: c.node.own || c.node.shunned, Fence: fencing.Fence{Name: nodeName(nodeA)}}
	if o := m.fence(c.fence); o != nil {
		f.Fence = fenceOf(o)
	}
	s := fencing.Begin(t, f, m.now)
	for s.Ask().Action != fencing.Wait {
		s.Answer(t, c.fencingCall(s.Ask()), m.now, m.now)
	}
	c.silent = never
	if seen := t.Fences[fenceUID]; c.fence.exists && seen.LeaseVersion == c.leaseVersion() {
		c.silent = clock.AgeOf(seen.LeaseSince)
	}
	if s.End == session.Waiting || s.Decision.RecordsWait { // the model leaves out the reasons of conditions
		return s.Decision.Reason
	}
	return ""
}

// fencingCall carries out a call of node fencing.
func (c *transition) fencingCall(ask fencing.Ask) fencing.Reply {
	reply := fencing.Reply{Outcome: session.Succeeded}
	run := c.agentRun(ask.Run)
	switch ask.Action {
	case fencing.ReadFence:
		if o := c.machine.fence(c.fence); o != nil {
			reply.Found, reply.Fence = true, fenceOf(o)
		}
	case fencing.ReadNode:
		reply.Node = c.nodeOf(nodeA)
	case fencing.ReadLease:
		reply.Lease = objects.Lease{ResourceVersion: c.leaseVersion()}
	case fencing.ListRemaining:
		reply.Remaining = c.remaining()
	case fencing.ReadRun:
		reply.Run.State = [...]fencing.RunState{noRun: fencing.RunAbsent, atWork: fencing.Running,
			stopping: fencing.RunStopping, succeeded: fencing.RunSucceeded}[*run]
	case fencing.StartRun:
		if *run == noRun {
			*run = atWork
		}
		if ask.Run.Undo && ask.Agent.NetworkFence != nil {
			c.run, c.late = noRun, noRun // another wish in the same object, whose wishes are carried out one after the other
		}
	case fencing.StopRun:
		*run = map[runState]runState{atWork: stopping, stopping: stopping}[*run]
	case fencing.AddTaint, fencing.RemoveTaint:
		c.node.own, c.node.shunned = ask.Taint == fencing.OutOfService, ask.Taint == fencing.VolumesFenced
	default:
		c.writeFence(ask.Action, ask.Status)
	}
	return reply
}

// agentRun returns the state of the run of an agent, or of its undo.
func (c *transition) agentRun(run fencing.Run) *runState {
	switch late := run.Agent == lateName; {
	case late && run.Undo:
		return &c.undoLate
	case run.Undo:
		return &c.undo
	}
	return &c.run
}

// writeFence applies a write to the NodeFence.
func (c *transition) writeFence(action fencing.Action, status *v1alpha1.NodeFenceStatus) {
	switch action {
	case fencing.AddFinalizer:
		c.fence.finalized = true
	case fencing.RemoveFinalizer:
		c.fence.finalized = false
	case fencing.DeleteFence:
		c.fence.terminating = true
	case fencing.WriteStatus:
		was := c.fence
		c.fence = was.status(status, c.node)
		if was.fenced == isTrue && c.fence.proven && c.fence.fenced == isFalse {
			c.fence, c.ending = was, true // the listed pods may change before that is written
		}
	default:
	}
	if c.fence.terminating && !c.fence.finalized {
		c.fence, c.run, c.undo, c.late, c.undoLate = fence{}, noRun, noRun, noRun, noRun
	}
}
