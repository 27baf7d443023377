package podsafety

import (
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Facts holds all knowledge of one pod at one moment. The zero value of every field means that the fact is unknown or
// argues for holding the pod.
type Facts struct {
	Rules Rules
	// Mode is the mode of the pod's namespace.
	Mode Mode
	// ForceRefusedSince is the time since which the API server is known to refuse unconfirmed force deletions in
	// namespaces of ModeEnforce, or zero if that is unknown.
	ForceRefusedSince time.Time

	// Pod is the pod, from the watch cache or, when PodRead is set, from a live read.
	Pod     Pod
	PodRead session.Read
	// Outdated reports that the API server refused a write because it has another version of the pod than Pod.
	Outdated bool
	// Sight holds this process's observation times of the pod.
	Sight Sight

	// NodeSeen is the state of the pod's node in the watch, and FenceSeen reports whether the watch shows a fence of it.
	// They only select the live reads to make.
	NodeSeen  objects.NodeSeen
	FenceSeen bool
	// Storage tells whether a fence may keep the node from volumes, according to the watch.
	Storage Storage

	// Node, Lease and Fence are the results of live reads. Sight records how long the Lease has been unchanged.
	Node                           objects.Node
	Lease                          objects.Lease
	Fence                          objects.Fence
	NodeRead, LeaseRead, FenceRead session.Read
}

// Rules are the settings of the hold.
type Rules struct {
	// UnmountGrace is the time to wait for an unmount that no fact proves, after a pod has ended. It counts from the first
	// observation of this process that the pod has ended and has the grace period 0. Default 30 s.
	UnmountGrace time.Duration
	// LeaseDuration is the time without a renewal of its Lease after which a kubelet counts as cut off. A kubelet that is
	// not cut off ends a pod without grace in the same time. Default LeaseDuration.
	LeaseDuration time.Duration
	// CollectOrphans deletes pods whose Node is gone, for a cluster without the pod garbage collector.
	CollectOrphans bool
	// RemovingFinalizers removes the finalizer from all pods, whether or not their processes run, because volume-guard is
	// uninstalled.
	RemovingFinalizers bool
	// DryRun ends a session before its first write.
	DryRun bool
}

const (
	// DefaultUnmountGrace applies if Rules.UnmountGrace is zero. It is an estimate: a kubelet unmounts within a second,
	// and retries for as long as that fails.
	DefaultUnmountGrace = 30 * time.Second
	// LeaseDuration applies if Rules.LeaseDuration is zero. It equals nodeLeaseDurationSeconds of the kubelet, and
	// node-monitor-grace-period before Kubernetes 1.32.
	LeaseDuration = 40 * time.Second
	// recheckFenced is the interval at which a node that a fence keeps from volumes is read again for a reboot.
	recheckFenced = time.Minute
	// recheckNode is the interval at which the node of a refused pod is read again for a heartbeat, and recheckLate the
	// one once the heartbeat is not expected any more.
	recheckNode, recheckLate = 30 * time.Second, 5 * time.Minute
	// heartbeatIn is the time after which the heartbeat of a node is not expected any more. A kubelet writes it every 5
	// minutes, and up to half as much later (nodeStatusReportFrequency, and calculateDelay in pkg/kubelet).
	heartbeatIn = 10 * time.Minute
	// overdueAfter is the time after which an Event reports a step that normally takes a moment.
	overdueAfter = time.Minute
)

// wanted reports whether the pod must be held: it is not a mirror pod, and it has a claim or belongs to a StatefulSet,
// which gives its name to the next pod.
func wanted(p Pod) bool {
	return (len(p.Claims) > 0 || p.OwnerKind == objects.StatefulSet) && !p.Mirror
}

func (r Rules) unmountGrace() time.Duration {
	if r.UnmountGrace == 0 {
		return DefaultUnmountGrace
	}
	return r.UnmountGrace
}

func (r Rules) leaseDuration() time.Duration {
	if r.LeaseDuration == 0 {
		return LeaseDuration
	}
	return r.LeaseDuration
}

// Mode is the level of pod safety that a namespace asks for. The zero value is ModeOff.
type Mode uint8

const (
	// ModeOff means that the namespace does not ask for pod safety or is unknown.
	ModeOff Mode = iota
	// ModeWarn means that force deletions cause a warning, and that no pod is held.
	ModeWarn
	// ModeEnforce means that pods are held, and that force deletions are refused.
	ModeEnforce
)

// ModeOf returns the mode that the labels of a namespace ask for.
func ModeOf(labels map[string]string) Mode {
	switch labels[NamespaceLabel] {
	case EnforceValue:
		return ModeEnforce
	case WarnValue:
		return ModeWarn
	}
	return ModeOff
}

// Sight holds one process's observation times of a pod, by its own clock. A zero time means that nothing was observed.
type Sight struct {
	// FinishedSince is the time of the first observation that the kubelet reports the end of the pod.
	FinishedSince time.Time
	// FinishedWithGrace reports that the end was observed before the grace period was 0. The kubelet sets it to 0 after it
	// has unmounted the volumes.
	FinishedWithGrace bool
	// GraceZeroSince is the time of the first observation of the grace period 0.
	GraceZeroSince time.Time
	// Forced reports that this process has set the grace period to 0, or has tried to.
	Forced bool
	// NodeAway reports that the node was tainted or not Ready when the grace period 0 was first observed.
	NodeAway bool
	// LeaseVersion is the resourceVersion of the node's Lease, or "" without one. Live reads have returned it since
	// LeaseSince.
	LeaseVersion string
	LeaseSince   time.Time
	// RefusedSince is the time of the first observation that the kubelet refused the pod, and finds no container of it.
	RefusedSince time.Time
	// Unread is a time at which no kubelet could know the pod, or zero.
	Unread time.Time
	// Heartbeat is the heartbeat of the node in the first live read since RefusedSince, or 0.
	Heartbeat int64
}

// after reports whether a live read still counts and followed the read of the pod that showed its deletion.
func (f Facts) after(r session.Read, now time.Time) bool { return r.FreshAfter(f.PodRead, now) }

// nodeMayProve reports whether a live read of the node may find evidence, according to the watch.
func (f Facts) nodeMayProve() bool {
	return f.FenceSeen || slices.Contains([]objects.NodeSeen{objects.NodeUnseen, objects.NodeTainted,
		objects.NodeTaintedReady, objects.NodeAbsent}, f.NodeSeen)
}

// unmountShown reports whether the kubelet itself set the grace period to 0, which it does after it has unmounted the
// volumes of the pod. All other writers must be excluded: this process did not force-delete the pod, every other force
// deletion needed a confirmation, which the pod lacks, and the pod garbage collector does not act while the node is
// Ready, as it has been throughout. After an outage or a fence, the name of the node may belong to another machine,
// whose kubelet finds nothing to unmount, and the collector may have acted before the watch showed the outage.
func (f Facts) unmountShown() bool {
	return f.Sight.FinishedWithGrace && !f.Sight.Forced && !f.Sight.NodeAway && f.forceRefused() &&
		f.Pod.Confirmation == objects.NotConfirmed && f.NodeSeen == objects.NodeReady &&
		!f.Storage.Since.After(f.Sight.FinishedSince)
}

// forceRefused reports whether a force deletion or eviction has been refused ever since the pod ended, unless it was
// confirmed.
func (f Facts) forceRefused() bool {
	return f.Mode == ModeEnforce && !f.ForceRefusedSince.IsZero() && !f.ForceRefusedSince.After(f.Sight.FinishedSince)
}

// unmountIn returns the remaining wait for an unmount that no fact proves, not positive when it is over. The wait does
// not begin while a fence hinders the unmount.
func (f Facts) unmountIn(now time.Time) time.Duration {
	return f.unmountAfter(f.Sight.FinishedSince, now)
}

// unmountAfter is unmountIn for processes that were seen to have ended at a time of their own.
func (f Facts) unmountAfter(began, now time.Time) time.Duration {
	if forced := f.Sight.GraceZeroSince; !began.IsZero() && forced.After(began) {
		began = forced
	}
	began = f.sinceNode(began)
	if f.hindered(now) {
		began = time.Time{}
	}
	return rest(began, f.Rules.unmountGrace(), now)
}

// sameMachine reports whether the node of a refused pod has shown the same machine, and was Ready, since before a
// kubelet could know the pod, as far as the watch has shown.
func (f Facts) sameMachine() bool {
	s := f.Storage
	return s.Machine != objects.Machine{} && !s.Away && !s.Since.IsZero() && s.Since.Before(f.Sight.Unread)
}

// heartbeatShown reports whether the kubelet of the same machine has written the status of its Node since the pod was
// refused. The first write of a kubelet on another machine would show that machine.
func (f Facts) heartbeatShown() bool {
	n := f.Node
	return n.Ready == objects.ReadyTrue && n.Machine == f.Storage.Machine && n.BootID == f.Storage.BootID &&
		f.Sight.Heartbeat != 0 && n.Heartbeat != 0 && n.Heartbeat != f.Sight.Heartbeat
}

// hindered reports whether a fence may keep the node from volumes, so that an unmount may not end. A reboot ends that,
// and proves no unmount: the new boot may have started the pod again, with volumes that the fence does not cover.
func (f Facts) hindered(now time.Time) bool {
	rebooted := f.after(f.FenceRead, now) && f.NodeRead.FreshAfter(f.FenceRead, now) && f.Fence.EndedRun(f.Node)
	return f.Storage.Fenced && !rebooted
}

// leaseIn returns the remaining time for which the Lease must stay unchanged until the kubelet counts as cut off, not
// positive when it does.
func (f Facts) leaseIn() time.Duration {
	if f.Sight.LeaseVersion != f.Lease.ResourceVersion {
		return f.Rules.leaseDuration()
	}
	return rest(f.sinceNode(f.Sight.LeaseSince), f.Rules.leaseDuration(), f.LeaseRead.Sent)
}

// forcedIn returns the remaining time that a kubelet, if not cut off after all, may take to end a pod without grace,
// not positive when it is over.
func (f Facts) forcedIn(now time.Time) time.Duration {
	return rest(f.sinceNode(f.Sight.GraceZeroSince), f.Rules.leaseDuration(), now)
}

// sinceNode returns a time, or that of the last change of the node if it is later: a Node that returned and went again
// is silent only since then.
func (f Facts) sinceNode(began time.Time) time.Time {
	if !began.IsZero() && f.Storage.Since.After(began) {
		return f.Storage.Since
	}
	return began
}

// rest returns the remainder of a period that began at this time, or all of it if it has not begun.
func rest(began time.Time, lasts time.Duration, now time.Time) time.Duration {
	if began.IsZero() {
		return lasts
	}
	return began.Add(lasts).Sub(now)
}
