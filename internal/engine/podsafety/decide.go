package podsafety

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Decision is the next step for one pod and its reason.
type Decision struct {
	Action Action
	Reason Reason
	// After is the longest duration of this wait; zero means no limit.
	After time.Duration
}

// Step implements session.State.
func (d Decision) Step() session.Step[Reason] {
	return session.Step[Reason]{Action: d.Action, Reason: d.Reason, After: d.After}
}

func wait(why Reason) Decision                         { return Decision{Action: Wait, Reason: why} }
func waitFor(why Reason, after time.Duration) Decision { return Decision{Reason: why, After: after} }
func step(a Action, why Reason) Decision               { return Decision{Action: a, Reason: why} }

// Decide returns the next step for one pod, and holds the pod while a fact is unknown. Each step adds to the facts,
// with which Decide is called again. now is the time for judging the age of reads and the end of waits.
func Decide(f Facts, now time.Time) Decision {
	switch {
	case !f.Pod.Held:
		return notHeld(f)
	case f.Rules.RemovingFinalizers:
		return step(RemoveFinalizerByUID, ReasonFinalizersRemoved)
	case !f.Pod.Terminating:
		return running(f, now)
	}
	return terminating(f, now)
}

// notHeld handles a pod without the finalizer, which the API server lets no terminating pod receive.
func notHeld(f Facts) Decision {
	switch {
	case f.Rules.RemovingFinalizers:
		return wait(ReasonFinalizersRemoved)
	case f.Pod.Terminating, f.Mode != ModeEnforce, !wanted(f.Pod):
		return wait(ReasonNothingToHold)
	}
	return step(AddFinalizer, ReasonHold)
}

// running handles a pod that was not deleted. With CollectOrphans, it deletes the pod if its Node is gone.
func running(f Facts, now time.Time) Decision {
	if !f.Rules.CollectOrphans || f.NodeSeen != objects.NodeAbsent || f.Pod.Node == "" {
		return wait(ReasonNotTerminating)
	}
	if !f.PodRead.Fresh(now) {
		return step(ReadPod, ReasonOrphaned)
	}
	switch d := byNodeObject(f, now); {
	case d.Action.Kind() == session.Reads, d.Reason == ReasonNodeRecentlyGone:
		return d
	case d.Reason == ReasonNodeGone:
		return step(ForceDelete, ReasonOrphaned)
	}
	return wait(ReasonNotTerminating)
}

// terminating handles a deleted pod that is held until evidence shows the end of its processes. The evidence is
// searched on the pod first, and then on its node.
//
// Evidence on the pod needs no live read: the patch is bound to the version of the pod that shows it, so that it fails
// if the pod has changed. A force deletion is bound to the UID alone, and follows a read, as does evidence elsewhere.
func terminating(f Facts, now time.Time) Decision {
	d := byPod(f, now)
	switch {
	case d.Action == RemoveFinalizer && f.Pod.GraceZero && !f.Outdated:
		return d
	case d.Action == Wait && f.nodeMayProve():
		d = byNode(f, now, d)
	}
	switch {
	case d.Action != RemoveFinalizer:
		return d
	case !f.PodRead.Fresh(now):
		return step(ReadPod, d.Reason)
	case !f.Pod.GraceZero:
		return step(ForceDelete, d.Reason)
	}
	return d
}

// byPod searches for evidence on the pod itself. Without it, the result is the wait that follows from the watch.
func byPod(f Facts, now time.Time) Decision {
	pod := f.Pod
	switch {
	case pod.Node == "":
		return step(RemoveFinalizer, ReasonNeverBound)
	case pod.Confirmation == objects.ConfirmedThis && (pod.GraceZero || !now.Before(pod.GraceEnds)):
		return step(RemoveFinalizer, ReasonConfirmed)
	case pod.Finished() && pod.Confirmation == objects.ConfirmedThis:
		// The kubelet may be cut off before it has unmounted the volumes.
		return both(waitFor(ReasonGracePeriodRunning, pod.GraceEnds.Sub(now)), finished(f, now))
	case pod.Finished():
		return finished(f, now)
	case pod.Confirmation == objects.ConfirmedThis:
		return waitFor(ReasonGracePeriodRunning, pod.GraceEnds.Sub(now))
	case pod.Confirmation == objects.ConfirmedOther:
		return wait(ReasonConfirmationMismatch)
	case !f.NodeSeen.Ready():
		return wait(ReasonNodeUnreachable)
	case pod.Refusal:
		return refused(f, now)
	case pod.Final:
		return wait(ReasonEndNotReported)
	}
	return overdueIn(ReasonProcessesMayRun, ReasonEndOverdue, rest(pod.GraceEnds, overdueAfter, now))
}

// finished handles a pod that has ended according to its kubelet, and whose volumes may still be mounted. Waiting
// proves no unmount while the node is not Ready, when no kubelet unmounts, or while a fence hinders it, and begins anew
// after an outage or a fence.
func finished(f Facts, now time.Time) Decision {
	switch {
	case !f.NodeSeen.Ready() || f.Storage.Away:
		return wait(ReasonNodeUnreachable)
	case f.Pod.GraceZero && (f.unmountShown() || f.unmountIn(now) <= 0):
		return step(RemoveFinalizer, ReasonFinished)
	case f.hindered(now):
		return waitFor(ReasonVolumesFenced, recheckFenced) // no watch shows a reboot
	}
	d := overdueIn(ReasonWaitsForUnmount, ReasonUnmountOverdue, rest(f.Sight.FinishedSince, overdueAfter, now))
	if !f.Pod.GraceZero {
		return d // the kubelet sets the grace period to 0 after the unmount
	}
	return waitFor(d.Reason, f.unmountIn(now))
}

