package podsafety

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

func now() time.Time { return time.Unix(1_800_000_000, 0) }

func ago(d time.Duration) time.Time { return now().Add(-d) }

// read is a live read of this moment, at this place in the session.
func read(order int) session.Read { return session.Read{Sent: now(), Order: order} }

// old is a live read that does not count any more.
func old(order int) session.Read {
	return session.Read{Sent: ago(session.LiveFor + time.Second), Order: order}
}

// terminatingPod is a pod on node a that was deleted ten seconds ago with a grace period of thirty, as its kubelet has
// seen.
func terminatingPod() Pod {
	return Pod{
		Namespace: "ns", Name: "db-0", UID: "uid-1", ResourceVersion: "10", Node: "a", Claims: []string{"data-db-0"},
		Held: true, Terminating: true, GraceEnds: now().Add(20 * time.Second), Running: true, Reported: true,
		Generation: 2, ObservedGeneration: 2,
	}
}

// facts returns the facts about terminatingPod from the watch, on a Ready node.
func facts(alter ...func(*Facts)) Facts {
	f := Facts{Mode: ModeEnforce, ForceRefusedSince: ago(24 * time.Hour), Pod: terminatingPod(),
		NodeSeen: objects.NodeReady}
	for _, a := range alter {
		a(&f)
	}
	return f
}

func pod(alter func(*Pod)) func(*Facts)    { return func(f *Facts) { alter(&f.Pod) } }
func seen(n objects.NodeSeen) func(*Facts) { return func(f *Facts) { f.NodeSeen = n } }
func live(f *Facts)                        { f.PodRead = read(1) }
func outdated(f *Facts)                    { f.Outdated = true }
func orphans(f *Facts)                     { f.Rules.CollectOrphans = true }
func removing(f *Facts)                    { f.Rules.RemovingFinalizers = true }
func noGrace(p *Pod)                       { p.GraceZero, p.GraceEnds = true, ago(10*time.Second) }
func ended(p *Pod)                         { p.Final, p.Running = true, false }
func runs(p *Pod)                          { p.Terminating = false }
func runsUnheld(p *Pod)                    { p.Terminating, p.Held = false, false }
func unbound(p *Pod)                       { p.Node = "" }
func unseen(p *Pod)                        { p.ObservedGeneration = 1 }
func confirmed(p *Pod)                     { p.Confirmation = objects.ConfirmedThis }
func confirmedOther(p *Pod)                { p.Confirmation = objects.ConfirmedOther }

// turnedDown is a pod that its kubelet refused, and reports to have no container of, and that was deleted.
func turnedDown(p *Pod) {
	noGrace(p)
	p.Final, p.PhaseByKubelet, p.Running, p.Reported, p.Unstarted, p.Refused = true, true, false, false, true, true
	p.Refusal = true
}

// refusedFor is the sight of a pod that was refused this long ago, on a node that has been the same machine since
// before.
func refusedFor(d time.Duration) func(*Facts) {
	return func(f *Facts) {
		turnedDown(&f.Pod)
		f.Sight.RefusedSince, f.Sight.GraceZeroSince, f.Sight.Unread = ago(d), ago(d), ago(time.Hour)
		f.Storage = Storage{Machine: machine("m"), BootID: "boot", Since: ago(2 * time.Hour)}
	}
}

func machine(id string) objects.Machine { return objects.Machine{MachineID: id, SystemUUID: "uuid"} }

// heartbeats is the result of a live read of a Ready node, after a heartbeat of 7, or before one.
func heartbeats(beat int64) func(*Facts) {
	return func(f *Facts) {
		n := ready()
		n.Machine, n.Heartbeat = machine("m"), beat
		node(n)(f)
		f.Sight.Heartbeat = 7
	}
}

// finishedFor is the sight of a pod that finished this long ago. unmounted reports that its grace was not 0 then.
func finishedFor(d time.Duration, unmounted bool) func(*Facts) {
	return func(f *Facts) { f.Sight.FinishedSince, f.Sight.FinishedWithGrace = ago(d), unmounted }
}

