package joint

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/fencing"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/apis/fencing/v1alpha1"
	"github.com/csi-reclaimer/csi-reclaimer/pkg/inuse/pvc"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/clock"
	"github.com/csi-reclaimer/csi-reclaimer/test/model/memory"
)

// machine makes the records of the controllers about the objects of a state, each in its own way. It is not safe for
// concurrent use: each worker has its own.
type machine struct {
	*World
	now time.Time
	// Objects and records are only read, so that each is made once.
	pods   map[podKey]objects.Pod
	users  map[podKey]pvc.Pod
	claims map[claim]records
	nodes  map[node]objects.Node
	fences map[fence]*v1alpha1.NodeFence
}

// records are the records about the claim.
type records struct {
	locks      singlenode.Claim
	protection pvc.Claim
	hold       podsafety.Claim
}

type podKey struct {
	pod
	slot int
}

func newMachine(w *World) *machine {
	return &machine{World: w, now: clock.Now, pods: map[podKey]objects.Pod{}, users: map[podKey]pvc.Pod{},
		claims: map[claim]records{}, nodes: map[node]objects.Node{}, fences: map[fence]*v1alpha1.NodeFence{}}
}

// pod returns a pod as the hold, the locks and node fencing record it, the zero value if it does not exist.
func (m *machine) pod(slot int, p pod) objects.Pod {
	if !p.exists {
		return objects.Pod{}
	}
	return memory.Once(m.pods, podKey{p, slot}, func() objects.Pod {
		read := objects.PodOf(m.podObject(slot, p, m.now))
		if m.Without == TheWord && read.Final {
			read.PhaseByKubelet, read.Running = true, false
		}
		return read
	})
}

// user returns a pod as pvc-protection records it.
func (m *machine) user(slot int, p pod) pvc.Pod {
	return memory.Once(m.users, podKey{p, slot}, func() pvc.Pod {
		read := pvc.PodOf(m.podObject(slot, p, m.now))
		if m.Without == TheHoldOfClaims {
			read.Ended, read.ShutDown = read.Scheduled && p.ended, p.graceZero
		}
		read.ShutDown = read.ShutDown && m.Without != TheShutDown
		return read
	})
}

// claim returns the records about the claim, the zero value if it does not exist. All locks are required.
func (m *machine) claim(at claim) records {
	if !at.exists {
		return records{}
	}
	return memory.Once(m.claims, at, func() records {
		o := m.claimObject(at, m.now)
		r := records{singlenode.ClaimOf(o), pvc.ClaimOf(o), podsafety.ClaimOf(o)}
		r.locks.Volume.Driver = driver
		return r
	})
}

// fence returns the NodeFence of node a, nil if it does not exist.
func (m *machine) fence(f fence) *v1alpha1.NodeFence {
	if !f.exists {
		return nil
	}
	return memory.Once(m.fences, f, func() *v1alpha1.NodeFence { return m.fenceObject(f, m.now) })
}

// keepsVolume reports whether the fence may keep node a from the volume.
func (m *machine) keepsVolume(f fence) bool {
	o := m.fence(f)
	return o != nil && m.Without != TheStorage && fencing.FenceOf(o).MayKeepVolumes()
}

// storage returns the record of the watch about whether a node reaches the volume.
func (c *transition) storage(n uint8) podsafety.Storage {
	if n != nodeA {
		return podsafety.Storage{}
	}
	out := podsafety.Storage{Fenced: c.shut, Away: c.away, Since: c.opened.Time()}
	if c.opened != never {
		out.Since = out.Since.Add(time.Second) // after the end of the pod that has the same age
	}
	return out
}

// shown returns the evidence of a node's fence about a pod.
func (c *transition) shown(n uint8, pod types.UID) objects.Fence {
	o := c.machine.fence(c.fence)
	if o == nil || n != nodeA {
		return objects.Fence{}
	}
	return fencing.Evidence(fencing.FenceOf(o), pod)
}

// nodeOf returns the result of a live read of a node.
func (c *transition) nodeOf(n uint8) objects.Node {
	// Only the contents of the Node distinguish the keys.
	at := node{shown: c.node.shown, shownMachine: c.node.shownMachine, ready: c.node.ready, taint: c.node.taint,
		own: c.node.own, shunned: c.node.shunned}
	switch {
	case n == nodeB:
		at = node{ready: true}
	case !c.node.there:
		return objects.Node{}
	}
	return memory.Once(c.machine.nodes, at, func() objects.Node { return objects.NodeOf(c.nodeObject(at)) })
}

