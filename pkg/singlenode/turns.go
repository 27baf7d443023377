package singlenode

import (
	"cmp"
	"slices"
	"time"

	"github.com/csi-reclaimer/csi-reclaimer/internal/engine/singlenode"
)

// waiting is a gated pod with a claim.
type waiting struct {
	key     string
	created int64
}

func (w waiting) compare(other waiting) int {
	return cmp.Or(cmp.Compare(w.created, other.created), cmp.Compare(w.key, other.key))
}

// turnFor is how long the oldest pod that can take a free lock has it to itself.
const turnFor = time.Second

// wakeWaiting enqueues the gated pods that name a claim, or only the oldest that can take its lock, while that pod has
// its turn.
func (o *observer) wakeWaiting(claim string) {
	keys := o.waiting(claim)
	if o.turn(claim) > 0 {
		if i := slices.IndexFunc(keys, o.takesLock); i >= 0 {
			keys = keys[i : i+1]
		}
	}
	for _, key := range keys {
		o.wake.pod(key)
	}
}

// takesLock reports whether the next write of a pod is to take a lock.
func (o *observer) takesLock(key string) bool {
	f, _ := o.observe(key) // without facts, no lock is taken
	return singlenode.TakesLock(f, o.clock.Now())
}

// turn returns the rest of the time for which the oldest pod has the free lock of a claim to itself, not positive if no
// pod has. If all pods tried at once, the API server would refuse all but one of them, for each holder anew.
func (o *observer) turn(claim string) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.freed[claim].Add(turnFor).Sub(o.clock.Now())
}

// endTurn enqueues all pods that wait for a claim once the time of the oldest has passed, and returns the rest of it.
func (o *observer) endTurn(claim string) (left time.Duration) {
	if left = o.turn(claim); left > 0 {
		return left
	}
	o.mu.Lock()
	_, found := o.freed[claim]
	delete(o.freed, claim)
	o.mu.Unlock()
	if found {
		o.wakeWaiting(claim)
	}
	return 0
}

// beginTurn records that the lock of a claim is free, and endTurn or noTurn follows.
func (o *observer) beginTurn(claim string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.gated[claim]) > 1 {
		o.freed[claim] = o.clock.Now()
	}
}

func (o *observer) noTurn(claim string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.freed, claim)
}
