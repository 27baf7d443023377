package fencing

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/internal/text"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// attempting handles a fence with an agent at work.
func attempting(f Facts, now time.Time) Decision {
	attempt := f.Fence.attempt()
	agent := f.Fence.agent(attempt.Agent)
	if agent == nil { // the API allows no such change of the spec
		return f.end(attempt, v1alpha1.ResultFailed, "The spec has no agent of this name.", now)
	}
	if f.Fence.Status.Proof != nil && !f.NodeRead.FreshAfter(f.FenceRead, now) {
		return step(ReadNode, ReasonFencing)
	}
	if agent.Manual != nil {
		return byHand(f, attempt, agent, now)
	}
	run := Run{Attempt: attempt.Number, Agent: attempt.Agent}
	if f.Run.Of != run || !f.Run.Read.Fresh(now) {
		return runStep(ReadRun, ReasonFencing, run)
	}
	return f.running(attempt, agent, now)
}

// byHand handles an attempt that waits for a person's confirmation.
func byHand(f Facts, attempt *v1alpha1.Attempt, agent *v1alpha1.Agent, now time.Time) Decision {
	left := left(agent.Timeout.Duration, attempt.StartedAt.Time, now)
	switch {
	case f.Fence.Ending(), f.overtaken(): // a confirmation of the previous boot proves nothing about this one
		return f.end(attempt, v1alpha1.ResultCanceled, "", now)
	case f.Fence.Confirmed():
		return f.prove(attempt, agent, f.Fence.Spec.Confirmation, now)
	case f.Fence.GivenUp:
		return f.end(attempt, v1alpha1.ResultCanceled, "", now)
	case left <= 0:
		return f.end(attempt, v1alpha1.ResultTimedOut, "", now)
	}
	return wait(ReasonWaitsForConfirmation, left)
}

// running handles an attempt whose agent was asked for its result.
func (f Facts) running(attempt *v1alpha1.Attempt, agent *v1alpha1.Agent, now time.Time) Decision {
	run := f.Run.Of
	left := left(agent.Timeout.Duration, attempt.StartedAt.Time, now)
	over := f.over(left)
	state := f.Run.State
	switch {
	case f.proves(): // even after the timeout
		return f.prove(attempt, agent, f.Run.Message, now)
	case state == RunFailed:
		return f.end(attempt, v1alpha1.ResultFailed, f.words(attempt), now)
	case state == RunAbsent && over == "":
		return f.start(attempt, run, now)
	case state == Running && over == "":
		return f.working(attempt, agent, min(left, agentPoll))
	case state == RunSucceeded, state == RunAbsent, state != Running && f.hurried():
		return f.end(attempt, over, f.words(attempt), now)
	case -left > stopGrace && (state != Running || f.Sight.Refused == run): // a running agent is stopped, however late
		return f.end(attempt, over, f.words(attempt), now)
	case state == Running:
		return f.stop(attempt, agent, over, now)
	}
	return wait(state.reason(), agentPoll)
}

// reason is the reason to wait for an agent without a result.
func (s RunState) reason() Reason {
	if s == RunStopping {
		return ReasonAgentStopping
	}
	return ReasonAgentUnusable
}

// proves reports whether the agent's success is accepted as a proof.
func (f Facts) proves() bool {
	return f.Run.State == RunSucceeded && !f.Fence.Ending() && !f.settled() && !f.overtaken()
}

// hurried reports whether to stop waiting for an agent that does not end or does not answer. A person has either
// confirmed the fence or abandoned its undo.
func (f Facts) hurried() bool { return f.Fence.abandoned() || !f.Fence.Ending() && f.settled() }

// settled reports whether a confirmation replaces the agent at work, which it never does beside a proof of volumes.
func (f Facts) settled() bool { return !f.Fence.OfVolumes() && f.Fence.Confirmed() }

// over returns the result to record for an agent that has to be stopped, or "".
func (f Facts) over(left time.Duration) v1alpha1.Result {
	switch {
	case f.Fence.Ending(), f.settled(), f.overtaken(), f.Fence.GivenUp:
		return v1alpha1.ResultCanceled
	case left <= 0:
		return v1alpha1.ResultTimedOut
	}
	return ""
}

// overtaken reports whether a fence in force is about to end, or is no evidence any more, so that proofs for further
// volumes do not matter.
func (f Facts) overtaken() bool {
	return f.Fence.Status.Proof != nil && (f.Fence.Terminating || !f.Node.Found || f.booted() ||
		unkept(&f.Fence.Status))
}