// node is the result of a live read of the node after the reads of the pod and the fence.
func node(n objects.Node) func(*Facts) {
	return func(f *Facts) { f.Node, f.NodeRead, f.NodeSeen = n, read(3), n.Seen() }
}

// lease is the result of a live read of a Lease that has been unchanged for this long.
func lease(version string, since time.Duration) func(*Facts) {
	return func(f *Facts) {
		f.Lease, f.LeaseRead = objects.Lease{Found: version != "", ResourceVersion: version}, read(4)
		f.Sight.LeaseVersion, f.Sight.LeaseSince = version, ago(since)
	}
}

func storage(s Storage) func(*Facts) { return func(f *Facts) { f.Storage = s } }

func noGraceFor(d time.Duration) func(*Facts) {
	return func(f *Facts) { f.Sight.GraceZeroSince = ago(d) }
}

func fence(of objects.Fence) func(*Facts) {
	return func(f *Facts) { f.Fence, f.FenceRead, f.FenceSeen = of, read(2), true }
}

func down() objects.Node {
	return objects.Node{Found: true, Ready: objects.ReadyUnknown, BootID: "boot"}
}
func ready() objects.Node { return objects.Node{Found: true, Ready: objects.ReadyTrue, BootID: "boot"} }

// ofVolumes is a fence of volumes that was proven when the node had this boot ID.
func ofVolumes(boot string) objects.Fence {
	return objects.Fence{InForce: true, Coverage: v1alpha1.CoversVolumes, BootID: boot}
}

// off is a fence that keeps the node off, with this boot ID.
func off(boot string) objects.Fence {
	return objects.Fence{InForce: true, Coverage: v1alpha1.CoversUntilUnfenced, BootID: boot}
}

func outOfService() objects.Node {
	return objects.Node{Found: true, Ready: objects.ReadyUnknown, OutOfService: true}
}

