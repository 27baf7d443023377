package singlenode

import (
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

// machine makes facts and sessions of the engine from a state. It is not safe for concurrent use: each worker has its
// own.
type machine struct {
	*World
	now     time.Time
	tracker *singlenode.Tracker
	reasons []singlenode.Reason
	// Pods and claims are only read, so that each is made once.
	pods   map[podKey]singlenode.Pod
	claims map[claimKey]singlenode.Claim
}

type podKey struct {
	pod
	slot    int
	flipped bool
}

type claimKey struct {
	claim
	n                int
	unasked, flipped bool
}

func newMachine(w *World) *machine {
	return &machine{World: w, now: clock.Now, tracker: singlenode.NewTracker(), reasons: singlenode.Reasons(),
		pods: map[podKey]singlenode.Pod{}, claims: map[claimKey]singlenode.Claim{}}
}

func uidOf(slot int) types.UID { return types.UID("pod-" + strconv.Itoa(slot)) }

// slotOf returns the number of the pod with a UID, -1 for none.
func slotOf(uid types.UID) int {
	for slot := range maxPods {
		if uidOf(slot) == uid {
			return slot
		}
	}
	return -1
}

// podName returns the name of a pod, which is the same for all pods of a StatefulSet.
func (m *machine) podName(slot int) string {
	if m.Workload == StatefulSet {
		return "web-0"
	}
	return "web-" + strconv.Itoa(slot)
}

// claimName returns the name of a claim, or with flipped the name in the opposite order.
func (m *machine) claimName(n int, flipped bool) string {
	switch {
	case m.Ephemeral:
		return m.podName(0) + "-data"
	case flipped:
		n = maxClaims - 1 - n
	}
	return "data-" + strconv.Itoa(n)
}

// claimNumber returns the number of the claim with a name.
func (m *machine) claimNumber(name string, flipped bool) int {
	for n := range m.Claims {
		if m.claimName(n, flipped) == name {
			return n
		}
	}
	return -1
}

// flipped reports whether a pod orders its claims the other way round, in a world without the order.
func (m *machine) flipped(slot int) bool { return m.Without == TheOrder && slot == 1 }

// pod returns a pod as the engine reads it, the zero value if it does not exist.
func (m *machine) pod(slot int, p pod, flipped bool) singlenode.Pod {
	if !p.exists {
		return singlenode.Pod{}
	}
	return memory.Once(m.pods, podKey{p, slot, flipped},
		func() singlenode.Pod { return objects.PodOf(m.podObject(slot, p, flipped)) })
}

func (m *machine) podObject(slot int, p pod, flipped bool) *v1.Pod {
	o := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: m.podName(slot), UID: uidOf(slot), ResourceVersion: "1"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "web"}}},
		Status:     v1.PodStatus{Phase: v1.PodPending},
	}
	for _, n := range m.uses(slot) {
		v := v1.Volume{Name: "data"}
		if m.Ephemeral {
			v.Ephemeral = &v1.EphemeralVolumeSource{}
		} else {
			v.PersistentVolumeClaim = &v1.PersistentVolumeClaimVolumeSource{ClaimName: m.claimName(n, flipped)}
		}
		o.Spec.Volumes = append(o.Spec.Volumes, v)
	}
	if p.node > 0 {
		o.Spec.NodeName, o.Status.Phase = nodeName(int(p.node)-1), v1.PodRunning
	}
	if p.gated {
		o.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: singlenode.Gate}}
	}
	if p.queued && m.Without != TheOtherGates {
		o.Spec.SchedulingGates = append(o.Spec.SchedulingGates, v1.PodSchedulingGate{Name: "queue.example.com/x"})
	}
	if p.held || m.Without == TheHold {
		o.Finalizers = []string{objects.RunningFinalizer}
	}
	if p.terminating {
		o.DeletionTimestamp = &metav1.Time{Time: m.now}
	}
	if p.foreground {
		o.Finalizers = append(o.Finalizers, metav1.FinalizerDeleteDependents)
		if grace := int64(0); !p.held { // its object would be gone
			o.DeletionGracePeriodSeconds = &grace
		}
	}
	if p.ended {
		o.Status.Phase = v1.PodSucceeded
		o.Status.ContainerStatuses = []v1.ContainerStatus{
			{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
	}
	return o
}

// claim returns a claim as the engine reads it, the zero value if it does not exist. unasked sets its Unasked.
func (m *machine) claim(n int, at claim, unasked, flipped bool) singlenode.Claim {
	if at.uid == 0 {
		return singlenode.Claim{}
	}
	key := claimKey{at, n, unasked, flipped}
	read, known := m.claims[key]
	if !known {
		read = singlenode.ClaimOf(m.claimObject(n, at, flipped))
		read.Unasked = unasked
		if at.bound {
			read.Volume.Driver = driver
		}
		m.claims[key] = read
	}
	return read
}

// unasked reports whether a claim, in a namespace of this mode, is known to need no lock.
func (m *machine) unasked(at claim, mode mode) bool {
	return singlenode.Asking{Namespace: mode, ClassSeen: true, PVSeen: at.bound, Claim: at.labelled,
		PV: at.bound && m.PVAsks}.Unasked()
}

const driver = "nfs.example.com"

func (m *machine) claimObject(n int, at claim, flipped bool) *v1.PersistentVolumeClaim {
	o := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: m.claimName(n, flipped),
		UID: claimUID(at.uid), ResourceVersion: versionOf(at)}}
	switch {
	case at.lock == damaged:
		o.Annotations = map[string]string{singlenode.LockAnnotation: "nobody"}
	case at.lock > 0:
		o.Annotations = map[string]string{singlenode.LockAnnotation: m.lock(int(at.lock) - 1).String()}
	}
	if at.kept {
		o.Finalizers = []string{singlenode.Finalizer}
	}
	if at.terminating {
		o.DeletionTimestamp = &metav1.Time{Time: m.now}
	}
	if at.labelled {
		o.Labels = map[string]string{singlenode.Label: singlenode.SelectValue}
	}
	if at.owner > 0 {
		yes := true
		o.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: m.podName(int(at.owner) - 1),
			UID: uidOf(int(at.owner) - 1), Controller: &yes}}
	}
	return o
}