// working handles an agent that has no result yet. A likely obstacle to its success is recorded now, because stopping
// the agent removes its object. The agent is read again in time even if no event of the watch follows the write.
func (f Facts) working(attempt *v1alpha1.Attempt, agent *v1alpha1.Agent, after time.Duration) Decision {
	d := wait(ReasonFencing, after)
	switch {
	case agent.NetworkFence != nil && !attempt.ObjectSeen:
		d = f.write(ReasonFencing, func(s *v1alpha1.NodeFenceStatus) { find(s, attempt.Number).ObjectSeen = true })
	case f.Run.Removal != RemovalDeletes:
	case attempt.Message == "":
		d = f.write(ReasonAgentDeletesPods, func(s *v1alpha1.NodeFenceStatus) {
			find(s, attempt.Number).Message = ReasonAgentDeletesPods.Sentence()
		})
	default:
		d.Reason = ReasonAgentDeletesPods
	}
	d.After = after
	return d
}

// stop stops an agent at work, except for an agent of volumes, which only undoes its fence when the NodeFence ends.
// Another agent may have fenced, or be about to fence, the same addresses in the same storage system, and its proof
// would be void.
func (f Facts) stop(attempt *v1alpha1.Attempt, agent *v1alpha1.Agent, over v1alpha1.Result, now time.Time) Decision {
	if agent.Covers == v1alpha1.CoversVolumes {
		return f.end(attempt, over, f.words(attempt), now)
	}
	return runStep(StopRun, reasonOf(over), f.Run.Of)
}

// start starts an agent. For a fence of a policy, or beside the proof of a reboot, the node must be away, because it
// may have come back since the attempt was recorded. Beside a proof of volumes, a node that runs is no reason to leave
// the others open.
func (f Facts) start(attempt *v1alpha1.Attempt, run Run, now time.Time) Decision {
	switch {
	case f.Fence.Spec.PolicyName == "" && (f.Fence.Status.Proof == nil || f.Fence.OfVolumes()):
	case !f.NodeRead.FreshAfter(f.FenceRead, now):
		return step(ReadNode, ReasonFencing)
	case !f.away():
		return f.end(attempt, v1alpha1.ResultCanceled, ReasonNodeReady.Sentence(), now)
	}
	return runStep(StartRun, ReasonFencing, run)
}

// prove records a proof, with the state of the node after it.
func (f Facts) prove(attempt *v1alpha1.Attempt, agent *v1alpha1.Agent, message string, now time.Time) Decision {
	after := f.Run.Read
	if agent.Manual != nil {
		after = f.FenceRead
	}
	switch {
	case !f.NodeRead.FreshAfter(after, now):
		return step(ReadNode, ReasonFenced)
	case !f.LeaseRead.FreshAfter(after, now):
		return step(ReadLease, ReasonFenced)
	case agent.Manual == nil && f.outran(attempt, agent.Covers):
		return f.end(attempt, v1alpha1.ResultFailed,
			"The node was rebooted while its agent was at work, or another machine has its name.", now)
	}
	return f.write(ReasonFenced, func(s *v1alpha1.NodeFenceStatus) {
		conclude(s, attempt.Number, v1alpha1.ResultProven, message, now)
		if f.Fence.OfVolumes() {
			s.Proof.Volumes = append(s.Proof.Volumes, f.covered(agent))
			return
		}
		s.Proof = &v1alpha1.Proof{Attempt: attempt.Number, Agent: agent.Name, Covers: agent.Covers,
			ProvenAt: metav1.NewTime(now), BootID: f.Node.BootID, MachineID: f.Node.Machine.MachineID,
			SystemUUID: f.Node.Machine.SystemUUID, LeaseVersion: f.Lease.ResourceVersion}
		// The node may have booted before its agent reported success, or its Node may be gone.
		if agent.Covers == v1alpha1.CoversReboot || !f.Node.Found {
			s.Proof.BootID = attempt.BootID
		}
		if !f.Node.Found {
			s.Proof.MachineID, s.Proof.SystemUUID = attempt.MachineID, attempt.SystemUUID
		}
		if agent.NetworkFence != nil {
			s.Proof.Volumes = []v1alpha1.CoveredVolumes{f.covered(agent)}
		}
		set(s, now, v1alpha1.ConditionFenced, true, ReasonFenced)
	})
}

// covered returns the volumes that an agent has cut the node off from.
func (f Facts) covered(agent *v1alpha1.Agent) v1alpha1.CoveredVolumes {
	of := agent.NetworkFence
	out := v1alpha1.CoveredVolumes{Agent: agent.Name, Driver: of.Driver, Volumes: of.Volumes,
		VolumeAttributes: of.VolumeAttributes}
	if out.Volumes != v1alpha1.VolumesAll && len(out.VolumeAttributes) == 0 {
		out.VolumeAttributes = f.Run.Attributes
	}
	return out
}