// remaining lists the remaining pods of node a (countPod in pkg/fencing).
func (c *transition) remaining() (f fencing.RemainingFacts) {
	f.AttachmentsListed = true
	for slot, at := range c.pods {
		p := c.machine.pod(slot, at)
		if p.UID == "" || at.node != nodeA {
			continue
		}
		if p.Held && p.Terminating {
			f.Held = append(f.Held, fencing.HeldPod{UID: p.UID})
		}
		// The tracker counts the pods of its first list after the boot. These are some of them, so the fence ends earlier.
		if p.Held && p.Terminating && c.Without != TheList && (c.node.shown == firstBoot || c.processes[slot].leaving) {
			f.Leaving.Pods++
		}
		if p.Held || p.UsesVolumes() {
			f.All.Pods++
		}
	}
	if c.volume.onA {
		f.All.VolumeAttachments++
	}
	if c.Without == TheWayOut {
		f.Leaving.VolumeAttachments = f.Leaving.Pods // the fence waits for them, too
	}
	return f
}

// leaseVersion returns the resourceVersion of the Lease of node a, which exists as long as the Node.
func (c *transition) leaseVersion() string {
	if c.node.there {
		return currentLease
	}
	return ""
}

// tracker returns the records of the hold about a pod.
func (c *transition) tracker(slot int) *podsafety.Tracker {
	t, s := podsafety.NewTracker(), c.sights[slot]
	if s == (sight{}) {
		return t
	}
	out := podsafety.Sight{FinishedSince: s.finished.Time(), FinishedWithGrace: s.finishedWithGrace,
		GraceZeroSince: s.graceZero.Time(), Forced: s.forced, NodeAway: s.nodeAway && c.Without != TheNode,
		LeaseSince: s.lease.Time()}
	if s.lease != never {
		out.LeaseVersion = c.leaseVersion()
	}
	t.Sights[uidOf(slot)] = out
	return t
}

// keep stores the records of the hold about a pod.
func (c *transition) keep(slot int, t *podsafety.Tracker) {
	s := t.Sights[uidOf(slot)]
	if !c.pods[slot].exists {
		s = podsafety.Sight{}
	}
	c.sights[slot] = sight{finished: clock.AgeOf(s.FinishedSince), graceZero: clock.AgeOf(s.GraceZeroSince),
		lease: clock.AgeOf(s.LeaseSince), finishedWithGrace: s.FinishedWithGrace, forced: s.Forced,
		nodeAway: s.NodeAway}
}

// saw records a state of a pod in the trackers.
func (m *machine) saw(c *transition, slot int) {
	p := m.pod(slot, c.pods[slot])
	t := c.tracker(slot)
	t.Saw(p, c.nodeSeen(c.pods[slot].node), m.now)
	c.keep(slot, t)
	locks := singlenode.NewTracker()
	if c.completed[slot] != never {
		locks.Ended[p.UID] = c.completed[slot].Time()
	}
	locks.Saw(p, c.nodeSeen(c.pods[slot].node), m.now)
	c.completed[slot] = clock.AgeOf(locks.Ended[p.UID])
}

// status returns the fence with a status from node fencing.
func (f fence) status(s *v1alpha1.NodeFenceStatus, n node) fence {
	f.fenced, f.released = conditionOf(s, v1alpha1.ConditionFenced), conditionOf(s, v1alpha1.ConditionReleased)
	f.returned = conditionOf(s, v1alpha1.ConditionReturned)
	f.vacant = fencing.Fence{Status: *s}.Vacant()
	last := len(s.Attempts) - 1
	for _, a := range s.Attempts {
		if a.Agent == lateName {
			f.undoingLate, f.undoneLate = a.UndoTry > 0, a.UndoneAt != nil
		}
	}
	f.begun = last == 0 || last == 2 // without the attempts that have ended before
	if f.begun {
		a := s.Attempts[last]
		f.result = uint8(slices.Index(results, a.Result))
		f.undoing, f.undone, f.seen = a.UndoTry > 0, a.UndoneAt != nil, a.ObjectSeen
		f.boot, f.machine = number(a.BootID), number(a.MachineID)
		f.covers = [maxPods]bool{}
		for _, uid := range a.TerminatingPods {
			f.covers[slotOf(uid)] = true
		}
	}
	if s.Proof == nil {
		f.proven, f.renewed, f.proofBoot, f.proofMachine = false, false, 0, 0
		return f
	}
	f.renewed = f.proven && f.renewed || !n.there
	f.proven, f.proofBoot, f.proofMachine = true, number(s.Proof.BootID), number(s.Proof.MachineID)
	return f
}

func conditionOf(s *v1alpha1.NodeFenceStatus, name string) condition {
	for _, c := range s.Conditions {
		switch {
		case c.Type != name:
		case c.Status == metav1.ConditionTrue:
			return isTrue
		default:
			return isFalse
		}
	}
	return noCondition
}
