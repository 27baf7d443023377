package fencing

import (
	"slices"
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
	// Empty reports that no pod keeps the fence, and that it ends once VolumeAttachments are known to be gone.
	Empty bool
	// RecordsWait reports that WriteStatus only records a wait for the Reason.
	RecordsWait bool
}

// Step implements session.State.
func (d Decision) Step() session.Step[Reason] {
	return session.Step[Reason]{Action: d.Action, Reason: d.Reason, After: d.After}
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
	d := f.recordWait(decide(f, now), now)
	if d.Status != nil {
		f.Fence.remediated(d.Status, now)
	}
	return d
}

// decide finds the state of the fence, which has a function of its own: requested, attempting (attempt.go), proven, end
// and returned, in the order of a fence's life. The status of the NodeFence holds the state, so that another process
// continues at it.
func decide(f Facts, now time.Time) Decision {
	fence := f.Fence
	switch {
	case f.TaintSeen && fence.unowned():
		return leftover(f, now)
	case fence.unowned():
		return wait(ReasonNoFence, 0)
	case fence.Returned():
		return returned(f, now)
	case !fence.Finalized && fence.is(v1alpha1.ConditionFenced):
		return withdraw(f, now)
	case !fence.Finalized:
		return step(AddFinalizer, ReasonRequested)
	case !f.FenceRead.Fresh(now):
		return step(ReadFence, fence.reason())
	case fence.attempt() != nil:
		return f.shun(attempting(f, now), now)
	case fence.Ending():
		return end(f, ReasonEnded, now)
	case fence.Status.Proof != nil && !fence.is(v1alpha1.ConditionFenced) && !unkept(&fence.Status):
		return end(f, ReasonRebooted, now) // the end has begun
	case fence.Status.Proof != nil:
		return proven(f, now)
	}
	return requested(f, now)
}

// reason is the reason of a step that only reads the fence.
func (f Fence) reason() Reason {
	switch {
	case f.Ending():
		return ReasonUnfencing
	case f.Status.Proof != nil:
		return ReasonFenced
	case f.attempt() != nil:
		return ReasonFencing
	}
	return ReasonRequested
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
	case f.Fence.Spec.PolicyName != "" && !f.away():
		return end(f, ReasonNodeReady, now)
	case !node.Found:
		return wait(ReasonNodeNotFound, nodePoll)
	case node.ControlPlane && !f.Fence.Spec.AllowControlPlane:
		return wait(ReasonControlPlane, 0)
	case pause > 0, agent == "":
		return f.idle(why, pause)
	case !f.listed():
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
	case c == nil || c.Reason != string(ReasonHealthCheckGaveUp): // Decide adds the condition (remediated)
		return f.write(ReasonHealthCheckGaveUp, func(*v1alpha1.NodeFenceStatus) {})
	}
	return wait(ReasonHealthCheckGaveUp, 0)
}

// proven handles a fence in force, and one that was in force until it lost its finalizer.
func proven(f Facts, now time.Time) Decision {
	switch {
	case !f.NodeRead.FreshAfter(f.FenceRead, now): // and therefore after the proof
		return step(ReadNode, ReasonFenced)
	case !f.LeaseRead.FreshAfter(f.NodeRead, now):
		return step(ReadLease, ReasonFenced)
	case f.runsOn(now) && !unkept(&f.Fence.Status):
		return contradicted(f, now)
	case f.booted() && f.Node.Tainted(): // at once: new pods would lose their volumes if the node became NotReady
		return step(RemoveTaint, f.reasonOfBoot())
	case f.replaced():
		return wait(ReasonMachineReplaced, nodePoll)
	case f.Back():
		return leave(f, ReasonRebooted, now)
	case unkept(&f.Fence.Status):
		return f.forsaken()
	case !f.Node.Found:
		return gone(f, now)
	case f.Fence.Vacant():
		return f.fenced(ReasonFenced, now)
	case f.Fence.OfVolumes():
		return f.shun(f.volumes(now), now)
	case f.Fence.Status.Proof.Covers != v1alpha1.CoversUntilUnfenced, f.Node.BootID != f.Fence.Status.Proof.BootID:
		return f.goOn(now)
	}
	return release(f, now)
}

// contradicted handles a node that has renewed its Lease since the proof, without a reboot. A booting node renews its
// Lease some seconds before it writes its new boot ID, and may be cut off in between. The renewals must therefore go on
// for as long as a node may be silent.
func contradicted(f Facts, now time.Time) Decision {
	if f.Sight.RunsSince.IsZero() || f.Sight.LeaseSince.Sub(f.Sight.RunsSince) < f.Rules.silentAfter() {
		return wait(ReasonNodeRuns, nodePoll)
	}
	return f.write(ReasonContradicted, func(s *v1alpha1.NodeFenceStatus) {
		attempt := find(s, s.Proof.Attempt)
		attempt.Result, attempt.TerminatingPods = v1alpha1.ResultContradicted, nil
		s.Proof = nil
		set(s, now, v1alpha1.ConditionFenced, false, ReasonContradicted)
	})
}