func TestDecide(t *testing.T) {
	const long = LeaseDuration
	for name, c := range map[string]struct {
		facts  Facts
		action Action
		reason Reason
		after  time.Duration
	}{
		"nothing is known":            {Facts{}, Wait, ReasonNothingToHold, 0},
		"a pod that runs is held":     {facts(pod(runs)), Wait, ReasonNotTerminating, 0},
		"a running pod gets the hold": {facts(pod(runsUnheld)), AddFinalizer, ReasonHold, 0},
		"not where it is not asked for": {
			facts(pod(runsUnheld), func(f *Facts) { f.Mode = ModeWarn }), Wait, ReasonNothingToHold, 0},
		"not without a claim": {
			facts(pod(runsUnheld), pod(func(p *Pod) { p.Claims = nil })), Wait, ReasonNothingToHold, 0},
		"without a claim, of a StatefulSet": {
			facts(pod(runsUnheld), pod(func(p *Pod) { p.Claims, p.OwnerKind = nil, objects.StatefulSet })), AddFinalizer,
			ReasonHold, 0},
		"not a mirror pod": {
			facts(pod(runsUnheld), pod(func(p *Pod) { p.Mirror = true })), Wait, ReasonNothingToHold, 0},
		"a terminating pod cannot get it": {
			facts(pod(func(p *Pod) { p.Held = false })), Wait, ReasonNothingToHold, 0},
		"all are released when we are uninstalled": {facts(removing), RemoveFinalizerByUID, ReasonFinalizersRemoved, 0},
		"and stay so":               {facts(pod(runsUnheld), removing), Wait, ReasonFinalizersRemoved, 0},
		"a terminating pod is held": {facts(live), Wait, ReasonProcessesMayRun, 80 * time.Second},
		"its kubelet takes its time": {
			facts(pod(func(p *Pod) { p.GraceEnds = ago(time.Minute - time.Second) }), live), Wait, ReasonProcessesMayRun,
			time.Second},
		"its kubelet takes long": {facts(pod(func(p *Pod) { p.GraceEnds = ago(time.Minute) }), live), Wait,
			ReasonEndOverdue, 0},

		"never bound, as the watch shows it": {
			facts(pod(unbound), pod(noGrace)), RemoveFinalizer, ReasonNeverBound, 0},
		"never bound, and the watch lags": {
			facts(pod(unbound), pod(noGrace), outdated), ReadPod, ReasonNeverBound, 0},
		"never bound, with grace, as the watch shows it": {facts(pod(unbound)), ReadPod, ReasonNeverBound, 0},
		"never bound":             {facts(pod(unbound), pod(noGrace), live), RemoveFinalizer, ReasonNeverBound, 0},
		"never bound, with grace": {facts(pod(unbound), live), ForceDelete, ReasonNeverBound, 0},

		"finished, with grace": {facts(pod(ended), live), Wait, ReasonWaitsForUnmount, time.Minute},
		"finished, with grace, for long": {
			facts(pod(ended), finishedFor(time.Minute, true), live), Wait, ReasonUnmountOverdue, 0},
		"finished, with grace, on a node that is away": {
			facts(pod(ended), finishedFor(time.Hour, true), seen(objects.NodeNotReady), live), Wait, ReasonNodeUnreachable, 0},
		"finished, and forced, on a node that is away": {
			facts(pod(ended), pod(noGrace), finishedFor(time.Hour, true), seen(objects.NodeNotReady), live), Wait,
			ReasonNodeUnreachable, 0},
		"finished, and forced where that is not refused": {
			facts(pod(ended), pod(noGrace), finishedFor(10*time.Second, true), noGraceFor(time.Second), live,
				func(f *Facts) { f.ForceRefusedSince = time.Time{} }), Wait, ReasonWaitsForUnmount, 29 * time.Second},
		"finished on a Ready node that is out of service": {
			facts(pod(ended), pod(noGrace), finishedFor(DefaultUnmountGrace, true), seen(objects.NodeTaintedReady), live),
			RemoveFinalizer, ReasonFinished, 0},
		"finished and unmounted, as the watch shows it": {
			facts(pod(ended), pod(noGrace), finishedFor(0, true)), RemoveFinalizer, ReasonFinished, 0},
		"finished and unmounted, and the watch lags": {
			facts(pod(ended), pod(noGrace), finishedFor(0, true), outdated), ReadPod, ReasonFinished, 0},
		"finished and unmounted": {
			facts(pod(ended), pod(noGrace), finishedFor(0, true), live), RemoveFinalizer, ReasonFinished, 0},
		"finished after the grace was taken": {
			facts(pod(ended), pod(noGrace), finishedFor(10*time.Second, false), live), Wait, ReasonWaitsForUnmount,
			20 * time.Second},
		"finished, and waited for the unmount": {
			facts(pod(ended), pod(noGrace), finishedFor(DefaultUnmountGrace, false), live), RemoveFinalizer, ReasonFinished, 0},
		"finished, and never seen so before": {
			facts(pod(ended), pod(noGrace), noGraceFor(time.Hour), live), Wait, ReasonWaitsForUnmount, DefaultUnmountGrace},
		"finished, and the node returns just now": {
			facts(pod(ended), pod(noGrace), finishedFor(time.Hour, false), storage(Storage{Away: true}), live), Wait,
			ReasonNodeUnreachable, 0},
		"finished with grace, and a fence keeps the node from volumes": {
			facts(pod(ended), finishedFor(time.Hour, true), storage(Storage{Fenced: true}), live), Wait,
			ReasonVolumesFenced, time.Minute},
		"finished, and a fence keeps the node from volumes": {
			facts(pod(ended), pod(noGrace), finishedFor(time.Hour, false), storage(Storage{Fenced: true}), live), Wait,
			ReasonVolumesFenced, time.Minute},
		"finished, and it has ended": {
			facts(pod(ended), pod(noGrace), finishedFor(time.Hour, false), storage(Storage{Since: ago(10 * time.Second)}),
				live), Wait, ReasonUnmountOverdue, 20 * time.Second},
		"finished, and it ended long ago": {
			facts(pod(ended), pod(noGrace), finishedFor(time.Hour, false), storage(Storage{Since: ago(DefaultUnmountGrace)}),
				live), RemoveFinalizer, ReasonFinished, 0},
		"finished and unmounted before a fence": {
			facts(pod(ended), pod(noGrace), finishedFor(0, true), storage(Storage{Fenced: true}), live), RemoveFinalizer,
			ReasonFinished, 0},
		"finished, and the fenced node is not rebooted": {
			facts(pod(ended), pod(noGrace), live, node(ready()), fence(ofVolumes("boot")), storage(Storage{Fenced: true})),
			Wait, ReasonVolumesFenced, time.Minute},
		"finished, and the fenced node is rebooted": {
			facts(pod(ended), pod(noGrace), live, finishedFor(10*time.Second, false), node(ready()),
				fence(ofVolumes("boot-0")), storage(Storage{Fenced: true})), Wait, ReasonWaitsForUnmount, 20 * time.Second},
		"finished, the fenced node is rebooted, and waited for the unmount": {
			facts(pod(ended), pod(noGrace), live, finishedFor(DefaultUnmountGrace, false), node(ready()),
				fence(ofVolumes("boot-0")), storage(Storage{Fenced: true})), RemoveFinalizer, ReasonFinished, 0},
		"finished, and the fenced node is rebooted, and not Ready": {
			facts(pod(ended), pod(noGrace), live, finishedFor(time.Hour, false), node(down()), fence(ofVolumes("boot-0")),
				storage(Storage{Fenced: true})), Wait, ReasonNodeUnreachable, 0},
		"finished with grace, and the fenced node is rebooted": {
			facts(pod(ended), live, finishedFor(time.Hour, true), node(ready()), fence(ofVolumes("boot-0")),
				storage(Storage{Fenced: true})), Wait, ReasonUnmountOverdue, 0},
		"failed by the garbage collector": {
			facts(pod(ended), pod(noGrace), pod(func(p *Pod) { p.ObservedGeneration = 1 }), live), Wait,
			ReasonEndNotReported, 0},

		"refused, and not watched from the start": {
			facts(pod(turnedDown), live), Wait, ReasonEndNotReported, 0},
		"refused, with grace": {
			facts(refusedFor(time.Minute), pod(func(p *Pod) { p.GraceZero = false }), live, heartbeats(8)), Wait,
			ReasonProcessesMayRun, 50 * time.Second},
		"refused, and its containers are not reported": {
			facts(refusedFor(time.Minute), pod(func(p *Pod) { p.Refused = false }), live, heartbeats(8)), Wait,
			ReasonProcessesMayRun, 50 * time.Second},
		"refused, and its containers are not reported for long": {
			facts(refusedFor(time.Minute), pod(func(p *Pod) { p.Refused, p.GraceEnds = false, ago(time.Minute) }), live,
				heartbeats(8)), Wait, ReasonEndNotReported, 0},
		"refused, on a node that is not Ready": {
			facts(refusedFor(time.Minute), live, heartbeats(8), seen(objects.NodeNotReady)), Wait, ReasonNodeUnreachable, 0},
		"refused, as the watch shows it": {facts(refusedFor(time.Minute)), ReadPod, ReasonWaitsForNodeStatus, 0},
		"refused, and its node is not read": {
			facts(refusedFor(time.Minute), live), ReadNode, ReasonWaitsForNodeStatus, 0},
		"refused, and its node was read before": {
			facts(refusedFor(time.Minute), live, heartbeats(8), func(f *Facts) { f.NodeRead = read(1) }), ReadNode,
			ReasonWaitsForNodeStatus, 0},
		"refused, and its node has written nothing since": {
			facts(refusedFor(time.Minute), live, heartbeats(7)), Wait, ReasonWaitsForNodeStatus, 30 * time.Second},
		"refused, and its node has written nothing for long": {
			facts(refusedFor(10*time.Minute), live, heartbeats(7)), Wait, ReasonEndNotReported, 5 * time.Minute},
		"refused, and its node has written": {
			facts(refusedFor(time.Minute), live, heartbeats(8)), RemoveFinalizer, ReasonRefused, 0},
		"refused, its node has written, and the watch of the pod lagged": {
			facts(refusedFor(time.Minute), live, heartbeats(8), outdated), RemoveFinalizer, ReasonRefused, 0},
		"refused, and confirmed": {
			facts(refusedFor(time.Minute), pod(confirmed)), RemoveFinalizer, ReasonConfirmed, 0},
		"refused a moment ago, and its node has written": {
			facts(refusedFor(29*time.Second), live, heartbeats(8)), Wait, ReasonWaitsForNodeStatus, 30 * time.Second},
		"refused, and a fence keeps the node from volumes": {
			facts(refusedFor(time.Minute), live, heartbeats(8), func(f *Facts) { f.Storage.Fenced = true }), Wait,
			ReasonVolumesFenced, time.Minute},

		"the kubelet does not find a container": {
			facts(pod(ended), pod(noGrace), pod(func(p *Pod) { p.Reported = false }), finishedFor(time.Hour, true), live), Wait,
			ReasonEndNotReported, 0},

		"confirmed and forced": {
			facts(pod(confirmed), pod(noGrace), seen(objects.NodeNotReady), live), RemoveFinalizer, ReasonConfirmed, 0},
		"confirmed and forced, by a clock that is ahead": {
			facts(pod(confirmed), pod(noGrace), pod(func(p *Pod) { p.GraceEnds = now().Add(time.Second) }), live),
			RemoveFinalizer, ReasonConfirmed, 0},
		"confirmed, as the watch shows it": {
			facts(pod(confirmed), pod(noGrace), seen(objects.NodeNotReady)), RemoveFinalizer, ReasonConfirmed, 0},
		"confirmed, and the watch lags": {
			facts(pod(confirmed), pod(noGrace), seen(objects.NodeNotReady), outdated), ReadPod, ReasonConfirmed, 0},
		"confirmed and its grace has passed, as the watch shows it": {
			facts(pod(confirmed), pod(func(p *Pod) { p.GraceEnds = now() })), ReadPod, ReasonConfirmed, 0},
		"confirmed and deleted with grace": {
			facts(pod(confirmed), seen(objects.NodeNotReady), live), Wait, ReasonGracePeriodRunning, 20 * time.Second},
		"confirmed and deleted with a long grace": {
			facts(pod(confirmed), pod(func(p *Pod) { p.GraceEnds = now().Add(time.Hour) }), live), Wait,
			ReasonGracePeriodRunning, time.Hour},
		"confirmed, finished, and deleted with grace": {
			facts(pod(confirmed), pod(ended), live), Wait, ReasonGracePeriodRunning, 20 * time.Second},
		"confirmed and deleted with grace, which has passed": {
			facts(pod(confirmed), pod(func(p *Pod) { p.GraceEnds = now() }), live), ForceDelete, ReasonConfirmed, 0},
		"confirmed, its grace has passed, on a node out of service": {
			facts(pod(confirmed), pod(func(p *Pod) { p.GraceEnds = now() }), live, node(outOfService())), ForceDelete,
			ReasonConfirmed, 0},
		"confirmed for another pod of the name": {
			facts(pod(confirmedOther), pod(noGrace), live), Wait, ReasonConfirmationMismatch, 0},

		"a node that is not Ready is not read": {facts(seen(objects.NodeNotReady)), Wait, ReasonNodeUnreachable, 0},
		"a node that is gone, as the watch shows it": {
			facts(seen(objects.NodeAbsent)), ReadPod, ReasonNodeUnreachable, 0},
		"the node is read after the pod": {facts(seen(objects.NodeAbsent), live), ReadNode, ReasonNodeUnreachable, 0},
		"the Lease is read after that": {
			facts(pod(unseen), live, node(objects.Node{})), ReadLease, ReasonNodeRecentlyGone, 0},
		"the Lease was seen for less than its duration": {
			facts(pod(unseen), live, node(objects.Node{}), lease("7", long-time.Second)), Wait, ReasonNodeRecentlyGone,
			time.Second},
		"the Lease is another one": {
			facts(pod(unseen), live, node(objects.Node{}), lease("7", long), func(f *Facts) { f.Lease.ResourceVersion = "8" }),
			Wait, ReasonNodeRecentlyGone, long},
		"the node is gone": {
			facts(pod(unseen), live, node(objects.Node{}), lease("7", long)), ForceDelete, ReasonNodeGone, 0},
		"the node was back in the meantime, and has no Lease again": {
			facts(pod(unseen), live, node(objects.Node{}), lease("", time.Hour),
				storage(Storage{Away: true, Since: ago(long - time.Second)})), Wait, ReasonNodeRecentlyGone, time.Second},
		"the same, and the pod is without grace": {
			facts(pod(unseen), pod(noGrace), live, node(objects.Node{}), lease("", time.Hour), noGraceFor(time.Hour),
				storage(Storage{Away: true, Since: ago(long - time.Second)})), Wait, ReasonNodeRecentlyGone, time.Second},
		"the node is gone, and behind a fence of volumes": {
			facts(pod(unseen), live, node(objects.Node{}), lease("7", long), storage(Storage{Fenced: true})), ForceDelete,
			ReasonNodeGone, 0},
		"the node and its Lease are gone": {
			facts(pod(unseen), live, node(objects.Node{}), lease("", long)), ForceDelete, ReasonNodeGone, 0},
		"a kubelet that is not cut off gets its time": {
			facts(pod(unseen), pod(noGrace), live, node(objects.Node{}), lease("", long), noGraceFor(long-time.Second)),
			Wait, ReasonNodeRecentlyGone, time.Second},
		"it had its time": {
			facts(pod(unseen), pod(noGrace), live, node(objects.Node{}), lease("", long), noGraceFor(long)),
			RemoveFinalizer, ReasonNodeGone, 0},
		"it had its time, and has ended": {
			facts(pod(ended), pod(noGrace), live, node(objects.Node{}), lease("", long), noGraceFor(long),
				finishedFor(long, false)), RemoveFinalizer, ReasonFinished, 0},
		"it had its time, and has just ended": {
			facts(pod(ended), pod(noGrace), live, node(objects.Node{}), lease("", long), noGraceFor(long),
				finishedFor(20*time.Second, false)), Wait, ReasonWaitsForUnmount, DefaultUnmountGrace - 20*time.Second},
		"it had its time, and has ended behind a fence of volumes": {
			facts(pod(ended), pod(noGrace), live, node(objects.Node{}), lease("", long), noGraceFor(long),
				finishedFor(long, false), storage(Storage{Fenced: true})), Wait, ReasonVolumesFenced, 0},
		"the Lease of a pod that has ended was seen for less than its duration": {
			facts(pod(ended), pod(noGrace), live, node(objects.Node{}), lease("", long-time.Second), noGraceFor(long),
				finishedFor(long, false)), Wait, ReasonWaitsForUnmount, time.Second},
		"its kubelet was ending the pod, without a Node": {
			facts(pod(noGrace), live, node(objects.Node{}), lease("", time.Hour), noGraceFor(time.Hour)),
			Wait, ReasonNodeGoneDuringEnd, 0},

		"out of service": {facts(pod(noGrace), live, node(outOfService())), RemoveFinalizer,
			ReasonOutOfService, 0},
		"out of service, and not Ready": {
			facts(pod(noGrace), live, node(objects.Node{Found: true, Ready: objects.ReadyFalse, OutOfService: true})),
			RemoveFinalizer,
			ReasonOutOfService, 0},
		"out of service, with grace": {facts(live, node(outOfService())), ForceDelete, ReasonOutOfService, 0},
		"out of service, and Ready": {
			facts(pod(noGrace), live, node(objects.Node{Found: true, Ready: objects.ReadyTrue, OutOfService: true})),
			Wait, ReasonOutOfServiceNodeReady, 50 * time.Second},
		"out of service, a node that says nothing": {
			facts(pod(noGrace), live, node(objects.Node{Found: true, OutOfService: true})), Wait,
			ReasonOutOfServiceNodeReady, 0},
		"our own taint": {
			facts(pod(noGrace), live, node(objects.Node{Found: true, Ready: objects.ReadyUnknown, OwnTaint: true})),
			Wait, ReasonNodeUnreachable, 0},
		"our own taint, Ready, for long": {
			facts(pod(func(p *Pod) { p.GraceEnds = ago(time.Minute) }), live,
				node(objects.Node{Found: true, Ready: objects.ReadyTrue, OwnTaint: true})), Wait, ReasonEndOverdue, 0},
		"another Node of the name, Ready": {
			facts(pod(noGrace), live, node(ready()), seen(objects.NodeUnseen)), Wait, ReasonProcessesMayRun, 0},

		"a fence, as the watch shows it": {
			facts(pod(noGrace), live, func(f *Facts) { f.FenceSeen = true }), ReadFence, ReasonProcessesMayRun, 0},
		"a fence in force, of a node that is not read": {
			facts(pod(noGrace), live, fence(off("boot"))),
			ReadNode, ReasonNodeFenced, 0},
		"a fence in force": {
			facts(pod(noGrace), live, node(down()),
				fence(off("boot"))),
			RemoveFinalizer, ReasonNodeFenced, 0},
		"a fence in force, read long ago": {
			facts(pod(noGrace), live, node(down()), seen(objects.NodeUnseen),
				func(f *Facts) {
					f.Fence, f.FenceRead = off("boot"), old(4)
				}), Wait, ReasonNodeUnreachable, 0},
		"a fence in force, not Ready": {
			facts(pod(noGrace), live, node(objects.Node{Found: true, Ready: objects.ReadyFalse, BootID: "boot"}),
				fence(off("boot"))),
			RemoveFinalizer, ReasonNodeFenced, 0},
		"a fence in force, of a node that is gone": {
			facts(pod(unseen), pod(noGrace), live, node(objects.Node{}),
				fence(off("boot"))),
			ReadLease, ReasonNodeRecentlyGone, 0},
		"of a node that is gone, and the pod was terminating before": {
			facts(pod(noGrace), live, node(objects.Node{}),
				fence(objects.Fence{InForce: true, Coverage: v1alpha1.CoversUntilUnfenced, SinceTerminating: true})),
			RemoveFinalizer, ReasonNodeFenced, 0},
		"of a node that was powered on since": {
			facts(pod(noGrace), live, node(down()),
				fence(off("boot-0"))),
			Wait, ReasonNodeUnreachable, 0},
		"of a node that was powered on since, and the pod was terminating before": {
			facts(pod(noGrace), live, node(down()),
				fence(objects.Fence{InForce: true, Coverage: v1alpha1.CoversUntilUnfenced, BootID: "boot-0",
					SinceTerminating: true})),
			RemoveFinalizer, ReasonNodeFenced, 0},
		"of a node without a boot ID": {
			facts(pod(noGrace), live, node(objects.Node{Found: true, Ready: objects.ReadyUnknown}),
				fence(objects.Fence{InForce: true, Coverage: v1alpha1.CoversUntilUnfenced})),
			Wait, ReasonNodeUnreachable, 0},
		"a fence in force, of a node that is Ready": {
			facts(pod(noGrace), live, node(ready()),
				fence(off("boot"))),
			Wait, ReasonProcessesMayRun, 50 * time.Second},
		"a fence in force, of a node that says nothing": {
			facts(pod(noGrace), live, node(objects.Node{Found: true, BootID: "boot"}),
				fence(off("boot"))), Wait, ReasonNodeUnreachable, 0},
		"a fence of long ago": {
			facts(pod(noGrace), live, node(down()),
				fence(objects.Fence{Coverage: v1alpha1.CoversUntilUnfenced, SinceTerminating: true})),
			Wait, ReasonNodeUnreachable, 0},
		"a reboot after the deletion": {
			facts(pod(noGrace), live, node(down()),
				fence(objects.Fence{InForce: true, Coverage: v1alpha1.CoversReboot, SinceTerminating: true})),
			RemoveFinalizer, ReasonNodeFenced, 0},
		"a reboot before the deletion": {
			facts(pod(noGrace), live, node(down()), fence(objects.Fence{InForce: true, Coverage: v1alpha1.CoversReboot})),
			Wait, ReasonNodeUnreachable, 0},
		"a fence that covers no pod, of a node that is not read": {
			facts(pod(noGrace), live, fence(objects.Fence{InForce: true, Coverage: v1alpha1.CoversVolumes})), ReadNode,
			ReasonNodeUnreachable, 0},
		"a fence of volumes": {
			facts(pod(noGrace), live, node(down()), fence(objects.Fence{InForce: true, Coverage: v1alpha1.CoversVolumes})),
			Wait, ReasonNodeUnreachable, 0},

		"an orphan, where others delete it": {facts(pod(runs), seen(objects.NodeAbsent)), Wait, ReasonNotTerminating, 0},
		"an orphan, as the watch shows it": {
			facts(pod(runs), seen(objects.NodeAbsent), orphans), ReadPod, ReasonOrphaned, 0},
		"an orphan for a short time": {
			facts(pod(runs), live, node(objects.Node{}), lease("", 0), orphans), Wait, ReasonNodeRecentlyGone, long},
		"an orphan": {
			facts(pod(runs), live, node(objects.Node{}), lease("", long), orphans), ForceDelete, ReasonOrphaned, 0},
		"an orphan whose node is not read": {
			facts(pod(runs), live, seen(objects.NodeAbsent), orphans), ReadNode, ReasonNodeUnreachable, 0},
		"no orphan, as the watch shows it": {facts(pod(runs), live, orphans), Wait, ReasonNotTerminating, 0},
		"finished, on a node that is gone": {
			facts(pod(ended), pod(noGrace), finishedFor(DefaultUnmountGrace, false), seen(objects.NodeAbsent), live),
			ReadNode, ReasonNodeUnreachable, 0},
		"finished with grace, on a node that is gone for a short time": {
			facts(pod(ended), live, node(objects.Node{}), lease("", long-time.Second)), Wait, ReasonWaitsForUnmount,
			time.Second},
		"no orphan: the Node is there": {
			facts(pod(runs), live, node(outOfService()), seen(objects.NodeAbsent), orphans), Wait, ReasonNotTerminating, 0},
		"no orphan: it was never bound": {
			facts(pod(runs), pod(unbound), seen(objects.NodeAbsent), orphans), Wait, ReasonNotTerminating, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if d := Decide(c.facts, now()); d != (Decision{c.action, c.reason, c.after}) {
				t.Errorf("%v because %s after %s, want %v because %s after %s", d.Action, d.Reason, d.After,
					c.action, c.reason, c.after)
			}
		})
	}
}

