package podsafety

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Tracker holds one process's observation times of terminating pods, and of the fences of their nodes. A process that
// starts with an empty Tracker waits again from the start, never shorter. It is not safe for concurrent use.
type Tracker struct {
	Sights map[types.UID]Sight
	// Storages holds the nodes, and whether they can unmount volumes.
	Storages Storages
	// Complete is a time before which each pod state was written that the watch has not delivered since, or zero. It is
	// the time before a consistent list of pods, whose version the watch has reached.
	Complete time.Time
	// Unread holds, for held pods that no kubelet has reported as started, a time at which no kubelet could know the pod:
	// it did not exist, or had no node.
	Unread map[types.UID]time.Time
}

// NewTracker returns an empty Tracker.
func NewTracker() *Tracker {
	return &Tracker{Sights: map[types.UID]Sight{}, Storages: Storages{}, Unread: map[types.UID]time.Time{}}
}

// SawStart records a state of a held pod from an event of the watch. created reports the event of its creation.
func (t *Tracker) SawStart(p Pod, created bool) {
	switch {
	case !p.Unstarted:
		delete(t.Unread, p.UID)
	case (p.Node == "" || created) && !t.Complete.IsZero():
		t.Unread[p.UID] = t.Complete
	}
}

// Lags reports whether a later Complete would show of more nodes that their machine is the same since before a pod.
func (t *Tracker) Lags() bool {
	for _, one := range t.Storages {
		if !one.Away && one.Machine != (objects.Machine{}) && !one.Since.Before(t.Complete) {
			return true
		}
	}
	return false
}

// UnmountOverdue reports whether a pod that has ended according to its kubelet waits for longer than an unmount takes.
func (t *Tracker) UnmountOverdue(pod types.UID, now time.Time) bool {
	return rest(t.Sights[pod].FinishedSince, overdueAfter, now) <= 0
}

// Saw records a state of a pod from an event of the watch or from a live read, and returns the Sight of the pod. node
// is the state of its node in the watch. Every event must be recorded, because a pod that has finished and still has
// grace is in that state only for a moment. Late and repeated states make no wait shorter.
func (t *Tracker) Saw(p Pod, node objects.NodeSeen, now time.Time) Sight {
	s := t.Sights[p.UID]
	if !p.Held || !p.Terminating {
		return s
	}
	if p.GraceZero && s.GraceZeroSince.IsZero() {
		s.GraceZeroSince, s.NodeAway = now, node != objects.NodeReady
	}
	switch {
	case !p.Finished():
		// Under an older kubelet, a pod that another program failed can look finished before it is.
		s.FinishedSince, s.FinishedWithGrace = time.Time{}, false
	case s.FinishedSince.IsZero():
		s.FinishedSince, s.FinishedWithGrace = now, !p.GraceZero
	default:
		s.FinishedWithGrace = s.FinishedWithGrace || !p.GraceZero
	}
	if !p.Unstarted {
		delete(t.Unread, p.UID) // the watch may have missed the start
	}
	if s.Unread = t.Unread[p.UID]; !p.Refused {
		s.RefusedSince, s.Heartbeat = time.Time{}, 0
	} else if s.RefusedSince.IsZero() {
		s.RefusedSince = now
	}
	t.Sights[p.UID] = s
	return s
}

// sawNode records the result of a live read of the node of a refused pod, which followed a read of the pod.
func (t *Tracker) sawNode(pod types.UID, n objects.Node) Sight {
	s := t.Sights[pod]
	if s.Heartbeat == 0 {
		s.Heartbeat = n.Heartbeat
	}
	t.Sights[pod] = s
	return s
}

// sawLease records the result of a live read of the Lease of the pod's node.
func (t *Tracker) sawLease(pod types.UID, l objects.Lease, now time.Time) Sight {
	s := t.Sights[pod]
	if s.LeaseSince.IsZero() || s.LeaseVersion != l.ResourceVersion {
		s.LeaseVersion, s.LeaseSince = l.ResourceVersion, now
	}
	t.Sights[pod] = s
	return s
}

// forced records that this process deletes the pod without grace.
func (t *Tracker) forced(pod types.UID) Sight {
	s := t.Sights[pod]
	s.Forced = true
	t.Sights[pod] = s
	return s
}

// Forget drops the records of a pod that is gone or no longer held.
func (t *Tracker) Forget(pod types.UID) {
	delete(t.Sights, pod)
	delete(t.Unread, pod)
}