// reasonOfBoot is the reason for a changed boot ID.
func (f Facts) reasonOfBoot() Reason {
	if f.replaced() {
		return ReasonMachineReplaced
	}
	return ReasonRebooted
}

// forsaken handles a fence that is no evidence any more, until its node is rebooted or a person ends it. Without a
// proof, its node must not keep a taint, which releases nothing by its removal.
func (f Facts) forsaken() Decision {
	if f.Node.Tainted() {
		return step(RemoveTaint, ReasonNeedsReboot)
	}
	return wait(ReasonNeedsReboot, nodePoll)
}

// gone handles a fence in force whose Node was deleted. Only a person ends it while an agent has something to undo,
// because the state of the machine is unknown. An empty node is recorded, so that policies stop counting the fence.
func gone(f Facts, now time.Time) Decision {
	switch d := f.empties(f.Remaining.All, ReasonNodeDeleted, ReasonNodeDeleted, ReasonNodeDeleted); {
	case f.Fence.toUndo() == nil:
		return leave(f, ReasonNodeGone, now)
	case f.Fence.Vacant():
		return wait(ReasonNodeDeleted, vacantPoll)
	case d.Reason != "":
		return d
	}
	return f.fenced(ReasonNodeDeleted, now)
}

// fenced records the reason of a fence in force.
func (f Facts) fenced(why Reason, now time.Time) Decision {
	return f.write(why, func(s *v1alpha1.NodeFenceStatus) { set(s, now, v1alpha1.ConditionFenced, true, why) })
}

// volumes handles a fence in force that keeps a node from volumes, and tries the remaining agents of volumes as well.
func (f Facts) volumes(now time.Time) Decision {
	why := ReasonFenced
	if f.Fence.Terminating || f.renewed() && !f.silent(now) {
		why = ReasonNeedsReboot
	}
	agent, pause := f.Fence.nextOfVolumes(now)
	switch {
	case agent == "", f.Fence.Terminating, f.booted(), f.Fence.Spec.PolicyName != "" && !f.away():
		return wait(why, nodePoll)
	case pause > 0:
		return wait(why, min(pause, nodePoll))
	}
	return f.write(ReasonFencing, func(s *v1alpha1.NodeFenceStatus) { f.begin(s, agent, now) })
}

// shun replaces a wait by the step that keeps new pods from a node without its volumes, where they could not start. Any
// other step is more urgent. Another boot ID ends that, whether of this machine or of another one: the end of the fence
// may take long, and most pods need none of these volumes.
func (f Facts) shun(d Decision, now time.Time) Decision {
	switch {
	case d.Action != Wait, !f.Fence.OfVolumes(), unkept(&f.Fence.Status), !f.NodeRead.FreshAfter(f.FenceRead, now),
		!f.Node.Found:
		return d
	case f.booted() && f.Node.Tainted():
		return step(RemoveTaint, f.reasonOfBoot())
	case !f.booted() && !f.Fence.Ending() && (!f.Node.VolumesFenced || f.Node.OwnTaint):
		return addTaint(VolumesFenced, d.Reason)
	}
	return d
}

// goOn handles a fence in force whose node must not be tainted. A node that does not return from a reboot has released
// the held pods that were terminating before. For other pods the next agent is tried, except an agent of volumes, which
// releases no pod. A person's confirmation needs no pod, because it also releases the volumes. The proof stays in force
// until the next one replaces it.
func (f Facts) goOn(now time.Time) Decision {
	proof := f.Fence.Status.Proof
	agent, pause := f.Fence.next(now)
	if !f.Fence.Confirmed() {
		pause = max(pause, left(returnPatience, proof.ProvenAt.Time, now))
	}
	switch {
	case proof.Covers != v1alpha1.CoversReboot, agent == "", f.Fence.agent(agent).Covers == v1alpha1.CoversVolumes,
		pause > 0, !f.away(), f.Node.OwnTaint,
		f.Node.ControlPlane && !f.Fence.Spec.AllowControlPlane:
		return wait(ReasonFenced, nodePoll)
	case !f.listed():
		return listPods(ReasonFenced)
	case !f.Fence.Confirmed() && !f.leavesPods():
		return wait(ReasonFenced, nodePoll)
	}
	return f.write(ReasonFencing, func(s *v1alpha1.NodeFenceStatus) { f.begin(s, agent, now) })
}

