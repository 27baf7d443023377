package podsafety

import (
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

// machine makes facts and sessions of the engine from a state. It is not safe for concurrent use: each worker has its
// own.
type machine struct {
	now     time.Time
	tracker *podsafety.Tracker
	reasons []podsafety.Reason
	// Pods and Nodes are only read, so that each is made once.
	pods  map[podKey]objects.Pod
	nodes map[[3]bool]objects.Node
}

// reported applies the missing guard TheReport.
func (c *transition) reported(p objects.Pod) objects.Pod {
	if c.Without == TheReport {
		p.Refused = p.Refused || p.Final && p.PhaseByKubelet && p.Unstarted
	}
	return p
}

type podKey struct {
	pod
	slot      int
	graceOver bool
}

func newMachine() *machine {
	return &machine{now: clock.Now, tracker: podsafety.NewTracker(), reasons: podsafety.Reasons(),
		pods: map[podKey]objects.Pod{}, nodes: map[[3]bool]objects.Node{}}
}

func uidOf(slot int) types.UID { return types.UID(strconv.Itoa(slot)) }

// pod returns a pod as the engine reads it, the zero value if it does not exist.
func (m *machine) pod(slot int, p pod, graceOver bool) objects.Pod {
	if !p.exists {
		return objects.Pod{}
	}
	return memory.Once(m.pods, podKey{p, slot, graceOver},
		func() objects.Pod { return objects.PodOf(m.object(slot, p, graceOver)) })
}

// object returns a pod as the API server has it.
func (m *machine) object(slot int, p pod, graceOver bool) *v1.Pod {
	o := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "db", UID: uidOf(slot), ResourceVersion: "1", Generation: 1},
		Spec: v1.PodSpec{
			Containers: []v1.Container{{Name: "db"}},
			Volumes: []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning, ObservedGeneration: int64(p.written)},
	}
	if p.node > 0 {
		o.Spec.NodeName = nodeName(int(p.node) - 1)
	}
	if p.held {
		o.Finalizers = []string{objects.RunningFinalizer}
	}
	if p.terminating {
		grace, ends := int64(30), m.now.Add(10*time.Second)
		if p.graceZero {
			grace = 0
		}
		if p.graceZero || graceOver {
			ends = m.now.Add(-time.Second)
		}
		o.DeletionTimestamp, o.DeletionGracePeriodSeconds = &metav1.Time{Time: ends}, &grace
		o.Generation = 2
	}
	switch p.confirmed {
	case confirmedThis:
		o.Annotations = map[string]string{objects.ConfirmAnnotation: string(o.UID)}
	case confirmedOther:
		o.Annotations = map[string]string{objects.ConfirmAnnotation: "another"}
	case notConfirmed:
	}
	setStatus(o, p)
	return o
}

func setStatus(o *v1.Pod, p pod) {
	switch p.statuses {
	case waiting:
		o.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{}}}}
	case running:
		o.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	case over:
		o.Status.ContainerStatuses = []v1.ContainerStatus{
			{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
	case unknown:
		end := v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "ContainerStatusUnknown"}}
		o.Status.ContainerStatuses = []v1.ContainerStatus{{State: end, LastTerminationState: end}}
	case absent:
		o.Status.ContainerStatuses = []v1.ContainerStatus{
			{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "ContainerStatusUnknown"}}}}
	case noStatus:
	}
	if p.refused {
		o.Status.Reason = "NodePorts"
	}
	if p.statuses != noStatus {
		c := v1.PodCondition{Type: v1.ContainersReady, ObservedGeneration: int64(p.observed)}
		if p.reasonEnded {
			c.Reason = "PodFailed"
		}
		o.Status.Conditions = []v1.PodCondition{c}
	}
	if p.ended {
		o.Status.Phase = v1.PodFailed
		manager := "kube-controller-manager"
		if p.phaseByKubelet {
			manager = "kubelet"
		}
		o.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate,
			Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:phase":{}}}`)}}
	}
}

// The current and the former resourceVersion of a Lease.
const (
	currentLease = "current"
	formerLease  = "former"
)

func leaseVersion(found bool) string {
	if found {
		return currentLease
	}
	return ""
}

func (m *machine) sight(s sight) podsafety.Sight {
	out := podsafety.Sight{
		FinishedSince: s.finished.Time(), FinishedWithGrace: s.finishedWithGrace, GraceZeroSince: s.graceZero.Time(),
		Forced: s.forced, NodeAway: s.nodeAway, LeaseSince: s.lease.Time(), RefusedSince: s.refused.Time(),
		Heartbeat: int64(s.heartbeat),
	}
	if s.lease != never {
		out.LeaseVersion = formerLease
	}
	if s.leaseCurrent {
		out.LeaseVersion = leaseVersion(s.leaseFound)
	}
	return out
}

func (m *machine) sightOf(s podsafety.Sight) sight {
	return sight{
		finished: clock.AgeOf(s.FinishedSince), graceZero: clock.AgeOf(s.GraceZeroSince), lease: clock.AgeOf(s.LeaseSince),
		refused: clock.AgeOf(s.RefusedSince), heartbeat: uint8(s.Heartbeat),
		finishedWithGrace: s.FinishedWithGrace, forced: s.Forced, nodeAway: s.NodeAway,
		leaseCurrent: !s.LeaseSince.IsZero() && s.LeaseVersion != formerLease,
		leaseFound:   s.LeaseVersion == currentLease,
	}
}

// unread is the time at which no kubelet could know a pod, and the node was seen before.
var unread = old.Time().Add(-time.Hour)

