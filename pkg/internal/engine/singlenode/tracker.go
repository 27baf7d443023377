package singlenode

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Tracker is since when one process has seen that pods have completed. A process that starts without it waits again. It
// is not safe for concurrent use.
type Tracker struct {
	Ended map[types.UID]time.Time
}

// NewTracker returns a Tracker without records.
func NewTracker() *Tracker { return &Tracker{Ended: map[types.UID]time.Time{}} }

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

// Forget ends what is known of a pod that is gone.
func (t *Tracker) Forget(pod types.UID) { delete(t.Ended, pod) }