// leavesPods reports whether a terminating pod remains on the node that the proof of a reboot does not release, and
// that another proof can release. Only a taint releases a pod that is not held.
func (f Facts) leavesPods() bool {
	taints := func(a v1alpha1.Agent) bool { return a.Covers == v1alpha1.CoversUntilUnfenced }
	if f.Remaining.Unheld > 0 && slices.ContainsFunc(f.Fence.Spec.Agents, taints) {
		return true
	}
	released := find(&f.Fence.Status, f.Fence.Status.Proof.Attempt).TerminatingPods
	return slices.ContainsFunc(f.Remaining.Held, func(pod HeldPod) bool { return !slices.Contains(released, pod.UID) })
}

// release taints a node that does not run, so that Kubernetes deletes its pods and detaches its volumes. A node that is
// still Ready is not tainted, because its volumes would be detached under running processes. Ready stays True for some
// time after a node has died.
func release(f Facts, now time.Time) Decision {
	switch {
	case !f.Node.OwnTaint && !f.Node.NotReady():
		return wait(ReasonNodeStillReady, nodePoll)
	case !f.Node.OwnTaint:
		return addTaint(OutOfService, ReasonReleased)
	case !f.Fence.is(v1alpha1.ConditionReleased):
		return f.write(ReasonReleased, func(s *v1alpha1.NodeFenceStatus) {
			set(s, now, v1alpha1.ConditionReleased, true, ReasonReleased)
		})
	case f.Fence.Spec.Unfence != v1alpha1.UnfenceWhenReleased:
		return wait(ReasonReleased, nodePoll)
	}
	return leave(f, ReasonReleased, now)
}

// leave begins the end of the fence once the node is empty of the pods and volumes from before. A rebooted node may run
// new pods, so that only terminating ones count there.
func leave(f Facts, why Reason, now time.Time) Decision {
	remains := f.Remaining.All
	if why == ReasonRebooted {
		remains = f.Leaving()
	}
	if d := f.empties(remains, why, ReasonRemainsOnNode, ReasonAwaitsVolumeList); d.Reason != "" {
		return d
	}
	return end(f, why, now)
}

// empties returns the step to a node without remains, and the zero Decision once lists show it. It lists for the reason
// why, waits for objects on the node as remain, and for a list of VolumeAttachments as awaits. These are only listed
// once no pod keeps the fence, because no selector finds them by node.
func (f Facts) empties(remains Remains, why, remain, awaits Reason) (d Decision) {
	switch {
	case !f.listed():
		return listPods(why)
	case remains.Pods > 0:
		return wait(remain, nodePoll)
	case f.Remaining.PodsOnly:
		d = step(ListRemaining, why)
	case remains.VolumeAttachments > 0:
		d = wait(remain, nodePoll)
	case !f.Remaining.AttachmentsListed:
		d = wait(awaits, nodePoll)
	default:
		return Decision{}
	}
	d.Empty = true
	return d
}

// Leaving returns the remains that keep the fence of a rebooted node.
func (f Facts) Leaving() Remains {
	remains := f.Remaining.Leaving
	if f.helpsNoPod() {
		remains.Pods = 0
	}
	return remains
}

// helpsNoPod reports whether the fence is no evidence for terminating pods on a rebooted node, because its kubelet ends
// them, and the proof is not one of volumes. The fence then does not wait for them: any tenant can keep a pod
// terminating, and such pods may wait for the end of the fence (hindered in the engine podsafety). After a proof of
// volumes, locks rely on the wait (fenced in the engine singlenode).
func (f Facts) helpsNoPod() bool {
	return f.Node.Ready == objects.ReadyTrue && !f.Fence.OfVolumes()
}

// end ends the fence, which is no proof from the first write on. The agents then undo their fences in reverse order,
// including any that proved nothing, because a stopped agent may still have fenced the node. The taint is removed last,
// but at once if the node runs again.
func end(f Facts, why Reason, now time.Time) Decision {
	if f.Fence.is(v1alpha1.ConditionFenced) || unkept(&f.Fence.Status) {
		return f.write(ReasonUnfencing, func(s *v1alpha1.NodeFenceStatus) {
			set(s, now, v1alpha1.ConditionFenced, false, ReasonUnfencing)
			if f.bare(now) {
				set(s, now, v1alpha1.ConditionReleased, false, why)
			}
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
	awaits := f.Fence.Status.Proof != nil && !f.Fence.Ending() && f.Node.Found && !f.Back()
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
	left := left(f.Rules.keepReturned(), f.Fence.since(v1alpha1.ConditionReturned).Time, now)
	switch {
	case left > 0:
		return wait(ReasonReturned, left)
	case !f.FenceRead.Fresh(now):
		return step(ReadFence, ReasonReturned)
	}
	return step(DeleteFence, ReasonReturned)
}