// The shorter of two waits ends first, and the reported reason is the more actionable one.
func TestTwoWaits(t *testing.T) {
	brief, longer := waitFor(ReasonNodeRecentlyGone, time.Second), waitFor(ReasonNodeRecentlyGone, time.Minute)
	for name, c := range map[string]struct {
		node, pod, want Decision
	}{
		"of the node": {wait(ReasonNodeUnreachable), waitFor(ReasonWaitsForUnmount, time.Second),
			waitFor(ReasonNodeUnreachable, time.Second)},
		"an unmount that is overdue, of a node that is Ready": {wait(ReasonProcessesMayRun), wait(ReasonUnmountOverdue),
			wait(ReasonUnmountOverdue)},
		"an unmount, of a node that is Ready": {wait(ReasonProcessesMayRun), wait(ReasonWaitsForUnmount),
			wait(ReasonWaitsForUnmount)},
		"an end, of a node that is Ready": {wait(ReasonProcessesMayRun), wait(ReasonEndOverdue), wait(ReasonEndOverdue)},
		"the pod's is shorter": {longer, waitFor(ReasonGracePeriodRunning, time.Second),
			waitFor(ReasonGracePeriodRunning, time.Second)},
		"the node's is shorter": {brief, waitFor(ReasonGracePeriodRunning, time.Minute),
			waitFor(ReasonGracePeriodRunning, time.Second)},
		"the node's alone": {brief, wait(ReasonNodeUnreachable), brief},
		"a refusal": {wait(ReasonProcessesMayRun),
			wait(ReasonWaitsForNodeStatus), wait(ReasonWaitsForNodeStatus)},
		"an end not reported":   {wait(ReasonProcessesMayRun), wait(ReasonEndNotReported), wait(ReasonEndNotReported)},
		"on a node that is not": {wait(ReasonNodeUnreachable), wait(ReasonEndNotReported), wait(ReasonNodeUnreachable)},
		"a wrong confirmation":  {brief, wait(ReasonConfirmationMismatch), waitFor(ReasonConfirmationMismatch, time.Second)},
	} {
		if got := both(c.node, c.pod); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