func (m *machine) lock(slot int) singlenode.Lock {
	return singlenode.Lock{UID: uidOf(slot), Name: m.podName(slot)}
}

func claimUID(uid uint8) types.UID { return types.UID(fmt.Sprintf("%02d", uid)) }

// versionOf returns the resourceVersion of a claim. It repeats if the content does, which only lets more writes
// succeed.
func versionOf(at claim) string { return fmt.Sprint(at) }

func nodeName(n int) string { return string(rune('a' + n)) }

// saw records a state of a pod and its node in the tracker of a replica.
func (m *machine) saw(slot int, p pod, node objects.NodeSeen, a *age) {
	clear(m.tracker.Ended)
	if *a != never {
		m.tracker.Ended[uidOf(slot)] = a.Time()
	}
	if p.exists {
		m.tracker.Saw(m.pod(slot, p, false), node, m.now)
	} else {
		m.tracker.Forget(uidOf(slot))
	}
	*a = clock.AgeOf(m.tracker.Ended[uidOf(slot)])
}

// gated reports whether a pod has its gate according to a replica, which may have removed it (ungated).
func (m *machine) gated(slot int, p pod, ungated bool) bool {
	clear(m.tracker.Ungated)
	if ungated {
		m.tracker.RemovedGate(uidOf(slot))
	}
	return m.tracker.Expected(m.pod(slot, p, false)).Gated
}

// fence returns the result of a read of a fence about a pod.
func (m *machine) fence(slot int, f fence) objects.Fence {
	if !f.inForce {
		return objects.Fence{}
	}
	return objects.Fence{InForce: true, Coverage: v1alpha1.CoversVolumes, BootID: bootID(f.run),
		Volumes:          []v1alpha1.CoveredVolumes{{Driver: driver, Volumes: v1alpha1.VolumesAll}},
		SinceTerminating: f.terminating[slot] || m.Without == TheRun}
}

