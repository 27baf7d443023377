package podsafety

import (
	"testing"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// The facts of a decision consist of two groups: the state of the pod, and the state of its node. Each group is visited
// in every combination of its values, the first on each kind of node, the second for each kind of pod.

// everyPod visits every state of a pod that matters.
func everyPod(visit func(Pod)) {
	for bits := range 1 << 10 {
		bit := func(i int) bool { return bits&(1<<i) != 0 }
		p := terminatingPod()
		p.Held, p.Terminating, p.GraceZero, p.Final, p.Running = bit(0), bit(1), bit(2), bit(3), bit(4)
		p.Reported, p.ContainersReadyEnded, p.PhaseByKubelet = bit(5), bit(6), bit(7)
		if bit(8) {
			p.Node = ""
		}
		p.Succeeded = bit(9) && p.Final
		for p.ObservedGeneration = range int64(3) {
			for p.Confirmation = objects.NotConfirmed; p.Confirmation <= objects.ConfirmedThis; p.Confirmation++ {
				for _, p.GraceEnds = range []time.Time{ago(time.Second), now().Add(time.Second)} {
					visit(p)
				}
			}
		}
	}
}

// everySight visits every possible Sight of a pod.
func everySight(visit func(Sight)) {
	for bits := range 1 << 2 {
		for _, finished := range []time.Time{{}, now(), ago(DefaultUnmountGrace)} {
			s := Sight{FinishedSince: finished, FinishedWithGrace: bits&1 != 0 && !finished.IsZero(), Forced: bits&2 != 0}
			visit(s)
			s.GraceZeroSince = now()
			visit(s)
			s.NodeAway = true
			visit(s)
		}
	}
}

var coverages = []v1alpha1.Coverage{"", v1alpha1.CoversUntilUnfenced, v1alpha1.CoversReboot, v1alpha1.CoversVolumes}

// everyNode visits every possible state of a node, its Lease and its fence in the watch and in live reads.
func everyNode(visit func(Facts)) {
	reads := func(order int) []session.Read { return []session.Read{{}, old(order), read(order), read(1)} }
	for bits := range 1 << 7 {
		bit := func(i int) bool { return bits&(1<<i) != 0 }
		var f Facts
		f.Fence.BootID = "boot"
		switch { // only a Node that is there has a boot ID
		case bit(0) && bit(6):
			f.Node.BootID = "boot"
		case bit(0) && bit(3) && bit(4):
			f.Node.BootID = "boot-2"
		}
		f.Node.Found, f.Node.OutOfService, f.Node.OwnTaint, f.FenceSeen = bit(0), bit(1), bit(2), bit(3)
		f.Fence.InForce, f.Fence.SinceTerminating = bit(4), bit(5)
		for _, f.NodeRead = range reads(6) {
			for f.Node.Ready = objects.ReadyMissing; f.Node.Ready <= objects.ReadyUnknown; f.Node.Ready++ {
				for _, f.LeaseRead = range reads(7) {
					for _, f.Sight.LeaseSince = range []time.Time{now(), ago(LeaseDuration)} {
						for _, f.Lease.ResourceVersion = range []string{"", "8"} {
							for _, f.FenceRead = range reads(5) {
								for _, f.Fence.Coverage = range coverages {
									visit(f)
								}
							}
						}
					}
				}
			}
		}
	}
}

// evidence reports whether evidence was read live, or is on a version of the pod that the next write is bound to. It is
// written independently of the code.
func evidence(f Facts, why Reason) bool {
	fresh := func(r session.Read) bool { return r.Order > 0 && now().Sub(r.Sent) <= 5*time.Second }
	then := func(r session.Read) bool { return fresh(f.PodRead) && fresh(r) && r.Order > f.PodRead.Order }
	p := f.Pod
	if bound := p.GraceZero && !f.Outdated; !bound && !fresh(f.PodRead) || !p.Held {
		return false
	}
	switch why {
	case ReasonNeverBound:
		return p.Node == ""
	case ReasonConfirmed:
		return p.Confirmation == objects.ConfirmedThis && (p.GraceZero || !p.GraceEnds.After(now()))
	case ReasonFinished:
		says := saysEnd(p)
		ended := f.Sight.FinishedSince
		refused := f.Mode == ModeEnforce && !f.ForceRefusedSince.IsZero() && f.ForceRefusedSince.Compare(ended) <= 0
		unmounted := f.Sight.FinishedWithGrace && !f.Sight.Forced && !f.Sight.NodeAway &&
			p.Confirmation == objects.NotConfirmed && f.NodeSeen == objects.NodeReady && refused
		rebooted := then(f.FenceRead) && then(f.NodeRead) && f.NodeRead.Order > f.FenceRead.Order && f.Fence.InForce &&
			f.Fence.Coverage == v1alpha1.CoversVolumes && f.Node.BootID == "boot-2"
		waited := (f.NodeSeen == objects.NodeReady || f.NodeSeen == objects.NodeTaintedReady) &&
			(!f.Storage.Fenced || rebooted) && !f.Storage.Away && hadTime(f)
		gone := nodeGone(f, then) && !f.Storage.Fenced && hadTime(f)
		if !says {
			return false
		}
		return p.GraceZero && (unmounted || waited) || gone && f.nodeMayProve()
	case ReasonOutOfService:
		return then(f.NodeRead) && f.Node.Found && f.Node.OutOfService &&
			(f.Node.Ready == objects.ReadyFalse || f.Node.Ready == objects.ReadyUnknown)
	case ReasonNodeFenced:
		down := !f.Node.Found || f.Node.Ready == objects.ReadyFalse || f.Node.Ready == objects.ReadyUnknown
		off := f.Fence.Coverage == v1alpha1.CoversUntilUnfenced && f.Node.Found && f.Node.BootID == "boot"
		before := (f.Fence.Coverage == v1alpha1.CoversUntilUnfenced || f.Fence.Coverage == v1alpha1.CoversReboot) &&
			f.Fence.SinceTerminating
		return then(f.FenceRead) && then(f.NodeRead) && down && f.Fence.InForce && (off || before)
	case ReasonNodeGone, ReasonOrphaned:
		return nodeGone(f, then) && (!p.Terminating || !saysEnd(p))
	default:
		return false
	}
}

// saysEnd reports whether the kubelet of a terminating pod reports its end.
func saysEnd(p Pod) bool {
	return p.Final && !p.Running && p.Reported && (p.Succeeded || p.PhaseByKubelet || p.ObservedGeneration == 2 ||
		p.ObservedGeneration == 0 && p.ContainersReadyEnded)
}

// hadTime reports whether a kubelet has had the time to unmount the volumes of a pod that has ended.
func hadTime(f Facts) bool {
	long := func(t time.Time) bool { return now().Sub(t) >= 30*time.Second }
	ended := f.Sight.FinishedSince
	return !ended.IsZero() && long(ended) && long(f.Sight.GraceZeroSince) && long(f.Storage.Since)
}

// nodeGone reports whether the Node is gone, and its kubelet silent.
func nodeGone(f Facts, then func(session.Read) bool) bool {
	long := func(t time.Time) bool { return !t.IsZero() && now().Sub(t) >= 40*time.Second }
	answered := f.Pod.Terminating && f.Pod.Running && f.Pod.ObservedGeneration == 2
	return !answered && then(f.NodeRead) && !f.Node.Found && then(f.LeaseRead) &&
		f.Sight.LeaseVersion == f.Lease.ResourceVersion && long(f.Sight.LeaseSince) &&
		(f.Storage.Since.IsZero() || long(f.Storage.Since)) &&
		(!f.Pod.GraceZero || long(f.Sight.GraceZeroSince))
}

// broken returns the promise that a decision breaks, or "".
func broken(f Facts, d Decision) string {
	switch d.Action {
	case RemoveFinalizer:
		switch {
		case !f.Pod.Terminating:
			return "a pod that is not being deleted is released"
		case !f.Pod.GraceZero:
			return "the object would stay"
		case !Evidence(d.Reason) || !evidence(f, d.Reason):
			return "a pod is released without evidence"
		}
	case RemoveFinalizerByUID:
		if !f.Rules.RemovingFinalizers {
			return "a pod is released without evidence"
		}
	case ForceDelete:
		switch {
		case f.Pod.GraceZero && f.Pod.Terminating:
			return "a pod is deleted that is deleted"
		case !f.Pod.Terminating && (d.Reason != ReasonOrphaned || !f.Rules.CollectOrphans):
			return "a pod is deleted that runs"
		case !evidence(f, d.Reason):
			return "a pod loses its grace without evidence that was read live"
		}
	case AddFinalizer:
		if f.Pod.Terminating || f.Pod.Held || f.Pod.Mirror || f.Mode != ModeEnforce || f.Rules.RemovingFinalizers {
			return "a pod is held that is none of ours to hold"
		}
	case ReadPod, ReadNode, ReadLease, ReadFence, Wait:
		if !f.Pod.Held && d.Action.Kind() == session.Reads {
			return "something is read for a pod that is not held"
		}
	}
	return missed(f, d)
}

// missed returns the evidence that a waiting decision ignores, or "".
func missed(f Facts, d Decision) string {
	if d.Action != Wait || !f.Pod.Held || !f.Pod.Terminating || f.Rules.RemovingFinalizers {
		return ""
	}
	for _, why := range []Reason{ReasonNeverBound, ReasonConfirmed, ReasonFinished, ReasonOutOfService, ReasonNodeFenced,
		ReasonNodeGone} {
		if evidence(f, why) && (why == ReasonNeverBound || why == ReasonConfirmed || why == ReasonFinished ||
			f.nodeMayProve()) {
			return "a pod is held although there is the evidence " + string(why)
		}
	}
	return ""
}

// silent reports whether a held, terminating pod waits without a limit for a reason that has no Event.
func silent(f Facts, d Decision) bool {
	return f.Pod.Held && f.Pod.Terminating && !f.Rules.RemovingFinalizers && d.Action == Wait && d.After == 0 &&
		d.Reason.About().Severity.EventType() == ""
}

func judge(t *testing.T, f Facts) {
	t.Helper()
	d := Decide(f, now())
	if wrong := broken(f, d); wrong != "" {
		t.Fatalf("%v (%v): %s\n%+v", d.Action, d.Reason, wrong, f)
	}
	if silent(f, d) {
		t.Fatalf("%v: a pod is held without an end and without an Event\n%+v", d.Reason, f)
	}
	longest := time.Minute + max(0, f.Pod.GraceEnds.Sub(now()))
	if d.After < 0 || d.After > longest || d.After > 0 && d.Action != Wait {
		t.Fatalf("%v (%v) waits %s\n%+v", d.Action, d.Reason, d.After, f)
	}
}

func TestPromisesInEveryCombinationOfPodFacts(t *testing.T) {
	t.Parallel()
	visited := 0
	everyPod(func(p Pod) {
		everySight(func(s Sight) {
			for i, read := range []session.Read{{}, {}, old(1), read(1)} {
				for _, f := range []Facts{
					{NodeSeen: objects.NodeReady}, {NodeSeen: objects.NodeReady, ForceRefusedSince: ago(DefaultUnmountGrace)},
					{NodeSeen: objects.NodeReady, Rules: Rules{RemovingFinalizers: true}}, {NodeSeen: objects.NodeTaintedReady},
					{NodeSeen: objects.NodeNotReady}, {NodeSeen: objects.NodeAbsent},
					{NodeSeen: objects.NodeReady, ForceRefusedSince: ago(DefaultUnmountGrace), Storage: Storage{Fenced: true}},
					{NodeSeen: objects.NodeReady, Storage: Storage{Since: now()}},
				} {
					f.Pod, f.Sight, f.PodRead, f.Outdated, f.Mode = p, s, read, i == 0, ModeEnforce
					judge(t, f)
					visited++
				}
			}
		})
	})
	if want := 1024 * 3 * 3 * 2 * 36 * 4 * 8; visited != want {
		t.Errorf("visited %d combinations, want %d", visited, want)
	}
}

func TestPromisesInEveryCombinationOfNodeFacts(t *testing.T) {
	t.Parallel()
	gcFailed := func(p *Pod) { noGrace(p); ended(p); p.ObservedGeneration = 1 }
	forgotten := func(p *Pod) { noGrace(p); unseen(p) }
	finished := func(p *Pod) { noGrace(p); ended(p) }
	pods := []func(*Pod){func(*Pod) {}, noGrace, unseen, forgotten, gcFailed, ended, finished, runs}
	visited := 0
	everyNode(func(f Facts) {
		for _, alter := range pods {
			f.Pod, f.PodRead, f.Mode = terminatingPod(), read(4), ModeEnforce
			alter(&f.Pod)
			for _, f.Sight.GraceZeroSince = range []time.Time{now(), ago(LeaseDuration)} {
				f.Rules.CollectOrphans, f.Sight.FinishedSince = true, f.Sight.GraceZeroSince
				f.Storage.Fenced = f.FenceSeen && f.Fence.Coverage == v1alpha1.CoversVolumes
				f.NodeSeen = f.Node.Seen()
				judge(t, f)
				visited++
			}
		}
	})
	if want := 128 * 4 * 4 * 4 * 2 * 2 * 4 * 4 * 8 * 2; visited != want {
		t.Errorf("visited %d combinations, want %d", visited, want)
	}
}
