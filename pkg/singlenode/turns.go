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
	if o.turn(claim) > 0 {
		if key := o.oldest(claim); key != "" {
			o.wake.pod(key)
			return
		}
	}
	for _, key := range o.waiting(claim) {
		o.wake.pod(key)
	}
}

// waitsForTurn reports whether a pod would take a lock of which an older pod has its turn. Pods may be in the queue
// since an earlier change, such as the one that gave the lock to its last holder, and would all try at once. The end
// of the turn wakes them again.
func (o *observer) waitsForTurn(key string) bool {
	p, found := o.pods.Get(key)
	return found && slices.ContainsFunc(p.claims, func(name string) bool {
		claim := keyOf(p.namespace, name)
		return o.turn(claim) > 0 && o.takesLock(key) && o.oldest(claim) != key
	})
}

// oldest returns the oldest pod that can take the lock of a claim, empty if none can.
func (o *observer) oldest(claim string) string {
	for i := 0; ; i++ {
		key, found := o.waitingAt(claim, i)
		if !found || o.takesLock(key) {
			return key
		}
	}
}

// waitingAt returns one of the keys that waiting returns, since there may be thousands.
func (o *observer) waitingAt(claim string, i int) (key string, found bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i >= len(o.gated[claim]) {
		return "", false
	}
	return o.gated[claim][i].key, true
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
