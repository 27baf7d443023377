package podsafety

import (
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Decision is the next step for one pod, and why.
type Decision struct {
	Action Action
	Reason Reason
	// After, if not zero, is how long this wait lasts at most.
	After time.Duration
}

func wait(why Reason) Decision                         { return Decision{Action: Wait, Reason: why} }
func waitFor(why Reason, after time.Duration) Decision { return Decision{Reason: why, After: after} }
func step(a Action, why Reason) Decision               { return Decision{Action: a, Reason: why} }

// Decide returns what to do next about one pod: carrying out a step adds to what is known, and Decide is called again
// with that. It holds the pod whenever a fact is unknown.
//
// now is the time by which reads are judged too old, and waits over.
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

// notHeld handles a pod without the finalizer. One that is terminating cannot get it.
func notHeld(f Facts) Decision {
	switch {
	case f.Rules.RemovingFinalizers:
		return wait(ReasonFinalizersRemoved)
	case f.Pod.Terminating, f.Mode != ModeEnforce, !wanted(f.Pod):
		return wait(ReasonNothingToHold)
	}
	return step(AddFinalizer, ReasonHold)
}

// running handles a pod that nobody has deleted. Where nobody else deletes the pods of nodes that are gone, it is
// deleted for that.
func running(f Facts, now time.Time) Decision {
	if !f.Rules.CollectOrphans || f.NodeSeen != NodeAbsent || f.Pod.Node == "" {
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

// terminating handles a pod that is held and was deleted: it is held until there is evidence of the end of its
// processes, which is looked for on the pod, and then on its node.
func terminating(f Facts, now time.Time) Decision {
	d := byPod(f, now)
	if d.Action == Wait && f.nodeMayProve() {
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

// byPod looks for evidence on the pod itself. Without it, it returns what is waited for as far as the watch shows.
func byPod(f Facts, now time.Time) Decision {
	pod := f.Pod
	switch {
	case pod.Node == "":
		return step(RemoveFinalizer, ReasonNeverBound)
	case pod.Confirmation == objects.ConfirmedThis && (pod.GraceZero || !now.Before(pod.GraceEnds)):
		return step(RemoveFinalizer, ReasonConfirmed)
	case pod.Finished() && pod.Confirmation == objects.ConfirmedThis:
		// Its kubelet can be cut off before it has unmounted the volumes.
		return both(waitFor(ReasonGracePeriodRunning, pod.GraceEnds.Sub(now)), finished(f, now))
	case pod.Finished():
		return finished(f, now)
	case pod.Confirmation == objects.ConfirmedThis:
		return waitFor(ReasonGracePeriodRunning, pod.GraceEnds.Sub(now))
	case pod.Confirmation == objects.ConfirmedOther:
		return wait(ReasonConfirmationMismatch)
	case f.NodeSeen != NodeReady:
		return wait(ReasonNodeUnreachable)
	case pod.Final:
		return wait(ReasonEndNotReported)
	}
	return overdueIn(ReasonProcessesMayRun, ReasonEndOverdue, rest(pod.GraceEnds, overdueAfter, now))
}

// finished handles a pod that has ended according to its kubelet, and whose volumes may still be mounted. While the
// node is not Ready no kubelet unmounts them, so that time shows nothing; nor does it while a fence keeps the node from
// volumes.
func finished(f Facts, now time.Time) Decision {
	switch {
	case !f.NodeSeen.ready():
		return wait(ReasonNodeUnreachable)
	case f.Pod.GraceZero && (f.unmountShown() || f.unmountIn(now) <= 0):
		return step(RemoveFinalizer, ReasonFinished)
	case f.Storage.Fenced:
		return waitFor(ReasonVolumesFenced, recheckFenced) // no watch shows a reboot
	}
	d := overdueIn(ReasonWaitsForUnmount, ReasonUnmountOverdue, rest(f.Sight.FinishedSince, overdueAfter, now))
	if !f.Pod.GraceZero {
		return d // the kubelet sets it to 0 after the unmount
	}
	return waitFor(d.Reason, f.unmountIn(now))
}

// overdueIn waits for what takes a moment, and for so long without an Event.
func overdueIn(silent, overdue Reason, left time.Duration) Decision {
	if left <= 0 {
		return wait(overdue)
	}
	return waitFor(silent, left)
}

// byNode looks for evidence on the pod's node, by reads that are made after one that shows the pod terminating. Without
// it, the pod waits as it does for otherwise, or for what the reads have found.
func byNode(f Facts, now time.Time, otherwise Decision) Decision {
	switch {
	case !f.PodRead.Fresh(now):
		return step(ReadPod, otherwise.Reason)
	case f.FenceSeen && !f.after(f.Fence.Read, now):
		return step(ReadFence, otherwise.Reason)
	case !f.after(f.Fence.Read, now) || !f.Fence.covers():
	case !f.after(f.Node.Read, now):
		return step(ReadNode, ReasonNodeFenced)
	case f.Fence.EndsPod(f.Node):
		return step(RemoveFinalizer, ReasonNodeFenced)
	}
	if f.rebooted(now) {
		return step(RemoveFinalizer, ReasonFinished)
	}
	d := byNodeObject(f, now)
	if d.Action == Wait {
		return both(d, otherwise)
	}
	return d
}

// both returns the wait for either of two: as long as the shorter one, and with the reason that a person can do more
// about.
func both(node, pod Decision) Decision {
	d := node
	switch pod.Reason {
	case ReasonGracePeriodRunning, ReasonConfirmationMismatch:
		d.Reason = pod.Reason
	case ReasonWaitsForUnmount, ReasonUnmountOverdue, ReasonVolumesFenced, ReasonEndNotReported, ReasonEndOverdue:
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

// byNodeObject looks for evidence on the Node and its Lease.
func byNodeObject(f Facts, now time.Time) Decision {
	node := f.Node
	switch {
	case !f.after(node.Read, now):
		return step(ReadNode, ReasonNodeUnreachable)
	case !node.Found:
		return byGoneNode(f, now)
	case node.OutOfService && (node.Ready == ReadyFalse || node.Ready == ReadyUnknown):
		return step(RemoveFinalizer, ReasonOutOfService)
	case node.OutOfService:
		return wait(ReasonOutOfServiceNodeReady)
	case node.Ready == ReadyTrue:
		return wait(ReasonProcessesMayRun)
	}
	return wait(ReasonNodeUnreachable)
}

// byGoneNode looks for evidence where the Node does not exist. Where the kubelet has reported the end of the pod since,
// the time is for the unmount.
func byGoneNode(f Facts, now time.Time) Decision {
	soon, gone := ReasonNodeRecentlyGone, ReasonNodeGone
	if f.Pod.Finished() {
		soon, gone = ReasonWaitsForUnmount, ReasonFinished
	}
	switch {
	case f.Pod.Ending():
		// A kubelet whose Node is gone cannot renew its Lease, however well it works: the garbage collector removes the
		// Lease with its owner, and a Lease is not created without a Node (ensureLease in
		// component-helpers/apimachinery/lease). It may be waiting for a process that does not end.
		return wait(ReasonNodeGoneDuringEnd)
	case f.Pod.Finished() && f.Storage.Fenced:
		return wait(ReasonVolumesFenced)
	case !f.after(f.Lease.Read, now):
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