// machineOf returns a machine by its number.
func machineOf(number uint8) objects.Machine {
	return objects.Machine{MachineID: strconv.Itoa(int(number))}
}

// nodeRead returns the result of a read of a node, with the time of the last write of its kubelet.
func (c *transition) nodeRead(s *work) objects.Node {
	n := c.machine.nodeFacts(s.nodeThere, s.nodeReady, s.nodeTaint, s.nodeOwn)
	n.Machine, n.Heartbeat = machineOf(s.nodeMachine), int64(s.nodeBeat)+1
	switch c.Without {
	case TheMachine:
		n.Machine = machineOf(s.machine)
	case TheHeartbeat:
		n.Heartbeat = int64(s.sight.heartbeat) + 1
	default:
	}
	return n
}

// with loads the records about a pod into the tracker for the call of do.
func (m *machine) with(slot int, l *line, do func(t *podsafety.Tracker)) {
	s := &l.sights[slot]
	clear(m.tracker.Sights)
	if delete(m.tracker.Unread, uidOf(slot)); l.same[slot] {
		m.tracker.Unread[uidOf(slot)] = unread
	}
	if *s != (sight{}) {
		seen := m.sight(*s)
		seen.Unread = m.tracker.Unread[uidOf(slot)]
		m.tracker.Sights[uidOf(slot)] = seen
	}
	do(m.tracker)
	*s = m.sightOf(m.tracker.Sights[uidOf(slot)])
}

// seenOf returns the state of a pod's node in the watch.
func (m *machine) seenOf(n nodeView) objects.NodeSeen {
	return m.nodeFacts(n.there, n.ready, n.tainted, false).Seen()
}

func (m *machine) nodeFacts(there, ready, taint, own bool) objects.Node {
	if !there {
		return objects.Node{}
	}
	return memory.Once(m.nodes, [3]bool{ready, taint, own},
		func() objects.Node { return objects.NodeOf(nodeObject(ready, taint, own)) })
}

// bootID is the boot ID of each Node and fence. A machine that a fence keeps off stays off here, while
// test/model/fencing also plays people who power it on.
const bootID = "boot"

// nodeObject returns a Node as the API server has it.
func nodeObject(ready, taint, own bool) *v1.Node {
	status := v1.ConditionUnknown
	if ready {
		status = v1.ConditionTrue
	}
	o := &v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: status}},
		NodeInfo: v1.NodeSystemInfo{BootID: bootID}}}
	for value, has := range map[string]bool{"nodeshutdown": taint, objects.OwnTaintValue: own} {
		if has {
			o.Spec.Taints = append(o.Spec.Taints, v1.Taint{Key: v1.TaintNodeOutOfService, Value: value})
		}
	}
	return o
}

func fenceFacts(f fence, slot int) objects.Fence {
	if !f.exists {
		return objects.Fence{}
	}
	out := objects.Fence{InForce: f.inForce, Coverage: v1alpha1.CoversUntilUnfenced, BootID: bootID}
	if f.reboot {
		out.Coverage = v1alpha1.CoversReboot
	}
	out.SinceTerminating = f.covers&(1<<slot) != 0
	return out
}

// facts returns the facts with which a replica begins, or works in a session.
func (c *transition) facts(slot int, s *work) podsafety.Facts {
	m := c.machine
	return podsafety.Facts{
		Rules: podsafety.Rules{CollectOrphans: c.NoPodGC}, Mode: podsafety.ModeEnforce,
		Pod: c.reported(m.pod(slot, s.pod, c.graceOver[slot])), PodRead: clock.ReadAt(s.podRead), Outdated: s.outdated,
		Sight:    c.sightIn(s),
		NodeSeen: m.seenOf(s.seen), FenceSeen: s.seen.fenced, ForceRefusedSince: c.forceRefusedSince(),
		Storage: m.storage(s),
		Node:    c.nodeRead(s), NodeRead: clock.ReadAt(s.nodeRead),
		Lease:     objects.Lease{Found: s.leaseFound, ResourceVersion: leaseVersion(s.leaseFound)},
		LeaseRead: clock.ReadAt(s.leaseRead),
		Fence:     fenceFacts(s.fence, slot), FenceRead: clock.ReadAt(s.fenceRead),
	}
}

// sightIn returns the record about the pod of a session.
func (c *transition) sightIn(s *work) podsafety.Sight {
	out := c.machine.sight(s.sight)
	if s.same {
		out.Unread = unread
	}
	return out
}

// storage returns the record of the watch about the node of a pod. Only its order after the end of the pod matters.
func (m *machine) storage(s *work) (out podsafety.Storage) {
	if s.same {
		out.Since, out.Machine, out.BootID = unread.Add(-time.Hour), machineOf(s.machine), bootID
	}
	if s.interrupted {
		out.Since = s.sight.finished.Time().Add(time.Second)
	}
	return out
}

// forceRefusedSince is zero in a world with unconfirmed force deletions.
func (c *transition) forceRefusedSince() time.Time {
	if c.Budget.Unasked > 0 {
		return time.Time{}
	}
	return old.Time()
}

// session returns a session in progress as the engine has it.
func (c *transition) session(i, slot int) (out podsafety.Session) {
	s := &c.lines[i].sessions[slot]
	out.ReadCount, out.Steps, out.Facts = int(s.reads), 1, c.facts(slot, s)
	out.Decision = podsafety.Decision{Action: s.action, Reason: c.machine.reasons[s.reason]}
	return out
}

func nodeName(n int) string { return string(rune('a' + n)) }
