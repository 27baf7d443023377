package fencing

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Decision is the next step for one NodeFence and its reason.
type Decision struct {
	Action Action
	Reason Reason
	// After is the longest duration of this wait; zero means no limit.
	After  time.Duration
	Status *v1alpha1.NodeFenceStatus
	// Run is set for ReadRun, StartRun and StopRun, as Status is for WriteStatus and Taint for AddTaint.
	Run   Run
	Taint Taint
	// PodsOnly limits ListRemaining to pods, without VolumeAttachments.
	PodsOnly bool
}

// Step implements session.State.
func (d Decision) Step() session.Step[Reason] {
	return session.Step[Reason]{Action: d.Action, Reason: d.Reason, After: d.After}
}

// Run identifies one run of one agent: its attempt to fence, or a try to undo that. The zero value is no run.
type Run struct {
	Attempt int32
	Agent   string
	// Undo reports that the agent undoes the fence, and Try is the number of this try.
	Undo bool
	Try  int32
}

func wait(why Reason, after time.Duration) Decision { return Decision{Reason: why, After: after} }
func step(a Action, why Reason) Decision            { return Decision{Action: a, Reason: why} }
func listPods(why Reason) Decision {
	return Decision{Action: ListRemaining, Reason: why, PodsOnly: true}
}
func addTaint(taint Taint, why Reason) Decision {
	return Decision{Action: AddTaint, Reason: why, Taint: taint}
}
func runStep(a Action, why Reason, run Run) Decision {
	return Decision{Action: a, Reason: why, Run: run}
}

// Decide returns the next step for one NodeFence, and releases nothing while a fact is unknown. Each step adds to the
// facts, with which Decide is called again. now is the time for judging the age of reads and the end of time limits.
func Decide(f Facts, now time.Time) Decision {
	d := decide(f, now)
	if d.Status != nil {
		f.Fence.remediated(d.Status, now)
	}
	return d
}

func decide(f Facts, now time.Time) Decision {
	fence := f.Fence
	switch {
	case f.TaintSeen && fence.unowned():
		return leftover(f, now)
	case fence.unowned():
		return wait(ReasonNoFence, 0)
	case fence.returned():
		return returned(f, now)
	case !fence.Finalized && fence.is(v1alpha1.ConditionFenced):
		return withdraw(f, now)
	case !fence.Finalized:
		return step(AddFinalizer, ReasonRequested)
	case !f.FenceRead.Fresh(now):
		return step(ReadFence, fence.reason())
	case fence.attempt() != nil:
		return f.shun(attempting(f, now), now)
	case fence.ended():
		return end(f, ReasonEnded, now)
	case fence.Status.Proof != nil && !fence.is(v1alpha1.ConditionFenced) && !unkept(&fence.Status):
		return end(f, ReasonRebooted, now) // the end has begun
	case fence.Status.Proof != nil:
		return proven(f, now)
	}
	return requested(f, now)
}

// withdraw handles a fence in force that has lost its finalizer, as by --release-finalizers. Nothing has kept it since:
// a person may have undone the work of the agents. It is no evidence any more, and does not end either, because its
// node may run processes whose replacements write.
func withdraw(f Facts, now time.Time) Decision {
	if !f.FenceRead.Fresh(now) {
		return step(ReadFence, ReasonNeedsReboot)
	}
	return f.write(ReasonNeedsReboot, func(s *v1alpha1.NodeFenceStatus) {
		set(s, now, v1alpha1.ConditionReleased, false, ReasonNeedsReboot)
		set(s, now, v1alpha1.ConditionFenced, false, ReasonNeedsReboot)
		meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionFenced).Status = metav1.ConditionUnknown
	})
}