// outran reports whether an agent's success may no longer be true of the node: the node has booted after it was powered
// off, or another machine has its name since the attempt began.
func (f Facts) outran(attempt *v1alpha1.Attempt, covers v1alpha1.Coverage) bool {
	other := objects.Machine{MachineID: attempt.MachineID, SystemUUID: attempt.SystemUUID}.IsOther(f.Node.Machine)
	return f.Node.Found && f.Node.BootID != attempt.BootID && (covers == v1alpha1.CoversUntilUnfenced || other)
}

// end records that an attempt has ended without a proof.
func (f Facts) end(attempt *v1alpha1.Attempt, result v1alpha1.Result, message string, now time.Time) Decision {
	return f.write(reasonOf(result), func(s *v1alpha1.NodeFenceStatus) {
		conclude(s, attempt.Number, result, message, now)
		if agent := f.Fence.agent(attempt.Agent); agent != nil && agent.NetworkFence != nil && f.Run.exists() {
			find(s, attempt.Number).ObjectSeen = true
		}
		if s.Proof == nil {
			set(s, now, v1alpha1.ConditionFenced, false, reasonOf(result), "Agent "+attempt.Agent+": "+message)
		}
	})
}

// words returns the message for an attempt without success: the agent's own, or the error of its start or stop, and
// then the message recorded while it worked.
func (f Facts) words(attempt *v1alpha1.Attempt) string {
	words := f.Run.Message
	if words == "" && f.Sight.Refused == f.Run.Of {
		words = f.Sight.RefusedBy
	}
	return strings.TrimSpace(words + " " + attempt.Message)
}

// undo has one agent undo its fence, and records each try before it starts. The first try continues a run that an
// earlier version has started without a record.
func (f Facts) undo(attempt *v1alpha1.Attempt, now time.Time) Decision {
	run, why := Run{Attempt: attempt.Number, Agent: attempt.Agent, Undo: true, Try: attempt.UndoTry}, ReasonUnfencing
	switch {
	case run.Try == 0 || attempt.UndoTriedAt == nil:
		return f.tryUndo(run, why, now)
	case run.Try > 1:
		why = ReasonUnfenceFailed // the last result, until this try has one
	}
	if f.Run.Of != run || !f.Run.Read.Fresh(now) {
		return runStep(ReadRun, why, run)
	}
	switch f.Run.State {
	case RunAbsent:
		return runStep(StartRun, why, run)
	case RunSucceeded:
		return f.undone(run.Agent, now)
	case RunFailed:
		// The end is by the clock of the agent's object, which may stay wrong, and the try by ours.
		if left := max(left(retryUndo, f.Run.EndedAt, now), left(retryUndo, attempt.UndoTriedAt.Time, now)); left > 0 {
			return wait(ReasonUnfenceFailed, left)
		}
		return f.tryUndo(run, ReasonUnfenceFailed, now)
	case RunUnknown:
		return wait(ReasonUnfenceFailed, agentPoll)
	case Running, RunStopping:
		if agent := f.Fence.agent(run.Agent); left(agent.Timeout.Duration, attempt.UndoTriedAt.Time, now) < 0 {
			return f.undoIsLate(run, agent, now)
		}
	}
	return wait(why, agentPoll)
}

// undone records that an agent has undone all its attempts.
func (f Facts) undone(agent string, now time.Time) Decision {
	return f.write(ReasonUnfencing, func(s *v1alpha1.NodeFenceStatus) {
		for i := range s.Attempts {
			if a := &s.Attempts[i]; a.Agent == agent && a.UndoneAt == nil {
				at := metav1.NewTime(now)
				a.UndoneAt = &at
			}
		}
	})
}

// undoIsLate handles a try without a result in its time. A Job may never get one, for example while its pod is
// terminating on a lost node, so the next Job follows. Other agents have one object for all tries, and their
// controllers retry by themselves.
func (f Facts) undoIsLate(run Run, agent *v1alpha1.Agent, now time.Time) Decision {
	if agent.Job == nil {
		return wait(ReasonUnfenceFailed, agentPoll)
	}
	return f.tryUndo(run, ReasonUnfenceFailed, now)
}

// tryUndo records the next try. As in working, the agent is read again without an event of the watch.
func (f Facts) tryUndo(run Run, why Reason, now time.Time) Decision {
	d := f.write(why, func(s *v1alpha1.NodeFenceStatus) {
		at, attempt := metav1.NewTime(now), find(s, run.Attempt)
		attempt.UndoTry, attempt.UndoTriedAt = run.Try+1, &at
		f.noteUndo(s)
	})
	d.After = agentPoll
	return d
}

// noteUndo records the message of the agent or the API server about an undo that has not succeeded.
func (f Facts) noteUndo(s *v1alpha1.NodeFenceStatus) {
	if f.Run.Of.Undo && f.Run.Message != "" {
		find(s, f.Run.Of.Attempt).Message = text.Truncate(f.Run.Message, maxMessage)
	}
}
