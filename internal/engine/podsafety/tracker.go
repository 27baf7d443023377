package podsafety

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Tracker is since when one process has seen what of the pods that are terminating, and of the fences of their nodes. A
// process that starts without it waits again, and no shorter than another. It is not safe for concurrent use.
type Tracker struct {
	Sights map[types.UID]Sight
	// Storages has the nodes that had a fence of volumes.
	Storages Storages
}

// NewTracker returns a Tracker without records.
func NewTracker() *Tracker { return &Tracker{Sights: map[types.UID]Sight{}, Storages: Storages{}} }

// Saw records a state of a pod, from an event of the watch or a live read, and returns the Sight of the pod. node is
// what the watch shows of its node. Every event is to be recorded: the state in which a pod has finished and still has
// grace lasts for a moment only. States can come late or twice, which makes waits no shorter.
func (t *Tracker) Saw(p Pod, node NodeSeen, now time.Time) Sight {
	s := t.Sights[p.UID]
	if !p.Held || !p.Terminating {
		return s
	}
	if p.GraceZero && s.GraceZeroSince.IsZero() {
		s.GraceZeroSince, s.NodeAway = now, node != NodeReady
	}
	switch {
	case !p.Finished():
		// Of an older kubelet, the end of a pod that others have failed can be read before it is one.
		s.FinishedSince, s.FinishedWithGrace = time.Time{}, false
	case s.FinishedSince.IsZero():
		s.FinishedSince, s.FinishedWithGrace = now, !p.GraceZero
	default:
		s.FinishedWithGrace = s.FinishedWithGrace || !p.GraceZero
	}
	t.Sights[p.UID] = s
	return s
}

// sawLease records what a live read of the Lease of the pod's node has found.
func (t *Tracker) sawLease(pod types.UID, l LeaseFacts, now time.Time) Sight {
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

// Forget ends what is known of a pod that is gone, or no longer held.
func (t *Tracker) Forget(pod types.UID) { delete(t.Sights, pod) }
