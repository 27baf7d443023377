package singlenode

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/podsafety"
)

// Tracker is what one process remembers of pods besides its watch cache. A process that starts without it waits again
// where it would have waited, and repeats a write at most. It is not safe for concurrent use.
type Tracker struct {
	// Ended is since when the process has seen that pods have completed.
	Ended map[types.UID]time.Time
	// Ungated are the pods whose gate the process has removed, and which the watch has not shown without it yet. Nothing
	// can add the gate again.
	Ungated map[types.UID]bool
	// Storages has the nodes that had a fence of volumes.
	Storages podsafety.Storages
}

// NewTracker returns a Tracker without records.
func NewTracker() *Tracker {
	return &Tracker{Ended: map[types.UID]time.Time{}, Ungated: map[types.UID]bool{}, Storages: podsafety.Storages{}}
}

// Saw records a state of a pod, and returns since when it has been seen completed, the zero time if it has not.
func (t *Tracker) Saw(p Pod, now time.Time) time.Time {
	if !p.Completed() {
		return time.Time{}
	}
	since, known := t.Ended[p.UID]
	if !known {
		since = now
		t.Ended[p.UID] = since
	}
	return since
}

// RemovedGate records that the process has removed the gate of a pod.
func (t *Tracker) RemovedGate(pod types.UID) { t.Ungated[pod] = true }

// ShowedNoGate records that the watch shows a pod without its gate.
func (t *Tracker) ShowedNoGate(pod types.UID) { delete(t.Ungated, pod) }

// Expected returns a pod that the watch shows as it is after the writes of the process.
func (t *Tracker) Expected(p Pod) Pod {
	p.Gated = p.Gated && !t.Ungated[p.UID]
	return p
}

// Forget ends what is known of a pod that is gone.
func (t *Tracker) Forget(pod types.UID) {
	delete(t.Ended, pod)
	delete(t.Ungated, pod)
}
