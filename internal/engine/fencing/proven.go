package fencing

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

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
	case f.back():
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

// forsaken handles a fence that is no evidence any more, until its node is rebooted or a person ends it. Without a
// proof, its node must not keep a taint, which releases nothing by its removal.
func (f Facts) forsaken() Decision {
	if f.Node.Tainted() {
		return step(RemoveTaint, ReasonNeedsReboot)
	}
	return wait(ReasonNeedsReboot, nodePoll)
}

// volumes handles a fence in force that keeps a node from volumes, and tries the remaining agents of volumes as well.
func (f Facts) volumes(now time.Time) Decision {
	why := ReasonFenced
	if f.Fence.Terminating || f.renewed() && !f.silent(now) {
		why = ReasonNeedsReboot
	}
	agent, pause := f.Fence.nextOfVolumes(now)
	switch {
	case agent == "", f.Fence.Terminating, f.booted(), f.Fence.Spec.PolicyName != "" && !f.Node.NotReady():
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
	case !f.booted() && !f.Fence.ended() && (!f.Node.VolumesFenced || f.Node.OwnTaint):
		return addTaint(VolumesFenced, d.Reason)
	}
	return d
}

// goOn handles a fence in force whose node must not be tainted. A node that does not return from a reboot has released
// the pods that were terminating before. For other held pods the next agent is tried, except an agent of volumes, which
// releases no pod. The proof stays in force until the next one replaces it.
func (f Facts) goOn(now time.Time) Decision {
	proof := f.Fence.Status.Proof
	agent, pause := f.Fence.next(now)
	if !f.Fence.confirmed() {
		pause = max(pause, returnPatience-now.Sub(proof.ProvenAt.Time))
	}
	switch {
	case proof.Covers != v1alpha1.CoversReboot, agent == "", f.Fence.agent(agent).Covers == v1alpha1.CoversVolumes,
		pause > 0, !f.Node.NotReady(), f.Node.OwnTaint,
		f.Node.ControlPlane && !f.Fence.Spec.AllowControlPlane:
		return wait(ReasonFenced, nodePoll)
	case !f.Remaining.Read.FreshAfter(f.LeaseRead, now):
		return listPods(ReasonFenced)
	case !f.leavesHeld():
		return wait(ReasonFenced, nodePoll)
	}
	return f.write(ReasonFencing, func(s *v1alpha1.NodeFenceStatus) { f.begin(s, agent, now) })
}

// leavesHeld reports whether a held, terminating pod remains on the node that the proof does not release.
func (f Facts) leavesHeld() bool {
	released := find(&f.Fence.Status, f.Fence.Status.Proof.Attempt).TerminatingPods
	return slices.ContainsFunc(f.Remaining.Held, func(pod types.UID) bool { return !slices.Contains(released, pod) })
}

// gone handles a fence in force whose Node was deleted. Only a person ends it while an agent has something to undo,
// because the state of the machine is unknown. An empty node is recorded, so that policies stop counting the fence.
func gone(f Facts, now time.Time) Decision {
	switch list := f.list(f.Remaining.All, ReasonNodeDeleted, now); {
	case f.Fence.toUndo() == nil:
		return leave(f, ReasonNodeGone, now)
	case f.Fence.Vacant():
		return wait(ReasonNodeDeleted, nodePoll)
	case list.Action != Wait:
		return list
	case !f.Remaining.All.none():
		return wait(ReasonNodeDeleted, nodePoll)
	}
	return f.fenced(ReasonNodeDeleted, now)
}

// fenced records the reason of a fence in force.
func (f Facts) fenced(why Reason, now time.Time) Decision {
	return f.write(why, func(s *v1alpha1.NodeFenceStatus) { set(s, now, v1alpha1.ConditionFenced, true, why) })
}

// reasonOfBoot is the reason for a changed boot ID.
func (f Facts) reasonOfBoot() Reason {
	if f.replaced() {
		return ReasonMachineReplaced
	}
	return ReasonRebooted
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

// MayKeepVolumes reports whether an agent may keep the node from volumes: it was started, or was about to be, and has
// not undone its fence.
func (f Fence) MayKeepVolumes() bool {
	return !f.returned() && slices.ContainsFunc(f.Status.Attempts, func(a v1alpha1.Attempt) bool {
		agent := f.agent(a.Agent)
		return a.UndoneAt == nil && (agent == nil || agent.Covers == v1alpha1.CoversVolumes)
	})
}

// Evidence returns the evidence that a fence gives about a pod.
func Evidence(f Fence, pod types.UID) objects.Fence {
	p := f.Status.Proof
	if p == nil || f.ended() || !f.Finalized || !f.is(v1alpha1.ConditionFenced) {
		return objects.Fence{}
	}
	attempt := find(&f.Status, p.Attempt)
	return objects.Fence{InForce: true, Coverage: p.Covers, Volumes: p.Volumes, BootID: p.BootID,
		Machine: machineOf(p), SinceTerminating: slices.Contains(attempt.TerminatingPods, pod)}
}