func nodeFacts(run uint8) objects.Node { return objects.Node{Found: true, BootID: bootID(run)} }

func bootID(run uint8) string { return "boot-" + strconv.Itoa(int(run)) }

// seenOf returns the state of a pod's node in the watch.
func (c *transition) seenOf(p pod) objects.NodeSeen {
	if p.node > 0 && c.nodes[p.node-1].cut {
		return objects.NodeNotReady
	}
	return objects.NodeReady
}

// user returns the facts of a replica about a pod.
func (c *transition) user(i, slot int, p pod, ended age, flipped bool) singlenode.User {
	return singlenode.User{Pod: c.machine.pod(slot, p, flipped), EndedSince: ended.Time(), NodeSeen: c.seenOf(p),
		FenceSeen: p.node == 1 && c.lines[i].fenced}
}

// session returns a session in progress as the engine has it, and facts the facts for its begin and its work.
func (c *transition) session(i, slot int) singlenode.Session {
	s, m := &c.lines[i].work[slot], c.machine
	flipped := m.flipped(slot)
	var out singlenode.Session
	out.ReadCount, out.Steps, out.Facts = int(s.reads), 1, c.facts(i, slot, s)
	out.Decision = singlenode.Decision{Action: s.action, Reason: m.reasons[s.reason]}
	if s.claim > 0 {
		out.Decision.Claim = m.claimName(int(s.claim)-1, flipped)
	}
	if s.other > 0 {
		out.Decision.User = uidOf(int(s.other) - 1)
	}
	return out
}

func (c *transition) facts(i, slot int, s *podSession) singlenode.Facts {
	m, flipped := c.machine, c.machine.flipped(slot)
	f := singlenode.Facts{Rules: singlenode.Rules{Removing: s.removing}, Mode: s.mode, ModeRead: clock.ReadAt(s.modeRead),
		Pod: m.pod(slot, s.pod, flipped), UsersRead: clock.ReadAt(s.listRead)}
	for _, n := range c.uses(slot) {
		known := m.claim(n, s.claims[n], s.unasked[n], flipped)
		if known.UID == "" {
			known = singlenode.Claim{Namespace: "ns", Name: m.claimName(n, flipped)}
		}
		f.Claims = append(f.Claims, singlenode.ClaimFacts{Claim: known, Read: clock.ReadAt(s.claimReads[n])})
	}
	for other := range c.Pods {
		if s.listed[other] {
			u := c.user(i, other, s.users[other], s.ended[other], flipped)
			u.Fence, u.FenceRead = m.fence(other, s.fences[other]), clock.ReadAt(s.fenceReads[other])
			u.Node, u.NodeRead = nodeFacts(s.runs[other]), clock.ReadAt(s.nodeReads[other])
			f.Users = append(f.Users, u)
		}
	}
	return f
}

// lockSession returns a session about a lock in progress as the engine has it.
func (c *transition) lockSession(i, n int) (out singlenode.LockSession) {
	s := &c.lines[i].locks[n]
	out.ReadCount, out.Steps, out.Facts = int(s.reads), 1, c.lockFacts(i, n, s)
	out.Decision = singlenode.Decision{Action: s.action, Reason: c.machine.reasons[s.reason]}
	return out
}

func (c *transition) lockFacts(i, n int, s *lockSession) singlenode.LockFacts {
	f := singlenode.LockFacts{Rules: singlenode.Rules{Removing: s.removing},
		Claim:      c.machine.claim(n, s.claim, c.machine.unasked(s.claim, c.lines[i].mode), false),
		HolderRead: clock.ReadAt(s.holderRead), HolderGone: s.gone}
	if s.holder > 0 {
		f.Holder = c.user(i, int(s.holder)-1, s.pod, s.ended, false)
		f.Holder.Fence, f.Holder.FenceRead = c.machine.fence(int(s.holder)-1, s.fence), clock.ReadAt(s.fenceRead)
		f.Holder.Node, f.Holder.NodeRead = nodeFacts(s.node), clock.ReadAt(s.nodeRead)
	}
	return f
}