// leftover handles a node that has a taint of this project, and no NodeFence that this project still keeps. Either a
// person has removed the finalizer or copied the Node, or a request of a former leader was carried out after the end of
// the fence.
func leftover(f Facts, now time.Time) Decision {
	switch {
	case !f.FenceRead.Fresh(now):
		return step(ReadFence, ReasonTaintRemains)
	case !f.NodeRead.FreshAfter(f.FenceRead, now):
		return step(ReadNode, ReasonTaintRemains)
	case f.Node.Tainted():
		return step(RemoveTaint, ReasonTaintRemains)
	}
	return wait(ReasonNoFence, 0)
}

// returned handles a fence that has ended, whose object is kept for some time. A late request of a former leader may
// still have tainted the node.
func returned(f Facts, now time.Time) Decision {
	switch {
	case f.TaintSeen && !f.FenceRead.Fresh(now): // an earlier fence with this name may have added the taint
		return step(ReadFence, ReasonReturned)
	case f.TaintSeen && !f.NodeRead.FreshAfter(f.FenceRead, now):
		return step(ReadNode, ReasonReturned)
	case f.TaintSeen && f.Node.Tainted():
		return step(RemoveTaint, ReasonReturned)
	case f.Fence.Terminating:
		return step(RemoveFinalizer, ReasonReturned)
	}
	left := f.Rules.keepReturned() - now.Sub(f.Fence.since(v1alpha1.ConditionReturned).Time)
	switch {
	case left > 0:
		return wait(ReasonReturned, left)
	case !f.FenceRead.Fresh(now):
		return step(ReadFence, ReasonReturned)
	}
	return step(DeleteFence, ReasonReturned)
}

// requested handles a fence without a proof and without a working agent. It records the next attempt, with the state of
// the node before the agent starts.
func requested(f Facts, now time.Time) Decision {
	agent, pause := f.Fence.next(now)
	why := ReasonRequested
	if pause > 0 {
		why = ReasonAllAgentsFailed
	}
	node := f.Node
	switch {
	case !f.NodeRead.Fresh(now):
		return step(ReadNode, why)
	case node.OwnTaint:
		return step(RemoveTaint, ReasonContradicted)
	case node.Tainted(): // no proof of volumes is ever withdrawn, so it is from before this fence
		return step(RemoveTaint, ReasonTaintRemains)
	case f.Fence.is(v1alpha1.ConditionReleased):
		return f.write(ReasonContradicted, func(s *v1alpha1.NodeFenceStatus) {
			set(s, now, v1alpha1.ConditionReleased, false, ReasonContradicted)
		})
	case f.Fence.Spec.PolicyName != "" && !node.Found:
		return end(f, ReasonNodeGone, now)
	case f.Fence.Spec.PolicyName != "" && !node.NotReady():
		return end(f, ReasonNodeReady, now)
	case !node.Found:
		return wait(ReasonNodeNotFound, nodePoll)
	case node.ControlPlane && !f.Fence.Spec.AllowControlPlane:
		return wait(ReasonControlPlane, 0)
	case pause > 0, agent == "":
		return f.idle(why, pause)
	case !f.Remaining.Read.Fresh(now):
		return listPods(why)
	}
	return f.write(ReasonFencing, func(s *v1alpha1.NodeFenceStatus) { f.begin(s, agent, now) })
}

// idle handles a fence without a proof whose next agent must not start now. If the fence was given up, that is
// recorded.
func (f Facts) idle(why Reason, pause time.Duration) Decision {
	c := meta.FindStatusCondition(f.Fence.Status.Conditions, v1alpha1.ConditionSucceeded)
	switch {
	case !f.Fence.GivenUp:
		return wait(why, pause)
	case c == nil || c.Reason != string(ReasonHealthCheckGaveUp):
		return f.write(ReasonHealthCheckGaveUp, func(*v1alpha1.NodeFenceStatus) {})
	}
	return wait(ReasonHealthCheckGaveUp, 0)
}

