package podsafety

import (
	"slices"
	"time"

	"k8s.io/api/core/v1"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
)

// Facts is all that is known about one pod at one moment. The zero value of every field means that the fact is not
// known, or speaks for holding the pod.
type Facts struct {
	Rules Rules
	// Mode is that of the pod's namespace.
	Mode Mode
	// ForceRefusedSince is since when this process knows that the API server refuses force deletions that are not
	// confirmed, in namespaces of ModeEnforce. Zero: it does not know that.
	ForceRefusedSince time.Time

	// Pod is the pod, from the watch cache or, when PodRead is set, from a live read.
	Pod     Pod
	PodRead session.Read
	// Sight is since when this process has seen what of the pod.
	Sight Sight

	// NodeSeen and FenceSeen are what the watch shows of the pod's node, and whether it shows a fence of the node. They
	// only choose which live reads are worth making.
	NodeSeen  NodeSeen
	FenceSeen bool
	// Storage is what the watch has shown of whether the node reaches its volumes.
	Storage Storage

	// Node, Lease and Fence are what live reads found.
	Node  NodeFacts
	Lease LeaseFacts
	Fence FenceFacts
}

// Rules are the settings of the hold.
type Rules struct {
	// UnmountGrace is how long to wait for the unmount of the volumes of a pod that has ended where nothing shows it,
	// counted from when this process first saw that the pod has ended and has the grace 0. Default 30 s.
	UnmountGrace time.Duration
	// LeaseDuration is after which time without a renewal of its Lease a kubelet counts as cut off, and in which time a
	// kubelet that is not cut off ends a pod that has no grace. Default LeaseDuration.
	LeaseDuration time.Duration
	// CollectOrphans has pods deleted whose node is gone, for a cluster without the pod garbage collector.
	CollectOrphans bool
	// RemovingFinalizers: the finalizer is removed from all pods, whether their processes run or not, because
	// volume-guard is uninstalled.
	RemovingFinalizers bool
	// DryRun ends a session before its first write.
	DryRun bool
}

const (
	// DefaultUnmountGrace is the default of Rules.UnmountGrace. It is a guess: a kubelet unmounts within a second, and
	// tries again for as long as that fails.
	DefaultUnmountGrace = 30 * time.Second
	// LeaseDuration is the default of Rules.LeaseDuration (nodeLeaseDurationSeconds of the kubelet, and
	// node-monitor-grace-period before 1.32).
	LeaseDuration = 40 * time.Second
	// recheckFenced is after which time it is read again whether a node was rebooted that a fence keeps from volumes.
	recheckFenced = time.Minute
	// overdueAfter is how long something that takes a moment may take until an Event says so.
	overdueAfter = time.Minute
)

// wanted reports whether the pod is one that is to be held: it has a claim, or a StatefulSet gives its name to the next
// pod, and it is not a copy of a static pod.
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

// Mode is what a namespace asks for. The zero value: nothing, as far as is known.
type Mode uint8

