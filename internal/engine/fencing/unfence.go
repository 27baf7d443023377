package fencing

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// leave begins the end of the fence once the node is empty of the pods and volumes from before. A rebooted node may run
// new pods, so that only terminating ones count there.
func leave(f Facts, why Reason, now time.Time) Decision {
	remains := f.Remaining.All
	if why == ReasonRebooted {
		remains = f.Remaining.Leaving
	}
	if why == ReasonRebooted && f.keepsPods() {
		remains.Pods = 0
	}
	switch list := f.list(remains, why, now); {
	case list.Action != Wait:
		return list
	case !remains.none():
		return wait(ReasonRemainsOnNode, nodePoll)
	}
	return end(f, why, now)
}

// keepsPods reports whether terminating pods on a rebooted node may wait for the end of the fence, so that the fence
// must not wait for them. An agent of volumes that has proven nothing may come into force after the boot, and then
// hinders the unmount of ended pods (hindered in the engine podsafety). A proof of another coverage is no evidence on a
// Ready node. After a proof of volumes, the reboot ends the obstacle, and locks rely on the wait (fenced in the engine
// singlenode).
func (f Facts) keepsPods() bool {
	return f.Node.Ready == objects.ReadyTrue && !f.Fence.OfVolumes() && f.Fence.MayKeepVolumes()
}

// end ends the fence, which is no proof from the first write on. The agents then undo their fences in reverse order,
// including any that proved nothing, because a stopped agent may still have fenced the node. The taint is removed last,
// but at once if the node runs again.
func end(f Facts, why Reason, now time.Time) Decision {
	if f.Fence.is(v1alpha1.ConditionFenced) || unkept(&f.Fence.Status) {
		return f.write(ReasonUnfencing, func(s *v1alpha1.NodeFenceStatus) {
			set(s, now, v1alpha1.ConditionFenced, false, ReasonUnfencing)
		})
	}
	switch { // first, since agents may take long: new pods on the node would lose their volumes
	case f.TaintSeen && !f.NodeRead.FreshAfter(f.FenceRead, now):
		return step(ReadNode, why)
	case f.TaintSeen && f.booted() && f.Node.Tainted():
		return step(RemoveTaint, why)
	}
	if attempt := f.Fence.toUndo(); attempt != nil {
		return f.undo(attempt, now)
	}
	return finish(f, why, now)
}

// finish ends a fence that the agents have undone.
func finish(f Facts, why Reason, now time.Time) Decision {
	awaits := f.Fence.Status.Proof != nil && !f.Fence.ended() && f.Node.Found && !f.back()
	switch {
	case !f.NodeRead.FreshAfter(f.FenceRead, now):
		return step(ReadNode, why)
	case !f.LeaseRead.FreshAfter(f.FenceRead, now):
		return step(ReadLease, why)
	case f.booted() && f.Node.Tainted(): // added by a late request of a former leader
		return step(RemoveTaint, why)
	case awaits:
		return wait(f.awaits(now), nodePoll)
	case f.Node.Tainted():
		return step(RemoveTaint, why)
	case why == ReasonRebooted && !f.Node.Found:
		why = ReasonNodeGone
	}
	return f.write(why, func(s *v1alpha1.NodeFenceStatus) {
		set(s, now, v1alpha1.ConditionFenced, false, why)
		set(s, now, v1alpha1.ConditionReleased, false, why)
		set(s, now, v1alpha1.ConditionReturned, true, why)
	})
}

// awaits returns the reason why an undone fence has not ended: the node is not back.
func (f Facts) awaits(now time.Time) Reason {
	switch {
	case f.runsOn(now):
		return ReasonNodeRuns
	case f.replaced():
		return ReasonMachineReplaced
	}
	return ReasonAwaitsReturn
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
		if left := retryUndo - now.Sub(f.Run.EndedAt); left > 0 {
			return wait(ReasonUnfenceFailed, min(left, retryUndo)) // the clocks may differ
		}
		return f.tryUndo(run, ReasonUnfenceFailed, now)
	case RunUnknown:
		return wait(ReasonUnfenceFailed, agentPoll)
	case Running, RunStopping:
		if agent := f.Fence.agent(run.Agent); now.Sub(attempt.UndoTriedAt.Time) > agent.Timeout.Duration {
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

func (f Facts) tryUndo(run Run, why Reason, now time.Time) Decision {
	return f.write(why, func(s *v1alpha1.NodeFenceStatus) {
		at, attempt := metav1.NewTime(now), find(s, run.Attempt)
		attempt.UndoTry, attempt.UndoTriedAt = run.Try+1, &at
	})
}