// attempting handles a fence with an agent at work.
func attempting(f Facts, now time.Time) Decision {
	attempt := f.Fence.attempt()
	agent := f.Fence.agent(attempt.Agent)
	if agent == nil { // the API allows no such change of the spec
		return f.end(attempt, v1alpha1.ResultFailed, "The spec has no agent of this name.", now)
	}
	if agent.Manual != nil {
		return byHand(f, attempt, agent, now)
	}
	if f.Fence.Status.Proof != nil && !f.NodeRead.FreshAfter(f.FenceRead, now) {
		return step(ReadNode, ReasonFencing)
	}
	run := Run{Attempt: attempt.Number, Agent: attempt.Agent}
	if f.Run.Of != run || !f.Run.Read.Fresh(now) {
		return runStep(ReadRun, ReasonFencing, run)
	}
	return f.running(attempt, agent, now)
}

// running handles an attempt whose agent was asked for its result.
func (f Facts) running(attempt *v1alpha1.Attempt, agent *v1alpha1.Agent, now time.Time) Decision {
	run := f.Run.Of
	left := agent.Timeout.Duration - now.Sub(attempt.StartedAt.Time)
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

// proves reports whether the agent's success is accepted as a proof.
func (f Facts) proves() bool {
	return f.Run.State == RunSucceeded && !f.Fence.ended() && !f.settled() && !f.overtaken()
}

// working handles an agent that has no result yet. A likely obstacle to its success is recorded now, because stopping
// the agent removes its object. An older kind drops the record, so that no event of the watch follows the write.
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

// start starts an agent. For a fence of a policy, or beside the proof of a reboot, the node must be NotReady, because
// it may have come back since the attempt was recorded. Beside a proof of volumes, a node that runs is no reason to
// leave the others open.
func (f Facts) start(attempt *v1alpha1.Attempt, run Run, now time.Time) Decision {
	switch {
	case f.Fence.Spec.PolicyName == "" && (f.Fence.Status.Proof == nil || f.Fence.OfVolumes()):
	case !f.NodeRead.FreshAfter(f.FenceRead, now):
		return step(ReadNode, ReasonFencing)
	case !f.Node.NotReady():
		return f.end(attempt, v1alpha1.ResultCanceled, ReasonNodeReady.Sentence(), now)
	}
	return runStep(StartRun, ReasonFencing, run)
}

// hurried reports whether to stop waiting for an agent that does not end or does not answer. A person has either
// confirmed the fence or abandoned its undo.
func (f Facts) hurried() bool { return f.Fence.abandoned() || !f.Fence.ended() && f.settled() }

// settled reports whether a confirmation replaces the agent at work, which it never does beside a proof of volumes.
func (f Facts) settled() bool { return !f.Fence.OfVolumes() && f.Fence.confirmed() }

// reason is the reason to wait for an agent without a result.
func (s RunState) reason() Reason {
	if s == RunStopping {
		return ReasonAgentStopping
	}
	return ReasonAgentUnusable
}

// over returns the result to record for an agent that has to be stopped, or "".
func (f Facts) over(left time.Duration) v1alpha1.Result {
	switch {
	case f.Fence.ended(), f.settled(), f.overtaken(), f.Fence.GivenUp:
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

// byHand handles an attempt that waits for a person's confirmation.
func byHand(f Facts, attempt *v1alpha1.Attempt, agent *v1alpha1.Agent, now time.Time) Decision {
	left := agent.Timeout.Duration - now.Sub(attempt.StartedAt.Time)
	switch {
	case f.Fence.ended():
		return f.end(attempt, v1alpha1.ResultCanceled, "", now)
	case f.Fence.confirmed():
		return f.prove(attempt, agent, f.Fence.Spec.Confirmation, now)
	case f.Fence.GivenUp:
		return f.end(attempt, v1alpha1.ResultCanceled, "", now)
	case left <= 0:
		return f.end(attempt, v1alpha1.ResultTimedOut, "", now)
	}
	return wait(ReasonWaitsForConfirmation, left)
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