const (
	// ModeOff: the namespace does not ask for pod safety, or it is not known.
	ModeOff Mode = iota
	// ModeWarn: force deletions are warned of, and no pod is held.
	ModeWarn
	// ModeEnforce: pods are held, and force deletions refused.
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

// Sight is since when one process has seen what of a pod, by its own clock. The zero value: nothing.
type Sight struct {
	// FinishedSince is when it first saw that the kubelet says the pod has ended.
	FinishedSince time.Time
	// FinishedWithGrace: it saw that while the grace was not 0 yet. The kubelet sets the grace to 0 after it has
	// unmounted the volumes.
	FinishedWithGrace bool
	// GraceZeroSince is when it first saw the grace 0.
	GraceZeroSince time.Time
	// Forced: this process has set the grace to 0, or tried to.
	Forced bool
	// NodeAway: the node was not Ready, or tainted, when it first saw the grace 0.
	NodeAway bool
	// LeaseVersion is the resourceVersion of the Lease of the pod's node, empty while there is none, as live reads have
	// found it since LeaseSince.
	LeaseVersion string
	LeaseSince   time.Time
}

// NodeSeen is what the watch shows of a node. The zero value is not known.
type NodeSeen uint8

const (
	// NodeUnseen: the watch shows nothing yet.
	NodeUnseen NodeSeen = iota
	// NodeReady: the node is Ready, and not tainted as out of service.
	NodeReady
	// NodeNotReady: the node is not Ready, or not known to be, and not tainted as out of service.
	NodeNotReady
	// NodeTainted: the node has the taint node.kubernetes.io/out-of-service, and is not known to be Ready.
	NodeTainted
	// NodeTaintedReady: it has the taint, and is Ready.
	NodeTaintedReady
	// NodeAbsent: there is no such node.
	NodeAbsent
)

// ready reports whether the node is Ready, tainted or not.
func (n NodeSeen) ready() bool { return n == NodeReady || n == NodeTaintedReady }

// Ready is the condition Ready of a node. The zero value: it has none.
type Ready uint8

const (
	// ReadyMissing: the node has no condition Ready, as one that was just created.
	ReadyMissing Ready = iota
	// ReadyTrue, ReadyFalse and ReadyUnknown are the statuses of the condition. The node controller sets Unknown when
	// it has not heard of the kubelet for long.
	ReadyTrue
	ReadyFalse
	ReadyUnknown
)

// NodeFacts is what a live read of a node found. The zero value: it was not read.
type NodeFacts struct {
	Read session.Read
	// Found: there is a node of that name. Whether it is the one that the pod was bound to does not matter: pods
	// survive that their Node is deleted and created again.
	Found bool
	Ready Ready
	// OutOfService: the node has the taint node.kubernetes.io/out-of-service, and not from this project.
	OutOfService bool
	// OwnTaint: it has the taint from this project.
	OwnTaint bool
	// BootID is status.nodeInfo.bootID.
	BootID string
}

// mayRun reports whether a live read of the node does not speak for its end: it exists, and its condition Ready is
// neither False nor Unknown. A node that is Ready has come back, or its fence proves less than it says.
func (n NodeFacts) mayRun() bool { return n.Found && n.Ready != ReadyFalse && n.Ready != ReadyUnknown }

// NodeOf reads what is needed of a Node.
func NodeOf(o *v1.Node) NodeFacts {
	n := NodeFacts{Found: true, BootID: o.Status.NodeInfo.BootID}
	for _, c := range o.Status.Conditions {
		if c.Type == v1.NodeReady {
			n.Ready = readyOf(c.Status)
		}
	}
	for _, t := range o.Spec.Taints {
		switch {
		case t.Key != v1.TaintNodeOutOfService:
		case t.Value == OwnTaintValue:
			n.OwnTaint = true
		default:
			n.OutOfService = true
		}
	}
	return n
}

func readyOf(s v1.ConditionStatus) Ready {
	switch s {
	case v1.ConditionTrue:
		return ReadyTrue
	case v1.ConditionFalse:
		return ReadyFalse
	case v1.ConditionUnknown:
		return ReadyUnknown
	}
	return ReadyMissing
}

// Seen returns what a watch shows with such a node.
func (n NodeFacts) Seen() NodeSeen {
	switch {
	case !n.Found:
		return NodeAbsent
	case (n.OutOfService || n.OwnTaint) && n.Ready == ReadyTrue:
		return NodeTaintedReady
	case n.OutOfService || n.OwnTaint:
		return NodeTainted
	case n.Ready == ReadyTrue:
		return NodeReady
	}
	return NodeNotReady
}

// LeaseFacts is what a live read of the Lease of a node found (namespace kube-node-lease). The zero value: it was not
// read. Since when it is so: see [Sight].
type LeaseFacts struct {
	Read  session.Read
	Found bool
	// ResourceVersion changes with each renewal. The times in the Lease are by the clock of the node, which can be wrong.
	ResourceVersion string
}

// Coverage is what the agent that fenced a node proves. The zero value is not known.
type Coverage uint8

const (
	// CoversUnknown covers nothing.
	CoversUnknown Coverage = iota
	// CoversUntilUnfenced: nothing runs on the node until it is unfenced.
	CoversUntilUnfenced
	// CoversReboot: the node was rebooted, which ends all processes. A kubelet starts pods again that were not
	// terminating when it read them.
	CoversReboot
	// CoversVolumes: the node cannot reach some volumes. Its processes run.
	CoversVolumes
)

// FenceFacts is what a live read of the fence of a node found. The zero value: there is none, or it was not read.
type FenceFacts struct {
	Read session.Read
	// InForce: the fence is proven and has not been released.
	InForce  bool
	Coverage Coverage
	// SinceTerminating: the pod was terminating before the fence began, as the order of writes shows.
	SinceTerminating bool
	// BootID is the boot ID of the Node that the fence has ended.
	BootID string
	// Volumes are what a fence of volumes covers.
	Volumes []v1alpha1.CoveredVolumes
}

// covers reports whether the fence may show that no process of the pod runs.
func (f FenceFacts) covers() bool {
	return f.InForce && (f.Coverage == CoversUntilUnfenced || f.Coverage == CoversReboot && f.SinceTerminating)
}

// EndsPod reports whether the fence shows that no process of the pod runs, by a read of the Node after it. A machine
// that is powered on while its fence is in force has another boot ID, and may run pods again that were not terminating
// before.
func (f FenceFacts) EndsPod(node NodeFacts) bool {
	return f.covers() && !node.mayRun() && f.OfRun(node)
}

// OfRun reports whether the fence is about the run of the node that may have started the pod, by a read of the Node
// after one that shows the pod terminating: its boot ID is the one that the fence has ended, or the pod was terminating
// before the fence began, so that no later run starts it.
func (f FenceFacts) OfRun(node NodeFacts) bool {
	return f.SinceTerminating || node.BootID != "" && node.BootID == f.BootID
}

// CoversVolume reports whether the fence keeps the node from a volume.
func (f FenceFacts) CoversVolume(v objects.Volume) bool {
	return f.InForce && f.Coverage == CoversVolumes && objects.CoversVolume(f.Volumes, v)
}

// after reports whether a live read counts and was made after the pod was read, which showed its deletion.
func (f Facts) after(r session.Read, now time.Time) bool { return r.FreshAfter(f.PodRead, now) }

// nodeMayProve reports whether a live read of the node may find evidence, as far as the watch shows.
func (f Facts) nodeMayProve() bool {
	return f.FenceSeen || slices.Contains([]NodeSeen{NodeUnseen, NodeTainted, NodeTaintedReady, NodeAbsent}, f.NodeSeen)
}

// unmountShown reports whether it was the kubelet that set the grace to 0, which it does once it has unmounted the
// volumes: the pod had ended before, this process did not, nobody else could without a confirmation, nobody has
// confirmed it, and the pod garbage collector does not for a node that is Ready, as it was all the time.
func (f Facts) unmountShown() bool {
	return f.Sight.FinishedWithGrace && !f.Sight.Forced && !f.Sight.NodeAway && f.forceRefused() &&
		f.Pod.Confirmation == objects.NotConfirmed && f.NodeSeen == NodeReady
}

// forceRefused reports whether a force deletion has needed a confirmation since the pod has ended.
func (f Facts) forceRefused() bool {
	return f.Mode == ModeEnforce && !f.ForceRefusedSince.IsZero() && !f.ForceRefusedSince.After(f.Sight.FinishedSince)
}

// unmountIn returns how long the wait for the unmount lasts where nothing shows it, not positive when it is over. While
// a fence keeps the node from volumes, it does not begin.
func (f Facts) unmountIn(now time.Time) time.Duration {
	began := f.Sight.FinishedSince
	for _, later := range []time.Time{f.Sight.GraceZeroSince, f.Storage.Since} {
		if !began.IsZero() && later.After(began) {
			began = later
		}
	}
	if f.Storage.Fenced {
		began = time.Time{}
	}
	return rest(began, f.Rules.unmountGrace(), now)
}

// rebooted reports whether the volumes of a pod that has ended are not mounted any more, because the node that a fence
// keeps from volumes was rebooted since. The new run has mounted none of these: a kubelet does not mount a volume that
// has to be attached before it has written the status of its Node in this run (ReportedInUse in
// pkg/volume/util/operationexecutor), and the Node had the boot ID of before when the fence was proven.
func (f Facts) rebooted(now time.Time) bool {
	fence, node := f.Fence, f.Node
	return f.Pod.Finished() && f.after(fence.Read, now) && f.after(node.Read, now) && fence.InForce &&
		fence.Coverage == CoversVolumes && node.BootID != "" && node.BootID != fence.BootID
}

// leaseIn returns how long the Lease has to stay as it is until the kubelet counts as cut off, not positive when it
// does.
func (f Facts) leaseIn() time.Duration {
	if f.Sight.LeaseVersion != f.Lease.ResourceVersion {
		return f.Rules.leaseDuration()
	}
	return rest(f.Sight.LeaseSince, f.Rules.leaseDuration(), f.Lease.Read.Sent)
}

// forcedIn returns how long a kubelet that is not cut off after all may take to end a pod without grace, not positive
// when it would have.
func (f Facts) forcedIn(now time.Time) time.Duration {
	return rest(f.Sight.GraceZeroSince, f.Rules.leaseDuration(), now)
}

// rest returns what remains of a time that began then, all of it when it has not begun.
func rest(began time.Time, lasts time.Duration, now time.Time) time.Duration {
	if began.IsZero() {
		return lasts
	}
	return began.Add(lasts).Sub(now)
}
