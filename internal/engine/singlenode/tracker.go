package singlenode

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/session"
	"github.com/csi-reclaimer/csi-reclaimer/internal/objects"
)

// Tracker is the memory of one process about pods, beyond its watch cache. A process that starts without it waits again
// and, at worst, repeats a write. It is not safe for concurrent use.
type Tracker struct {
	// Ended has, by UID, the time when the process first saw a pod completed, and its node Ready again since.
	Ended map[types.UID]time.Time
	// Ungated are the pods whose gate the process has removed while the watch still shows it. A gate cannot be added
	// again.
	Ungated map[types.UID]bool
	// Ends has, by UID, the time when the watch showed the end of a pod that had a lock, until it shows another version of
	// a claim with that lock.
	Ends map[types.UID]time.Time
	// Storages has the nodes, and whether they can unmount volumes.
	Storages podsafety.Storages
}

// NewTracker returns an empty Tracker.
func NewTracker() *Tracker {
	return &Tracker{Ended: map[types.UID]time.Time{}, Ungated: map[types.UID]bool{}, Ends: map[types.UID]time.Time{},
		Storages: podsafety.Storages{}}
}

// Saw records a state of a pod and of its node, and returns since when the pod is seen completed, the zero time if it
// has not completed. A node that is not Ready unmounts nothing, so the time begins anew after that.
func (t *Tracker) Saw(p Pod, node objects.NodeSeen, now time.Time) time.Time {
	switch {
	case !node.Ready():
		delete(t.Ended, p.UID)
		return time.Time{}
	case !p.Completed():
		return time.Time{}
	}
	since, known := t.Ended[p.UID]
	if !known {
		since = now
		t.Ended[p.UID] = since
	}
	return since
}

const (
	// PruneEvery is the interval of Prune.
	PruneEvery = time.Hour
	// keepFor is the time after a grace period for which Prune keeps a record.
	keepFor = 24 * time.Hour
)

// Prune drops old records of ends, which outlive their pod if a live read shows it after its deletion. A completed pod
// that is still there is recorded anew, and waits again.
func (t *Tracker) Prune(rules Rules, now time.Time) {
	old := func(_ types.UID, since time.Time) bool { return now.Sub(since) > rules.unmountGrace()+keepFor }
	maps.DeleteFunc(t.Ended, old)
	maps.DeleteFunc(t.Ends, old)
}

// RemovedGate records that the process has removed the gate of a pod.
func (t *Tracker) RemovedGate(pod types.UID) { t.Ungated[pod] = true }

// ShowedNoGate records that the watch shows a pod without its gate.
func (t *Tracker) ShowedNoGate(pod types.UID) { delete(t.Ungated, pod) }

// Expected applies the process's own writes to a pod from the watch.
func (t *Tracker) Expected(p Pod) Pod {
	p.Gated = p.Gated && !t.Ungated[p.UID]
	return p
}

// SawEnd records that the watch has shown the end of a pod that had a lock.
func (t *Tracker) SawEnd(pod types.UID, now time.Time) { t.Ends[pod] = now }

// ShowedLock records that the watch shows another version of a claim that this pod had locked.
func (t *Tracker) ShowedLock(pod types.UID) { delete(t.Ends, pod) }

// Gone reports that a pod is known to be gone. No pod gets the UID of an earlier one, so this needs no live read. It
// counts for as long as one does, because a restored etcd can have the pod again.
func (t *Tracker) Gone(pod types.UID, now time.Time) bool {
	end, seen := t.Ends[pod]
	return seen && now.Sub(end) <= session.LiveFor
}

// Forget removes the other records of a pod that is gone.
func (t *Tracker) Forget(pod types.UID) {
	delete(t.Ended, pod)
	delete(t.Ungated, pod)
}