// refused handles a pod that its kubelet has refused. Once the kubelet reports that its runtime has no container of the
// pod, the processes may only run on another machine that had the name of the node before. It is excluded if the node
// was the same machine all the time since before a kubelet could know the pod, and the kubelet that refused the pod
// writes that machine to its Node.
func refused(f Facts, now time.Time) Decision {
	switch {
	case !f.sameMachine():
		return wait(ReasonEndNotReported)
	case !f.Pod.Refused, !f.Pod.GraceZero:
		return overdueIn(ReasonProcessesMayRun, ReasonEndNotReported, rest(f.Pod.GraceEnds, overdueAfter, now))
	case f.hindered(now):
		return waitFor(ReasonVolumesFenced, recheckFenced)
	case !f.PodRead.Fresh(now):
		return step(ReadPod, ReasonWaitsForNodeStatus)
	case !f.after(f.NodeRead, now):
		return step(ReadNode, ReasonWaitsForNodeStatus)
	case f.heartbeatShown() && f.unmountAfter(f.Sight.RefusedSince, now) <= 0:
		return step(RemoveFinalizer, ReasonRefused)
	case rest(f.Sight.RefusedSince, heartbeatIn, now) <= 0:
		return waitFor(ReasonEndNotReported, recheckLate)
	}
	return waitFor(ReasonWaitsForNodeStatus, recheckNode)
}

// overdueIn waits for a step that takes a moment, without an Event until it is overdue.
func overdueIn(silent, overdue Reason, left time.Duration) Decision {
	if left <= 0 {
		return wait(overdue)
	}
	return waitFor(silent, left)
}

// byNode searches for evidence on the pod's node, by reads that follow a read of the terminating pod. Without evidence,
// the pod waits for otherwise, or for the result of the reads.
func byNode(f Facts, now time.Time, otherwise Decision) Decision {
	switch {
	case !f.PodRead.Fresh(now):
		return step(ReadPod, otherwise.Reason)
	case f.FenceSeen && !f.after(f.FenceRead, now):
		return step(ReadFence, otherwise.Reason)
	case !f.after(f.FenceRead, now) || !f.Fence.MayEndPod():
	case !f.after(f.NodeRead, now):
		return step(ReadNode, ReasonNodeFenced)
	case f.Fence.EndsPod(f.Node):
		return step(RemoveFinalizer, ReasonNodeFenced)
	}
	d := byNodeObject(f, now)
	if d.Action == Wait {
		return both(d, otherwise)
	}
	return d
}

// both returns the wait for either of two events, with the shorter duration and the more actionable reason.
func both(node, pod Decision) Decision {
	d := node
	switch pod.Reason {
	case ReasonGracePeriodRunning, ReasonConfirmationMismatch:
		d.Reason = pod.Reason
	case ReasonWaitsForUnmount, ReasonUnmountOverdue, ReasonVolumesFenced, ReasonEndNotReported, ReasonEndOverdue,
		ReasonWaitsForNodeStatus:
		if node.Reason == ReasonProcessesMayRun {
			d.Reason = pod.Reason
		}
	default:
	}
	if node.After == 0 || pod.After > 0 && pod.After < node.After {
		d.After = pod.After
	}
	return d
}

// byNodeObject searches for evidence on the Node and its Lease.
func byNodeObject(f Facts, now time.Time) Decision {
	node := f.Node
	switch {
	case !f.after(f.NodeRead, now):
		return step(ReadNode, ReasonNodeUnreachable)
	case !node.Found:
		return byGoneNode(f, now)
	case node.OutOfService && node.NotReady():
		return step(RemoveFinalizer, ReasonOutOfService)
	case node.OutOfService:
		return wait(ReasonOutOfServiceNodeReady)
	case node.Ready == objects.ReadyTrue:
		return wait(ReasonProcessesMayRun)
	}
	return wait(ReasonNodeUnreachable)
}

// byGoneNode searches for evidence if the Node does not exist. If the kubelet has since reported the end of the pod,
// the wait is for the unmount.
func byGoneNode(f Facts, now time.Time) Decision {
	soon, gone := ReasonNodeRecentlyGone, ReasonNodeGone
	if f.Pod.Finished() {
		soon, gone = ReasonWaitsForUnmount, ReasonFinished
	}
	switch {
	case f.Pod.Ending():
		// A kubelet whose Node is gone cannot renew its Lease, however well it works: the garbage collector removes the Lease
		// with its owner, and a Lease is not created without a Node (ensureLease in component-helpers/apimachinery/lease).
		// The kubelet may be waiting for a process that does not end.
		return wait(ReasonNodeGoneDuringEnd)
	case f.Pod.Finished() && f.Storage.Fenced:
		return wait(ReasonVolumesFenced)
	case !f.after(f.LeaseRead, now):
		return step(ReadLease, soon)
	case f.leaseIn() > 0:
		return waitFor(soon, f.leaseIn())
	case f.Pod.GraceZero && f.forcedIn(now) > 0:
		return waitFor(soon, f.forcedIn(now))
	case f.Pod.Finished() && f.unmountIn(now) > 0:
		return waitFor(soon, f.unmountIn(now))
	}
	return step(RemoveFinalizer, gone)
}
